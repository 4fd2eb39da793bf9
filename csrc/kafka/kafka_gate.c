/* kafka_gate.c -- responses to produces, held until the disk has what they speak of.
 *
 * A produce with acks=all is answered by a finished response behind a gate: its WAL sequence. Gates
 * open in order, since responses leave in the order of their requests; what needed no disk waits
 * behind what does.
 */
#include "kafka/kafka.h"

#include <stdlib.h>
#include <string.h>

int om_kafka_delayed_produce_is_full(const om_conn *conn) {
    const om_kafka_conn *kafka = om_kafka_of(conn);
    return kafka->gate_count == OM_KAFKA_GATES || kafka->held_len - kafka->held_at >= OM_KAFKA_HELD;
}

static int need_gate(om_kafka_conn *kafka) {
    if (kafka->gate_count < kafka->gate_cap)
        return OM_OK;
    uint32_t cap = kafka->gate_cap ? kafka->gate_cap * 2 : 8;
    om_kafka_delayed_produce *gates = malloc(cap * sizeof *gates);
    if (!gates)
        return OM_E_NO_MEMORY;
    for (uint32_t i = 0; i < kafka->gate_count; i++)
        gates[i] = kafka->gates[(kafka->gate_head + i) & (kafka->gate_cap - 1)];
    free(kafka->gates);
    kafka->gates = gates;
    kafka->gate_cap = cap;
    kafka->gate_head = 0;
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
    if (!kafka->gate_count && seq <= om_wal_durable_seq(engine->store->wal)) {
        uint8_t *at = om_output_put(&conn->out, len);
        if (at)
            om_conn_dirty(conn);
        return at;
    }
    if (need_gate(kafka) != OM_OK || need_held(kafka, len) != OM_OK)
        return NULL;
    kafka->gates[(kafka->gate_head + kafka->gate_count++) & (kafka->gate_cap - 1)] =
        (om_kafka_delayed_produce){seq, (uint32_t)len};
    if (!kafka->on_gated) {
        kafka->on_gated = 1;
        kafka->next_gated = engine->kafka->gated;
        engine->kafka->gated = conn;
    }
    uint8_t *at = kafka->held + kafka->held_len;
    kafka->held_len += (uint32_t)len;
    return at;
}

static void open_gates(om_conn *conn, uint64_t durable) {
    om_kafka_conn *kafka = om_kafka_of(conn);
    uint32_t len = 0;
    while (kafka->gate_count && kafka->gates[kafka->gate_head].seq <= durable) {
        len += kafka->gates[kafka->gate_head].len;
        kafka->gate_head = (kafka->gate_head + 1) & (kafka->gate_cap - 1);
        kafka->gate_count--;
    }
    om_conn_put_bytes(conn, kafka->held + kafka->held_at, len);
    kafka->held_at += len;
    if (len && conn->stalled)
        conn->engine->retry = 1;
    /* What a fence refused was never written. There is no answer for that which says it more clearly
     * than the end of the connection: the producer sends it again, and is told by then. */
    if (kafka->gate_count && conn->engine->store->fence_handled)
        om_conn_break(conn, "records not written: WAL fenced");
}

void om_kafka_delayed_produce_open(om_engine *engine) {
    uint64_t durable = om_wal_durable_seq(engine->store->wal);
    if (durable == engine->kafka->opened_to && !engine->store->fence_handled)
        return; /* with a crowd of producers, most ticks bring no news of the disk */
    engine->kafka->opened_to = durable;
    om_conn **link = &engine->kafka->gated;
    while (*link) {
        om_conn *conn = *link;
        om_kafka_conn *kafka = om_kafka_of(conn);
        if (!conn->broken)
            open_gates(conn, durable);
        if (kafka->gate_count && !conn->broken) {
            link = &kafka->next_gated;
            continue;
        }
        kafka->on_gated = 0;
        *link = kafka->next_gated;
    }
}
