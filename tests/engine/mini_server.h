/* mini_server.h -- as much of a server as fuzzers and stress runs need, in C: it answers every event of
 * the engine, sometimes in the way an awkward one would (a late route, a closed channel), and lets
 * clients reach publishes, deliveries, acks, transactions, streams, delays and dead letters.
 *
 * Queues are named by one letter, which is also what a routing key or a queue's name in a method
 * begins with; all the rest of the protocol is taken as it comes.
 */
#ifndef MINI_SERVER_H
#define MINI_SERVER_H

#include "base/bytes.h"
#include "om_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMISE(holds)                                                                                                 \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #holds);                                \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define VHOST 1
#define LANES 3

typedef struct mini_queue {
    char name;
    int lanes;
    uint32_t flags;
    int64_t ttl, max_length, max_bytes, delivery_limit;
    const char *dlx;
} mini_queue;

static const mini_queue QUEUES[] = {
    {'a', 1, 0, -1, -1, -1, -1, NULL},                                      /* plain */
    {'b', 1, 0, -1, 3, -1, -1, "x"},                                        /* drops its head */
    {'c', LANES, 0, 1, -1, -1, -1, "x"},                                    /* priorities, expires */
    {'d', 1, OM_QUEUE_QUORUM | OM_QUEUE_REJECT_PUBLISH, -1, 2, -1, 1, "x"}, /* refuses */
    {'e', 1, OM_QUEUE_REJECT_PUBLISH | OM_QUEUE_REJECT_DLX, -1, 2, -1, -1, "x"},
    {'f', 1, OM_QUEUE_STREAM, -1, -1, -1, -1, NULL},
    {'g', 1, OM_QUEUE_DELAY, -1, -1, -1, -1, NULL},
    {'h', 1, OM_QUEUE_SINGLE_ACTIVE, -1, -1, 5000, -1, NULL},
};
enum { QUEUE_COUNT = sizeof QUEUES / sizeof *QUEUES };

typedef struct mini_server {
    om_store *store;
    om_engine *engine;
    om_log *logs[QUEUE_COUNT][LANES];
    uint64_t sent_away; /* the last connection that was told to close */
} mini_server;

static inline om_span text_span(const char *text) {
    return (om_span){(const uint8_t *)text, text ? (int32_t)strlen(text) : 0};
}

static inline void add_queue(mini_server *server, int index) {
    const mini_queue *queue = &QUEUES[index];
    om_queue_options options = {
        .flags = queue->flags,
        .message_ttl_ms = queue->ttl,
        .max_length = queue->max_length,
        .max_length_bytes = queue->max_bytes,
        .delivery_limit = queue->delivery_limit,
        .consumer_timeout_ms = -1,
        .has_dlx = queue->dlx != NULL,
        .dlx = text_span(queue->dlx),
    };
    PROMISE(om_queue_add(server->engine, (uint64_t)index + 1, VHOST, (const uint8_t *)&queue->name, 1,
                         server->logs[index], queue->lanes, &options) == OM_OK);
}

static inline void start_server(mini_server *server, const char *dir) {
    char err[256];
    om_store_options options = {
        .wal_file_size = 1u << 20,
        .wal_max_size = 8u << 20,
        .batch_max_size = 1u << 20,
        .hot_buffer_size = 4u << 20,
        .mmap_cache_size = 4u << 20,
        .open_files = 64,
        .checkpoint_interval_ms = 1000,
    };
    om_engine_options engine_options = {
        .frame_max = 8192,
        .handshake_timeout_ms = 600000,
        .max_message_size = 100000,
        .memory_limit = 64u << 20,
        .zero_copy_min = 20000,
        .route_cache = 16,
        .max_connections = 1000,
        .kafka_max_request = 1u << 20,
        .kafka_patience_ms = 600000,
    };
    server->store = om_store_open(dir, &options, err, sizeof err);
    PROMISE(server->store != NULL);
    for (int i = 0; i < QUEUE_COUNT; i++)
        for (int lane = 0; lane < QUEUES[i].lanes; lane++) {
            char name[32];
            om_log_options log_options = {.flags = QUEUES[i].flags & OM_QUEUE_STREAM ? OM_LOG_NO_CURSOR : 0,
                                          .segment_size = 256u << 10};
            snprintf(name, sizeof name, "%c%d", QUEUES[i].name, lane);
            server->logs[i][lane] =
                om_store_add(server->store, (uint64_t)(i * LANES + lane + 1), name, name, 0, &log_options);
            PROMISE(server->logs[i][lane] != NULL);
        }
    PROMISE(om_store_start(server->store, err, sizeof err) == OM_OK);
    server->engine = om_engine_new(server->store, &engine_options);
    PROMISE(server->engine != NULL);
    for (int i = 0; i < QUEUE_COUNT; i++)
        add_queue(server, i);
    om_engine_start(server->engine);
}

static inline void stop_server(mini_server *server) {
    om_engine_free(server->engine);
    for (int i = 0; i < QUEUE_COUNT; i++)
        for (int lane = 0; lane < QUEUES[i].lanes; lane++)
            om_log_release(server->logs[i][lane]);
    PROMISE(om_store_close(server->store) == OM_OK);
}

/* The queue that begins with this letter; the first one for all other letters. */
static inline int queue_index(uint8_t letter) {
    for (int i = 0; i < QUEUE_COUNT; i++)
        if (QUEUES[i].name == letter)
            return i;
    return 0;
}

/* Each letter of a key is a queue; '!' asks for a delay, none for nowhere. */
static inline int32_t route_of(om_span key, uint64_t *ids, uint32_t *flags) {
    int32_t count = 0;
    uint32_t seen = 0;
    for (int32_t i = 0; i < key.len && i < 16; i++) {
        if (key.data[i] == '!' && !count) {
            *flags |= OM_ROUTE_DELAY;
            ids[count++] = (uint64_t)queue_index('g') + 1;
            seen |= 1u << queue_index('g');
        }
        for (int q = 0; q < QUEUE_COUNT; q++)
            if (QUEUES[q].name == key.data[i] && !(seen >> q & 1) && !(QUEUES[q].flags & OM_QUEUE_DELAY)) {
                ids[count++] = (uint64_t)q + 1;
                seen |= 1u << q;
            }
    }
    return count;
}

static inline void answer_route(mini_server *server, const om_event *event) {
    uint64_t ids[QUEUE_COUNT + 1];
    uint32_t flags = event->key.len % 2 ? OM_ROUTE_CACHE : 0;
    int32_t count = route_of(event->key, ids, &flags);
    uint64_t generation = om_route_generation(server->engine);
    if (event->kind == OM_EV_DEAD_ROUTE) {
        if (om_dead_letter_route(server->engine, event->queue, ids, count, flags, generation) == OM_E_STALE)
            om_dead_letter_route(server->engine, event->queue, ids, count, flags, om_route_generation(server->engine));
        return;
    }
    if (event->exchange.len > 3 || (event->code & 2)) { /* refused: its channel is closed */
        om_channel_close(server->engine, event->conn, event->channel, 1);
        om_conn_resume(server->engine, event->conn, NULL, 0);
        return;
    }
    om_conn_may_publish(server->engine, event->conn, event->exchange.data, (size_t)event->exchange.len, 0,
                        event->exchange.len == 2 ? OM_EXCHANGE_BY_EVENT : 0);
    while (om_publish_route(server->engine, event->conn, event->channel, ids, count, flags, generation) == OM_E_STALE)
        generation = om_route_generation(server->engine);
    if (event->key.len % 5 == 4)
        om_route_forget(server->engine, VHOST, event->exchange.len % 2 ? event->exchange.data : NULL,
                        (size_t)event->exchange.len);
}

/* queue.x and basic.x: reserved u16, then the queue's name. */
static inline int named_queue(om_span payload) {
    return payload.len > 7 ? queue_index(payload.data[7]) : 0;
}

static inline void answer_consume(mini_server *server, const om_event *event) {
    om_span p = event->payload;
    uint8_t bits = p.data[p.len - 1];
    int index = named_queue(p);
    om_consume consume = {
        .queue = (uint64_t)index + 1,
        .tag = {p.data + p.len / 2, p.len / 4},
        .flags = bits % 3 == 0   ? OM_CONSUME_NO_ACK
                 : bits % 7 == 0 ? OM_CONSUME_EXCLUSIVE
                                 : 0,
        .prefetch = bits % 4,
        .priority = (int8_t)bits,
        .start = bits % 5,
        .start_value = bits,
    };
    if (!(QUEUES[index].flags & OM_QUEUE_DELAY))
        om_consumer_add(server->engine, event->conn, event->channel, &consume, NULL, 0);
    if (bits % 11 == 0)
        om_consumer_add_reply_to(server->engine, event->conn, event->channel, p.data, 4, NULL, 0);
}

/* What a queue that went had given out is nobody's any more. */
static inline void empty_logs(mini_server *server, int index) {
    for (int lane = 0; lane < QUEUES[index].lanes; lane++) {
        om_log_stat stat;
        uint64_t seq;
        om_log_stat_get(server->logs[index][lane], &stat);
        if (stat.next_offset > 0)
            om_log_settle(server->logs[index][lane], 0, stat.next_offset - 1, -1, &seq);
    }
}

static inline void answer_method(mini_server *server, const om_event *event) {
    static const uint8_t ok[] = {1, 0, 2, 0, 0, 0, 4, 0, 90, 0, 21, 0xCE};
    om_engine *engine = server->engine;
    uint64_t conn = event->conn, seq;
    int channel = event->channel;
    switch (event->method) {
    case 10 << 16 | 50:
    case 10 << 16 | 51: /* connection.close, close-ok */
        om_conn_close(engine, conn, NULL, 0);
        return;
    case 20 << 16 | 10:
        om_channel_open(engine, conn, channel);
        break;
    case 20 << 16 | 40:
    case 20 << 16 | 41:
        om_channel_close(engine, conn, channel, 0);
        break;
    case 50 << 16 | 30: /* purge */
        om_queue_purge(engine, (uint64_t)named_queue(event->payload) + 1, &seq);
        break;
    case 50 << 16 | 40: { /* delete, and it is there again */
        int index = named_queue(event->payload);
        om_queue_remove(engine, (uint64_t)index + 1);
        empty_logs(server, index);
        add_queue(server, index);
        break;
    }
    case 60 << 16 | 10:
        om_channel_limit(engine, conn, channel, event->payload.data[event->payload.len - 1]);
        break;
    case 60 << 16 | 20:
        answer_consume(server, event);
        break;
    case 60 << 16 | 30:
        om_consumer_cancel(engine, conn, channel, event->payload.data + 5,
                           (size_t)event->payload.len > 5 ? (size_t)event->payload.len - 5 : 0, NULL, 0);
        break;
    case 60 << 16 | 70:
        if (om_basic_get(engine, conn, channel, (uint64_t)named_queue(event->payload) + 1,
                         event->payload.data[event->payload.len - 1] & 1) == OM_OK)
            return;
        break;
    case 60 << 16 | 110:
        om_channel_recover(engine, conn, channel);
        break;
    case 85 << 16 | 10:
        om_channel_confirm(engine, conn, channel);
        break;
    case 90 << 16 | 10:
        om_channel_tx_select(engine, conn, channel);
        break;
    case 90 << 16 | 20:
        om_channel_tx_commit(engine, conn, channel, ok, sizeof ok);
        break;
    case 90 << 16 | 30:
        om_channel_tx_rollback(engine, conn, channel);
        break;
    default:
        break;
    }
    om_conn_resume(engine, conn, NULL, 0);
}

static inline void answer_error(mini_server *server, const om_event *event) {
    if (event->channel && event->code < 500) {
        om_channel_close(server->engine, event->conn, event->channel, 1);
        om_conn_resume(server->engine, event->conn, NULL, 0);
    } else {
        om_conn_closing(server->engine, event->conn, NULL, 0);
        server->sent_away = event->conn;
    }
}

/* Every event there is. Returns how many there were. */
static inline int answer_events(mini_server *server) {
    int count = 0;
    om_event *event;
    while ((event = om_engine_next_event(server->engine))) {
        count++;
        if (event->kind == OM_EV_METHOD)
            answer_method(server, event);
        else if (event->kind == OM_EV_ROUTE || event->kind == OM_EV_DEAD_ROUTE)
            answer_route(server, event);
        else if (event->kind == OM_EV_ERROR)
            answer_error(server, event);
        else if (event->kind == OM_EV_CONN_HELLO)
            om_conn_resume(server->engine, event->conn, NULL, 0);
        om_event_free(event);
    }
    return count;
}

/* A connection past its handshake, with two channels; the second is transactional. */
static inline uint64_t connect_to(mini_server *server) {
    uint64_t conn = om_conn_virtual(server->engine, 0, "test");
    PROMISE(conn != 0);
    PROMISE(om_conn_feed(server->engine, conn, (const uint8_t *)"AMQP\0\0\x09\x01", 8) == 8);
    answer_events(server);
    om_conn_tune(server->engine, conn, 8192, 100, 0);
    om_conn_open(server->engine, conn, VHOST, "guest", 0);
    om_channel_open(server->engine, conn, 1);
    om_channel_open(server->engine, conn, 2);
    om_channel_tx_select(server->engine, conn, 2);
    return conn;
}

/* What is sent must be whole frames, whatever came in. */
typedef struct frame_check {
    uint8_t held[8192 + 8];
    size_t len;
} frame_check;

static inline void check_frames(frame_check *check, const uint8_t *data, size_t len) {
    while (len) {
        size_t want = check->len < 7 ? 7 : 7 + (size_t)om_get_be32(check->held + 3) + 1;
        PROMISE(want <= sizeof check->held);
        size_t take = want - check->len < len ? want - check->len : len;
        memcpy(check->held + check->len, data, take);
        check->len += take;
        data += take;
        len -= take;
        if (check->len >= 7 && check->len == 7 + (size_t)om_get_be32(check->held + 3) + 1) {
            PROMISE(check->held[check->len - 1] == 0xCE);
            PROMISE(check->held[0] == 1 || check->held[0] == 2 || check->held[0] == 3 || check->held[0] == 8);
            check->len = 0;
        }
    }
}

/* Returns 0 when the connection is gone. */
static inline int drain_some(mini_server *server, uint64_t conn, frame_check *check) {
    uint8_t room[16384];
    for (;;) {
        int64_t got = om_conn_drain(server->engine, conn, room, sizeof room);
        if (got < 0)
            return 0;
        check_frames(check, room, (size_t)got);
        if (!got)
            return 1;
    }
}
#endif
