/* kafka_delayed_fetch.c -- fetches that wait: for a log to grow, for pages, or until their time is up.
 *
 * A waiting fetch is on a list of each of its logs (log_waiters.c). At the end of a tick, logs whose high watermark
 * has moved wake their fetches, each at most once.
 */
#include "kafka/kafka.h"

/* ---- logs ---- */

void om_kafka_wait_for_log(om_conn *conn, om_kafka_part *part, om_log *log) {
    part->waiter.conn = conn;
    om_log_add_waiter(log, &part->waiter.waiter);
}

static void wake(om_conn *conn) {
    om_kafka_fetch *fetch = om_kafka_of(conn)->fetch;
    struct om_kafka *kafka = conn->engine->kafka;
    if (fetch->is_woken)
        return;
    fetch->is_woken = 1;
    fetch->next_woken = kafka->woken;
    kafka->woken = conn;
}

static void wake_waiter(om_log_waiter *waiter) {
    wake(((om_kafka_waiter *)waiter)->conn);
}

void om_kafka_wake_topic(om_engine *engine, om_kafka_topic *topic) {
    for (int32_t i = 0; i < topic->count; i++) {
        om_queue *queue;
        const om_log *log = om_kafka_topic_log(engine, topic, i, &queue);
        for (om_log_waiter *waiter = log ? log->waiters : NULL; waiter; waiter = waiter->next)
            wake_waiter(waiter);
    }
}

/* ---- pages ---- */

void om_kafka_wait_for_pages(om_conn *conn) {
    om_kafka_fetch *fetch = om_kafka_of(conn)->fetch;
    if (fetch->is_cold)
        return;
    fetch->is_cold = 1;
    fetch->next_cold = conn->engine->kafka->cold;
    conn->engine->kafka->cold = conn;
}

void om_kafka_wake_cold(om_engine *engine) {
    while (engine->kafka->cold) {
        om_conn *conn = engine->kafka->cold;
        om_kafka_fetch *fetch = om_kafka_of(conn)->fetch;
        engine->kafka->cold = fetch->next_cold;
        fetch->is_cold = 0;
        wake(conn);
    }
}

/* ---- time ---- */

void om_kafka_run_timers(om_engine *engine) {
    om_wheel_timer *timer;
    while ((timer = om_wheel_expired(&engine->kafka->wheel, engine->now_ms))) {
        if (timer->kind == OM_KAFKA_TIMER_FETCH) {
            wake(((om_kafka_fetch *)((char *)timer - offsetof(om_kafka_fetch, timer)))->conn);
            continue;
        }
        om_kafka_conn *muted = (om_kafka_conn *)((char *)timer - offsetof(om_kafka_conn, mute));
        if (muted->wait == OM_KAFKA_MUTED)
            om_kafka_go_on(&muted->conn);
    }
}

void om_kafka_set_timer(om_conn *conn, om_wheel_timer *timer, enum om_kafka_timer kind, int64_t at) {
    timer->kind = (uint8_t)kind;
    om_wheel_set(&conn->engine->kafka->wheel, timer, at);
}

int64_t om_kafka_next_timer(const om_engine *engine) {
    return om_wheel_next(&engine->kafka->wheel);
}

/* ---- waking ---- */

static void leave_list(om_conn **list, om_conn *conn, size_t link) {
    while (*list != conn)
        list = (om_conn **)((char *)om_kafka_of(*list)->fetch + link);
    *list = *(om_conn **)((char *)om_kafka_of(conn)->fetch + link);
}

void om_kafka_wait_over(om_conn *conn) {
    om_kafka_fetch *fetch = om_kafka_of(conn)->fetch;
    struct om_kafka *kafka = conn->engine->kafka;
    for (uint32_t i = 0; i < fetch->part_count; i++)
        if (fetch->parts[i].waiter.waiter.link)
            om_log_remove_waiter(&fetch->parts[i].waiter.waiter);
    om_wheel_clear(&kafka->wheel, &fetch->timer);
    if (fetch->is_cold)
        leave_list(&kafka->cold, conn, offsetof(om_kafka_fetch, next_cold));
    if (fetch->is_woken)
        leave_list(&kafka->woken, conn, offsetof(om_kafka_fetch, next_woken));
    fetch->is_cold = fetch->is_woken = 0;
}

void om_kafka_serve_woken(om_engine *engine) {
    om_log_wake_due(engine->store, wake_waiter);
    while (engine->kafka->woken) {
        om_conn *conn = engine->kafka->woken;
        om_kafka_wait_over(conn);
        if (conn->broken || conn->state >= OM_CONN_FLUSHING || om_kafka_of(conn)->wait != OM_KAFKA_FETCHING)
            continue;
        om_kafka_fetch_serve(conn, engine->now_ms >= om_kafka_of(conn)->fetch->deadline);
    }
}
