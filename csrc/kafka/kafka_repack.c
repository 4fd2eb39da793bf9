/* kafka_repack.c -- batches that a topic doesn't take as they are: Python repacks them, in a thread.
 *
 *   Produce --> some batch has another codec than the topic wants (compression.type), or hides its keys
 *     |         from a compacted topic
 *     v
 *   its connection is paused, OM_EV_KAFKA_BATCHES   (the request stays at the front of the input)
 *     v
 *   om_kafka_batches_repacked: the same request again, and each batch finds what was made of it
 *
 * So responses keep their order, and so does what a connection writes to a partition. What is being repacked is
 * bounded: further requests wait unread. A connection that ends frees its repacked batches.
 */
#include "base/bytes.h"
#include "kafka/kafka.h"

#include <stdlib.h>
#include <string.h>

struct om_kafka_repacked_batch {
    uint32_t place;
    int error;
    int64_t first_time, last_time;
    om_buffer *bytes; /* NULL: the batch as it was sent */
};

static void account(om_conn *conn, uint64_t bytes) {
    struct om_kafka *kafka = conn->engine->kafka;
    int was_full = kafka->repacking >= OM_KAFKA_REPACKING;
    kafka->repacking += bytes - om_kafka_of(conn)->repacking;
    om_kafka_of(conn)->repacking = bytes;
    if (was_full && kafka->repacking < OM_KAFKA_REPACKING)
        conn->engine->retry = 1;
}

/* ---- to Python ---- */

uint8_t *om_kafka_repack_put(uint8_t *at, const om_kafka_topic *topic, uint32_t place, const om_kafka_batch *batch) {
    const om_kafka_topic_options *options = &topic->options;
    int codec = batch->info.attributes & OM_ATTR_CODEC_MASK;
    int other = options->codec != OM_KAFKA_AS_SENT && options->codec != codec;
    int keyed = (options->flags & OM_KAFKA_COMPACTED) && codec;
    if (!other && !keyed)
        return at;
    om_put_be32(at, place);
    at[4] = (uint8_t)(other ? options->codec : OM_KAFKA_AS_SENT);
    at[5] = (uint8_t)keyed;
    om_put_be32(at + 6, (uint32_t)options->level);
    om_put_be32(at + 10, (uint32_t)batch->data.len);
    memcpy(at + OM_KAFKA_REPACK_HEAD, batch->data.data, (size_t)batch->data.len);
    return at + OM_KAFKA_REPACK_HEAD + batch->data.len;
}

void om_kafka_repack_ask(om_conn *conn, const uint8_t *batches, size_t len) {
    if (conn->engine->kafka->repacking >= OM_KAFKA_REPACKING) {
        om_conn_stall(conn);
        return;
    }
    om_event event = {
        .kind = OM_EV_KAFKA_BATCHES,
        .protocol = conn->protocol,
        .conn = conn->id,
        .payload = {batches, (int32_t)len},
    };
    account(conn, len);
    om_kafka_hold(conn, OM_KAFKA_ASKED_BATCHES);
    om_event_push(conn->engine, &event);
}

/* ---- and back ---- */

static om_kafka_repacked_batch take_in(const om_kafka_repacked *from) {
    om_kafka_repacked_batch made = {
        .place = from->place, .error = from->error, .first_time = from->first_time, .last_time = from->last_time};
    if (made.error || !from->data)
        return made;
    made.bytes = om_buffer_copy(from->data, (uint32_t)from->len);
    if (!made.bytes)
        made.error = OM_KAFKA_E_REQUEST_TIMED_OUT; /* its producer tries again */
    return made;
}

void om_kafka_repack_free(om_kafka_repacked_batch *repacked, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (repacked[i].bytes)
            om_buffer_unref(repacked[i].bytes);
    free(repacked);
}

int om_kafka_repack_read(const om_kafka_repacked *batches, uint32_t count, om_kafka_repacked_batch **out,
                         uint64_t *bytes) {
    om_kafka_repacked_batch *repacked = count ? calloc(count, sizeof *repacked) : NULL;
    *bytes = 0;
    if (!repacked)
        return count ? OM_E_NO_MEMORY : OM_E_INVALID;
    for (uint32_t i = 0; i < count; i++) {
        om_batch_info info;
        if (batches[i].data &&
            (om_batch_check(batches[i].data, batches[i].len, &info) != OM_OK || (size_t)info.size != batches[i].len)) {
            om_kafka_repack_free(repacked, i);
            return OM_E_INVALID;
        }
        repacked[i] = take_in(&batches[i]);
        *bytes += repacked[i].bytes ? repacked[i].bytes->len : 0;
    }
    *out = repacked;
    return OM_OK;
}

void om_kafka_repack_give(om_conn *conn, om_kafka_repacked_batch *repacked, uint32_t count, uint64_t bytes) {
    om_kafka_of(conn)->repacked = repacked;
    om_kafka_of(conn)->repacked_count = count;
    om_kafka_of(conn)->repacked_at = 0;
    account(conn, bytes);
    om_kafka_go_on(conn);
}

static const char *reason(int error) {
    return error == OM_KAFKA_E_MESSAGE_TOO_LARGE ? "too much comes out of it"
           : error == OM_KAFKA_E_INVALID_RECORD  ? "what comes out of it are not its records, or one has no key"
                                                 : NULL;
}

int om_kafka_repack_take(om_conn *conn, uint32_t place, om_kafka_batch *batch, const om_kafka_topic *topic,
                         om_kafka_outcome *out) {
    om_kafka_conn *kafka = om_kafka_of(conn);
    while (kafka->repacked_at < kafka->repacked_count && kafka->repacked[kafka->repacked_at].place < place)
        kafka->repacked_at++;
    om_kafka_repacked_batch *made = &kafka->repacked[kafka->repacked_at];
    if (kafka->repacked_at == kafka->repacked_count || made->place != place)
        return 0;
    if (made->error)
        return om_kafka_refuse(out, made->error, reason(made->error));
    if (made->bytes) {
        batch->bytes = made->bytes;
        batch->data = (om_span){made->bytes->data, (int32_t)made->bytes->len};
        om_batch_peek(made->bytes->data, made->bytes->len, &batch->info);
        if (batch->info.size > topic->options.max_message_bytes)
            return om_kafka_refuse(out, OM_KAFKA_E_MESSAGE_TOO_LARGE,
                                   "larger than max.message.bytes once it is repacked");
    }
    batch->first_time = made->first_time;
    batch->last_time = batch->info.max_timestamp = made->last_time;
    return 0;
}

void om_kafka_repack_forget(om_conn *conn) {
    om_kafka_conn *kafka = om_kafka_of(conn);
    om_kafka_repack_free(kafka->repacked, kafka->repacked_count);
    kafka->repacked = NULL;
    kafka->repacked_count = kafka->repacked_at = 0;
    account(conn, 0);
}
