/* kafka_produce.c -- Produce: a batch is checked where it lies, copied once, appended as it is.
 *
 * The request is walked twice. The first walk checks that it can be read and that this connection may write there. It
 * changes nothing, so a question to Python only means that the same request comes again later. (Another question is
 * what a compressed batch holds: kafka_repack.c.) The second walk appends, partition by partition, and writes the
 * response. With acks=all the response is held until the last of its batches is durable (kafka_delayed_produce.c).
 *
 * Versions 0 to 2 are announced to clients, since librdkafka compresses only then; a request of such a version is
 * answered UNSUPPORTED_VERSION.
 */
#include "base/clock.h"
#include "format/kafka_wire.h"
#include "kafka/kafka.h"
#include "store/log_append.h"
#include "store/producer.h"

#include <stdlib.h>
#include <string.h>

#define FLEXIBLE_FROM 9
#define VERSION_MAX 11
#define TOPIC_LEAST 3 /* a name, a count, tags */
#define PARTITION_LEAST 6
#define ANSWER_HEAD 32
#define ANSWER_TOPIC 16      /* besides its name */
#define ANSWER_PARTITION 128 /* with the longest text below */
#define ANSWER_MAX (64u << 20)

typedef struct produce {
    om_engine *engine;
    om_conn *conn;
    int version;
    int acks;
    om_span transactional;
    om_wire topics; /* where they start */
    int32_t topic_count;
    size_t bound; /* of the response */
    int opens;    /* some of the topics don't take every batch as it is */
    int error;    /* for all of it */
    uint64_t seq; /* what must be durable before it is answered */
} produce;

/* ---- the first walk ---- */

static int may_write(const produce *p, const om_kafka_topic *topic) {
    int rights = om_kafka_rights_get(p->engine, &om_kafka_of(p->conn)->rights, topic);
    return rights < 0 ? -1 : (rights & OM_KAFKA_WRITE) != 0;
}

static int may_use_id(const produce *p) {
    const om_kafka_conn *kafka = om_kafka_of(p->conn);
    om_span id = p->transactional;
    if (id.len < 0)
        return 1;
    if (!kafka->producer || kafka->producer_permissions != p->engine->permissions ||
        kafka->producer_len != (uint32_t)id.len || memcmp(kafka->producer, id.data, (size_t)id.len) != 0)
        return -1;
    return kafka->producer_allowed;
}

/* Reads all of it. Names that are to be asked about are written to `unknown`, each behind its
 * length; it has room for the whole request. Returns their bytes; -1: it can't be read. */
static int64_t survey(produce *p, om_wire *wire, uint8_t *unknown) {
    uint8_t *at = unknown;
    p->bound = ANSWER_HEAD;
    if (p->version >= 3)
        p->transactional = om_wire_string(wire);
    p->acks = om_wire_i16(wire);
    om_wire_i32(wire); /* its patience: we never keep it waiting for other brokers */
    p->topic_count = om_wire_count(wire, TOPIC_LEAST);
    p->topics = *wire;
    for (int32_t i = 0; i < p->topic_count && !wire->bad; i++) {
        om_span name = om_wire_string(wire);
        int32_t count = om_wire_count(wire, PARTITION_LEAST);
        p->bound += ANSWER_TOPIC + (name.len > 0 ? (size_t)name.len : 0) + (size_t)count * ANSWER_PARTITION;
        for (int32_t j = 0; j < count && !wire->bad; j++) {
            om_wire_i32(wire);
            om_wire_bytes(wire);
            om_wire_skip_tags(wire);
        }
        om_wire_skip_tags(wire);
        if (wire->bad || name.len < 0 || name.len > INT16_MAX)
            return -1;
        const om_kafka_topic *topic = om_kafka_topic_named(p->engine, name.data, (size_t)name.len);
        p->opens |= topic && om_kafka_topic_opens(topic);
        if (!topic || may_write(p, topic) < 0)
            at = om_wire_put_string(at, 0, name);
    }
    om_wire_skip_tags(wire);
    return wire->bad || wire->at != wire->end ? -1 : at - unknown;
}

static void ask_rights(produce *p, const om_kafka_request *request, const uint8_t *names, size_t len) {
    om_conn *conn = p->conn;
    om_event event = {
        .kind = OM_EV_KAFKA_TOPICS,
        .protocol = conn->protocol,
        .conn = conn->id,
        .code = request->key,
        .method = (uint32_t)request->version,
        .key = {names, (int32_t)len},
        .header = p->transactional,
    };
    om_kafka_hold(conn, OM_KAFKA_ASKED_RIGHTS);
    om_event_push(conn->engine, &event);
}

/* ---- between the walks: batches that Python must open ---- */

/* Returns whether there are any: then the same request comes again, with what was made of them. (Or never: there
 * is no memory.) */
static int ask_repack(produce *p, const om_kafka_request *request) {
    om_wire wire = p->topics;
    uint8_t *room = om_kafka_reply_room(p->engine, request->len * 2); /* a batch is longer than its head there */
    uint8_t *at = room;
    uint32_t place = 0;
    for (int32_t i = 0; room && i < p->topic_count; i++) {
        om_span name = om_wire_string(&wire);
        int32_t count = om_wire_count(&wire, PARTITION_LEAST);
        const om_kafka_topic *topic = om_kafka_topic_named(p->engine, name.data, (size_t)name.len);
        int opens = topic && om_kafka_topic_opens(topic) && may_write(p, topic) > 0;
        for (int32_t j = 0; j < count; j++, place++) {
            om_wire_i32(&wire);
            om_kafka_batch batch = {.data = om_wire_bytes(&wire)};
            om_kafka_outcome out;
            om_wire_skip_tags(&wire);
            if (opens && !om_kafka_batch_check(&batch, topic, p->version, p->transactional.len >= 0, &out))
                at = om_kafka_repack_put(at, topic, place, &batch);
        }
        om_wire_skip_tags(&wire);
    }
    if (!room)
        om_conn_break(p->conn, "out of memory");
    else if (at != room)
        om_kafka_repack_ask(p->conn, room, (size_t)(at - room));
    return !room || at != room;
}

/* ---- a batch ---- */

/* Attributes and the largest time as they are to be; look-ups by time rest on that. */
static void put_attributes_and_time(uint8_t *batch, om_batch_info *info) {
    om_put_be16(batch + 21, (uint16_t)info->attributes);
    om_put_be64(batch + 35, (uint64_t)info->max_timestamp);
    info->crc = om_crc32c(0, batch + 21, (size_t)info->size - 21);
    om_put_be32(batch + 17, info->crc);
}

static int error_of(int result) {
    return result == OM_E_FULL        ? OM_KAFKA_E_REQUEST_TIMED_OUT
           : result == OM_E_DELETED   ? OM_KAFKA_E_UNKNOWN_TOPIC_OR_PARTITION
           : result == OM_E_NO_MEMORY ? OM_KAFKA_E_REQUEST_TIMED_OUT
                                      : OM_KAFKA_E_STORAGE_ERROR;
}

static void append(produce *p, om_kafka_topic *topic, om_queue *queue, om_log *log, om_kafka_batch *batch,
                   om_kafka_outcome *out) {
    om_batch_info *info = &batch->info;
    om_producer_verdict verdict = {0};
    int unlogged = p->acks != -1 || (topic->options.flags & OM_KAFKA_ASYNC) ? OM_APPEND_UNLOGGED : 0;
    int result = om_log_admit(log, OM_ANY_EPOCH);
    if (result == OM_E_FULL && !log->frozen && !p->engine->store->closing)
        result = OM_OK; /* there was room when the request was let in: it is taken whole */
    if (result == OM_OK && !unlogged && p->engine->store->fence_handled)
        result = OM_E_FENCED;
    if (result == OM_OK)
        result = om_producer_admit(log, info, &verdict);
    if (result == OM_DUPLICATE) { /* answered as it was the first time */
        out->offset = verdict.first_offset;
        if (!unlogged && verdict.seq > p->seq)
            p->seq = verdict.seq;
        return;
    }
    if (result == OM_E_REFUSED) {
        om_kafka_refuse(out, verdict.error, NULL);
        return;
    }
    /* The one copy: from the read buffer into what the log, the WAL and the readers share. */
    om_buffer *bytes = result != OM_OK ? NULL
                       : batch->bytes  ? batch->bytes
                                       : om_buffer_copy(batch->data.data, (uint32_t)batch->data.len);
    if (bytes && bytes == batch->bytes)
        om_buffer_ref(bytes);
    if (result == OM_OK && !bytes)
        result = OM_E_NO_MEMORY;
    if (topic->options.flags & OM_KAFKA_LOG_APPEND_TIME) {
        info->attributes |= OM_ATTR_LOG_APPEND_TIME;
        out->append_time = info->max_timestamp = p->engine->wall_ms;
    }
    int is_plain = !(info->attributes & OM_ATTR_CODEC_MASK), disowned = 0;
    if (result == OM_OK && is_plain && (batch->claims || batch->bytes))
        disowned = om_content_disown(bytes->data, bytes->len);
    if (result == OM_OK && (disowned || info->attributes != (int16_t)om_get_be16(bytes->data + 21) ||
                            info->max_timestamp != (int64_t)om_get_be64(bytes->data + 35)))
        put_attributes_and_time(bytes->data, info);
    if (result == OM_OK)
        result = om_log_append_bytes(log, bytes, info, unlogged);
    if (result != OM_OK) {
        om_kafka_refuse(out, error_of(result), NULL);
        return;
    }
    out->offset = info->base_offset;
    if (om_log_is_logged(log, unlogged) && log->last_logged_seq > p->seq)
        p->seq = log->last_logged_seq;
    queue->published += info->record_count;
    p->conn->published += (uint64_t)info->record_count;
    om_kafka_of(p->conn)->produced_bytes += (uint64_t)info->size;
    p->engine->stat.published += (uint64_t)info->record_count;
    om_queue_activate(queue);
}

static void write_partition(produce *p, om_kafka_topic *topic, int32_t partition, uint32_t place, om_span data,
                            om_kafka_outcome *out) {
    om_queue *queue;
    om_kafka_batch batch = {.data = data};
    om_log *log = topic ? om_kafka_topic_log(p->engine, topic, partition, &queue) : NULL;
    *out = (om_kafka_outcome){.error = p->error, .offset = -1, .append_time = -1, .log_start = -1, .text = {NULL, -1}};
    if (out->error)
        return;
    if (topic && may_write(p, topic) <= 0) {
        om_kafka_refuse(out, OM_KAFKA_E_TOPIC_AUTHORIZATION_FAILED, NULL);
        return;
    }
    if (!log) {
        om_kafka_refuse(out, OM_KAFKA_E_UNKNOWN_TOPIC_OR_PARTITION, NULL);
        return;
    }
    if (topic->options.flags & OM_KAFKA_INTERNAL) {
        om_kafka_refuse(out, OM_KAFKA_E_INVALID_TOPIC, "clients don't write to internal topics");
        return;
    }
    out->log_start = log->start_offset;
    if (om_kafka_batch_check(&batch, topic, p->version, p->transactional.len >= 0, out) ||
        (om_kafka_of(p->conn)->repacked && om_kafka_repack_take(p->conn, place, &batch, topic, out)) ||
        om_kafka_batch_check_times(&batch, topic, om_now_ms(), out))
        return;
    if (om_reject_publish_refuses(queue, 0, batch.info.size)) {
        om_kafka_refuse(out, OM_KAFKA_E_POLICY_VIOLATION, "the queue is full");
        return;
    }
    append(p, topic, queue, log, &batch, out);
}

/* ---- the second walk ---- */

static uint8_t *put_outcome(uint8_t *at, const produce *p, int32_t partition, const om_kafka_outcome *out) {
    int flexible = p->version >= FLEXIBLE_FROM;
    at = om_wire_put_i32(at, partition);
    at = om_wire_put_i16(at, (int16_t)out->error);
    at = om_wire_put_i64(at, out->offset);
    if (p->version >= 2)
        at = om_wire_put_i64(at, out->append_time);
    if (p->version >= 5)
        at = om_wire_put_i64(at, out->log_start);
    if (p->version >= 8) {
        at = om_wire_put_count(at, flexible, 0); /* record errors */
        at = om_wire_put_string(at, flexible, out->text);
    }
    return om_wire_put_tags(at, flexible);
}

static uint8_t *write_all(produce *p, uint8_t *at, int *failed) {
    om_wire wire = p->topics;
    int flexible = wire.flexible;
    uint32_t place = 0;
    at = om_wire_put_count(at, flexible, p->topic_count);
    for (int32_t i = 0; i < p->topic_count; i++) {
        om_span name = om_wire_string(&wire);
        int32_t count = om_wire_count(&wire, PARTITION_LEAST);
        om_kafka_topic *topic = om_kafka_topic_named(p->engine, name.data, (size_t)name.len);
        at = om_wire_put_string(at, flexible, name);
        at = om_wire_put_count(at, flexible, count);
        for (int32_t j = 0; j < count; j++) {
            om_kafka_outcome out;
            int32_t partition = om_wire_i32(&wire);
            om_span batch = om_wire_bytes(&wire);
            om_wire_skip_tags(&wire);
            write_partition(p, topic, partition, place++, batch, &out);
            *failed |= out.error;
            at = put_outcome(at, p, partition, &out);
        }
        om_wire_skip_tags(&wire);
        at = om_wire_put_tags(at, flexible);
    }
    return at;
}

static void answer(produce *p, const om_kafka_request *request, uint8_t *reply) {
    int flexible = p->version >= FLEXIBLE_FROM, failed = 0;
    uint8_t *at = om_wire_put_i32(reply + 4, request->correlation);
    at = om_wire_put_tags(at, flexible);
    at = write_all(p, at, &failed);
    if (p->version >= 1)
        at = om_wire_put_i32(at, (int32_t)om_kafka_take_throttle(p->conn));
    at = om_wire_put_tags(at, flexible);
    size_t len = (size_t)(at - reply);
    om_put_be32(reply, (uint32_t)(len - 4));
    if (p->acks == 0) {
        /* acks=0: there is no response, so closing the connection is the only way to refuse. */
        if (failed)
            om_conn_break(p->conn, "produce request with acks=0 failed");
        return;
    }
    uint8_t *room = om_kafka_delayed_produce_put(p->conn, p->seq, len);
    if (room)
        memcpy(room, reply, len);
    else
        om_conn_break(p->conn, "out of memory");
}

int om_kafka_produce(const om_kafka_request *request, const uint8_t *body) {
    om_conn *conn = request->conn;
    om_kafka_conn *kafka = om_kafka_of(conn);
    om_engine *engine = conn->engine;
    produce p = {.engine = engine, .conn = conn, .version = request->version, .transactional = {NULL, -1}};
    om_wire wire = {.at = body, .end = request->data + request->len, .flexible = request->version >= FLEXIBLE_FROM};
    if (request->version < 0 || request->version > VERSION_MAX) {
        om_conn_break(conn, "unsupported Produce version");
        return 1;
    }
    /* A full disk may stay full for longer than a producer waits: it gets an error, and retries. */
    int is_full = om_store_takes(engine->store) == OM_E_NO_SPACE, takes = is_full || om_engine_takes(engine);
    if (om_kafka_delayed_produce_is_full(conn) || !takes) {
        conn->held_back = !takes;
        om_conn_stall(conn);
        return 0;
    }
    uint8_t *room = om_kafka_reply_room(engine, request->len * 2);
    int64_t unknown = room ? survey(&p, &wire, room) : -1;
    if (unknown < 0 || p.bound > ANSWER_MAX) {
        om_conn_break(conn, room ? "invalid Produce request" : "out of memory");
        return 1;
    }
    int may_id = may_use_id(&p);
    if (!kafka->answered && p.version >= 3 && (unknown || may_id < 0)) {
        ask_rights(&p, request, room, (size_t)unknown);
        return 0;
    }
    kafka->answered = 0;
    p.error = p.version < 3                                ? OM_KAFKA_E_UNSUPPORTED_VERSION
              : may_id <= 0                                ? OM_KAFKA_E_TRANSACTIONAL_ID_AUTHORIZATION_FAILED
              : p.acks != 0 && p.acks != 1 && p.acks != -1 ? OM_KAFKA_E_INVALID_REQUIRED_ACKS
              : is_full                                    ? OM_KAFKA_E_STORAGE_ERROR
                                                           : 0;
    if (p.opens && !p.error && !kafka->repacked && ask_repack(&p, request))
        return 0;
    uint8_t *reply = om_kafka_reply_room(engine, p.bound);
    if (reply)
        answer(&p, request, reply);
    else
        om_conn_break(conn, "out of memory");
    if (kafka->repacked)
        om_kafka_repack_forget(conn);
    return 1;
}
