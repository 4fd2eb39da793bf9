/* conn.c -- a connection: bytes in, bytes out, and when it is held.
 *
 * What the bytes mean is its protocol's (protocol.h). Input is read into one scratch buffer that all connections
 * share; only the rest of a frame or request stays with its connection, so that an idle one costs next to
 * nothing. epoll is level-triggered. A paused connection is unwatched only when bytes come all the same: a
 * client that waits for its answer, as they do, costs no system call.
 */
#include "net/conn.h"
#include "net/engine_core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLOT_BITS 24
#define HALF_CLOSED_MS 3000 /* for the client to close its end, once all is said */

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
    const om_protocol *ops = protocol >= 0 && protocol < OM_PROTOCOLS ? engine->protocols[protocol] : NULL;
    om_conn *conn = ops ? calloc(1, ops->conn_size) : NULL;
    if (!conn)
        return NULL;
    uint32_t slot = engine->free_slots[engine->free_count - 1];
    conn->engine = engine;
    conn->ops = ops;
    conn->fd = fd;
    conn->protocol = protocol;
    conn->state = OM_CONN_GREETING;
    conn->id = ++engine->serial << SLOT_BITS | slot;
    conn->out.spares = &engine->spares;
    conn->last_in = conn->last_out = conn->opened_ms = engine->now_ms;
    snprintf(conn->peer, sizeof conn->peer, "%s", peer);
    ops->begin(conn);
    if (fd >= 0) {
        struct epoll_event watch = {.events = EPOLLIN, .data.u64 = conn->id};
        if (epoll_ctl(engine->poll_fd, EPOLL_CTL_ADD, fd, &watch) != 0) {
            ops->end(conn);
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

static void free_conn(om_conn *conn) {
    om_engine *engine = conn->engine;
    uint32_t slot = (uint32_t)(conn->id & ((1u << SLOT_BITS) - 1));
    om_unauth_remove(conn);
    conn->ops->release(conn);
    conn->ops->end(conn);
    om_output_clear(&conn->out);
    if (conn->fd >= 0)
        close(conn->fd);
    engine->conns[slot] = NULL;
    engine->free_slots[engine->free_count++] = slot;
    engine->conn_count--;
    free(conn->in);
    free(conn);
}

/* Only marked: the caller may still hold a channel of it. */
void om_conn_break(om_conn *conn, const char *why) {
    if (conn->broken)
        return;
    conn->broken = 1;
    conn->why = why;
    om_conn_dirty(conn);
}

void om_conn_remove(om_conn *conn) {
    om_engine *engine = conn->engine;
    char peer[sizeof conn->peer]; /* the connection is freed before the event is pushed */
    memcpy(peer, conn->peer, sizeof peer);
    om_event event = {
        .kind = OM_EV_CLOSED,
        .protocol = conn->protocol,
        .conn = conn->id,
        .header = {(const uint8_t *)peer, (int32_t)strlen(peer)},
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
    uint8_t *at = om_output_put(&conn->out, len);
    if (at) {
        om_conn_dirty(conn);
        return at;
    }
    om_conn_break(conn, "out of memory");
    return len <= sizeof conn->engine->nowhere ? conn->engine->nowhere : NULL;
}

void om_conn_put_bytes(om_conn *conn, const void *data, size_t len) {
    uint8_t *at = len && !conn->broken ? om_conn_put(conn, len) : NULL;
    if (at)
        memcpy(at, data, len);
}

void om_conn_watch(om_conn *conn) {
    if (conn->fd < 0 || conn->broken)
        return;
    int half_closed = conn->state == OM_CONN_HALF_CLOSED;
    int reading = half_closed || (!conn->paused && !conn->stalled && conn->state != OM_CONN_FLUSHING);
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

/* Output was sent: what waited for that goes on. */
static void resume_waiting(om_conn *conn) {
    if (conn->output_over_limit && conn->out.bytes < OM_OUTPUT_LIMIT) {
        conn->output_over_limit = 0;
        conn->engine->retry = 1;
    }
    if (!conn->throttled || conn->out.bytes >= OM_OUTPUT_LIMIT / 2)
        return;
    conn->throttled = 0;
    conn->ops->drained(conn);
}

void om_conn_drained(om_conn *conn, uint64_t len) {
    conn->sent_bytes += len;
    conn->engine->stat.sent_bytes += len;
    conn->last_out = conn->engine->now_ms;
    if (!conn->out.head)
        conn->output_announced = 0;
    resume_waiting(conn);
    if (conn->state == OM_CONN_FLUSHING && !conn->out.head)
        om_conn_break(conn, "closed by the broker");
}

static void flush_virtual(om_conn *conn) {
    if (conn->output_announced || (!conn->out.head && conn->state != OM_CONN_FLUSHING))
        return;
    conn->output_announced = 1;
    om_event event = {.kind = OM_EV_OUTPUT, .protocol = conn->protocol, .conn = conn->id};
    om_event_push(conn->engine, &event);
}

/* A socket closed over unread bytes is reset, and a reset overtakes what we said last; some
 * clients still have acks under way behind their connection.close, and take a broken pipe for a
 * lost connection. So the client closes first, as with RabbitMQ, or is given up after a while. */
static void half_close(om_conn *conn) {
    shutdown(conn->fd, SHUT_WR);
    if (!conn->has_final_output) {
        om_conn_break(conn, "closed by the broker");
        return;
    }
    conn->state = OM_CONN_HALF_CLOSED;
    conn->last_out = conn->engine->now_ms;
    om_conn_watch(conn);
}

static void drop_input(om_conn *conn) {
    ssize_t got = recv(conn->fd, conn->engine->scratch, OM_READ_BUDGET, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        om_conn_break(conn, "closed by the broker");
}

void om_conn_flush(om_conn *conn) {
    if (conn->state == OM_CONN_HALF_CLOSED)
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
    resume_waiting(conn);
    if (conn->state == OM_CONN_FLUSHING && !conn->out.head) {
        half_close(conn);
        return;
    }
    /* While paused, reading is given up only when something comes: see om_conn_read. */
    int writing = conn->out.head != NULL;
    if (writing != conn->writing || (!conn->reading && !conn->paused && !conn->stalled))
        om_conn_watch(conn);
}

/* ---- input ---- */

size_t om_conn_read_most(const om_conn *conn) {
    return conn->is_unauth ? OM_UNAUTH_INPUT : OM_READ_BUDGET;
}

void om_conn_heard(om_conn *conn, size_t len) {
    om_engine *engine = conn->engine;
    conn->received_bytes += len;
    engine->stat.received_bytes += len;
    om_coalesce_heard(&engine->coalesce, engine->now_ms - conn->last_in);
    conn->last_in = engine->now_ms;
}

void om_conn_continue(om_conn *conn) {
    conn->ops->resume(conn);
    if (conn->broken)
        return;
    if (conn->fd < 0 && conn->wants_room && !om_conn_is_held(conn)) {
        conn->wants_room = 0;
        om_event event = {.kind = OM_EV_ROOM, .protocol = conn->protocol, .conn = conn->id};
        om_event_push(conn->engine, &event);
    }
    if (!conn->reading)
        om_conn_watch(conn);
}

void om_conn_read(om_conn *conn) {
    if (conn->state == OM_CONN_HALF_CLOSED) {
        drop_input(conn);
        return;
    }
    if (om_conn_is_held(conn)) {
        om_conn_watch(conn);
        return;
    }
    conn->ops->read(conn);
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
    if (conn->state == OM_CONN_HALF_CLOSED) {
        if (now_ms - conn->last_out > HALF_CLOSED_MS)
            om_conn_break(conn, "closed by the broker");
        return;
    }
    conn->ops->check_time(conn, now_ms);
}
