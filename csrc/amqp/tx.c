/* tx.c -- AMQP transactions: publishes and acks are collected, and happen together or not at all.
 *
 * The commit is one atomic record of the WAL over all its queues; commit-ok is sent when that is on disk. Rejections
 * and returns take effect with the commit, behind the record: a crash in between loses nothing.
 *
 * A full queue may reject its publishes: the rest of the transaction happens, and the client gets an error that says
 * it was partial, as from RabbitMQ.
 */
#include "amqp/tx.h"
#include "amqp/ack.h"
#include "amqp/amqp.h"
#include "amqp/direct_reply_to.h"
#include "net/engine_core.h"
#include "store/atomic.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    struct entry *next;
    om_route *route; /* held */
    uint8_t key_len, mandatory, priority;
    uint32_t tail_len;
    int32_t body_len;
    uint32_t properties_len;
    uint8_t exchange_len;
    int64_t delay_ms;
    uint8_t bytes[]; /* exchange, key, tail, properties, body */
} entry;

typedef struct settled {
    uint64_t tag;
    int fate;
} settled;

typedef struct om_tx {
    entry *first, *last;
    settled *settles;
    uint32_t settle_count, settle_cap;
    om_rejected_list rejects; /* of the commit under way */
} om_tx;

static uint8_t *put(uint8_t *at, const void *data, size_t len) {
    if (len)
        memcpy(at, data, len);
    return at + len;
}

int om_tx_publish(om_channel *channel, om_route *route, om_span body) {
    om_tx *tx = channel->tx;
    const om_publish_target *target = &channel->target;
    const om_props_cache *props = &channel->props;
    size_t size =
        (size_t)target->exchange.len + (size_t)target->key.len + props->tail_len + props->len + (size_t)body.len;
    om_engine *engine = channel->conn->engine;
    /* Holding such a publisher back would hold its commit back, too: it is refused. */
    if (engine->amqp->tx_bytes + size > engine->options.memory_limit / 2)
        return OM_E_LIMIT;
    entry *added = malloc(sizeof *added + size);
    if (!added)
        return OM_E_NO_MEMORY;
    *added = (entry){
        .route = route,
        .exchange_len = (uint8_t)target->exchange.len,
        .key_len = (uint8_t)target->key.len,
        .mandatory = target->bits & 1,
        .priority = props->priority,
        .tail_len = props->tail_len,
        .properties_len = props->len,
        .body_len = body.len,
        .delay_ms = props->delay_ms,
    };
    uint8_t *at = put(added->bytes, target->exchange.data, (size_t)target->exchange.len);
    at = put(at, target->key.data, (size_t)target->key.len);
    at = put(at, props->tail, props->tail_len);
    at = put(at, props->data, props->len);
    put(at, body.data, (size_t)body.len);
    route->refs++;
    channel->tx_bytes += sizeof *added + size;
    engine->amqp->tx_bytes += sizeof *added + size;
    *(tx->last ? &tx->last->next : &tx->first) = added;
    tx->last = added;
    return OM_OK;
}

int om_tx_settle(om_channel *channel, om_unacked *unacked, int fate) {
    om_tx *tx = channel->tx;
    if (tx->settle_count == tx->settle_cap) {
        uint32_t cap = tx->settle_cap ? tx->settle_cap * 2 : 16;
        void *settles = realloc(tx->settles, cap * sizeof *tx->settles);
        if (!settles)
            return OM_E_NO_MEMORY;
        tx->settles = settles;
        tx->settle_cap = cap;
    }
    tx->settles[tx->settle_count].tag = unacked->tag;
    tx->settles[tx->settle_count++].fate = fate;
    unacked->in_tx = 1;
    return OM_OK;
}

static void forget(om_channel *channel) {
    om_tx *tx = channel->tx;
    channel->conn->engine->amqp->tx_bytes -= channel->tx_bytes;
    channel->tx_bytes = 0;
    while (tx->first) {
        entry *gone = tx->first;
        tx->first = gone->next;
        om_route_unref(gone->route);
        free(gone);
    }
    tx->last = NULL;
    tx->settle_count = 0;
}

void om_tx_free(om_channel *channel) {
    if (!channel->tx)
        return;
    forget(channel);
    free(channel->tx->settles);
    free(channel->tx->rejects.items);
    free(channel->tx);
    channel->tx = NULL;
}

/* ---- commit ---- */

/* Which of its route's queues a message is for: the first one of a delayed exchange is where it waits. */
typedef struct targets {
    int32_t first, end;
} targets;

static targets targets_of(const entry *entry) {
    int32_t count = entry->route->count;
    if (!(entry->route->flags & OM_ROUTE_DELAY))
        return (targets){0, count};
    return entry->delay_ms > 0 ? (targets){0, 1} : (targets){1, count};
}

static int stage_publish(om_channel *channel, om_atomic *atomic, const entry *entry) {
    om_span key = {entry->bytes + entry->exchange_len, entry->key_len};
    om_span tail = {key.data + key.len, (int32_t)entry->tail_len};
    om_span body = {tail.data + tail.len + entry->properties_len, entry->body_len};
    targets to = targets_of(entry);
    for (int32_t i = to.first; i < to.end; i++) {
        int result = om_reject_publish_stage(atomic, &channel->tx->rejects, entry->route->queues[i], entry->priority,
                                             key, body, tail);
        if (result != OM_OK)
            return result;
    }
    return OM_OK;
}

static int by_tag(const void *one, const void *other) {
    uint64_t a = ((const settled *)one)->tag, b = ((const settled *)other)->tag;
    return (a > b) - (a < b);
}

/* As RabbitMQ has it: those of the same fate that follow each other go in the order they were
 * delivered in, whatever the order they were settled in. So dead letters keep their queue's. */
static void put_in_order(om_tx *tx) {
    for (uint32_t i = 0, end; i < tx->settle_count; i = end) {
        for (end = i + 1; end < tx->settle_count && tx->settles[end].fate == tx->settles[i].fate;)
            end++;
        qsort(tx->settles + i, end - i, sizeof *tx->settles, by_tag);
    }
}

static int stage_settles(om_channel *channel, om_atomic *atomic) {
    const om_tx *tx = channel->tx;
    for (uint32_t i = 0; i < tx->settle_count; i++) {
        om_unacked *unacked = om_unacked_at(&channel->unacked, tx->settles[i].tag);
        if (!unacked || tx->settles[i].fate != OM_ACKED || unacked->queue->removed ||
            om_queue_is_stream(unacked->queue))
            continue;
        om_log *log = unacked->queue->lanes[unacked->lane].log;
        int result =
            log->deleted ? OM_OK : om_atomic_settle(atomic, log, unacked->offset, unacked->offset, unacked->weight);
        if (result != OM_OK)
            return result;
    }
    return OM_OK;
}

/* The record stands: what it did is shown. */
static void conclude(om_channel *channel) {
    om_tx *tx = channel->tx;
    for (entry *entry = tx->first; entry; entry = entry->next) {
        targets to = targets_of(entry);
        channel->conn->published++;
        for (int32_t i = to.first; i < to.end; i++) {
            entry->route->queues[i]->published++;
            om_queue_activate(entry->route->queues[i]);
        }
        om_span exchange = {entry->bytes, entry->exchange_len};
        om_span key = {exchange.data + exchange.len, entry->key_len};
        om_span properties = {key.data + key.len + entry->tail_len, (int32_t)entry->properties_len};
        om_span body = {properties.data + properties.len, entry->body_len};
        if (!om_reply_answer(channel, exchange, key, properties, body) && entry->mandatory && to.first == to.end)
            om_publish_return(channel, exchange, key, properties, body);
    }
    if (channel->subscriber.limit)
        om_channel_wake_queues(channel); /* in its order, and not in the order of what was settled */
    for (uint32_t i = 0; i < tx->settle_count; i++) {
        om_unacked *unacked = om_unacked_at(&channel->unacked, tx->settles[i].tag);
        if (!unacked)
            continue;
        om_queue *queue = unacked->queue;
        int fate = tx->settles[i].fate;
        if (fate == OM_RETURNED || fate == OM_FAILED) {
            om_ack_return(channel, unacked, fate == OM_FAILED);
            continue;
        }
        if (fate == OM_REJECTED && !queue->removed && !om_queue_is_stream(queue))
            om_dead_letter_add(queue, unacked->lane, unacked->offset, unacked->weight, OM_DEATH_REJECTED);
        queue->acked++;
        om_queue_activate(queue);
        om_unacked_done(channel, unacked);
    }
    forget(channel);
}

int om_tx_commit(om_channel *channel, const uint8_t *ok, size_t len) {
    om_engine *engine = channel->conn->engine;
    om_tx *tx = channel->tx;
    uint64_t seq = 0;
    uint8_t *frame = malloc(len);
    om_atomic *atomic = om_atomic_new(engine->store);
    int result = frame && atomic ? OM_OK : OM_E_NO_MEMORY;
    put_in_order(tx);
    for (const entry *entry = tx->first; entry && result == OM_OK; entry = entry->next)
        result = stage_publish(channel, atomic, entry);
    if (result == OM_OK)
        result = stage_settles(channel, atomic);
    om_reject_publish_seal(&tx->rejects);
    if (result == OM_OK)
        result = om_atomic_commit_held(atomic, &seq);
    else if (atomic)
        om_atomic_abandon(atomic);
    int partial = tx->rejects.count > 0;
    om_reject_publish_end(&tx->rejects, result == OM_OK);
    if (result != OM_OK) {
        free(frame);
        return result;
    }
    memcpy(frame, ok, len);
    conclude(channel);
    if (partial) {
        free(frame);
        return OM_TX_PARTIAL;
    }
    result = om_confirm_push(channel, seq, channel->good_tag, frame, (uint32_t)len);
    if (result != OM_OK)
        free(frame);
    return result;
}

int om_tx_select(om_channel *channel) {
    if (!channel->tx)
        channel->tx = calloc(1, sizeof *channel->tx);
    return channel->tx ? OM_OK : OM_E_NO_MEMORY;
}

void om_tx_rollback(om_channel *channel) {
    for (uint32_t i = 0; i < channel->tx->settle_count; i++) {
        om_unacked *unacked = om_unacked_at(&channel->unacked, channel->tx->settles[i].tag);
        if (unacked)
            unacked->in_tx = 0;
    }
    forget(channel);
}
