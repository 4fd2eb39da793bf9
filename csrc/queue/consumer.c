/* consumer.c -- who takes from a queue: coming, going, and being the single active one. */
#include "engine/engine.h"

#include <stdlib.h>

int om_consumer_can_take(const om_consumer *consumer) {
    const om_channel *channel = consumer->channel;
    if (!channel || channel->state != OM_CH_OPEN)
        return 0;
    if (!(consumer->flags & OM_CONSUME_NO_ACK) && consumer->prefetch && consumer->unacked >= consumer->prefetch)
        return 0;
    /* The channel's limit holds those back, too, who needn't ack, as in RabbitMQ. */
    if (channel->limit && channel->unacked.consumed >= channel->limit)
        return 0;
    om_conn *conn = channel->conn;
    if (conn->broken)
        return 0;
    if (conn->out.bytes < OM_OUTPUT_LIMIT)
        return 1;
    conn->throttled = 1;
    return 0;
}

void om_consumer_unref(om_consumer *consumer) {
    if (--consumer->refs)
        return;
    if (consumer->queue)
        om_queue_unref(consumer->queue);
    om_queue_reader_free(consumer->feed);
    free(consumer->filter);
    free(consumer->tag);
    free(consumer);
}

/* ---- the queue's list ---- */

static void tell_active(om_queue *queue, const om_consumer *consumer) {
    om_event event = {
        .kind = OM_EV_ACTIVE,
        .queue = queue->id,
        .conn = consumer->channel->conn->id,
        .channel = consumer->channel->number,
        .key = {consumer->tag, consumer->tag_len},
    };
    om_event_push(queue->engine, &event);
}

static void choose_active(om_queue *queue) {
    if (!(queue->options.flags & OM_QUEUE_SINGLE_ACTIVE) || queue->active || !queue->consumer_count || queue->removed)
        return;
    queue->active = queue->consumers[0];
    tell_active(queue, queue->active);
}

int om_consumer_hand_over(om_queue *queue) {
    if (!(queue->options.flags & OM_QUEUE_QUORUM) || !queue->active || !queue->consumer_count ||
        queue->consumers[0]->priority <= queue->active->priority)
        return OM_OK;
    if (queue->active->unacked)
        return OM_E_FULL; /* it gets nothing new, else a busy one would never be done */
    queue->active = queue->consumers[0];
    tell_active(queue, queue->active);
    return OM_OK;
}

static int join_queue(om_queue *queue, om_consumer *consumer) {
    if (queue->consumer_count == queue->consumer_cap) {
        uint32_t cap = queue->consumer_cap ? queue->consumer_cap * 2 : 2;
        om_consumer **consumers = realloc(queue->consumers, cap * sizeof *consumers);
        if (!consumers)
            return OM_E_NO_MEMORY;
        queue->consumers = consumers;
        queue->consumer_cap = cap;
    }
    uint32_t at = queue->consumer_count++;
    for (; at && queue->consumers[at - 1]->priority < consumer->priority; at--)
        queue->consumers[at] = queue->consumers[at - 1];
    queue->consumers[at] = consumer;
    if (consumer->flags & OM_CONSUME_EXCLUSIVE)
        queue->exclusive = consumer;
    choose_active(queue);
    om_queue_activate(queue);
    return OM_OK;
}

static void leave_queue(om_queue *queue, om_consumer *consumer) {
    /* From the end: a channel that goes drops its newest first, and they came last. */
    uint32_t at = queue->consumer_count;
    while (at && queue->consumers[at - 1] != consumer)
        at--;
    if (!at--)
        return;
    queue->consumer_count--;
    for (; at < queue->consumer_count; at++)
        queue->consumers[at] = queue->consumers[at + 1];
    if (queue->exclusive == consumer)
        queue->exclusive = NULL;
    if (queue->active == consumer) {
        queue->active = NULL;
        choose_active(queue);
    }
    queue->touched_ms = queue->engine->now_ms;
    om_queue_activate(queue);
    if (!queue->consumer_count && !queue->removed) {
        om_event event = {.kind = OM_EV_QUEUE_IDLE, .queue = queue->id};
        om_event_push(queue->engine, &event);
    }
}

/* ---- coming and going ---- */

void om_consumer_drop(om_consumer *consumer) {
    om_channel *channel = consumer->channel;
    if (!channel)
        return;
    om_consumer **link = &channel->consumers;
    while (*link && *link != consumer)
        link = &(*link)->next;
    if (*link) {
        *link = consumer->next;
        channel->consumer_count--;
    }
    if (channel->reply_to == consumer)
        channel->reply_to = NULL;
    consumer->channel = NULL;
    if (consumer->queue)
        leave_queue(consumer->queue, consumer);
    om_consumer_unref(consumer);
}

static int has_too_many(const om_channel *channel) {
    uint32_t most = channel->conn->engine->options.consumers_per_channel;
    return most && channel->consumer_count >= most;
}

static void join_channel(om_channel *channel, om_consumer *consumer) {
    consumer->next = channel->consumers;
    channel->consumers = consumer;
    channel->consumer_count++;
}

om_consumer *om_consumer_find(om_channel *channel, om_span tag) {
    om_consumer *consumer = channel->consumers;
    while (consumer && !(consumer->tag_len == tag.len && memcmp(consumer->tag, tag.data, (size_t)tag.len) == 0))
        consumer = consumer->next;
    return consumer;
}

static uint8_t *copy(om_span span) {
    uint8_t *data = malloc(span.len > 0 ? (size_t)span.len : 1);
    if (data && span.len > 0)
        memcpy(data, span.data, (size_t)span.len);
    return data;
}

static om_consumer *consumer_new(om_channel *channel, om_queue *queue, const om_consume *consume) {
    om_consumer *consumer = calloc(1, sizeof *consumer);
    if (!consumer)
        return NULL;
    consumer->refs = 1;
    consumer->channel = channel;
    consumer->flags = consume->flags;
    consumer->prefetch = consume->prefetch;
    consumer->priority = consume->priority;
    consumer->timeout_ms = consume->timeout_ms;
    if (consume->timeout_ms)
        om_engine_note_timeout(channel->conn->engine, consume->timeout_ms);
    consumer->tag_len = (uint8_t)consume->tag.len;
    consumer->tag = copy(consume->tag);
    consumer->filter = consume->filter.len > 0 ? copy(consume->filter) : NULL;
    consumer->filter_len = consume->filter.len > 0 ? (uint32_t)consume->filter.len : 0;
    consumer->match_unfiltered = consume->match_unfiltered != 0;
    if (!consumer->tag || (consumer->filter_len && !consumer->filter)) {
        om_consumer_unref(consumer);
        return NULL;
    }
    consumer->queue = queue;
    if (queue)
        om_queue_ref(queue);
    return consumer;
}

int om_consumer_start(om_channel *channel, const om_consume *consume, const uint8_t *ok, size_t len) {
    om_engine *engine = channel->conn->engine;
    om_queue *queue = om_queue_find(engine, consume->queue);
    if (!queue)
        return OM_E_GONE;
    if (consume->tag.len > 255 || consume->tag.len < 0)
        return OM_E_INVALID;
    if (om_consumer_find(channel, consume->tag))
        return OM_E_EXISTS;
    if (has_too_many(channel))
        return OM_E_LIMIT;
    if (queue->exclusive || ((consume->flags & OM_CONSUME_EXCLUSIVE) && queue->consumer_count))
        return OM_E_LOCKED;
    om_consumer *consumer = consumer_new(channel, queue, consume);
    if (!consumer)
        return OM_E_NO_MEMORY;
    if (om_queue_is_stream(queue))
        om_stream_start_at(consumer, consume);
    if (join_queue(queue, consumer) != OM_OK) {
        om_consumer_unref(consumer);
        return OM_E_NO_MEMORY;
    }
    join_channel(channel, consumer);
    om_conn_put_bytes(channel->conn, ok, len);
    return OM_OK;
}

int om_consumer_start_reply_to(om_channel *channel, om_span tag, const uint8_t *ok, size_t len) {
    om_consume consume = {.tag = tag, .flags = OM_CONSUME_NO_ACK};
    if (channel->reply_to)
        return OM_E_LOCKED;
    if (tag.len > 255)
        return OM_E_INVALID;
    if (om_consumer_find(channel, tag))
        return OM_E_EXISTS;
    if (has_too_many(channel))
        return OM_E_LIMIT;
    om_consumer *consumer = consumer_new(channel, NULL, &consume);
    if (!consumer)
        return OM_E_NO_MEMORY;
    join_channel(channel, consumer);
    channel->reply_to = consumer;
    om_conn_put_bytes(channel->conn, ok, len);
    return OM_OK;
}
