/* queues.c -- all queues of an engine: those that act in this tick, and those that wait for the disk. */
#include "queue/queues.h"
#include "queue/queue_pump.h"

#include <stdlib.h>

#define PUMP_ROUNDS 4 /* dead letters may reader queues that are pumped already */

/* ---- life ---- */

int om_queues_init(om_engine *engine) {
    om_queues *queues = engine->queues;
    queues->buckets = 256;
    queues->by_id = calloc(queues->buckets, sizeof *queues->by_id);
    queues->by_name = calloc(queues->buckets, sizeof *queues->by_name);
    queues->foreign = malloc(OM_FOREIGN);
    queues->paused = 1;
    queues->shortest_timeout_ms = INT64_MAX;
    int result = om_routes_init(engine);
    return queues->by_id && queues->by_name && queues->foreign ? result : OM_E_NO_MEMORY;
}

void om_queues_free(om_engine *engine) {
    om_queues *queues = engine->queues;
    om_decompressed_free(engine);
    om_dead_letters_free(engine);
    om_routes_free(engine);
    free(queues->deadlines.heap);
    free(queues->by_id);
    free(queues->by_name);
    free(queues->foreign);
}

void om_queues_start(om_engine *engine) {
    om_queues *queues = engine->queues;
    queues->paused = 0;
    for (uint32_t i = 0; i < queues->buckets; i++)
        for (om_queue *queue = queues->by_id[i]; queue; queue = queue->next_by_id)
            queue->touched_ms = engine->now_ms; /* it couldn't be used before */
}

void om_queues_clear(om_engine *engine) {
    om_queues *queues = engine->queues;
    om_queues_wake(engine);
    while (queues->active) {
        om_queue *queue = queues->active;
        queues->active = queue->next_active;
        queue->on_active = 0;
        om_queue_unref(queue);
    }
    queues->active_tail = NULL;
}

/* ---- the tick ---- */

void om_queues_wake(om_engine *engine) {
    om_queue *queue = engine->queues->waiting;
    engine->queues->waiting = NULL;
    while (queue) {
        om_queue *next = queue->next_waiting;
        queue->on_waiting = 0;
        om_queue_activate(queue);
        om_queue_unref(queue);
        queue = next;
    }
}

void om_queues_pump(om_engine *engine) {
    om_queues *queues = engine->queues;
    for (int round = 0; om_queues_are_due(engine) && round < PUMP_ROUNDS; round++) {
        om_queue *queue = queues->active;
        queues->active = queues->active_tail = NULL;
        while (queue) {
            om_queue *next = queue->next_active;
            queue->on_active = 0;
            om_queue_pump(queue);
            om_queue_unref(queue);
            queue = next;
        }
        om_dead_letter_commit(engine);
    }
}

int om_queues_are_due(const om_engine *engine) {
    return engine->queues->active && !engine->queues->paused;
}

void om_queues_note_timeout(om_engine *engine, int64_t timeout_ms) {
    if (timeout_ms >= 0 && timeout_ms < engine->queues->shortest_timeout_ms)
        engine->queues->shortest_timeout_ms = timeout_ms;
}
