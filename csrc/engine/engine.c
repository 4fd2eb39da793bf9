/* engine.c -- the engine's thread and its tick: sleep until something happens, do it, end the tick.
 *
 * The thread has its own epoll set and never needs the GIL. It serves the store (news of the disk)
 * whether or not there are sockets; with an om_engine attached, it serves those too.
 */
#define _GNU_SOURCE
#include "kafka/kafka.h"
#include "queue/decompressed.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define READY_MAX 512
#define WAL_EVENT UINT64_MAX
#define LISTENER_EVENT (UINT64_MAX - 1 - OM_LISTENERS)
#define PUMP_ROUNDS 4 /* dead letters may feed queues that are pumped already */
#define ACCEPT_MAX 64
#define SWEEP_MS 500 /* half of the shortest heartbeat */

/* A failed sync is final for what wasn't durable yet: it leaves the hot tail before anybody can
 * believe in it. */
static void handle_fence(om_store *store) {
    char text[160];
    int kept = 0;
    if (store->fence_handled || !om_wal_fenced(store->wal, &kept, text, sizeof text))
        return;
    store->fence_handled = 1;
    uint64_t durable = om_wal_durable_seq(store->wal);
    for (uint32_t i = 0; i < store->table_size; i++)
        for (om_log *log = store->table[i]; log; log = log->next_in_table)
            om_log_refuse_after(log, durable);
    om_undo_forget(store, durable);
    om_undo_all(store);
    om_store_add_report(store, OM_REPORT_FENCED, NULL, 0, 0,
                        "the WAL can't be synced (%s): durable appends are refused until `ottermq unfence`%s", text,
                        kept ? "" : "; what was under way may come back after a restart");
}

/* The committer says so by waking us; it changes its mind only when it has a file again. */
static void report_starving(om_store *store) {
    int starved = om_wal_starved(store->wal);
    if (starved == store->told_starved)
        return;
    store->told_starved = starved;
    char where[160];
    om_store_tell_disk(store, where, sizeof where);
    if (starved)
        om_store_add_report(store, OM_REPORT_NO_SPACE, NULL, 0, 0,
                            "no space left for the WAL on %s: appends are refused", where);
    else
        om_store_add_report(store, OM_REPORT_SPACE_BACK, NULL, 0, 0, "the WAL can be written again");
}

/* ---- the end of a tick ---- */

static void pump_queues(om_engine *engine) {
    for (int round = 0; engine->active && !engine->paused && round < PUMP_ROUNDS; round++) {
        om_queue *queue = engine->active;
        engine->active = engine->active_tail = NULL;
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

static void seal_staged(om_store *store) {
    for (om_log *log = store->staged.head; log; log = log->next_staged)
        om_log_seal(log);
}

static void flush_conns(om_engine *engine) {
    while (engine->dirty) {
        om_conn *conn = engine->dirty;
        engine->dirty = conn->next_dirty;
        conn->on_dirty = 0;
        if (!conn->broken)
            om_conn_flush(conn);
        if (conn->broken) {
            if (conn->on_dirty) { /* put there again by its own flush: it is the head */
                engine->dirty = conn->next_dirty;
                conn->on_dirty = 0;
            }
            om_conn_bury(conn);
        }
    }
}

/* When there is something to do, though nothing comes: ms of the engine's clock; 0: now; INT64_MAX: never. */
static int64_t next_due(const om_engine *engine) {
    if ((engine->active && !engine->paused) || engine->retry)
        return 0;
    if (!engine->conn_count && !engine->timer_count && !engine->alarm && !engine->waiting && engine->listening &&
        om_wal_durable_seq(engine->store->wal) == om_wal_last_seq(engine->store->wal))
        return INT64_MAX;
    int64_t due = engine->swept_ms + SWEEP_MS, timer = om_deadline_next(engine), fetch = om_kafka_next_timer(engine);
    due = timer < due ? timer : due;
    return fetch < due ? fetch : due;
}

void om_engine_leave(om_engine *engine) {
    om_store *store = engine->store;
    seal_staged(store);
    pump_queues(engine);
    om_kafka_serve_woken(engine);
    /* In the WAL before the deliveries leave. */
    uint64_t seq = om_store_end_tick(store);
    om_confirm_note(engine, seq);
    om_confirm_send(engine);
    om_kafka_delayed_produce_open(engine);
    flush_conns(engine);
    /* Somebody else's call, while the engine sleeps, may bring what is due before it would wake. */
    int oversleeps = !pthread_equal(pthread_self(), store->engine) && next_due(engine) < engine->sleeps_until;
    om_store_let_go(store);
    if (oversleeps)
        om_store_wake_engine(store);
}

static void read_clocks(om_engine *engine) {
    engine->now_ns = om_now_ns();
    engine->now_ms = (int64_t)(engine->now_ns / 1000000);
    engine->wall_ms = om_clock_ms(&engine->store->clock);
}

void om_engine_enter(om_engine *engine) {
    om_store_enter(engine->store);
    read_clocks(engine);
}

/* ---- holding publishers back ---- */

/* Fenced publishes are taken, to be refused one by one. */
int om_engine_takes(om_engine *engine) {
    int takes = om_store_takes(engine->store);
    return (takes == OM_OK || takes == OM_E_FENCED) && !engine->memory_full;
}

/* What connections hold of messages: output that isn't taken, halves of bodies. Worked out with
 * each sweep; in between, a connection's own limits bound it. Strangers have bounds of their own. */
static void weigh_memory(om_engine *engine) {
    uint64_t bytes = engine->store->hot_bytes;
    for (uint32_t i = 0; i < engine->conn_cap; i++) {
        const om_conn *conn = engine->conns[i];
        if (!conn || conn->is_stranger)
            continue;
        bytes += (conn->kafka ? om_kafka_conn_weight(conn) : conn->out.bytes) + conn->in_len;
        for (uint32_t c = 0; c < conn->channel_cap; c++)
            if (conn->channels[c])
                bytes += om_assembly_weight(conn->channels[c]);
    }
    engine->stat.message_bytes = bytes;
    uint64_t limit = engine->options.memory_limit;
    engine->memory_full = bytes > (engine->memory_full ? limit - limit / 10 : limit);
}

static void put_blocked(om_conn *conn, const char *reason) {
    uint8_t frame[7 + 4 + 1 + 255 + 1], *at = frame + 7;
    size_t len = reason ? strlen(reason) : 0;
    om_put_be32(at, reason ? OM_CONNECTION_BLOCKED : OM_CONNECTION_UNBLOCKED);
    at += 4;
    if (reason) {
        *at++ = (uint8_t)len;
        memcpy(at, reason, len);
        at += len;
    }
    frame[0] = OM_FRAME_METHOD;
    om_put_be16(frame + 1, 0);
    om_put_be32(frame + 3, (uint32_t)(at - frame - 7));
    *at++ = OM_FRAME_END;
    om_conn_put_bytes(conn, frame, (size_t)(at - frame));
    conn->blocked = reason != NULL;
}

/* A short wait for the disk is TCP's business; an alarm is told. */
static void set_alarm(om_engine *engine, const char *reason) {
    int on = reason != NULL;
    if (on != engine->alarm) {
        engine->alarm = on;
        om_event event = {
            .kind = OM_EV_ALARM,
            .code = on,
            .text = {(const uint8_t *)(on ? reason : ""), on ? (int32_t)strlen(reason) : 0},
        };
        om_event_push(engine, &event);
    }
    for (uint32_t i = 0; i < engine->conn_cap; i++) {
        om_conn *conn = engine->conns[i];
        if (!conn || conn->broken || conn->state != OM_CONN_OPEN || !(conn->flags & OM_CONN_BLOCKED_CAPABLE))
            continue;
        if (on && conn->held_back && !conn->blocked)
            put_blocked(conn, reason);
        else if (!on && conn->blocked)
            put_blocked(conn, NULL);
    }
}

static void retry_stalled(om_engine *engine) {
    engine->retry = 0;
    int takes = om_store_takes(engine->store);
    if (takes == OM_E_NO_SPACE || engine->memory_full)
        set_alarm(engine, engine->memory_full                      ? "low on memory"
                          : om_store_short_of_space(engine->store) ? "low on disk"
                                                                   : "the disk takes nothing");
    else if (engine->alarm && takes != OM_E_FULL)
        set_alarm(engine, NULL);
    int open = om_engine_takes(engine);
    om_conn *conn = engine->stalled;
    engine->stalled = NULL;
    while (conn) {
        om_conn *next = conn->next_stalled;
        conn->on_stalled = conn->stalled = 0;
        if (conn->held_back && !open) {
            om_conn_stall(conn);
        } else {
            /* Who waits for something else goes on: consumers drain what fills the disk. */
            conn->held_back = 0;
            om_conn_continue(conn);
        }
        conn = next;
    }
}

/* ---- who comes ---- */

/* Without a free file number accept fails and the listener stays ready: watched, it would spin. */
static void watch_listeners(om_engine *engine, int on) {
    if (engine->listening == on)
        return;
    engine->listening = on;
    for (int i = 0; i < engine->listener_count; i++) {
        struct epoll_event watch = {.events = on ? EPOLLIN : 0u, .data.u64 = LISTENER_EVENT + (uint64_t)i};
        epoll_ctl(engine->store->poll_fd, EPOLL_CTL_MOD, engine->listeners[i].fd, &watch);
    }
}

static void accept_some(om_engine *engine, int index) {
    for (int i = 0; i < ACCEPT_MAX; i++) {
        struct sockaddr_storage address;
        socklen_t size = sizeof address;
        char peer[64];
        int fd = accept4(engine->listeners[index].fd, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED && errno != EINTR)
                watch_listeners(engine, 0); /* until the next second */
            return;
        }
        om_socket_describe(&address, peer, sizeof peer);
        om_socket_accepted(fd, &address, engine->listeners[index].usual);
        if (engine->conn_count < engine->options.max_connections &&
            om_conn_new(engine, fd, engine->listeners[index].protocol, peer))
            continue;
        close(fd);
        om_event event = {.kind = OM_EV_REFUSED_CONN,
                          .protocol = engine->listeners[index].protocol,
                          .text = {(const uint8_t *)peer, (int32_t)strlen(peer)}};
        om_event_push(engine, &event);
    }
}

/* ---- the tick ---- */

void om_engine_note_timeout(om_engine *engine, int64_t timeout_ms) {
    if (timeout_ms >= 0 && timeout_ms < engine->shortest_timeout_ms)
        engine->shortest_timeout_ms = timeout_ms;
}

/* A message that nobody acks pins its segment. */
static void check_overdue(om_engine *engine, om_channel *channel) {
    if (!channel->unacked.live || channel->overdue_told)
        return;
    const om_unacked *late = om_unacked_overdue(&channel->unacked, engine->now_ms, engine->shortest_timeout_ms);
    if (!late)
        return;
    channel->overdue_told = 1;
    om_event event = {
        .kind = OM_EV_CONSUMER_TIMEOUT,
        .conn = channel->conn->id,
        .channel = channel->number,
        .queue = late->queue->id,
        .count = om_unacked_timeout(late),
    };
    om_event_push(engine, &event);
}

/* The process stood still, or had no core, for longer than a sweep: what connections sent meanwhile may be
 * unread yet, with Python in between for TLS. They are given their time once more, and nobody is
 * judged in this sweep. */
static void forgive(om_engine *engine, int64_t late_ms) {
    for (uint32_t i = 0; i < engine->conn_cap; i++) {
        om_conn *conn = engine->conns[i];
        if (!conn)
            continue;
        conn->last_in = engine->now_ms;
        if (conn->opened_ms + late_ms < engine->now_ms)
            conn->opened_ms += late_ms;
    }
}

static void sweep(om_engine *engine) {
    int64_t late_ms = engine->now_ms - engine->swept_ms - SWEEP_MS;
    engine->swept_ms = engine->now_ms;
    if (late_ms > SWEEP_MS) {
        forgive(engine, late_ms);
        return;
    }
    om_unauth_weigh(engine);
    weigh_memory(engine);
    om_routes_sweep(engine);
    for (uint32_t i = 0; i < engine->conn_cap; i++) {
        om_conn *conn = engine->conns[i];
        if (!conn)
            continue;
        om_conn_check_time(conn, engine->now_ms);
        for (uint32_t c = 0; c < conn->channel_cap && !conn->broken; c++)
            if (conn->channels[c])
                check_overdue(engine, conn->channels[c]);
    }
}

static void serve_ready(om_engine *engine, const struct epoll_event *ready, int count) {
    for (int i = 0; i < count; i++) {
        uint64_t what = ready[i].data.u64;
        if (what == WAL_EVENT)
            continue;
        if (what >= LISTENER_EVENT) {
            if ((int)(what - LISTENER_EVENT) < engine->listener_count)
                accept_some(engine, (int)(what - LISTENER_EVENT));
            continue;
        }
        om_conn *conn = om_conn_find(engine, what);
        if (!conn)
            continue;
        if (ready[i].events & EPOLLOUT)
            om_conn_dirty(conn);
        if ((ready[i].events & (EPOLLERR | EPOLLHUP)) && !(ready[i].events & EPOLLIN))
            om_conn_break(conn, "connection lost");
        else if (ready[i].events & EPOLLIN)
            om_conn_read(conn);
    }
}

void om_queues_wake(om_engine *engine) {
    om_queue *queue = engine->waiting;
    engine->waiting = NULL;
    while (queue) {
        om_queue *next = queue->next_waiting;
        queue->on_waiting = 0;
        om_queue_activate(queue);
        om_queue_unref(queue);
        queue = next;
    }
}

/* Returns when the next one may begin, on the clock of om_now_ns; 0: at once. */
static uint64_t tick(om_store *store, const struct epoll_event *ready, int count, int news) {
    om_store_enter(store);
    handle_fence(store);
    report_starving(store);
    om_engine *engine = store->plane;
    if (!engine) {
        om_store_leave(store);
        return 0;
    }
    read_clocks(engine);
    om_coalesce_tick(&engine->crowd, engine->now_ns);
    engine->stat.ticks++;
    if (news) {
        om_queues_wake(engine);
        om_kafka_wake_cold(engine);
        om_kafka_delayed_produce_open(engine);
    }
    if (engine->retry || (news && (engine->stalled || engine->alarm)))
        retry_stalled(engine);
    serve_ready(engine, ready, count);
    om_deadline_run(engine);
    om_kafka_run_timers(engine);
    if (engine->now_ms - engine->swept_ms >= SWEEP_MS) {
        sweep(engine);
        om_queues_wake(engine); /* whatever they wait for: a call that failed may succeed by now */
        om_kafka_wake_cold(engine);
        watch_listeners(engine, 1);
        om_trouble_look(store);
        if (engine->stalled || engine->alarm)
            retry_stalled(engine);
    }
    uint64_t next = om_coalesce_next(&engine->crowd);
    om_engine_leave(engine);
    return next;
}

static int sleep_ms(om_store *store) {
    om_ticket_lock_take(&store->turn);
    om_engine *engine = store->plane;
    int64_t ms = -1;
    if (engine && (engine->sleeps_until = next_due(engine)) != INT64_MAX) {
        ms = engine->sleeps_until - (int64_t)(om_now_ns() / 1000000);
        ms = ms < 0 ? 0 : ms;
    }
    om_ticket_lock_give(&store->turn);
    return (int)ms;
}

static void sleep_until(uint64_t ns) {
    struct timespec until = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

int om_engine_turn(om_store *store, int most_ms) {
    struct epoll_event ready[READY_MAX];
    int ms = sleep_ms(store);
    int count = epoll_wait(store->poll_fd, ready, READY_MAX, most_ms >= 0 && (ms < 0 || ms > most_ms) ? most_ms : ms);
    if (count < 0 && errno == EINTR)
        return OM_OK; /* stopped and continued: what came meanwhile is read before anybody is judged by the time */
    if (count < 0)
        return OM_E_IO;
    int news = 0;
    for (int i = 0; i < count; i++) {
        uint64_t value;
        if (ready[i].data.u64 == WAL_EVENT)
            news = read(store->wal_fd, &value, sizeof value) == (ssize_t)sizeof value;
    }
    uint64_t next = tick(store, ready, count, news);
    if (next && count < READY_MAX) /* else more of them are waiting already */
        sleep_until(next);
    if (!news)
        return OM_OK;
    if (om_wal_used(store->wal) > store->options.wal_max_size / 2)
        om_checkpoint_wake(store);
    om_store_tell(store);
    return OM_OK;
}

int om_engine_watch_store(om_store *store) {
    struct epoll_event watch = {.events = EPOLLIN, .data.u64 = WAL_EVENT};
    return epoll_ctl(store->poll_fd, EPOLL_CTL_ADD, store->wal_fd, &watch) == 0 ? OM_OK : OM_E_IO;
}

void *om_engine_main(void *arg) {
    om_store *store = arg;
    while (!__atomic_load_n(&store->stopping, __ATOMIC_RELAXED))
        if (om_engine_turn(store, -1) != OM_OK)
            break;
    return NULL;
}

/* ---- life ---- */

om_engine *om_engine_new(om_store *store, const om_engine_options *options) {
    om_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return NULL;
    engine->store = store;
    engine->options = *options;
    engine->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    engine->queue_buckets = engine->exchange_buckets = 256;
    engine->route_buckets = 1024;
    while (engine->route_buckets < options->route_cache)
        engine->route_buckets *= 2;
    engine->permissions = engine->listening = engine->paused = 1;
    engine->rewrite_cap = (size_t)options->frame_max + 4096;
    pthread_mutex_init(&engine->event_mutex, NULL);
    engine->by_id = calloc(engine->queue_buckets, sizeof *engine->by_id);
    engine->by_name = calloc(engine->queue_buckets, sizeof *engine->by_name);
    engine->exchanges = calloc(engine->exchange_buckets, sizeof *engine->exchanges);
    engine->routes = calloc(engine->route_buckets, sizeof *engine->routes);
    /* What is left of a frame, and what a connection may bring. */
    engine->scratch = malloc((size_t)options->frame_max + OM_FRAME_OVERHEAD + 2 * OM_READ_BUDGET);
    engine->rewrite = malloc(engine->rewrite_cap);
    engine->foreign = malloc(OM_FOREIGN);
    engine->unauth = om_unauth_new();
    int has_kafka = om_kafka_new(engine) == OM_OK;
    if (engine->event_fd < 0 || !engine->by_id || !engine->by_name || !engine->exchanges || !engine->routes ||
        !engine->scratch || !engine->rewrite || !engine->foreign || !engine->unauth || !has_kafka) {
        om_engine_free(engine);
        return NULL;
    }
    read_clocks(engine);
    engine->swept_ms = engine->kafka->wheel.now = engine->now_ms;
    engine->shortest_timeout_ms = engine->sleeps_until = INT64_MAX;
    om_store_enter(store);
    store->plane = engine;
    om_store_leave(store);
    return engine;
}

void om_engine_start(om_engine *engine) {
    om_engine_enter(engine);
    engine->paused = 0;
    for (uint32_t i = 0; i < engine->queue_buckets; i++)
        for (om_queue *queue = engine->by_id[i]; queue; queue = queue->next_by_id)
            queue->touched_ms = engine->now_ms; /* nobody could use it before */
    om_engine_leave(engine);
    om_store_wake_engine(engine->store);
}

static void free_queues(om_engine *engine) {
    for (uint32_t i = 0; engine->by_id && i < engine->queue_buckets; i++)
        while (engine->by_id[i])
            om_queue_remove(engine, engine->by_id[i]->id);
    om_engine_enter(engine);
    om_queues_wake(engine);
    while (engine->active) {
        om_queue *queue = engine->active;
        engine->active = queue->next_active;
        queue->on_active = 0;
        om_queue_unref(queue);
    }
    engine->active_tail = NULL;
    om_store_leave(engine->store);
}

void om_engine_free(om_engine *engine) {
    if (engine->store->plane == engine) {
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
        om_store_enter(engine->store);
        engine->store->plane = NULL;
        om_store_leave(engine->store);
    }
    om_kafka_free(engine);
    om_decompressed_free(engine);
    om_event *event;
    while ((event = om_engine_next_event(engine)))
        om_event_free(event);
    if (engine->event_fd >= 0)
        close(engine->event_fd);
    pthread_mutex_destroy(&engine->event_mutex);
    om_spares_clear(&engine->spares);
    free(engine->conns);
    free(engine->free_slots);
    free(engine->by_id);
    free(engine->by_name);
    free(engine->timers);
    free(engine->exchanges);
    free(engine->routes);
    free(engine->leavers);
    free(engine->refusals.list);
    free(engine->scratch);
    free(engine->rewrite);
    free(engine->foreign);
    free(engine->unauth);
    free(engine);
}

int om_engine_listen(om_engine *engine, int fd, int protocol) {
    om_engine_enter(engine);
    int result = OM_E_INVALID;
    int copy = engine->listener_count < OM_LISTENERS ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (copy >= 0) {
        int index = engine->listener_count++;
        struct epoll_event watch = {.events = engine->listening ? EPOLLIN : 0u,
                                    .data.u64 = LISTENER_EVENT + (uint64_t)index};
        engine->listeners[index].fd = copy;
        engine->listeners[index].protocol = protocol;
        fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK);
        om_socket_listens(copy, engine->listeners[index].usual);
        result = epoll_ctl(engine->store->poll_fd, EPOLL_CTL_ADD, copy, &watch) == 0 ? OM_OK : OM_E_IO;
    }
    om_engine_leave(engine);
    om_store_wake_engine(engine->store);
    return result;
}

void om_engine_stop_listening(om_engine *engine) {
    om_engine_enter(engine);
    while (engine->listener_count) {
        /* Closing alone doesn't end the watch: the socket lives on in whoever gave it to us. */
        int fd = engine->listeners[--engine->listener_count].fd;
        epoll_ctl(engine->store->poll_fd, EPOLL_CTL_DEL, fd, NULL);
        close(fd);
    }
    om_engine_leave(engine);
}
