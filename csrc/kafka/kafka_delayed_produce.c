/* kafka_delayed_produce.c -- responses to Produce, held until the disk has their records.
 *
 * The response to a produce with acks=all is finished at once and held until its WAL sequence is durable. Responses
 * leave in the order of their requests: one that needs no disk waits behind one that does.
 */
#include "kafka/kafka.h"

#include <stdlib.h>
#include <string.h>

int om_kafka_delayed_produce_is_full(const om_conn *conn) {
    const om_kafka_conn *kafka = om_kafka_of(conn);
    return kafka->delayed_count == OM_KAFKA_DELAYED_MAX || kafka->held_len - kafka->held_at >= OM_KAFKA_DELAYED_BYTES;
}

static int need_slot(om_kafka_conn *kafka) {
    if (kafka->delayed_count < kafka->delayed_cap)
        return OM_OK;
    uint32_t cap = kafka->delayed_cap ? kafka->delayed_cap * 2 : 8;
    om_kafka_delayed_produce *delayed = malloc(cap * sizeof *delayed);
    if (!delayed)
        return OM_E_NO_MEMORY;
    for (uint32_t i = 0; i < kafka->delayed_count; i++)
        delayed[i] = kafka->delayed[(kafka->delayed_head + i) & (kafka->delayed_cap - 1)];
    free(kafka->delayed);
    kafka->delayed = delayed;
    kafka->delayed_cap = cap;
    kafka->delayed_head = 0;
    return OM_OK;
}

static int need_held(om_kafka_conn *kafka, size_t len) {
    if (kafka->held_at == kafka->held_len)
        kafka->held_at = kafka->held_len = 0;
    if (len <= kafka->held_cap - kafka->held_len)
        return OM_OK;
    size_t kept = kafka->held_len - kafka->held_at, cap = kafka->held_cap ? kafka->held_cap : 1024;
    while (cap < kept + len)
        cap *= 2;
    uint8_t *held = malloc(cap);
    if (!held)
        return OM_E_NO_MEMORY;
    if (kept)
        memcpy(held, kafka->held + kafka->held_at, kept);
    free(kafka->held);
    kafka->held = held;
    kafka->held_cap = (uint32_t)cap;
    kafka->held_at = 0;
    kafka->held_len = (uint32_t)kept;
    return OM_OK;
}

uint8_t *om_kafka_delayed_produce_put(om_conn *conn, uint64_t seq, size_t len) {
    om_kafka_conn *kafka = om_kafka_of(conn);
    om_engine *engine = conn->engine;
    if (!kafka->delayed_count && seq <= om_wal_durable_seq(engine->store->wal)) {
        uint8_t *at = om_output_put(&conn->out, len);
        if (at)
            om_conn_dirty(conn);
        return at;
    }
    if (need_slot(kafka) != OM_OK || need_held(kafka, len) != OM_OK)
        return NULL;
    kafka->delayed[(kafka->delayed_head + kafka->delayed_count++) & (kafka->delayed_cap - 1)] =
        (om_kafka_delayed_produce){seq, (uint32_t)len};
    if (!kafka->on_delayed) {
        kafka->on_delayed = 1;
        kafka->next_delayed = engine->kafka->delayed;
        engine->kafka->delayed = conn;
    }
    uint8_t *at = kafka->held + kafka->held_len;
    kafka->held_len += (uint32_t)len;
    return at;
}

static void send_durable(om_conn *conn, uint64_t durable) {
    om_kafka_conn *kafka = om_kafka_of(conn);
    uint32_t len = 0;
    while (kafka->delayed_count && kafka->delayed[kafka->delayed_head].seq <= durable) {
        len += kafka->delayed[kafka->delayed_head].len;
        kafka->delayed_head = (kafka->delayed_head + 1) & (kafka->delayed_cap - 1);
        kafka->delayed_count--;
    }
    om_conn_put_bytes(conn, kafka->held + kafka->held_at, len);
    kafka->held_at += len;
    if (len && conn->stalled)
        conn->engine->retry = 1;
    /* Batches that a fence refused were never written. No answer says that more clearly than the end of
     * the connection: the producer sends them again, and gets an error then. */
    if (kafka->delayed_count && conn->engine->store->fence_handled)
        om_conn_break(conn, "records not written: WAL fenced");
}

void om_kafka_delayed_produce_send(om_engine *engine) {
    uint64_t durable = om_wal_durable_seq(engine->store->wal);
    if (durable == engine->kafka->sent_to && !engine->store->fence_handled)
        return; /* with many producers, most ticks bring no news of the disk */
    engine->kafka->sent_to = durable;
    om_conn **link = &engine->kafka->delayed;
    while (*link) {
        om_conn *conn = *link;
        om_kafka_conn *kafka = om_kafka_of(conn);
        if (!conn->broken)
            send_durable(conn, durable);
        if (kafka->delayed_count && !conn->broken) {
            link = &kafka->next_delayed;
            continue;
        }
        kafka->on_delayed = 0;
        *link = kafka->next_delayed;
    }
}
