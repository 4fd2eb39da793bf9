/* kafka_delayed_fetch.c -- fetches that wait: for a log to grow, for pages, or for their time to be up.
 *
 * A waiting fetch hangs on each of its logs. A log that gets a batch while somebody waits is put on
 * the store's list (om_log_stir); at the end of a tick those whose high watermark has moved wake
 * their fetches, each at most once, and those with batches that aren't durable yet stay on the list
 * until the disk has news. So an append costs one look at a pointer, and nothing is ever polled.
 */
#include "kafka/kafka.h"

/* ---- logs ---- */

void om_kafka_watch(om_conn *conn, om_kafka_part *part, om_log *log) {
    om_watch *watch = &part->watch;
    int64_t end = om_log_high_watermark(log);
    if (!log->watches)
        log->told_end = end;
    watch->conn = conn;
    watch->log = log;
    om_log_ref(log);
    watch->next = log->watches;
    watch->link = &log->watches;
    if (watch->next)
        watch->next->link = &watch->next;
    log->watches = watch;
    if (end < log->next_offset)
        om_log_stir(log);
}

static void unwatch(om_watch *watch) {
    *watch->link = watch->next;
    if (watch->next)
        watch->next->link = watch->link;
    watch->link = NULL;
    om_log_release(watch->log);
}

static void wake(om_conn *conn) {
    om_kafka_fetch *fetch = conn->kafka->fetch;
    struct om_kafka *kafka = conn->engine->kafka;
    if (fetch->is_woken)
        return;
    fetch->is_woken = 1;
    fetch->next_woken = kafka->woken;
    kafka->woken = conn;
}

static void wake_watches(const om_log *log) {
    for (const om_watch *watch = log->watches; watch; watch = watch->next)
        wake(watch->conn);
}

static void look_at_stirred(om_store *store) {
    om_list still = {0};
    om_log *log;
    while ((log = om_list_pop(&store->stirred, OM_LINK(next_stirred)))) {
        int64_t end = om_log_high_watermark(log);
        if (end != log->told_end)
            wake_watches(log);
        log->told_end = end;
        if (log->watches && end < log->next_offset) {
            om_list_push(&still, log, OM_LINK(next_stirred));
            continue;
        }
        log->stirred = 0;
        om_log_release(log);
    }
    store->stirred = still;
}

void om_kafka_wake_topic(om_engine *engine, om_kafka_topic *topic) {
    for (int32_t i = 0; i < topic->count; i++) {
        om_queue *queue;
        const om_log *log = om_kafka_topic_log(engine, topic, i, &queue);
        if (log)
            wake_watches(log);
    }
}

/* ---- pages ---- */

void om_kafka_wait_for_pages(om_conn *conn) {
    om_kafka_fetch *fetch = conn->kafka->fetch;
    if (fetch->is_cold)
        return;
    fetch->is_cold = 1;
    fetch->next_cold = conn->engine->kafka->cold;
    conn->engine->kafka->cold = conn;
}

void om_kafka_wake_cold(om_engine *engine) {
    while (engine->kafka->cold) {
        om_conn *conn = engine->kafka->cold;
        om_kafka_fetch *fetch = conn->kafka->fetch;
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
            om_kafka_go_on(muted->conn);
    }
}

void om_kafka_set_timer(om_conn *conn, om_wheel_timer *timer, enum om_kafka_timer kind, int64_t at) {
    om_store *store = conn->engine->store;
    timer->kind = (uint8_t)kind;
    om_wheel_set(&conn->engine->kafka->wheel, timer, at);
    if (!pthread_equal(pthread_self(), store->engine))
        om_store_wake_engine(store); /* it may sleep for longer than that */
}

int64_t om_kafka_next_timer(const om_engine *engine) {
    return om_wheel_next(&engine->kafka->wheel);
}

/* ---- waking ---- */

static void leave_list(om_conn **list, om_conn *conn, size_t link) {
    while (*list != conn)
        list = (om_conn **)((char *)(*list)->kafka->fetch + link);
    *list = *(om_conn **)((char *)conn->kafka->fetch + link);
}

void om_kafka_wait_over(om_conn *conn) {
    om_kafka_fetch *fetch = conn->kafka->fetch;
    struct om_kafka *kafka = conn->engine->kafka;
    for (uint32_t i = 0; i < fetch->part_count; i++)
        if (fetch->parts[i].watch.link)
            unwatch(&fetch->parts[i].watch);
    om_wheel_clear(&kafka->wheel, &fetch->timer);
    if (fetch->is_cold)
        leave_list(&kafka->cold, conn, offsetof(om_kafka_fetch, next_cold));
    if (fetch->is_woken)
        leave_list(&kafka->woken, conn, offsetof(om_kafka_fetch, next_woken));
    fetch->is_cold = fetch->is_woken = 0;
}

void om_kafka_serve_woken(om_engine *engine) {
    look_at_stirred(engine->store);
    while (engine->kafka->woken) {
        om_conn *conn = engine->kafka->woken;
        om_kafka_wait_over(conn);
        if (conn->broken || conn->state >= OM_CONN_FLUSHING || conn->kafka->wait != OM_KAFKA_FETCHING)
            continue;
        om_kafka_fetch_serve(conn, engine->now_ms >= conn->kafka->fetch->deadline);
    }
}
