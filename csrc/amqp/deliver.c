/* deliver.c -- sends a message to a client: its frames, its delivery tag.
 *
 *   | basic.deliver, get-ok or return | content header | body frames |
 *
 * Small bodies are copied into the output. Large ones stay where they are, and only the heads and ends of their
 * frames are written. A delivery that waits for its ack gets an entry in the channel's ring (unacked.c).
 */
#include "amqp/deliver.h"
#include "amqp/amqp_conn.h"
#include "amqp/frame_write.h"
#include "base/attributes.h"
#include "net/engine_core.h"
#include "queue/queue_length.h"
#include "queue/stream.h"
#include "store/log_cursor.h"

#include <string.h>

#define COPY_MAX (16u << 10) /* larger bodies in the hot tail are not copied, only referred to */

/* ---- frames ---- */

static uint8_t *put_content_header(uint8_t *at, int channel, uint64_t body_size, om_span properties) {
    at = om_put_frame_head(at, OM_FRAME_HEADER, channel, 12 + (size_t)properties.len);
    om_put_be32(at, 60u << 16);
    om_put_be64(at + 4, body_size);
    memcpy(at + 12, properties.data, (size_t)properties.len);
    return om_put_frame_end(at + 12 + properties.len);
}

/* Where a body that isn't copied is sent from: a batch in memory, or a segment's file. */
typedef struct lender {
    om_buffer *bytes;
    om_backing *backing;
    uint64_t position; /* of the body in that file */
} lender;

static int find_lender(const om_conn *conn, const om_content *content, om_queue_reader *reader, lender *out) {
    uint32_t least = conn->engine->options.zero_copy_min;
    *out = (lender){0};
    if (!reader || content->body.len <= (int32_t)COPY_MAX)
        return 0;
    out->bytes = om_queue_reader_bytes(reader);
    if (!out->bytes && least && (uint32_t)content->body.len >= least)
        out->backing = om_queue_reader_backing(reader, content->body.data, &out->position);
    return out->bytes || out->backing;
}

/* Its frames' heads and ends are ours, what lies between is lent. */
static int put_lent_body(om_conn *conn, int channel, const om_content *content, const lender *from, uint32_t most) {
    const uint8_t *data = content->body.data;
    uint64_t position = from->position;
    size_t left = (size_t)content->body.len;
    while (left) {
        size_t piece = left < most ? left : most;
        uint8_t *at = om_conn_put(conn, OM_FRAME_HEAD);
        if (!at)
            return OM_E_NO_MEMORY;
        om_put_frame_head(at, OM_FRAME_BODY, channel, piece);
        int result = from->bytes ? om_output_bytes(&conn->out, from->bytes, data, piece)
                                 : om_output_file(&conn->out, from->backing, position, piece);
        if (result != OM_OK)
            return result;
        at = om_conn_put(conn, 1);
        if (!at)
            return OM_E_NO_MEMORY;
        om_put_frame_end(at);
        data += piece;
        position += piece;
        left -= piece;
    }
    return OM_OK;
}

OM_PER_MESSAGE
int om_deliver_frames(om_conn *conn, om_channel *channel, uint32_t method, const uint8_t *args, size_t args_len,
                      const om_content *content, om_span properties, om_queue_reader *reader) {
    uint32_t most = om_amqp_of(conn)->frame_max - OM_FRAME_OVERHEAD;
    if ((size_t)properties.len > OM_HEADER_ROOM(om_amqp_of(conn)->frame_max))
        return OM_DELIVERY_TOO_LONG;
    size_t body = (size_t)content->body.len;
    size_t heads = OM_METHOD_HEAD + args_len + 1 + OM_FRAME_HEAD + 12 + (size_t)properties.len + 1;
    lender lender;
    int lend = find_lender(conn, content, reader, &lender);
    size_t frames = body ? (body + most - 1) / most : 0;
    size_t size = heads + (lend ? 0 : body + frames * OM_FRAME_OVERHEAD);
    uint8_t *at = om_conn_put(conn, size);
    if (!at)
        return OM_E_NO_MEMORY;
    at = om_put_method(at, channel->number, method, args, args_len);
    if (reader)
        om_queue_reader_guard(reader);
    at = put_content_header(at, channel->number, body, properties);
    if (!lend) {
        const uint8_t *from = content->body.data;
        for (size_t left = body; left;) {
            size_t piece = left < most ? left : most;
            at = om_put_frame_head(at, OM_FRAME_BODY, channel->number, piece);
            memcpy(at, from, piece);
            at += piece;
            at = om_put_frame_end(at);
            from += piece;
            left -= piece;
        }
    }
    int result = reader ? om_queue_reader_unguard(reader) : OM_OK;
    if (result != OM_OK) {
        om_output_unput(&conn->out, size);
        return result;
    }
    return lend ? put_lent_body(conn, channel->number, content, &lender, most) : OM_OK;
}

uint8_t *om_deliver_args(uint8_t *at, const om_consumer *consumer, uint64_t tag, int again, om_span exchange,
                         om_span key) {
    if (consumer)
        at = om_put_shortstr(at, (om_span){consumer->tag, consumer->tag_len});
    om_put_be64(at, tag);
    at[8] = (uint8_t)again;
    at = om_put_shortstr(at + 9, exchange);
    return om_put_shortstr(at, key);
}

/* ---- from a queue ---- */

/* Quorum queues add how often a delivery failed, where there is room for it. */
static om_span told_properties(om_queue *queue, const om_log *log, const om_content *content, const om_conn *conn) {
    om_engine *engine = queue->engine;
    int32_t acquired, delivered;
    om_properties properties;
    if (!(queue->options.flags & OM_QUEUE_QUORUM) ||
        om_cursor_counts(log->cursor, content->offset, &acquired, &delivered) != 1 ||
        om_properties_parse(content->properties.data, (size_t)content->properties.len, &properties) != OM_OK)
        return content->properties;
    om_extra extras[2] = {
        {.name = "x-acquired-count", .type = 'l', .number = acquired},
        {.name = "x-delivery-count", .type = 'l', .number = delivered},
    };
    int64_t len = om_headers_with(engine->rewrite, OM_HEADER_ROOM(om_amqp_of(conn)->frame_max), &properties, extras,
                                  delivered ? 2 : 1);
    return len < 0 ? content->properties : (om_span){engine->rewrite, (int32_t)len};
}

static int add_unacked(om_channel *channel, om_consumer *consumer, om_queue *queue, int32_t lane,
                       const om_content *content) {
    om_unacked *entry = om_unacked_push(&channel->unacked);
    if (!entry)
        return OM_E_NO_MEMORY;
    *entry = (om_unacked){
        .queue = queue,
        .consumer = consumer,
        .tag = entry->tag,
        .offset = content->offset,
        .weight = (uint32_t)content->body.len,
        .since_s = (uint32_t)(queue->engine->now_ms / 1000),
        .lane = (uint8_t)lane,
    };
    om_queue_ref(queue);
    if (consumer) {
        consumer->refs++;
        channel->subscriber.unacked++;
        consumer->unacked++;
    }
    return OM_OK;
}

/* The properties are longer than this client's frames. The message must not block the queue: it is dead-lettered as
 * rejected. Without a dead-letter exchange it isn't dropped for one client's small frames: that client is closed. */
static void turn_down(om_queue *queue, om_conn *conn, int32_t lane, const om_content *content) {
    int fits_nobody = (size_t)content->properties.len > OM_HEADER_ROOM(queue->engine->options.frame_max);
    if (!queue->options.has_dlx && !fits_nobody)
        om_conn_break(conn, OM_TOO_LONG_FOR_IT);
    else if (om_log_acquire_one(queue->lanes[lane].log, content->offset, content->body.len) == OM_OK)
        om_dead_letter_add(queue, lane, content->offset, (uint32_t)content->body.len, OM_DEATH_REJECTED);
    else
        om_conn_break(conn, "out of memory");
}

/* Frames first: if they can't be made, nothing has happened. */
int om_deliver_head(om_channel *channel, om_queue *queue, om_consumer *consumer, int no_ack, int32_t lane,
                    const om_content *content) {
    om_log *log = queue->lanes[lane].log;
    om_conn *conn = channel->conn;
    int again = content->offset < log->cursor->next;
    uint8_t args[OM_DELIVER_ARGS + 4];
    uint8_t *at =
        om_deliver_args(args, consumer, channel->unacked.next_tag, again, content->exchange, content->routing_key);
    if (!consumer) {
        int64_t left = om_queue_ready(queue) - 1;
        om_put_be32(at, left > UINT32_MAX ? UINT32_MAX : (uint32_t)left);
        at += 4;
    }
    om_span properties = again ? told_properties(queue, log, content, conn) : content->properties;
    int result = om_deliver_frames(conn, channel, consumer ? OM_BASIC_DELIVER : OM_BASIC_GET_OK, args,
                                   (size_t)(at - args), content, properties, queue->lanes[lane].reader);
    if (result == OM_DELIVERY_TOO_LONG)
        turn_down(queue, conn, lane, content);
    if (result != OM_OK)
        return result;
    if (no_ack) {
        om_unacked_skip(&channel->unacked);
        om_log_settle_run(log, content->offset, content->offset, content->body.len);
        queue->acked++;
    } else {
        result = om_log_acquire_one(log, content->offset, content->body.len);
        if (result == OM_OK)
            result = add_unacked(channel, consumer, queue, lane, content);
    }
    queue->delivered++;
    queue->redelivered += again;
    conn->delivered++;
    queue->engine->stat.delivered++;
    return result;
}

static int deliver(om_consumer *consumer, int32_t lane, const om_content *content) {
    return om_deliver_head(om_channel_of(consumer->subscriber), consumer->queue, consumer,
                           consumer->flags & OM_CONSUME_NO_ACK, lane, content);
}

/* ---- from a stream ---- */

static int deliver_copy(om_consumer *consumer, const om_content *content) {
    om_queue *queue = consumer->queue;
    om_engine *engine = queue->engine;
    om_channel *channel = om_channel_of(consumer->subscriber);
    om_properties properties;
    om_queue_reader_guard(consumer->reader);
    int result = om_properties_parse(content->properties.data, (size_t)content->properties.len, &properties);
    int wanted = result == OM_OK && om_stream_wants(consumer, &properties);
    om_extra extra = {.name = "x-stream-offset", .type = 'l', .number = content->offset};
    size_t room = OM_HEADER_ROOM(om_amqp_of(channel->conn)->frame_max);
    int64_t len = wanted ? om_headers_with(engine->rewrite, room, &properties, &extra, 1) : 0;
    if (om_queue_reader_unguard(consumer->reader) != OM_OK)
        return OM_E_UNREADABLE;
    if (result != OM_OK || !wanted)
        return OM_OK;
    om_span told = len < 0 ? content->properties : (om_span){engine->rewrite, (int32_t)len};
    uint8_t args[OM_DELIVER_ARGS];
    uint8_t *at =
        om_deliver_args(args, consumer, channel->unacked.next_tag, 0, content->exchange, content->routing_key);
    result = om_deliver_frames(channel->conn, channel, OM_BASIC_DELIVER, args, (size_t)(at - args), content, told,
                               consumer->reader);
    if (result == OM_DELIVERY_TOO_LONG && (size_t)content->properties.len > OM_HEADER_ROOM(engine->options.frame_max))
        return OM_OK; /* no client can have it: it is skipped, and doesn't block what comes behind it */
    if (result == OM_DELIVERY_TOO_LONG)
        om_conn_break(channel->conn, OM_TOO_LONG_FOR_IT);
    if (result != OM_OK)
        return result;
    if (consumer->flags & OM_CONSUME_NO_ACK)
        om_unacked_skip(&channel->unacked);
    else if (add_unacked(channel, consumer, queue, 0, content) != OM_OK)
        return OM_E_NO_MEMORY;
    queue->delivered++;
    channel->conn->delivered++;
    engine->stat.delivered++;
    return OM_OK;
}

const om_delivery_ops om_amqp_delivery = {.deliver = deliver, .deliver_copy = deliver_copy};
