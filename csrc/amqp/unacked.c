/* unacked.c -- the unsettled deliveries of a channel: tag -> (queue, offset).
 *
 * Tags count up by one, so a ring holds them: mostly the slot is the tag minus the first one. Acks in order, as
 * nearly all are, take from the head. When one entry stays for long, the holes behind it are closed once they are
 * many, and a tag is then searched for: memory is used by what waits, not by all that has passed.
 */
#include "amqp/unacked.h"
#include "amqp/channel.h"

#include <stdlib.h>

#define FEW 256         /* slots that are not worth closing holes for */
#define LOOKED_AT 16384 /* in one search for overdue ones: there are two per second, with the lock held */

static om_unacked *slot(const om_unacked_ring *ring, uint32_t index) {
    return &ring->slots[(ring->head + index) & (ring->cap - 1)];
}

om_unacked *om_unacked_push(om_unacked_ring *ring) {
    if (ring->count == ring->cap) {
        uint32_t cap = ring->cap ? ring->cap * 2 : 8;
        om_unacked *slots = malloc(cap * sizeof *slots);
        if (!slots)
            return NULL;
        for (uint32_t i = 0; i < ring->count; i++)
            slots[i] = *slot(ring, i);
        free(ring->slots);
        ring->slots = slots;
        ring->cap = cap;
        ring->head = 0;
    }
    om_unacked *entry = slot(ring, ring->count++);
    *entry = (om_unacked){.tag = ring->next_tag++};
    ring->live++;
    return entry;
}

uint64_t om_unacked_skip(om_unacked_ring *ring) {
    return ring->next_tag++;
}

/* The first slot whose tag isn't below this one; `count` when there is none. */
static uint32_t find(const om_unacked_ring *ring, uint64_t tag) {
    uint64_t first = ring->count ? slot(ring, 0)->tag : 0;
    if (!ring->count || tag <= first)
        return 0;
    uint32_t low = 0, high = tag - first < ring->count ? (uint32_t)(tag - first) : ring->count;
    if (high < ring->count && slot(ring, high)->tag == tag)
        return high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (slot(ring, middle)->tag < tag)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

om_unacked *om_unacked_at(om_unacked_ring *ring, uint64_t tag) {
    uint32_t index = find(ring, tag);
    om_unacked *entry = index < ring->count ? slot(ring, index) : NULL;
    return entry && entry->tag == tag && entry->queue ? entry : NULL;
}

om_unacked *om_unacked_from(om_unacked_ring *ring, uint64_t tag) {
    for (uint32_t index = find(ring, tag); index < ring->count; index++)
        if (slot(ring, index)->queue)
            return slot(ring, index);
    return NULL;
}

int64_t om_unacked_timeout(const om_unacked *entry) {
    const om_consumer *consumer = entry->consumer;
    return consumer && consumer->timeout_ms ? consumer->timeout_ms : entry->queue->options.consumer_timeout_ms;
}

/* In the ring they lie as they were given out: the first that is too young for any time-out ends the
 * search. What is left of its second is given to each, so that none is called late too soon. */
const om_unacked *om_unacked_overdue(om_unacked_ring *ring, int64_t now_ms, int64_t shortest) {
    uint32_t from = find(ring, ring->looked_at),
             until = ring->count - from > LOOKED_AT ? from + LOOKED_AT : ring->count;
    ring->looked_at = 0;
    for (uint32_t i = from; i < until; i++) {
        const om_unacked *entry = slot(ring, i);
        int64_t kept = now_ms - ((int64_t)entry->since_s + 1) * 1000;
        if (kept < shortest)
            return NULL;
        int64_t timeout = entry->queue ? om_unacked_timeout(entry) : -1;
        if (timeout >= 0 && kept >= timeout)
            return entry;
    }
    if (until < ring->count)
        ring->looked_at = slot(ring, until)->tag;
    return NULL;
}

static void close_holes(om_unacked_ring *ring) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ring->count; i++)
        if (slot(ring, i)->queue)
            *slot(ring, kept++) = *slot(ring, i);
    ring->count = kept;
}

void om_unacked_done(om_channel *channel, om_unacked *entry) {
    om_unacked_ring *ring = &channel->unacked;
    om_queue_unref(entry->queue);
    entry->queue = NULL;
    if (entry->consumer) {
        entry->consumer->unacked--;
        channel->subscriber.unacked--;
        om_consumer_unref(entry->consumer);
        entry->consumer = NULL;
    }
    ring->live--;
    while (ring->count && !slot(ring, 0)->queue) {
        ring->head = (ring->head + 1) & (ring->cap - 1);
        ring->count--;
    }
    if (ring->count > FEW && ring->live < ring->count / 4)
        close_holes(ring);
    if (!ring->count && ring->cap > 1024) {
        free(ring->slots);
        ring->slots = NULL;
        ring->cap = ring->head = 0;
    }
}
