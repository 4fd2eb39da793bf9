/* engine.c -- the engine's thread and its tick: sleep until something happens, do it, end the tick.
 *
 * The thread has its own epoll set and never needs the GIL. It serves the store as well (news.c).
 */
#define _GNU_SOURCE
#include "engine/engine.h"
#include "amqp/confirm.h"
#include "base/clock.h"
#include "kafka/kafka.h"
#include "store/log_append.h"
#include "store/news.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define READY_MAX 512
#define SWEEP_MS 500 /* half of the shortest heartbeat */

/* ---- the end of a tick ---- */

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
            om_conn_remove(conn);
        }
    }
}

/* When the next timed work is due, without an event: ms of the engine's clock; 0: now; INT64_MAX: never. */
static int64_t next_due(const om_engine *engine) {
    if (om_queues_are_due(engine) || engine->retry)
        return 0;
    if (!engine->conn_count && om_deadline_next(engine) == INT64_MAX && !engine->loop->alarm &&
        !engine->queues->waiting && engine->loop->listening &&
        om_wal_durable_seq(engine->store->wal) == om_wal_last_seq(engine->store->wal))
        return INT64_MAX;
    int64_t due = engine->loop->swept_ms + SWEEP_MS, timer = om_deadline_next(engine),
            fetch = om_kafka_next_timer(engine);
    due = timer < due ? timer : due;
    return fetch < due ? fetch : due;
}

void om_engine_leave(om_engine *engine) {
    om_store *store = engine->store;
    seal_staged(store);
    om_queues_pump(engine);
    om_kafka_serve_woken(engine);
    /* In the WAL before the deliveries leave. */
    uint64_t seq = om_store_end_tick(store);
    om_confirm_note(engine, seq);
    om_confirm_send(engine);
    om_kafka_delayed_produce_send(engine);
    flush_conns(engine);
    /* A call made while the engine sleeps may bring work that is due before it would wake. */
    int oversleeps =
        !pthread_equal(pthread_self(), engine->loop->thread) && next_due(engine) < engine->loop->sleeps_until;
    om_store_let_go(store);
    if (oversleeps)
        om_news_ring(store);
}

void om_engine_read_clocks(om_engine *engine) {
    engine->now_ns = om_now_ns();
    engine->now_ms = (int64_t)(engine->now_ns / 1000000);
    engine->wall_ms = om_clock_ms(&engine->store->clock);
}

void om_engine_enter(om_engine *engine) {
    om_store_enter(engine->store);
    om_engine_read_clocks(engine);
}

/* ---- holding publishers back ---- */

/* The messages that connections hold: output that isn't taken, halves of bodies. Worked out with
 * each sweep; in between, a connection's own limits bound it. Connections without a login have bounds of their own. */
static void weigh_memory(om_engine *engine) {
    uint64_t bytes = engine->store->hot_bytes;
    for (uint32_t i = 0; i < engine->conn_cap; i++) {
        const om_conn *conn = engine->conns[i];
        if (!conn || conn->is_unauth)
            continue;
        bytes += conn->ops->held_bytes(conn) + conn->in_len;
    }
    engine->stat.message_bytes = bytes;
    uint64_t limit = engine->options.memory_limit;
    engine->memory_full = bytes > (engine->memory_full ? limit - limit / 10 : limit);
}

/* Why: each is one pointer, by which a change is seen. */
static const char LOW_ON_MEMORY[] = "low on memory", LOW_ON_DISK[] = "low on disk", STALLED[] = "disk writes stalled";

/* A short wait for the disk is left to TCP; an alarm is announced, and so is another reason for it. */
static void set_alarm(om_engine *engine, const char *reason) {
    const char *before = engine->loop->alarm;
    if (reason != before) {
        engine->loop->alarm = reason;
        om_event event = {
            .kind = OM_EV_ALARM,
            .text = {(const uint8_t *)(reason ? reason : ""), reason ? (int32_t)strlen(reason) : 0},
        };
        om_event_push(engine, &event);
    }
    for (uint32_t i = 0; i < engine->conn_cap; i++)
        if (engine->conns[i])
            engine->conns[i]->ops->alarm(engine->conns[i], reason);
}

static void retry_stalled(om_engine *engine) {
    engine->retry = 0;
    int takes = om_store_takes(engine->store);
    if (takes == OM_E_NO_SPACE || engine->memory_full)
        set_alarm(engine, engine->memory_full                      ? LOW_ON_MEMORY
                          : om_store_short_of_space(engine->store) ? LOW_ON_DISK
                                                                   : STALLED);
    else if (engine->loop->alarm && takes != OM_E_FULL)
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
            /* Connections that wait for something else go on: consumers drain the messages that fill the disk. */
            conn->held_back = 0;
            om_conn_continue(conn);
        }
        conn = next;
    }
}

/* ---- the tick ---- */

/* The process was stopped, or had no core, for longer than a sweep: what connections sent meanwhile may be unread yet,
 * with Python in between for TLS. Their times begin anew, and none is checked in this sweep. */
static void restart_timeouts(om_engine *engine, int64_t late_ms) {
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
    int64_t late_ms = engine->now_ms - engine->loop->swept_ms - SWEEP_MS;
    engine->loop->swept_ms = engine->now_ms;
    if (late_ms > SWEEP_MS) {
        restart_timeouts(engine, late_ms);
        return;
    }
    om_unauth_weigh(engine);
    weigh_memory(engine);
    om_routes_sweep(engine);
    for (uint32_t i = 0; i < engine->conn_cap; i++)
        if (engine->conns[i])
            om_conn_check_time(engine->conns[i], engine->now_ms);
}

static void serve_ready(om_engine *engine, const struct epoll_event *ready, int count) {
    for (int i = 0; i < count; i++) {
        uint64_t what = ready[i].data.u64;
        if (what == OM_NEWS_EVENT)
            continue;
        if (what >= OM_LISTENER_EVENT) {
            if ((int)(what - OM_LISTENER_EVENT) < engine->loop->listener_count)
                om_listener_accept(engine, (int)(what - OM_LISTENER_EVENT));
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

/* Returns when the next one may begin, on the clock of om_now_ns; 0: at once. */
static uint64_t tick(om_engine *engine, const struct epoll_event *ready, int count, int news) {
    om_store *store = engine->store;
    om_store_enter(store);
    om_news_look(store);
    om_engine_read_clocks(engine);
    om_coalesce_tick(&engine->coalesce, engine->now_ns);
    engine->stat.ticks++;
    if (news) {
        om_queues_wake(engine);
        om_kafka_wake_cold(engine);
        om_kafka_delayed_produce_send(engine);
    }
    if (engine->retry || (news && (engine->stalled || engine->loop->alarm)))
        retry_stalled(engine);
    serve_ready(engine, ready, count);
    om_deadline_run(engine);
    om_kafka_run_timers(engine);
    if (engine->now_ms - engine->loop->swept_ms >= SWEEP_MS) {
        sweep(engine);
        om_queues_wake(engine); /* whatever they wait for: a call that failed may succeed by now */
        om_kafka_wake_cold(engine);
        om_listeners_watch(engine, 1);
        om_trouble_look(store);
        if (engine->stalled || engine->loop->alarm)
            retry_stalled(engine);
    }
    uint64_t next = om_coalesce_next(&engine->coalesce);
    om_engine_leave(engine);
    return next;
}

static int sleep_ms(om_engine *engine) {
    om_ticket_lock_take(&engine->store->lock);
    int64_t ms = -1;
    engine->loop->sleeps_until = next_due(engine);
    if (engine->loop->sleeps_until != INT64_MAX) {
        ms = engine->loop->sleeps_until - (int64_t)(om_now_ns() / 1000000);
        ms = ms < 0 ? 0 : ms;
    }
    om_ticket_lock_give(&engine->store->lock);
    return (int)ms;
}

static void sleep_until(uint64_t ns) {
    struct timespec until = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

int om_engine_tick(om_engine *engine, int most_ms) {
    om_store *store = engine->store;
    struct epoll_event ready[READY_MAX];
    int ms = sleep_ms(engine);
    int count = epoll_wait(engine->poll_fd, ready, READY_MAX, most_ms >= 0 && (ms < 0 || ms > most_ms) ? most_ms : ms);
    if (count < 0 && errno == EINTR)
        return OM_OK; /* stopped and continued: what came meanwhile is read before anybody is judged by the time */
    if (count < 0)
        return OM_E_IO;
    int news = 0;
    for (int i = 0; i < count; i++)
        if (ready[i].data.u64 == OM_NEWS_EVENT)
            news = om_news_take(store);
    uint64_t next = tick(engine, ready, count, news);
    if (next && count < READY_MAX) /* else more of them are waiting already */
        sleep_until(next);
    if (news)
        om_news_pass_on(store);
    return OM_OK;
}

void *om_engine_main(void *arg) {
    om_engine *engine = arg;
    while (!__atomic_load_n(&engine->loop->stopping, __ATOMIC_ACQUIRE))
        if (om_engine_tick(engine, -1) != OM_OK)
            break;
    return NULL;
}
