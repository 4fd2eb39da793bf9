/* hot.c -- the hot tail: sealed batches that still live in memory, in offset order.
 *
 * A ring of small structs and no list of nodes: a log with a busy tail costs one allocation,
 * an idle one none, and a reader finds its batch by binary search.
 */
#include "store/hot.h"

#include "format/batch.h"

#include <stdlib.h>
#include <string.h>

om_hot *om_hot_at(const om_hot_ring *ring, uint32_t index) {
    return &ring->slots[(ring->head + index) & (ring->cap - 1)];
}

int om_hot_push(om_hot_ring *ring, const om_hot *hot) {
    if (ring->count == ring->cap) {
        uint32_t cap = ring->cap ? ring->cap * 2 : 4;
        om_hot *slots = malloc(cap * sizeof *slots);
        if (!slots)
            return OM_E_NO_MEMORY;
        for (uint32_t i = 0; i < ring->count; i++)
            slots[i] = *om_hot_at(ring, i);
        free(ring->slots);
        ring->slots = slots;
        ring->cap = cap;
        ring->head = 0;
    }
    ring->count++;
    *om_hot_at(ring, ring->count - 1) = *hot;
    return OM_OK;
}

static void release_when_empty(om_hot_ring *ring) {
    if (ring->count)
        return;
    /* A small ring is kept for the next tick: busy logs empty and fill theirs all the time. */
    if (ring->cap > 4) {
        free(ring->slots);
        ring->slots = NULL;
        ring->cap = 0;
    }
    ring->head = 0;
}

void om_hot_drop_head(om_hot_ring *ring, uint32_t count) {
    ring->head = (ring->head + count) & (ring->cap - 1);
    ring->count -= count;
    release_when_empty(ring);
}

void om_hot_drop_tail(om_hot_ring *ring, uint32_t count) {
    ring->count -= count;
    release_when_empty(ring);
}

uint32_t om_hot_find(const om_hot_ring *ring, int64_t offset) {
    uint32_t low = 0, high = ring->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (om_hot_at(ring, mid)->last_offset < offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint32_t om_hot_durable(const om_hot_ring *ring, uint64_t durable) {
    if (!ring->count || om_hot_at(ring, ring->count - 1)->seq <= durable)
        return ring->count;
    uint32_t low = 0, high = ring->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (om_hot_at(ring, mid)->seq <= durable)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void om_hot_put_head(const om_hot *hot, uint8_t head[OM_BATCH_HEAD]) {
    memcpy(head, hot->bytes->data, OM_BATCH_HEAD);
    om_batch_patch(head, hot->base_offset, hot->leader_epoch);
}
