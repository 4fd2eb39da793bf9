/* queue_api.c -- Python's calls about queues. */
#include "engine/engine.h"
#include "queue/consumer.h"
#include "queue/queue_length.h"
#include "queue/queues.h"
#include "store/log_count.h"
#include "store/log_cursor.h"

#include <string.h>

int om_queue_add(om_engine *engine, uint64_t id, uint32_t vhost, const uint8_t *name, size_t len, om_log **logs,
                 int32_t log_count, const om_queue_options *options) {
    if (len > 255 || log_count < 1)
        return OM_E_INVALID;
    om_engine_enter(engine);
    int result = om_queue_new(engine, id, vhost, name, len, logs, log_count, options);
    om_engine_leave(engine);
    return result;
}

int om_queue_set(om_engine *engine, uint64_t id, const om_queue_options *options) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, id);
    int result = queue ? om_queue_set_options(queue, options) : OM_E_GONE;
    if (result == OM_OK)
        om_queue_activate(queue);
    om_engine_leave(engine);
    return result;
}

int om_queue_remove(om_engine *engine, uint64_t id) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, id);
    if (queue) {
        queue->removed = 1;
        om_deadline_clear(queue);
        while (queue->consumer_count)
            om_consumer_drop(queue->consumers[0]);
        om_queue_drop(queue);
    }
    om_engine_leave(engine);
    return queue ? OM_OK : OM_E_GONE;
}

int64_t om_queue_purge(om_engine *engine, uint64_t id, uint64_t *seq) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, id);
    int64_t purged = queue ? 0 : OM_E_GONE;
    for (int32_t i = 0; queue && i < queue->lane_count && purged == OM_OK; i++)
        purged = om_log_admit_settle(queue->lanes[i].log); /* all of it or nothing */
    for (int32_t i = 0; queue && i < queue->lane_count && purged >= 0; i++) {
        int64_t result = om_log_purge_ready(queue->lanes[i].log);
        purged = result < 0 ? result : purged + result;
    }
    if (queue && purged >= 0 && (queue->options.flags & OM_QUEUE_AT_LEAST_ONCE))
        purged += om_dead_letter_purge(queue);
    if (queue)
        om_queue_activate(queue);
    *seq = om_wal_last_seq(engine->store->wal);
    om_engine_leave(engine);
    return purged;
}

int om_queue_stat_get(om_engine *engine, uint64_t id, om_queue_stat *out) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, id);
    if (queue) {
        *out = (om_queue_stat){
            .ready = om_queue_ready(queue),
            .ready_bytes = om_queue_ready_bytes(queue),
            .consumers = queue->consumer_count,
            .published = queue->published,
            .delivered = queue->delivered,
            .acked = queue->acked,
            .redelivered = queue->redelivered,
            .expired = queue->expired,
            .dead_lettered = queue->dead_lettered,
            .dropped = queue->dropped,
            .first_offset = queue->lanes[0].log->start_offset,
            .next_offset = queue->lanes[0].log->next_offset,
            .head_timestamp = -1,
            .idle_ms = queue->consumer_count ? 0 : engine->now_ms - queue->touched_ms,
        };
        for (int32_t i = 0; i < queue->lane_count; i++) {
            const om_log *log = queue->lanes[i].log;
            const om_cursor *cursor = log->cursor;
            out->unacked += cursor && cursor->unacked_count > log->lost ? cursor->unacked_count - log->lost : 0;
            out->unacked_bytes += cursor ? cursor->unacked_bytes : 0;
        }
        if (om_queue_is_stream(queue))
            out->ready = om_log_record_count(queue->lanes[0].log);
        for (uint32_t i = 0; i < queue->consumer_count; i++)
            out->active_consumers += om_consumer_can_take(queue->consumers[i]);
    }
    om_engine_leave(engine);
    return queue ? OM_OK : OM_E_GONE;
}

void om_queue_touch(om_engine *engine, uint64_t id) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, id);
    if (queue)
        queue->touched_ms = engine->now_ms;
    om_engine_leave(engine);
}

int64_t om_queue_consumers(om_engine *engine, uint64_t id, om_consumer_info *out, int64_t cap) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, id);
    int64_t count = queue ? (int64_t)queue->consumer_count : OM_E_GONE;
    for (int64_t i = 0; i < count && i < cap; i++) {
        const om_consumer *consumer = queue->consumers[i];
        out[i] = (om_consumer_info){
            .conn = consumer->subscriber->conn->id,
            .channel = consumer->subscriber->number,
            .flags = consumer->flags,
            .prefetch = consumer->prefetch,
            .priority = consumer->priority,
            .unacked = consumer->unacked,
            .active = !queue->active || queue->active == consumer,
            .tag_len = consumer->tag_len,
        };
        memcpy(out[i].tag, consumer->tag, consumer->tag_len);
    }
    om_engine_leave(engine);
    return count;
}

int om_batch_decompressed(om_engine *engine, uint64_t log, int64_t base_offset, const uint8_t *records, int64_t len) {
    om_engine_enter(engine);
    int result = om_decompressed_put(engine, log, base_offset, records, len);
    if (result != OM_E_GONE) {
        om_queues_wake(engine);
        engine->retry = 1; /* a basic.get may wait for it */
    }
    om_engine_leave(engine);
    return result;
}
