/* queue_deadlines.c -- queues by the time at which their head must be looked at: a binary heap.
 *
 * A queue is in it once, whatever its length, and only if its head can expire.
 */
#include "queue/queue_deadlines.h"
#include "queue/queues.h"

#include <stdlib.h>

static void put(om_deadlines *deadlines, uint32_t index, om_queue *queue) {
    deadlines->heap[index] = queue;
    queue->timer_index = index;
}

static void rise(om_deadlines *deadlines, uint32_t index) {
    om_queue *queue = deadlines->heap[index];
    while (index > 1 && deadlines->heap[index / 2]->timer_at > queue->timer_at) {
        put(deadlines, index, deadlines->heap[index / 2]);
        index /= 2;
    }
    put(deadlines, index, queue);
}

static void sink(om_deadlines *deadlines, uint32_t index) {
    om_queue *queue = deadlines->heap[index];
    for (;;) {
        uint32_t child = index * 2;
        if (child > deadlines->count)
            break;
        if (child < deadlines->count && deadlines->heap[child + 1]->timer_at < deadlines->heap[child]->timer_at)
            child++;
        if (deadlines->heap[child]->timer_at >= queue->timer_at)
            break;
        put(deadlines, index, deadlines->heap[child]);
        index = child;
    }
    put(deadlines, index, queue);
}

void om_deadline_clear(om_queue *queue) {
    om_deadlines *deadlines = &queue->engine->queues->deadlines;
    uint32_t index = queue->timer_index;
    if (!index)
        return;
    queue->timer_index = 0;
    queue->timer_at = INT64_MAX;
    om_queue *last = deadlines->heap[deadlines->count--];
    if (last == queue)
        return;
    put(deadlines, index, last);
    rise(deadlines, index);
    sink(deadlines, last->timer_index);
}

void om_deadline_set(om_queue *queue, int64_t at_ms) {
    om_deadlines *deadlines = &queue->engine->queues->deadlines;
    if (queue->timer_index) {
        queue->timer_at = at_ms;
        rise(deadlines, queue->timer_index);
        sink(deadlines, queue->timer_index);
        return;
    }
    if (deadlines->count + 2 > deadlines->cap) {
        uint32_t cap = deadlines->cap ? deadlines->cap * 2 : 64;
        om_queue **heap = realloc(deadlines->heap, cap * sizeof *heap);
        if (!heap)
            return; /* its head goes when somebody next looks at it */
        deadlines->heap = heap;
        deadlines->cap = cap;
    }
    queue->timer_at = at_ms;
    put(deadlines, ++deadlines->count, queue);
    rise(deadlines, deadlines->count);
}

void om_deadline_run(om_engine *engine) {
    om_deadlines *deadlines = &engine->queues->deadlines;
    while (deadlines->count && deadlines->heap[1]->timer_at <= engine->now_ms) {
        om_queue *queue = deadlines->heap[1];
        om_deadline_clear(queue);
        om_queue_look_again(queue);
        om_queue_activate(queue);
    }
}

int64_t om_deadline_next(const om_engine *engine) {
    const om_deadlines *deadlines = &engine->queues->deadlines;
    return deadlines->count ? deadlines->heap[1]->timer_at : INT64_MAX;
}
