/* conn.c -- a connection: bytes in, bytes out, and when to stand still.
 *
 * Input is read into one scratch buffer that all connections share; only what is left of a frame
 * stays with its connection, so that an idle one costs next to nothing. epoll is level-triggered.
 * A paused connection is unwatched only when bytes come all the same: a client that waits for its
 * answer, as they do, costs no system call.
 */
#include "kafka/kafka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLOT_BITS 24
#define PARTING_MS 3000 /* for the client to close its end, once all is said */

/* ---- the table ---- */

om_conn *om_conn_find(om_engine *engine, uint64_t id) {
    uint32_t slot = (uint32_t)(id & ((1u << SLOT_BITS) - 1));
    om_conn *conn = slot < engine->conn_cap ? engine->conns[slot] : NULL;
    return conn && conn->id == id && !conn->broken ? conn : NULL;
}

static int grow_table(om_engine *engine) {
    uint32_t cap = engine->conn_cap ? engine->conn_cap * 2 : 64;
    om_conn **conns = realloc(engine->conns, cap * sizeof *conns);
    if (conns)
        engine->conns = conns;
    uint32_t *slots = realloc(engine->free_slots, cap * sizeof *slots);
    if (slots)
        engine->free_slots = slots;
    if (!conns || !slots)
        return OM_E_NO_MEMORY;
    for (uint32_t i = cap; i-- > engine->conn_cap;) {
        conns[i] = NULL;
        slots[engine->free_count++] = i;
    }
    engine->conn_cap = cap;
    return OM_OK;
}

om_conn *om_conn_new(om_engine *engine, int fd, int protocol, const char *peer) {
    if (!engine->free_count && grow_table(engine) != OM_OK)
        return NULL;
    om_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    uint32_t slot = engine->free_slots[engine->free_count - 1];
    conn->engine = engine;
    conn->fd = fd;
    conn->protocol = protocol;
    conn->state = OM_CONN_GREETING;
    conn->id = ++engine->serial << SLOT_BITS | slot;
    /* Until it is negotiated: a stranger's start-ok may carry a long token, and no more. */
    conn->frame_max = engine->options.frame_max < OM_FRAME_STRANGER ? engine->options.frame_max : OM_FRAME_STRANGER;
    conn->out.spares = &engine->spares;
    conn->last_in = conn->last_out = conn->opened_ms = engine->now_ms;
    snprintf(conn->peer, sizeof conn->peer, "%s", peer);
    if (protocol == OM_PROTOCOL_KAFKA && om_kafka_conn_new(conn) != OM_OK) {
        free(conn);
        return NULL;
    }
    if (fd >= 0) {
        struct epoll_event watch = {.events = EPOLLIN, .data.u64 = conn->id};
        if (epoll_ctl(engine->poll_fd, EPOLL_CTL_ADD, fd, &watch) != 0) {
            om_kafka_conn_free(conn);
            free(conn);
            return NULL;
        }
        conn->reading = 1;
    }
    engine->free_count--;
    engine->conns[slot] = conn;
    engine->conn_count++;
    om_unauth_add(conn);
    return conn;
}

/* Whatever it holds of queues: at once, so that others get it. */
void om_conn_drop_contents(om_conn *conn) {
    for (uint32_t i = 0; i < conn->channel_cap;) {
        if (!conn->channels[i]) {
            i++;
            continue;
        }
        om_channel_let_go(conn->channels[i]);
        om_channel_free(conn->channels[i]); /* another may take its slot */
    }
    free(conn->channels);
    conn->channels = NULL;
    conn->channel_cap = conn->channel_count = 0;
}

static void free_conn(om_conn *conn) {
    om_engine *engine = conn->engine;
    uint32_t slot = (uint32_t)(conn->id & ((1u << SLOT_BITS) - 1));
    om_unauth_remove(conn);
    om_conn_drop_contents(conn);
    om_kafka_conn_free(conn);
    om_output_clear(&conn->out);
    if (conn->fd >= 0)
        close(conn->fd);
    engine->conns[slot] = NULL;
    engine->free_slots[engine->free_count++] = slot;
    engine->conn_count--;
    free(conn->gets);
    free(conn->allowed);
    free(conn->in);
    free(conn);
}

/* Only marked: whoever calls may still hold a channel of it. */
void om_conn_break(om_conn *conn, const char *why) {
    if (conn->broken)
        return;
    conn->broken = 1;
    conn->why = why;
    om_conn_dirty(conn);
}

void om_conn_bury(om_conn *conn) {
    om_engine *engine = conn->engine;
    om_event event = {
        .kind = OM_EV_CLOSED,
        .protocol = conn->protocol,
        .conn = conn->id,
        .text = {(const uint8_t *)conn->why, (int32_t)strlen(conn->why)},
    };
    om_conn **link = &engine->stalled;
    while (conn->on_stalled && *link != conn)
        link = &(*link)->next_stalled;
    if (conn->on_stalled)
        *link = conn->next_stalled;
    free_conn(conn);
    om_event_push(engine, &event);
}

/* ---- output ---- */

void om_conn_dirty(om_conn *conn) {
    if (conn->on_dirty)
        return;
    conn->on_dirty = 1;
    conn->next_dirty = conn->engine->dirty;
    conn->engine->dirty = conn;
}

uint8_t *om_conn_put(om_conn *conn, size_t len) {
    static uint8_t nowhere[1u << 12];
    uint8_t *at = om_output_put(&conn->out, len);
    if (at) {
        om_conn_dirty(conn);
        return at;
    }
    om_conn_break(conn, "out of memory");
    return len <= sizeof nowhere ? nowhere : NULL;
}

void om_conn_put_bytes(om_conn *conn, const void *data, size_t len) {
    uint8_t *at = len && !conn->broken ? om_conn_put(conn, len) : NULL;
    if (at)
        memcpy(at, data, len);
}

void om_conn_watch(om_conn *conn) {
    if (conn->fd < 0 || conn->broken)
        return;
    int parting = conn->state == OM_CONN_PARTING;
    int reading = parting || (!conn->paused && !conn->stalled && conn->state != OM_CONN_FLUSHING);
    int writing = conn->out.head != NULL;
    if (reading == conn->reading && writing == conn->writing)
        return;
    struct epoll_event watch = {
        .events = (reading ? EPOLLIN : 0u) | (writing ? EPOLLOUT : 0u),
        .data.u64 = conn->id,
    };
    if (epoll_ctl(conn->engine->poll_fd, EPOLL_CTL_MOD, conn->fd, &watch) != 0)
        om_conn_break(conn, "epoll failed");
    conn->reading = (uint8_t)reading;
    conn->writing = (uint8_t)writing;
}

/* Output has gone: who waited for that goes on. */
static void wake_who_waits(om_conn *conn) {
    if (conn->clogged && conn->out.bytes < OM_OUTPUT_LIMIT) {
        conn->clogged = 0;
        conn->engine->retry = 1;
    }
    if (!conn->throttled || conn->out.bytes >= OM_OUTPUT_LIMIT / 2)
        return;
    conn->throttled = 0;
    for (uint32_t i = 0; i < conn->channel_cap; i++)
        if (conn->channels[i])
            om_channel_wake_queues(conn->channels[i]);
}

void om_conn_drained(om_conn *conn, uint64_t len) {
    conn->sent_bytes += len;
    conn->engine->stat.sent_bytes += len;
    conn->last_out = conn->engine->now_ms;
    if (!conn->out.head)
        conn->told_output = 0;
    wake_who_waits(conn);
    if (conn->state == OM_CONN_FLUSHING && !conn->out.head)
        om_conn_break(conn, "closed by the broker");
}

static void flush_virtual(om_conn *conn) {
    if (conn->told_output || (!conn->out.head && conn->state != OM_CONN_FLUSHING))
        return;
    conn->told_output = 1;
    om_event event = {.kind = OM_EV_OUTPUT, .protocol = conn->protocol, .conn = conn->id};
    om_event_push(conn->engine, &event);
}

/* A socket closed over unread bytes is reset, and a reset overtakes what we said last; some
 * clients still have acks under way behind their connection.close, and take a broken pipe for a
 * lost connection. So the client closes first, as with RabbitMQ, or is given up after a while. */
static void part(om_conn *conn) {
    shutdown(conn->fd, SHUT_WR);
    if (!conn->has_last_word) {
        om_conn_break(conn, "closed by the broker");
        return;
    }
    conn->state = OM_CONN_PARTING;
    conn->last_out = conn->engine->now_ms;
    om_conn_watch(conn);
}

static void drop_input(om_conn *conn) {
    ssize_t got = recv(conn->fd, conn->engine->scratch, OM_READ_BUDGET, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        om_conn_break(conn, "closed by the broker");
}

void om_conn_flush(om_conn *conn) {
    if (conn->state == OM_CONN_PARTING)
        return;
    if (conn->fd < 0) {
        flush_virtual(conn);
        return;
    }
    uint64_t sent = 0;
    int result = om_output_flush(&conn->out, conn->fd, &sent);
    if (sent) {
        conn->sent_bytes += sent;
        conn->engine->stat.sent_bytes += sent;
        conn->last_out = conn->engine->now_ms;
    }
    if (result == OM_E_IO) {
        om_conn_break(conn, errno == EPIPE || errno == ECONNRESET ? "connection lost" : "socket write failed");
        return;
    }
    wake_who_waits(conn);
    if (conn->state == OM_CONN_FLUSHING && !conn->out.head) {
        part(conn);
        return;
    }
    /* While paused, reading is given up only when something comes: see om_conn_read. */
    int writing = conn->out.head != NULL;
    if (writing != conn->writing || (!conn->reading && !conn->paused && !conn->stalled))
        om_conn_watch(conn);
}

/* ---- input ---- */

static void keep_rest(om_conn *conn, const uint8_t *data, size_t len) {
    if (!len) {
        conn->in_len = 0;
        if (conn->in_cap > 4096) {
            free(conn->in);
            conn->in = NULL;
            conn->in_cap = 0;
        }
        return;
    }
    if (len > conn->in_cap) {
        uint8_t *in = malloc(len);
        if (!in) {
            om_conn_break(conn, "out of memory");
            return;
        }
        memcpy(in, data, len);
        free(conn->in);
        conn->in = in;
        conn->in_cap = (uint32_t)len;
    } else {
        memmove(conn->in, data, len);
    }
    conn->in_len = (uint32_t)len;
}

void om_conn_heard(om_conn *conn, size_t len) {
    om_engine *engine = conn->engine;
    conn->received_bytes += len;
    engine->stat.received_bytes += len;
    om_coalesce_heard(&engine->crowd, engine->now_ms - conn->last_in);
    conn->last_in = engine->now_ms;
}

static int is_standing(const om_conn *conn) {
    return conn->paused || conn->stalled || conn->broken || conn->state >= OM_CONN_FLUSHING;
}

/* The basic.get that Python has allowed, and that had to wait. */
static void get_again(om_conn *conn) {
    om_channel *channel = om_channel_find(conn, conn->get_channel);
    om_queue *queue = om_queue_find(conn->engine, conn->get_queue);
    conn->get_queue = 0;
    if (channel && channel->state == OM_CH_OPEN)
        om_get_later(channel, queue, conn->get_no_ack);
}

void om_conn_continue(om_conn *conn) {
    if (conn->get_queue && !is_standing(conn))
        get_again(conn);
    if (conn->kafka) {
        om_kafka_conn_continue(conn);
    } else if (!is_standing(conn) && conn->in_len) {
        /* Frames are cut where they can't move: an answer may stall or pause again. */
        uint8_t *scratch = conn->engine->scratch;
        size_t len = conn->in_len;
        memcpy(scratch, conn->in, len);
        size_t used = om_frames(conn, scratch, len);
        if (!conn->broken)
            keep_rest(conn, scratch + used, len - used);
    }
    if (conn->broken)
        return;
    if (conn->fd < 0 && conn->wants_room && !is_standing(conn)) {
        conn->wants_room = 0;
        om_event event = {.kind = OM_EV_ROOM, .protocol = conn->protocol, .conn = conn->id};
        om_event_push(conn->engine, &event);
    }
    if (!conn->reading)
        om_conn_watch(conn);
}

void om_conn_take(om_conn *conn, const uint8_t *data, size_t len) {
    if (conn->kafka) {
        om_kafka_conn_take(conn, data, len);
        return;
    }
    uint8_t *scratch = conn->engine->scratch;
    size_t have = conn->in_len;
    if (have)
        memcpy(scratch, conn->in, have);
    memcpy(scratch + have, data, len);
    om_conn_heard(conn, len);
    size_t used = om_frames(conn, scratch, have + len);
    if (!conn->broken)
        keep_rest(conn, scratch + used, have + len - used);
}

void om_conn_read(om_conn *conn) {
    if (conn->state == OM_CONN_PARTING) {
        drop_input(conn);
        return;
    }
    if (is_standing(conn)) {
        om_conn_watch(conn);
        return;
    }
    if (conn->kafka) {
        om_kafka_conn_read(conn);
        return;
    }
    uint8_t *scratch = conn->engine->scratch;
    size_t have = conn->in_len;
    if (have)
        memcpy(scratch, conn->in, have);
    ssize_t got = recv(conn->fd, scratch + have, om_conn_read_most(conn), MSG_DONTWAIT);
    if (got <= 0) {
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        om_conn_break(conn, got == 0 ? "client unexpectedly closed TCP connection" : "connection lost");
        return;
    }
    om_conn_heard(conn, (size_t)got);
    size_t len = have + (size_t)got;
    size_t used = om_frames(conn, scratch, len);
    if (!conn->broken)
        keep_rest(conn, scratch + used, len - used);
}

void om_conn_stall(om_conn *conn) {
    conn->stalled = 1;
    if (conn->on_stalled)
        return;
    conn->on_stalled = 1;
    conn->next_stalled = conn->engine->stalled;
    conn->engine->stalled = conn;
}

/* ---- time ---- */

void om_conn_check_time(om_conn *conn, int64_t now_ms) {
    if (conn->broken)
        return;
    if (conn->state < OM_CONN_OPEN && now_ms - conn->opened_ms > conn->engine->options.handshake_timeout_ms) {
        om_conn_break(conn, "handshake timeout");
        return;
    }
    if (conn->state == OM_CONN_FLUSHING && now_ms - conn->last_out > 10000) {
        om_conn_break(conn, "final output not drained");
        return;
    }
    if (conn->state == OM_CONN_PARTING) {
        if (now_ms - conn->last_out > PARTING_MS)
            om_conn_break(conn, "closed by the broker");
        return;
    }
    if (conn->kafka)
        om_kafka_conn_check_time(conn, now_ms);
    if (!conn->heartbeat_ms || conn->state < OM_CONN_OPEN)
        return;
    /* While we don't read, its silence means nothing, unless that is its own doing. */
    if (conn->paused || conn->stalled)
        conn->last_in = now_ms;
    if (conn->clogged && now_ms - conn->last_out > 2 * (int64_t)conn->heartbeat_ms) {
        om_conn_break(conn, "output not drained");
        return;
    }
    if (now_ms - conn->last_in > 2 * (int64_t)conn->heartbeat_ms) {
        om_conn_break(conn, "missed heartbeats from client");
        return;
    }
    if (now_ms - conn->last_out >= (int64_t)conn->heartbeat_ms / 2 && !conn->out.head) {
        static const uint8_t beat[8] = {OM_FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, OM_FRAME_END};
        om_conn_put_bytes(conn, beat, sizeof beat);
    }
}
