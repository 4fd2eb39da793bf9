/* kafka_repack.c -- batches that a topic doesn't take as they are: Python opens them, in a thread.
 *
 *   Produce --> some batch has another codec than the topic wants (compression.type), or hides its keys
 *     |         from a compacted topic
 *     v
 *   its connection stands still, OM_EV_KAFKA_BATCHES   (the request stays at the front of the input)
 *     v
 *   om_kafka_batches_repacked: the same request again, and each batch finds what was made of it
 *
 * So answers keep their order, and so does what a connection writes to a partition. What is under way is
 * bounded: the next one waits, in its client's hands. A connection that ends takes its parcels along.
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
typedef om_kafka_repacked_batch parcel;

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
    memcpy(at + OM_KAFKA_PARCEL_HEAD, batch->data.data, (size_t)batch->data.len);
    return at + OM_KAFKA_PARCEL_HEAD + batch->data.len;
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

static parcel take_in(const om_kafka_repacked *from) {
    parcel made = {
        .place = from->place, .error = from->error, .first_time = from->first_time, .last_time = from->last_time};
    if (made.error || !from->data)
        return made;
    made.bytes = om_buffer_copy(from->data, (uint32_t)from->len);
    if (!made.bytes)
        made.error = OM_KAFKA_E_REQUEST_TIMED_OUT; /* its producer tries again */
    return made;
}

void om_kafka_repack_free(parcel *parcels, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (parcels[i].bytes)
            om_buffer_unref(parcels[i].bytes);
    free(parcels);
}

int om_kafka_repack_read(const om_kafka_repacked *batches, uint32_t count, parcel **out, uint64_t *bytes) {
    parcel *parcels = count ? calloc(count, sizeof *parcels) : NULL;
    *bytes = 0;
    if (!parcels)
        return count ? OM_E_NO_MEMORY : OM_E_INVALID;
    for (uint32_t i = 0; i < count; i++) {
        om_batch_info info;
        if (batches[i].data &&
            (om_batch_check(batches[i].data, batches[i].len, &info) != OM_OK || (size_t)info.size != batches[i].len)) {
            om_kafka_repack_free(parcels, i);
            return OM_E_INVALID;
        }
        parcels[i] = take_in(&batches[i]);
        *bytes += parcels[i].bytes ? parcels[i].bytes->len : 0;
    }
    *out = parcels;
    return OM_OK;
}

void om_kafka_repack_give(om_conn *conn, parcel *parcels, uint32_t count, uint64_t bytes) {
    om_kafka_of(conn)->parcels = parcels;
    om_kafka_of(conn)->parcel_count = count;
    om_kafka_of(conn)->parcel_at = 0;
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
    while (kafka->parcel_at < kafka->parcel_count && kafka->parcels[kafka->parcel_at].place < place)
        kafka->parcel_at++;
    parcel *made = &kafka->parcels[kafka->parcel_at];
    if (kafka->parcel_at == kafka->parcel_count || made->place != place)
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
    om_kafka_repack_free(kafka->parcels, kafka->parcel_count);
    kafka->parcels = NULL;
    kafka->parcel_count = kafka->parcel_at = 0;
    account(conn, 0);
}
