/* queue_deadlines.c -- queues by the time at which their head must be looked at: a binary heap.
 *
 * Only a queue whose head can expire is in it, once, whatever its length.
 */
#include "engine/engine.h"

#include <stdlib.h>

static void put(om_engine *engine, uint32_t index, om_queue *queue) {
    engine->timers[index] = queue;
    queue->timer_index = index;
}

static void rise(om_engine *engine, uint32_t index) {
    om_queue *queue = engine->timers[index];
    while (index > 1 && engine->timers[index / 2]->timer_at > queue->timer_at) {
        put(engine, index, engine->timers[index / 2]);
        index /= 2;
    }
    put(engine, index, queue);
}

static void sink(om_engine *engine, uint32_t index) {
    om_queue *queue = engine->timers[index];
    for (;;) {
        uint32_t child = index * 2;
        if (child > engine->timer_count)
            break;
        if (child < engine->timer_count && engine->timers[child + 1]->timer_at < engine->timers[child]->timer_at)
            child++;
        if (engine->timers[child]->timer_at >= queue->timer_at)
            break;
        put(engine, index, engine->timers[child]);
        index = child;
    }
    put(engine, index, queue);
}

void om_deadline_clear(om_queue *queue) {
    om_engine *engine = queue->engine;
    uint32_t index = queue->timer_index;
    if (!index)
        return;
    queue->timer_index = 0;
    queue->timer_at = INT64_MAX;
    om_queue *last = engine->timers[engine->timer_count--];
    if (last == queue)
        return;
    put(engine, index, last);
    rise(engine, index);
    sink(engine, last->timer_index);
}

void om_deadline_set(om_queue *queue, int64_t at_ms) {
    om_engine *engine = queue->engine;
    if (queue->timer_index) {
        queue->timer_at = at_ms;
        rise(engine, queue->timer_index);
        sink(engine, queue->timer_index);
        return;
    }
    if (engine->timer_count + 2 > engine->timer_cap) {
        uint32_t cap = engine->timer_cap ? engine->timer_cap * 2 : 64;
        om_queue **timers = realloc(engine->timers, cap * sizeof *timers);
        if (!timers)
            return; /* its head goes when somebody next looks at it */
        engine->timers = timers;
        engine->timer_cap = cap;
    }
    queue->timer_at = at_ms;
    put(engine, ++engine->timer_count, queue);
    rise(engine, engine->timer_count);
}

void om_deadline_run(om_engine *engine) {
    while (engine->timer_count && engine->timers[1]->timer_at <= engine->now_ms) {
        om_queue *queue = engine->timers[1];
        om_deadline_clear(queue);
        om_queue_look_again(queue);
        om_queue_activate(queue);
    }
}

int64_t om_deadline_next(const om_engine *engine) {
    return engine->timer_count ? engine->timers[1]->timer_at : INT64_MAX;
}
