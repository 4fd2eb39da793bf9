/* consumer.c -- a queue's consumers: they start, stop, and one may be the single active one. */
#include "queue/consumer.h"
#include "queue/queues.h"
#include "queue/stream.h"

#include <stdlib.h>
#include <string.h>

int om_consumer_can_take(const om_consumer *consumer) {
    const om_subscriber *subscriber = consumer->subscriber;
    if (!subscriber || subscriber->closing)
        return 0;
    if (!(consumer->flags & OM_CONSUME_NO_ACK) && consumer->prefetch && consumer->unacked >= consumer->prefetch)
        return 0;
    /* The channel's limit stops consumers without acks, too, as in RabbitMQ. */
    if (subscriber->limit && subscriber->unacked >= subscriber->limit)
        return 0;
    om_conn *conn = subscriber->conn;
    if (conn->broken)
        return 0;
    if (conn->out.bytes < OM_OUTPUT_LIMIT)
        return 1;
    conn->throttled = 1;
    return 0;
}

int64_t om_consumer_credit(const om_consumer *consumer) {
    const om_subscriber *subscriber = consumer->subscriber;
    int64_t own = INT64_MAX, of_all = INT64_MAX;
    if (!om_consumer_can_take(consumer))
        return 0;
    if (consumer->flags & OM_CONSUME_NO_ACK)
        return INT64_MAX;
    if (consumer->prefetch)
        own = (int64_t)consumer->prefetch - consumer->unacked;
    if (subscriber->limit)
        of_all = (int64_t)subscriber->limit - subscriber->unacked;
    return own < of_all ? own : of_all;
}

void om_consumer_unref(om_consumer *consumer) {
    if (--consumer->refs)
        return;
    if (consumer->queue)
        om_queue_unref(consumer->queue);
    om_queue_reader_free(consumer->reader);
    free(consumer->filter);
    free(consumer->tag);
    free(consumer);
}

/* ---- the queue's list ---- */

static void tell_active(om_queue *queue, const om_consumer *consumer) {
    om_event event = {
        .kind = OM_EV_ACTIVE,
        .queue = queue->id,
        .conn = consumer->subscriber->conn->id,
        .channel = consumer->subscriber->number,
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
    om_subscriber *subscriber = consumer->subscriber;
    if (!subscriber)
        return;
    om_consumer **link = &subscriber->consumers;
    while (*link && *link != consumer)
        link = &(*link)->next;
    if (*link) {
        *link = consumer->next;
        subscriber->consumer_count--;
    }
    consumer->subscriber = NULL;
    if (consumer->queue)
        leave_queue(consumer->queue, consumer);
    om_consumer_unref(consumer);
}

static int has_too_many(const om_subscriber *subscriber) {
    uint32_t most = subscriber->conn->engine->options.consumers_per_channel;
    return most && subscriber->consumer_count >= most;
}

static void join_subscriber(om_subscriber *subscriber, om_consumer *consumer) {
    consumer->next = subscriber->consumers;
    subscriber->consumers = consumer;
    subscriber->consumer_count++;
}

om_consumer *om_consumer_find(om_subscriber *subscriber, om_span tag) {
    om_consumer *consumer = subscriber->consumers;
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

static om_consumer *consumer_new(om_subscriber *subscriber, om_queue *queue, const om_consume *consume) {
    om_consumer *consumer = calloc(1, sizeof *consumer);
    if (!consumer)
        return NULL;
    consumer->refs = 1;
    consumer->subscriber = subscriber;
    consumer->flags = consume->flags;
    consumer->prefetch = consume->prefetch;
    consumer->priority = consume->priority;
    consumer->timeout_ms = consume->timeout_ms;
    if (consume->timeout_ms)
        om_queues_note_timeout(subscriber->conn->engine, consume->timeout_ms);
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

int om_consumer_start(om_subscriber *subscriber, const om_consume *consume, const uint8_t *ok, size_t len) {
    om_engine *engine = subscriber->conn->engine;
    om_queue *queue = om_queue_find(engine, consume->queue);
    if (!queue)
        return OM_E_GONE;
    if (consume->tag.len > 255 || consume->tag.len < 0)
        return OM_E_INVALID;
    if (om_consumer_find(subscriber, consume->tag))
        return OM_E_EXISTS;
    if (has_too_many(subscriber))
        return OM_E_LIMIT;
    if (queue->exclusive || ((consume->flags & OM_CONSUME_EXCLUSIVE) && queue->consumer_count))
        return OM_E_LOCKED;
    om_consumer *consumer = consumer_new(subscriber, queue, consume);
    if (!consumer)
        return OM_E_NO_MEMORY;
    if (om_queue_is_stream(queue))
        om_stream_start_at(consumer, consume);
    if (join_queue(queue, consumer) != OM_OK) {
        om_consumer_unref(consumer);
        return OM_E_NO_MEMORY;
    }
    join_subscriber(subscriber, consumer);
    om_conn_put_bytes(subscriber->conn, ok, len);
    return OM_OK;
}

int om_consumer_start_unqueued(om_subscriber *subscriber, om_span tag, om_consumer **out) {
    om_consume consume = {.tag = tag, .flags = OM_CONSUME_NO_ACK};
    if (tag.len > 255)
        return OM_E_INVALID;
    if (om_consumer_find(subscriber, tag))
        return OM_E_EXISTS;
    if (has_too_many(subscriber))
        return OM_E_LIMIT;
    *out = consumer_new(subscriber, NULL, &consume);
    if (!*out)
        return OM_E_NO_MEMORY;
    join_subscriber(subscriber, *out);
    return OM_OK;
}
