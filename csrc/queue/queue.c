/* queue.c -- a queue: found by number or name, created, changed, removed; the lists that it is on. */
#include "queue/queue.h"
#include "queue/queues.h"

#include <stdlib.h>
#include <string.h>

/* ---- the tables ---- */

static uint32_t id_bucket(const om_queues *queues, uint64_t id) {
    return (uint32_t)(id * 0x9E3779B97F4A7C15u >> 32) & (queues->buckets - 1);
}

static uint32_t name_bucket(const om_queues *queues, uint32_t vhost, const uint8_t *name, size_t len) {
    return om_crc32c(vhost, name, len) & (queues->buckets - 1);
}

om_queue *om_queue_find(om_engine *engine, uint64_t id) {
    const om_queues *queues = engine->queues;
    om_queue *queue = queues->by_id[id_bucket(queues, id)];
    while (queue && queue->id != id)
        queue = queue->next_by_id;
    return queue;
}

om_queue *om_queue_named(om_engine *engine, uint32_t vhost, const uint8_t *name, size_t len) {
    const om_queues *queues = engine->queues;
    om_queue *queue = queues->by_name[name_bucket(queues, vhost, name, len)];
    while (queue && !(queue->vhost == vhost && queue->name_len == len && memcmp(queue->name, name, len) == 0))
        queue = queue->next_by_name;
    return queue;
}

static void link_queue(om_queues *queues, om_queue *queue) {
    om_queue **slot = &queues->by_id[id_bucket(queues, queue->id)];
    queue->next_by_id = *slot;
    *slot = queue;
    slot = &queues->by_name[name_bucket(queues, queue->vhost, queue->name, queue->name_len)];
    queue->next_by_name = *slot;
    *slot = queue;
}

static void unlink_queue(om_queues *queues, om_queue *queue) {
    om_queue **slot = &queues->by_id[id_bucket(queues, queue->id)];
    while (*slot != queue)
        slot = &(*slot)->next_by_id;
    *slot = queue->next_by_id;
    slot = &queues->by_name[name_bucket(queues, queue->vhost, queue->name, queue->name_len)];
    while (*slot != queue)
        slot = &(*slot)->next_by_name;
    *slot = queue->next_by_name;
}

static int grow_tables(om_queues *queues) {
    uint32_t old = queues->buckets;
    om_queue **by_id = queues->by_id, **by_name = queues->by_name;
    om_queue **wider_id = calloc((size_t)old * 4, sizeof *wider_id);
    om_queue **wider_name = calloc((size_t)old * 4, sizeof *wider_name);
    if (!wider_id || !wider_name) {
        free(wider_id);
        free(wider_name);
        return OM_E_NO_MEMORY;
    }
    queues->by_id = wider_id;
    queues->by_name = wider_name;
    queues->buckets = old * 4;
    for (uint32_t i = 0; i < old; i++) {
        for (om_queue *queue = by_id[i], *next; queue; queue = next) {
            next = queue->next_by_id;
            link_queue(queues, queue);
        }
    }
    free(by_id);
    free(by_name);
    return OM_OK;
}

/* ---- life ---- */

void om_queue_ref(om_queue *queue) {
    queue->refs++;
}

static void free_readers(om_queue *queue) {
    for (int32_t i = 0; i < queue->lane_count; i++) {
        om_queue_reader_free(queue->lanes[i].reader);
        queue->lanes[i].reader = NULL;
    }
}

void om_queue_look_again(om_queue *queue) {
    for (int32_t i = 0; i < queue->lane_count; i++)
        queue->lanes[i].seen = -1;
}

void om_queue_rest(om_queue *queue) {
    for (int32_t i = 0; i < queue->lane_count; i++)
        if (queue->lanes[i].reader)
            om_queue_reader_rest(queue->lanes[i].reader);
}

void om_queue_unref(om_queue *queue) {
    if (--queue->refs)
        return;
    free_readers(queue);
    for (int32_t i = 0; i < queue->lane_count; i++)
        om_log_release(queue->lanes[i].log);
    free(queue->lanes);
    free(queue->consumers);
    free(queue->dead_letters);
    free(queue->dues);
    free(queue->asked);
    free(queue->dlx);
    free(queue->dlrk);
    free(queue->name);
    free(queue);
}

static int copy_span(uint8_t **kept, om_span *span) {
    uint8_t *copy = malloc(span->len > 0 ? (size_t)span->len : 1);
    if (!copy)
        return OM_E_NO_MEMORY;
    if (span->len > 0)
        memcpy(copy, span->data, (size_t)span->len);
    free(*kept);
    *kept = copy;
    *span = (om_span){copy, span->len > 0 ? span->len : 0};
    return OM_OK;
}

int om_queue_set_options(om_queue *queue, const om_queue_options *options) {
    om_queue_options wanted = *options;
    if (wanted.dlx.len > 255 || wanted.dlrk.len > 255)
        return OM_E_INVALID;
    if (copy_span(&queue->dlx, &wanted.dlx) != OM_OK || copy_span(&queue->dlrk, &wanted.dlrk) != OM_OK)
        return OM_E_NO_MEMORY;
    queue->options = wanted;
    om_queues_note_timeout(queue->engine, wanted.consumer_timeout_ms);
    om_queue_look_again(queue);
    if (queue->dead_route)
        om_route_unref(queue->dead_route);
    queue->dead_route = NULL;
    return OM_OK;
}

static om_queue *queue_new(om_engine *engine, uint64_t id, uint32_t vhost, const uint8_t *name, size_t len,
                           om_log **logs, int32_t log_count, const om_queue_options *options) {
    om_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    queue->engine = engine;
    queue->id = id;
    queue->vhost = vhost;
    queue->refs = 1;
    queue->timer_at = INT64_MAX;
    queue->touched_ms = engine->now_ms;
    queue->name = malloc(len ? len : 1);
    queue->lanes = calloc((size_t)log_count, sizeof *queue->lanes);
    if (!queue->name || !queue->lanes || om_queue_set_options(queue, options) != OM_OK) {
        om_queue_unref(queue);
        return NULL;
    }
    memcpy(queue->name, name, len);
    queue->name_len = (uint8_t)len;
    for (; queue->lane_count < log_count; queue->lane_count++) {
        queue->lanes[queue->lane_count].log = logs[queue->lane_count];
        queue->lanes[queue->lane_count].seen = -1;
        om_log_ref(logs[queue->lane_count]);
    }
    return queue;
}

int om_queue_new(om_engine *engine, uint64_t id, uint32_t vhost, const uint8_t *name, size_t len, om_log **logs,
                 int32_t log_count, const om_queue_options *options) {
    if (om_queue_find(engine, id) || om_queue_named(engine, vhost, name, len))
        return OM_E_EXISTS;
    om_queue *queue = queue_new(engine, id, vhost, name, len, logs, log_count, options);
    if (!queue)
        return OM_E_NO_MEMORY;
    om_queues *queues = engine->queues;
    if (queues->count >= queues->buckets)
        grow_tables(queues); /* without memory the chains get longer */
    link_queue(queues, queue);
    queues->count++;
    om_queue_activate(queue); /* what it holds from before may expire, or wait for its delay */
    return OM_OK;
}

void om_queue_drop(om_queue *queue) {
    om_queues *queues = queue->engine->queues;
    unlink_queue(queues, queue);
    queues->count--;
    if (queue->dead_route)
        om_route_unref(queue->dead_route);
    queue->dead_route = NULL;
    free_readers(queue);
    om_queue_unref(queue);
}

/* ---- lists ---- */

void om_queue_activate(om_queue *queue) {
    om_queues *queues = queue->engine->queues;
    if (queue->on_active || queue->removed)
        return;
    queue->on_active = 1;
    queue->next_active = NULL;
    om_queue_ref(queue);
    *(queues->active_tail ? &queues->active_tail->next_active : &queues->active) = queue;
    queues->active_tail = queue;
}

void om_queue_wait(om_queue *queue) {
    om_queues *queues = queue->engine->queues;
    if (queue->on_waiting || queue->removed)
        return;
    queue->on_waiting = 1;
    om_queue_ref(queue);
    queue->next_waiting = queues->waiting;
    queues->waiting = queue;
}

/* ---- questions ---- */

int om_queue_is_stream(const om_queue *queue) {
    return (queue->options.flags & OM_QUEUE_STREAM) != 0;
}
