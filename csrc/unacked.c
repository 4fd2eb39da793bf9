/* unacked.c -- what a channel has been given and not settled: tag -> (queue, offset).
 *
 * Tags count up by one, so a ring does: the slot is the tag less the first one. Acks in order, as
 * nearly all are, take from the head; a forgotten one keeps the slots behind it.
 */
#include "engine.h"

#include <stdlib.h>

static om_unacked *slot(om_unacked_ring *ring, uint32_t index) {
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
    memset(entry, 0, sizeof *entry);
    ring->live++;
    return entry;
}

uint64_t om_unacked_skip(om_unacked_ring *ring) {
    if (!ring->count)
        return ring->first_tag++;
    uint64_t tag = ring->first_tag + ring->count;
    if (!om_unacked_push(ring))
        return 0;
    ring->live--;
    return tag;
}

om_unacked *om_unacked_at(om_unacked_ring *ring, uint64_t tag) {
    if (tag < ring->first_tag || tag - ring->first_tag >= ring->count)
        return NULL;
    om_unacked *entry = slot(ring, (uint32_t)(tag - ring->first_tag));
    return entry->queue ? entry : NULL;
}

void om_unacked_done(om_unacked_ring *ring, om_unacked *entry) {
    om_queue_unref(entry->queue);
    entry->queue = NULL;
    if (entry->consumer) {
        entry->consumer->unacked--;
        om_consumer_unref(entry->consumer);
        entry->consumer = NULL;
    }
    ring->live--;
    while (ring->count && !slot(ring, 0)->queue) {
        ring->head = (ring->head + 1) & (ring->cap - 1);
        ring->count--;
        ring->first_tag++;
    }
    if (!ring->count && ring->cap > 1024) {
        free(ring->slots);
        ring->slots = NULL;
        ring->cap = ring->head = 0;
    }
}
