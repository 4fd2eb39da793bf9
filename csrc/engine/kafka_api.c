/* kafka_api.c -- Python's calls about Kafka connections: between two ticks. */
#include "engine/engine.h"
#include "kafka/kafka.h"

#include <stdlib.h>
#include <string.h>

static om_conn *find(om_engine *engine, uint64_t id) {
    om_conn *conn = om_conn_find(engine, id);
    return conn && conn->ops == &om_kafka_protocol && conn->state < OM_CONN_FLUSHING ? conn : NULL;
}

int om_kafka_trust(om_engine *engine, uint64_t id, int trusted) {
    om_engine_enter(engine);
    om_conn *conn = find(engine, id);
    if (conn && trusted)
        om_unauth_remove(conn);
    if (conn && om_kafka_of(conn)->wait == OM_KAFKA_ASKED_WHO)
        om_kafka_go_on(conn);
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_kafka_open(om_engine *engine, uint64_t id, const char *user) {
    size_t len = strlen(user);
    if (len > 255)
        return OM_E_INVALID;
    om_engine_enter(engine);
    om_conn *conn = find(engine, id);
    if (conn) {
        conn->state = OM_CONN_OPEN;
        om_unauth_remove(conn);
        conn->user_len = (uint8_t)len;
        memcpy(conn->user, user, len + 1);
        conn->last_in = engine->now_ms;
        if (om_kafka_of(conn)->wait == OM_KAFKA_ASKED_WHO)
            om_kafka_go_on(conn);
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_kafka_answer(om_engine *engine, uint64_t id, int64_t slot, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = find(engine, id);
    om_kafka_conn *kafka = conn ? om_kafka_of(conn) : NULL;
    int waits = kafka && kafka->slot == slot && (kafka->wait == OM_KAFKA_ASKED || kafka->wait == OM_KAFKA_ASKED_FIRST);
    if (waits) {
        om_conn_put_bytes(conn, data, len);
        kafka->drop = kafka->wait == OM_KAFKA_ASKED_FIRST;
        om_kafka_go_on(conn);
    }
    om_engine_leave(engine);
    return waits ? OM_OK : OM_E_GONE;
}

/* ---- rights ---- */

int om_kafka_permit(om_engine *engine, uint64_t id, const uint8_t *name, size_t len, uint32_t rights) {
    om_engine_enter(engine);
    om_conn *conn = find(engine, id);
    om_kafka_topic *topic = conn ? om_kafka_topic_named(engine, name, len) : NULL;
    int result = topic  ? om_kafka_rights_set(engine, &om_kafka_of(conn)->rights, topic, rights)
                 : conn ? OM_END
                        : OM_E_GONE;
    om_engine_leave(engine);
    return result;
}

int om_kafka_permit_producer(om_engine *engine, uint64_t id, const uint8_t *name, size_t len, int allowed) {
    uint8_t *copy = len <= INT16_MAX ? malloc(len + 1) : NULL;
    if (!copy)
        return OM_E_NO_MEMORY;
    if (len)
        memcpy(copy, name, len);
    om_engine_enter(engine);
    om_conn *conn = find(engine, id);
    if (conn) {
        om_kafka_conn *kafka = om_kafka_of(conn);
        free(kafka->producer);
        kafka->producer = copy;
        kafka->producer_len = (uint32_t)len;
        kafka->producer_allowed = allowed != 0;
        kafka->producer_permissions = engine->permissions;
    } else {
        free(copy);
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_kafka_retry(om_engine *engine, uint64_t id) {
    om_engine_enter(engine);
    om_conn *conn = find(engine, id);
    int wait = conn ? om_kafka_of(conn)->wait : OM_KAFKA_GOES_ON;
    int waits = wait == OM_KAFKA_ASKED_FIRST || wait == OM_KAFKA_ASKED_RIGHTS || wait == OM_KAFKA_ASKED_FETCH;
    if (waits)
        om_kafka_of(conn)->answered = wait != OM_KAFKA_ASKED_FIRST;
    if (wait == OM_KAFKA_ASKED_FETCH)
        om_kafka_fetch_serve(conn, 0);
    else if (waits)
        om_kafka_go_on(conn);
    om_engine_leave(engine);
    return waits ? OM_OK : OM_E_GONE;
}

int om_kafka_throttle(om_engine *engine, uint64_t id, uint32_t ms) {
    om_engine_enter(engine);
    om_conn *conn = find(engine, id);
    if (conn)
        om_kafka_of(conn)->throttle_ms = ms;
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_kafka_batches_repacked(om_engine *engine, uint64_t id, const om_kafka_repacked *batches, uint32_t count) {
    om_kafka_repacked_batch *made;
    uint64_t bytes;
    int result = om_kafka_repack_read(batches, count, &made, &bytes);
    if (result != OM_OK)
        return result;
    om_engine_enter(engine);
    om_conn *conn = find(engine, id);
    int waits = conn && om_kafka_of(conn)->wait == OM_KAFKA_ASKED_BATCHES;
    if (waits)
        om_kafka_repack_give(conn, made, count, bytes);
    om_engine_leave(engine);
    if (!waits)
        om_kafka_repack_free(made, count);
    return waits ? OM_OK : OM_E_GONE;
}

/* ---- topics ---- */

int om_kafka_topic_set(om_engine *engine, const uint8_t *name, size_t len, const uint8_t *id,
                       const om_kafka_partition *partitions, int32_t count, const om_kafka_topic_options *options) {
    om_engine_enter(engine);
    int result = om_kafka_topic_put(engine, name, len, id, partitions, count, options);
    om_engine_leave(engine);
    return result;
}

int om_kafka_topic_remove(om_engine *engine, const uint8_t *name, size_t len) {
    om_engine_enter(engine);
    int result = om_kafka_topic_drop(engine, name, len);
    om_engine_leave(engine);
    return result;
}
