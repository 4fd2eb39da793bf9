/* deliver.c -- from a queue's head to a consumer: deliveries, basic.get, their frames.
 *
 * A queue is pumped when something may have changed for it: messages came, credit came back, a
 * socket drained, the disk caught up. It then gives until it is empty or nobody can take more. The
 * highest priority with a message goes first; consumers take turns, those of a higher priority
 * before the others.
 */
#include "base/attributes.h"
#include "engine/engine.h"

#include "base/bytes.h"
#include "cursor/cursor.h"
#include "store/producer.h"

#include <stdlib.h>

#define PUMP_MAX 2048        /* messages a queue gives in one go, so that others get their turn */
#define EXPIRE_MAX 4096      /* ... or finds to be expired */
#define COPY_MAX (16u << 10) /* larger bodies in the hot tail are not copied, only referred to */

/* ---- frames ---- */

static uint8_t *put_head(uint8_t *at, int type, int channel, uint32_t size) {
    at[0] = (uint8_t)type;
    om_put_be16(at + 1, (uint16_t)channel);
    om_put_be32(at + 3, size);
    return at + 7;
}

static uint8_t *put_method(uint8_t *at, int channel, uint32_t method, const uint8_t *args, size_t args_len) {
    at = put_head(at, OM_FRAME_METHOD, channel, 4 + (uint32_t)args_len);
    om_put_be32(at, method);
    memcpy(at + 4, args, args_len);
    at += 4 + args_len;
    *at++ = OM_FRAME_END;
    return at;
}

static uint8_t *put_content_header(uint8_t *at, int channel, uint64_t body_size, om_span properties) {
    at = put_head(at, OM_FRAME_HEADER, channel, 12 + (uint32_t)properties.len);
    om_put_be32(at, 60u << 16);
    om_put_be64(at + 4, body_size);
    memcpy(at + 12, properties.data, (size_t)properties.len);
    at += 12 + properties.len;
    *at++ = OM_FRAME_END;
    return at;
}

/* Where a body that isn't copied is sent from: a batch in memory, or a segment's file. */
typedef struct lender {
    om_buffer *bytes;
    om_backing *backing;
    uint64_t position; /* of the body in that file */
} lender;

static int find_lender(const om_conn *conn, const om_content *content, om_queue_reader *feed, lender *out) {
    uint32_t least = conn->engine->options.zero_copy_min;
    *out = (lender){0};
    if (!feed || content->body.len <= (int32_t)COPY_MAX)
        return 0;
    out->bytes = om_queue_reader_bytes(feed);
    if (!out->bytes && least && (uint32_t)content->body.len >= least)
        out->backing = om_queue_reader_backing(feed, content->body.data, &out->position);
    return out->bytes || out->backing;
}

/* Its frames' heads and ends are ours, what lies between is lent. */
static int put_lent_body(om_conn *conn, int channel, const om_content *content, const lender *from, uint32_t most) {
    const uint8_t *data = content->body.data;
    uint64_t position = from->position;
    size_t left = (size_t)content->body.len;
    while (left) {
        size_t piece = left < most ? left : most;
        uint8_t *at = om_conn_put(conn, 7);
        if (!at)
            return OM_E_NO_MEMORY;
        put_head(at, OM_FRAME_BODY, channel, (uint32_t)piece);
        int result = from->bytes ? om_output_bytes(&conn->out, from->bytes, data, piece)
                                 : om_output_file(&conn->out, from->backing, position, piece);
        if (result != OM_OK)
            return result;
        at = om_conn_put(conn, 1);
        if (!at)
            return OM_E_NO_MEMORY;
        *at = OM_FRAME_END;
        data += piece;
        position += piece;
        left -= piece;
    }
    return OM_OK;
}

OM_PER_MESSAGE
int om_deliver_frames(om_conn *conn, om_channel *channel, uint32_t method, const uint8_t *args, size_t args_len,
                      const om_content *content, om_span properties, om_queue_reader *feed) {
    uint32_t most = om_amqp_of(conn)->frame_max - OM_FRAME_OVERHEAD;
    if ((size_t)properties.len > OM_HEADER_ROOM(om_amqp_of(conn)->frame_max))
        return OM_E_INVALID;
    size_t body = (size_t)content->body.len;
    size_t heads = 7 + 4 + args_len + 1 + 7 + 12 + (size_t)properties.len + 1;
    lender lender;
    int lend = find_lender(conn, content, feed, &lender);
    size_t frames = body ? (body + most - 1) / most : 0;
    size_t size = heads + (lend ? 0 : body + frames * OM_FRAME_OVERHEAD);
    uint8_t *at = om_conn_put(conn, size);
    if (!at)
        return OM_E_NO_MEMORY;
    at = put_method(at, channel->number, method, args, args_len);
    if (feed)
        om_queue_reader_guard(feed);
    at = put_content_header(at, channel->number, body, properties);
    if (!lend) {
        const uint8_t *from = content->body.data;
        for (size_t left = body; left;) {
            size_t piece = left < most ? left : most;
            at = put_head(at, OM_FRAME_BODY, channel->number, (uint32_t)piece);
            memcpy(at, from, piece);
            at += piece;
            *at++ = OM_FRAME_END;
            from += piece;
            left -= piece;
        }
    }
    int result = feed ? om_queue_reader_unguard(feed) : OM_OK;
    if (result != OM_OK) {
        om_output_unput(&conn->out, size);
        return result;
    }
    return lend ? put_lent_body(conn, channel->number, content, &lender, most) : OM_OK;
}

/* ---- the head ---- */

/* A gap counts as settled, and so does what nobody can make sense of. What the disk has lost doesn't: it was
 * reported, it must not block the others, and it is not done. */
static int pass_over(om_queue *queue, om_log *log, int64_t offset, int64_t skip_to) {
    int64_t last = skip_to > offset ? skip_to - 1 : offset;
    const om_bad *bad = om_log_bad_for(log, offset);
    if (bad)
        return om_log_lose(log, offset, bad->last) > 0 ? OM_OK : OM_E_NO_MEMORY;
    int64_t passed = om_log_settle_run(log, offset, last, -1);
    if (passed <= 0)
        return OM_E_NO_MEMORY;
    queue->dropped += passed;
    return OM_OK;
}

static int come_back(om_queue *queue, int result) {
    om_queue_wait(queue);
    return result;
}

OM_PER_MESSAGE
static int look_at_lane(om_queue *queue, int32_t index, int64_t as_of, int64_t *offset, om_content *content) {
    om_engine *engine = queue->engine;
    om_lane *lane = &queue->lanes[index];
    om_log *log = lane->log;
    for (int expired = 0;; expired++) {
        if (expired == EXPIRE_MAX) {
            om_queue_activate(queue);
            engine->retry = 1; /* a basic.get waits for what comes behind them */
            return OM_E_NOT_RESIDENT;
        }
        *offset = om_cursor_peek(log->cursor);
        if (*offset < 0)
            return OM_END;
        if (lane->refused && *offset >= lane->refused_from)
            return OM_END;
        if (*offset >= om_log_readable_end(log))
            return come_back(queue, OM_E_NOT_RESIDENT); /* its lease isn't durable yet */
        if (*offset >= om_log_stable_end(log))
            return come_back(queue, OM_END); /* a transaction is open there: nobody may see it yet */
        if (!lane->feed && !(lane->feed = om_queue_reader_new()))
            return come_back(queue, OM_E_NO_MEMORY);
        int64_t skip_to = *offset + 1;
        int result = om_queue_reader_get(engine, lane->feed, log, *offset, content, &skip_to);
        if (result == OM_E_UNREADABLE || result == OM_E_RANGE) {
            result = pass_over(queue, log, *offset, skip_to);
            if (result == OM_OK)
                continue;
        }
        if (result != OM_OK)
            return come_back(queue, result == OM_END ? OM_E_NOT_RESIDENT : result);
        /* What was returned has been given to somebody: it has no more than its time. */
        int64_t deadline, now = *offset < log->cursor->next ? engine->wall_ms : as_of;
        if (!om_dead_letter_is_expired(queue, content, now, &deadline))
            return OM_OK;
        if (om_log_acquire_one(log, *offset, content->body.len) != OM_OK)
            return come_back(queue, OM_E_NO_MEMORY);
        queue->expired++;
        om_dead_letter_add(queue, index, *offset, (uint32_t)content->body.len, OM_DEATH_EXPIRED);
    }
}

int om_queue_head(om_queue *queue, int64_t as_of, int32_t *lane, int64_t *offset, om_content *content) {
    for (int32_t i = queue->lane_count; i-- > 0;) {
        om_log *log = queue->lanes[i].log;
        if (log->deleted)
            return OM_E_DELETED;
        if (!log->cursor->ready_count)
            continue;
        int result = look_at_lane(queue, i, as_of, offset, content);
        if (result == OM_END)
            continue;
        *lane = i;
        return result;
    }
    return OM_END;
}

/* ---- giving ---- */

static uint8_t *put_shortstr(uint8_t *at, const uint8_t *data, size_t len) {
    *at++ = (uint8_t)len;
    memcpy(at, data, len);
    return at + len;
}

/* Quorum queues tell how often a message was tried in vain, where there is room for it. */
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

int om_deliver_take(om_channel *channel, om_consumer *consumer, om_queue *queue, int32_t lane,
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
        channel->unacked.consumed++;
        consumer->unacked++;
    }
    return OM_OK;
}

uint8_t *om_deliver_args(uint8_t *at, const om_consumer *consumer, uint64_t tag, int again, om_span exchange,
                         om_span key) {
    if (consumer)
        at = put_shortstr(at, consumer->tag, consumer->tag_len);
    om_put_be64(at, tag);
    at[8] = (uint8_t)again;
    at = put_shortstr(at + 9, exchange.data, (size_t)exchange.len);
    return put_shortstr(at, key.data, (size_t)key.len);
}

/* Frames first: if they can't be made, nothing has happened. */
static int give(om_queue *queue, om_channel *channel, om_consumer *consumer, uint32_t method, int no_ack, int32_t lane,
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
    int result = om_deliver_frames(conn, channel, method, args, (size_t)(at - args), content, properties,
                                   queue->lanes[lane].feed);
    if (result != OM_OK)
        return result;
    if (no_ack) {
        om_unacked_skip(&channel->unacked);
        om_log_settle_run(log, content->offset, content->offset, content->body.len);
        queue->acked++;
    } else {
        result = om_log_acquire_one(log, content->offset, content->body.len);
        if (result == OM_OK)
            result = om_deliver_take(channel, consumer, queue, lane, content);
    }
    queue->delivered++;
    queue->redelivered += again;
    conn->delivered++;
    queue->engine->stat.delivered++;
    return result;
}

/* Its properties are longer than this client's frames. It mustn't stand in everybody's way: it goes where rejected
 * messages go. But it isn't lost because one client has small frames: without such a place that client goes. */
static void turn_down(om_queue *queue, om_conn *conn, int32_t lane, const om_content *content) {
    int fits_nobody = (size_t)content->properties.len > OM_HEADER_ROOM(queue->engine->options.frame_max);
    if (!queue->options.has_dlx && !fits_nobody)
        om_conn_break(conn, OM_TOO_LONG_FOR_IT);
    else if (om_log_acquire_one(queue->lanes[lane].log, content->offset, content->body.len) == OM_OK)
        om_dead_letter_add(queue, lane, content->offset, (uint32_t)content->body.len, OM_DEATH_REJECTED);
    else
        om_conn_break(conn, "out of memory");
}

/* ---- who is next ---- */

static om_consumer *next_consumer(om_queue *queue) {
    if (queue->options.flags & OM_QUEUE_SINGLE_ACTIVE) {
        if (om_consumer_hand_over(queue) != OM_OK)
            return NULL;
        return queue->active && om_consumer_can_take(queue->active) ? queue->active : NULL;
    }
    for (uint32_t i = 0; i < queue->consumer_count; i++)
        if (om_consumer_can_take(queue->consumers[i]))
            return queue->consumers[i];
    return NULL;
}

/* Who was served goes behind its equals. */
static void rotate(om_queue *queue, om_consumer *served) {
    uint32_t i = 0;
    if (queue->consumer_count < 2)
        return;
    while (queue->consumers[i] != served)
        i++;
    for (; i + 1 < queue->consumer_count && queue->consumers[i + 1]->priority == served->priority; i++)
        queue->consumers[i] = queue->consumers[i + 1];
    queue->consumers[i] = served;
}

/* ---- the pump ---- */

/* When the head of a lane ends; INT64_MAX: never, or there is none. */
static int64_t head_deadline(om_queue *queue, int32_t index) {
    om_lane *lane = &queue->lanes[index];
    int64_t offset, now = queue->engine->wall_ms;
    om_content content;
    if (lane->log->deleted || !lane->log->cursor->ready_count)
        return INT64_MAX;
    if (lane->seen >= 0 && om_cursor_peek(lane->log->cursor) == lane->seen)
        return lane->seen_deadline;
    lane->seen = -1;
    if (look_at_lane(queue, index, now, &offset, &content) != OM_OK)
        return INT64_MAX;
    lane->seen = offset;
    om_dead_letter_is_expired(queue, &content, now, &lane->seen_deadline);
    return lane->seen_deadline;
}

/* With priorities each lane has a head, and each of them expires in its place. */
static void watch_heads(om_queue *queue) {
    om_engine *engine = queue->engine;
    int64_t soonest = INT64_MAX;
    for (int32_t i = 0; i < queue->lane_count; i++) {
        int64_t deadline = head_deadline(queue, i);
        soonest = deadline < soonest ? deadline : soonest;
    }
    if (soonest == INT64_MAX)
        om_deadline_clear(queue);
    else
        om_deadline_set(queue, engine->now_ms + (soonest - engine->wall_ms));
}

static int can_settle(om_queue *queue) {
    if (om_log_admit_settle(queue->lanes[0].log) != OM_E_FULL)
        return 1;
    om_queue_wait(queue);
    return 0;
}

OM_PER_MESSAGE
static void give_out(om_queue *queue) {
    for (int given = 0; given < PUMP_MAX; given++) {
        om_consumer *consumer = next_consumer(queue);
        if (!consumer || (given % 64 == 0 && !can_settle(queue)))
            return;
        int32_t lane;
        int64_t offset;
        om_content content;
        /* Who has no time at all is still given to a consumer that waits for it. */
        if (om_queue_head(queue, queue->engine->wall_ms - 1, &lane, &offset, &content) != OM_OK)
            return;
        int result = give(queue, consumer->channel, consumer, OM_BASIC_DELIVER,
                          (consumer->flags & OM_CONSUME_NO_ACK) != 0, lane, &content);
        if (result == OM_E_UNREADABLE) { /* a page of it couldn't be had, this very moment */
            om_queue_reader_doubt(queue->lanes[lane].feed, queue->lanes[lane].log);
            om_queue_wait(queue);
            return;
        }
        if (result == OM_E_INVALID) {
            turn_down(queue, consumer->channel->conn, lane, &content);
            continue;
        }
        if (result != OM_OK) {
            om_conn_break(consumer->channel->conn, "out of memory");
            continue;
        }
        rotate(queue, consumer);
    }
    om_queue_activate(queue);
}

/* Who waits for messages gets them before a limit looks at them, as in RabbitMQ, where each is offered to
 * consumers as it comes: a tick's worth of them must not fall out of a short queue that nobody lets fill. */
static void keep_short(om_queue *queue) {
    if (queue->consumer_count)
        give_out(queue);
    if (!next_consumer(queue))
        om_queue_trim_length(queue);
}

/* How many more it may be given. */
static int64_t credit(const om_consumer *consumer) {
    const om_channel *channel = consumer->channel;
    int64_t own = INT64_MAX, of_all = INT64_MAX;
    if (!om_consumer_can_take(consumer))
        return 0;
    if (consumer->flags & OM_CONSUME_NO_ACK)
        return INT64_MAX;
    if (consumer->prefetch)
        own = (int64_t)consumer->prefetch - consumer->unacked;
    if (channel->limit)
        of_all = (int64_t)channel->limit - channel->unacked.consumed;
    return own < of_all ? own : of_all;
}

int64_t om_queue_credit(const om_queue *queue) {
    int64_t sum = 0;
    if (queue->options.flags & OM_QUEUE_SINGLE_ACTIVE)
        return queue->active ? credit(queue->active) : 0;
    for (uint32_t i = 0; i < queue->consumer_count; i++) {
        int64_t more = credit(queue->consumers[i]);
        sum = more > INT64_MAX - sum ? INT64_MAX : sum + more;
    }
    return sum;
}

/* Does the head wait for its lease, as a new queue's does? A moment later it can be had. */
static int is_soon_to_be_had(const om_queue *queue) {
    for (int32_t i = 0; i < queue->lane_count; i++) {
        const om_log *log = queue->lanes[i].log;
        int64_t offset = om_cursor_peek(log->cursor);
        if (offset >= 0 && offset >= om_log_readable_end(log))
            return 1;
    }
    return 0;
}

int64_t om_queue_hand_on(om_queue *queue) {
    if (!queue->consumer_count || !next_consumer(queue))
        return 0;
    for (int32_t i = 0; i < queue->lane_count; i++)
        om_log_seal(queue->lanes[i].log);
    give_out(queue);
    return next_consumer(queue) && is_soon_to_be_had(queue) ? om_queue_credit(queue) : 0;
}

/* Dead letters are on their way here that are committed behind this round. */
static int is_expecting(const om_queue *queue) {
    for (int32_t i = 0; i < queue->lane_count; i++)
        if (queue->lanes[i].log->atomic_count)
            return 1;
    return 0;
}

void om_queue_pump(om_queue *queue) {
    if (queue->removed)
        return;
    if (is_expecting(queue))
        om_queue_activate(queue); /* its turn in this round was waiting when they were sent */
    if (om_queue_is_stream(queue)) {
        om_stream_pump(queue);
        return;
    }
    if (queue->options.flags & OM_QUEUE_DELAY) {
        om_delay_pump(queue);
        return;
    }
    if (queue->dying_count)
        om_dead_letter_pump(queue);
    keep_short(queue);
    if (om_queue_length(queue) == 0) {
        om_queue_rest(queue);
        om_deadline_clear(queue);
    } else {
        watch_heads(queue);
    }
    if (queue->dying_count)
        om_dead_letter_pump(queue);
}

/* ---- basic.get ---- */

static void put_empty(om_channel *channel) {
    static const uint8_t args[] = {0};
    uint8_t *at = om_conn_put(channel->conn, 7 + 4 + sizeof args + 1);
    put_method(at, channel->number, OM_BASIC_GET_EMPTY, args, sizeof args);
}

void om_get_later(om_channel *channel, om_queue *queue, int no_ack) {
    om_conn *conn = channel->conn;
    if (!queue) { /* gone while it waited */
        put_empty(channel);
        return;
    }
    if (om_get(channel, queue, no_ack) != OM_E_NOT_RESIDENT)
        return;
    om_amqp_conn *amqp = om_amqp_of(conn);
    amqp->get_queue = queue->id;
    amqp->get_channel = channel->number;
    amqp->get_no_ack = (uint8_t)no_ack;
    om_conn_stall(conn);
}

void om_get_again(om_conn *conn) {
    om_amqp_conn *amqp = om_amqp_of(conn);
    om_channel *channel = om_channel_find(conn, amqp->get_channel);
    om_queue *queue = om_queue_find(conn->engine, amqp->get_queue);
    amqp->get_queue = 0;
    if (channel && channel->state == OM_CH_OPEN)
        om_get_later(channel, queue, amqp->get_no_ack);
}

int om_get(om_channel *channel, om_queue *queue, int no_ack) {
    int32_t lane = 0;
    int64_t offset;
    om_content content;
    queue->touched_ms = queue->engine->now_ms;
    for (int32_t i = 0; i < queue->lane_count; i++)
        om_log_seal(queue->lanes[i].log); /* what this very tick brought can be had, too */
    keep_short(queue);                    /* ... and what others waited for, or what was too much, can't */
    int result = om_queue_head(queue, queue->engine->wall_ms, &lane, &offset, &content);
    if (result == OM_OK)
        result = give(queue, channel, NULL, OM_BASIC_GET_OK, no_ack, lane, &content);
    if (result == OM_E_INVALID) {
        turn_down(queue, channel->conn, lane, &content);
        queue->engine->retry = 1; /* perhaps there is another behind it */
        result = OM_E_NOT_RESIDENT;
    }
    if (result == OM_E_UNREADABLE) {
        om_queue_reader_doubt(queue->lanes[lane].feed, queue->lanes[lane].log);
        result = OM_E_NOT_RESIDENT;
    }
    om_queue_activate(queue);
    if (result == OM_E_NOT_RESIDENT)
        return result;
    if (result == OM_E_NO_MEMORY)
        om_conn_break(channel->conn, "out of memory");
    else if (result != OM_OK)
        put_empty(channel);
    return OM_OK;
}
