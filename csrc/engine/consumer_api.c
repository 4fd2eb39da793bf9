/* consumer_api.c -- Python's calls about consuming: consumers, basic.get, direct reply-to. */
#include "amqp/amqp_conn.h"
#include "amqp/direct_reply_to.h"
#include "amqp/get.h"
#include "engine/engine.h"

#include <stdlib.h>

static int allow_get(om_amqp_conn *amqp, const om_queue *queue) {
    uint64_t permissions = amqp->conn.engine->permissions;
    if (amqp->gets_permissions != permissions)
        amqp->gets_count = 0;
    amqp->gets_permissions = permissions;
    for (uint32_t i = 0; i < amqp->gets_count; i++)
        if (amqp->gets[i] == queue->id)
            return OM_OK;
    if (amqp->gets_count == OM_ALLOWED_MAX)
        amqp->gets_count = 0;
    uint64_t *gets = realloc(amqp->gets, (amqp->gets_count + 1) * sizeof *gets);
    if (!gets)
        return OM_E_NO_MEMORY;
    amqp->gets = gets;
    amqp->gets[amqp->gets_count++] = queue->id;
    return OM_OK;
}

int om_basic_get(om_engine *engine, uint64_t id, int number, uint64_t queue_id, int no_ack) {
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    om_channel *channel = amqp ? om_channel_find(&amqp->conn, number) : NULL;
    om_queue *queue = om_queue_find(engine, queue_id);
    int result = !channel || !queue ? OM_E_GONE : om_queue_is_stream(queue) ? OM_E_INVALID : OM_OK;
    if (result == OM_OK) {
        allow_get(amqp, queue); /* without memory Python is asked again */
        amqp->conn.paused = 0;
        om_get_later(channel, queue, no_ack);
        om_conn_continue(&amqp->conn);
    }
    om_engine_leave(engine);
    return result;
}

/* A stream read from a time on: looked up without the lock, as the disk may be asked. */
static void find_start(om_engine *engine, om_consume *consume) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, consume->queue);
    om_log *log = queue ? queue->lanes[0].log : NULL;
    if (log)
        om_log_ref(log);
    om_engine_leave(engine);
    int64_t offset = INT64_MAX, timestamp;
    if (log) {
        int result = om_log_find_time(log, consume->start_value, &offset, &timestamp);
        consume->start = result == OM_OK ? OM_STREAM_OFFSET : OM_STREAM_NEXT;
        om_log_release(log);
    }
    consume->start_value = offset;
}

int om_consumer_add(om_engine *engine, uint64_t id, int number, const om_consume *wanted, const uint8_t *ok,
                    size_t len) {
    om_consume plain = *wanted;
    const om_consume *consume = &plain;
    if (plain.start == OM_STREAM_TIME)
        find_start(engine, &plain);
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    om_channel *channel = amqp ? om_channel_find(&amqp->conn, number) : NULL;
    int result = channel ? om_consumer_start(&channel->subscriber, consume, ok, len) : OM_E_GONE;
    om_engine_leave(engine);
    return result;
}

int om_consumer_add_reply_to(om_engine *engine, uint64_t id, int number, const uint8_t *tag, size_t tag_len,
                             const uint8_t *ok, size_t len) {
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    om_channel *channel = amqp ? om_channel_find(&amqp->conn, number) : NULL;
    int result = channel ? om_reply_start(channel, (om_span){tag, (int32_t)tag_len}, ok, len) : OM_E_GONE;
    om_engine_leave(engine);
    return result;
}

int om_consumer_cancel(om_engine *engine, uint64_t id, int number, const uint8_t *tag, size_t tag_len,
                       const uint8_t *ok, size_t len) {
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    om_channel *channel = amqp ? om_channel_find(&amqp->conn, number) : NULL;
    om_consumer *consumer = channel ? om_consumer_find(&channel->subscriber, (om_span){tag, (int32_t)tag_len}) : NULL;
    if (consumer) {
        om_channel_drop_consumer(channel, consumer);
        om_conn_put_bytes(&amqp->conn, ok, len);
    }
    om_engine_leave(engine);
    return consumer ? OM_OK : OM_E_GONE;
}

int om_reply_to_exists(om_engine *engine, const uint8_t *address, size_t len) {
    om_span key = {address, (int32_t)len};
    if (len > 255 || !om_reply_is_address(key))
        return 0;
    om_engine_enter(engine);
    int found = om_reply_find(engine, key) != NULL;
    om_engine_leave(engine);
    return found;
}
