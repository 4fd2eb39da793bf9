/* engine_api.c -- Python's calls about the engine as a whole.
 *
 * Each call of Python's happens between two ticks. A function of ottermq.h that enters the engine stands in the
 * *_api.c of its object: om_conn_* in conn_api.c, om_queue_* in queue_api.c, and so on.
 */
#define _GNU_SOURCE
#include "amqp/amqp.h"
#include "amqp/amqp_conn.h"
#include "engine/engine.h"
#include "kafka/kafka.h"
#include "store/news.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- life ---- */

/* It serves the store, too, from now on. Its first tick waits for the lock. */
static int start_thread(om_engine *engine) {
    om_store *store = engine->store;
    struct epoll_event watch = {.events = EPOLLIN, .data.u64 = OM_NEWS_EVENT};
    if (epoll_ctl(engine->poll_fd, EPOLL_CTL_ADD, store->news_fd, &watch) != 0)
        return OM_E_IO;
    om_news_stop(store);
    om_store_enter(store);
    engine->loop->running = pthread_create(&engine->loop->thread, NULL, om_engine_main, engine) == 0;
    om_store_leave(store);
    if (!engine->loop->running) {
        om_news_start(store);
        return OM_E_NO_MEMORY;
    }
    pthread_setname_np(engine->loop->thread, "otter-engine"); /* for top and perf */
    return OM_OK;
}

static void stop_thread(om_engine *engine) {
    __atomic_store_n(&engine->loop->stopping, 1, __ATOMIC_RELEASE);
    om_news_ring(engine->store);
    pthread_join(engine->loop->thread, NULL);
    engine->loop->running = 0;
    om_news_start(engine->store); /* without memory nobody does: the store is closed next */
}

/* One block: each part is known to its folder, and to those above it. */
typedef struct block {
    om_engine engine;
    om_queues queues;
    om_amqp amqp;
    struct om_kafka kafka;
    om_loop loop;
} block;

static om_engine *allocate(om_store *store, const om_engine_options *options) {
    block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    om_engine *engine = &block->engine;
    engine->queues = &block->queues;
    engine->amqp = &block->amqp;
    engine->kafka = &block->kafka;
    engine->loop = &block->loop;
    engine->store = store;
    engine->options = *options;
    engine->protocols[OM_PROTOCOL_AMQP] = &om_amqp_protocol;
    engine->protocols[OM_PROTOCOL_KAFKA] = &om_kafka_protocol;
    return engine;
}

static int init(om_engine *engine) {
    const om_engine_options *options = &engine->options;
    om_engine_read_clocks(engine);
    engine->events.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    engine->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    engine->permissions = engine->loop->listening = 1;
    engine->loop->swept_ms = engine->now_ms;
    engine->loop->sleeps_until = INT64_MAX;
    pthread_mutex_init(&engine->events.mutex, NULL);
    /* What is left of a frame, and what a connection may bring. */
    engine->scratch = malloc((size_t)options->frame_max + OM_FRAME_OVERHEAD + 2 * OM_READ_BUDGET);
    engine->rewrite_cap = (size_t)options->frame_max + 4096;
    engine->rewrite = malloc(engine->rewrite_cap);
    engine->unauth = om_unauth_new();
    int queues = om_queues_init(engine), kafka = om_kafka_init(engine);
    if (engine->events.fd < 0 || engine->poll_fd < 0)
        return OM_E_IO;
    return engine->scratch && engine->rewrite && engine->unauth && queues == OM_OK ? kafka : OM_E_NO_MEMORY;
}

om_engine *om_engine_new(om_store *store, const om_engine_options *options) {
    om_engine *engine = allocate(store, options);
    if (!engine)
        return NULL;
    if (init(engine) != OM_OK || start_thread(engine) != OM_OK) {
        om_engine_free(engine);
        return NULL;
    }
    return engine;
}

void om_engine_start(om_engine *engine) {
    om_engine_enter(engine);
    om_queues_start(engine);
    om_engine_leave(engine);
    om_news_ring(engine->store);
}

static void free_queues(om_engine *engine) {
    const om_queues *queues = engine->queues;
    for (uint32_t i = 0; i < queues->buckets; i++)
        while (queues->by_id[i])
            om_queue_remove(engine, queues->by_id[i]->id);
    om_engine_enter(engine);
    om_queues_clear(engine);
    om_store_leave(engine->store);
}

void om_engine_free(om_engine *engine) {
    if (engine->loop->running) {
        om_engine_stop_listening(engine);
        om_engine_enter(engine);
        for (uint32_t i = 0; i < engine->conn_cap; i++)
            if (engine->conns[i])
                om_conn_break(engine->conns[i], "broker stopped");
        om_engine_leave(engine);
        om_engine_enter(engine);
        om_routes_clear(engine);
        om_kafka_clear(engine);
        om_engine_leave(engine);
        free_queues(engine);
        stop_thread(engine);
    }
    om_kafka_free(engine);
    om_queues_free(engine);
    om_event *event;
    while ((event = om_engine_next_event(engine)))
        om_event_free(event);
    if (engine->events.fd >= 0)
        close(engine->events.fd);
    if (engine->poll_fd >= 0)
        close(engine->poll_fd);
    pthread_mutex_destroy(&engine->events.mutex);
    om_spares_clear(&engine->spares);
    free(engine->conns);
    free(engine->free_slots);
    free(engine->scratch);
    free(engine->rewrite);
    free(engine->unauth);
    free(engine); /* the block's first member */
}

int om_engine_listen(om_engine *engine, int fd, int protocol) {
    om_engine_enter(engine);
    int result = om_listener_add(engine, fd, protocol);
    om_engine_leave(engine);
    om_news_ring(engine->store);
    return result;
}

void om_engine_stop_listening(om_engine *engine) {
    om_engine_enter(engine);
    om_listeners_close(engine);
    om_engine_leave(engine);
}

/* ---- settings and figures ---- */

void om_engine_set_limits(om_engine *engine, uint64_t memory_limit, uint64_t max_message_size) {
    om_engine_enter(engine);
    engine->options.memory_limit = memory_limit;
    engine->options.max_message_size = max_message_size;
    om_engine_leave(engine);
}

void om_engine_stat_get(om_engine *engine, om_engine_stat *out) {
    om_engine_enter(engine);
    *out = engine->stat;
    out->connections = engine->conn_count;
    out->queues = engine->queues->count;
    out->routes = engine->queues->routes.count;
    out->blocked = engine->loop->alarm != NULL;
    for (uint32_t i = 0; i < engine->conn_cap; i++)
        out->output_bytes += engine->conns[i] ? engine->conns[i]->out.bytes : 0;
    for (uint32_t i = 0; i < engine->queues->buckets; i++)
        for (const om_queue *queue = engine->queues->by_id[i]; queue; queue = queue->next_by_id)
            out->consumers += queue->consumer_count;
    om_engine_leave(engine);
}

void om_engine_forget_permissions(om_engine *engine) {
    om_ticket_lock_take(&engine->store->lock);
    engine->permissions++;
    om_ticket_lock_give(&engine->store->lock);
}
