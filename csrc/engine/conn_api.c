/* conn_api.c -- Python's calls about connections: between two ticks. */
#include "amqp/amqp_conn.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

int om_conn_send(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn)
        om_conn_put_bytes(conn, data, len);
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_conn_resume(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn) {
        om_conn_put_bytes(conn, data, len);
        conn->paused = 0;
        om_conn_continue(conn);
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_conn_tune(om_engine *engine, uint64_t id, uint32_t frame_max, uint32_t channel_max, uint32_t heartbeat_s) {
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    if (amqp) {
        uint32_t most = engine->options.frame_max;
        amqp->frame_max = frame_max == 0 || frame_max > most ? most
                          : frame_max < OM_FRAME_MIN         ? OM_FRAME_MIN
                                                             : frame_max;
        amqp->channel_max = channel_max;
        amqp->heartbeat_ms = heartbeat_s * 1000;
    }
    om_engine_leave(engine);
    return amqp ? OM_OK : OM_E_GONE;
}

int om_conn_open(om_engine *engine, uint64_t id, uint32_t vhost, const char *user, uint32_t flags) {
    size_t len = strlen(user);
    if (len > 255)
        return OM_E_INVALID;
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    om_conn *conn = amqp ? &amqp->conn : NULL;
    if (conn) {
        conn->state = OM_CONN_OPEN;
        om_unauth_remove(conn);
        amqp->vhost = vhost;
        amqp->flags = flags;
        conn->user_len = (uint8_t)len;
        memcpy(conn->user, user, len + 1);
        conn->last_in = engine->now_ms;
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_conn_closing(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn && conn->state < OM_CONN_FLUSHING) {
        conn->ops->release(conn);
        om_conn_put_bytes(conn, data, len);
        conn->state = OM_CONN_CLOSING;
        conn->paused = 0;
        om_conn_continue(conn);
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_conn_close(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn && conn->state == OM_CONN_HALF_CLOSED) {
        om_conn_break(conn, "closed by the broker");
    } else if (conn) {
        conn->ops->release(conn);
        om_conn_put_bytes(conn, data, len);
        conn->has_final_output = len > 0;
        conn->state = OM_CONN_FLUSHING;
        conn->last_out = engine->now_ms;
        om_conn_dirty(conn);
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

int om_conn_stat_get(om_engine *engine, uint64_t id, om_conn_stat *out) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn) {
        *out = (om_conn_stat){
            .received_bytes = conn->received_bytes,
            .sent_bytes = conn->sent_bytes,
            .published = conn->published,
            .delivered = conn->delivered,
            .acked = conn->acked,
            .output_bytes = conn->out.bytes,
            .state = conn->state,
            .blocked = conn->blocked,
        };
        conn->ops->stat(conn, out);
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_GONE;
}

/* ---- connections without a socket ---- */

uint64_t om_conn_virtual(om_engine *engine, int protocol, const char *peer) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_new(engine, -1, protocol, peer);
    uint64_t id = conn ? conn->id : 0;
    om_engine_leave(engine);
    return id;
}

int64_t om_conn_feed(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    int64_t taken = conn ? 0 : OM_E_GONE;
    if (conn && (conn->paused || conn->stalled || conn->state == OM_CONN_FLUSHING)) {
        conn->wants_room = 1;
    } else if (conn) {
        size_t room = om_conn_read_most(conn);
        taken = (int64_t)(len < room ? len : room);
        conn->ops->take(conn, data, (size_t)taken);
    }
    om_engine_leave(engine);
    return taken;
}

int64_t om_conn_drain(om_engine *engine, uint64_t id, uint8_t *out, size_t cap) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    int64_t len = OM_E_GONE;
    if (conn) {
        len = om_output_drain(&conn->out, out, cap);
        if (len < 0)
            om_conn_break(conn, "segment unreadable");
        else
            om_conn_drained(conn, (uint64_t)len);
    }
    om_engine_leave(engine);
    return len;
}

/* ---- what it may do ---- */

int om_conn_may_publish(om_engine *engine, uint64_t id, const uint8_t *exchange, size_t len, uint32_t salt,
                        uint32_t flags) {
    if (len > 255)
        return OM_E_INVALID;
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    int result = amqp ? OM_OK : OM_E_GONE;
    uint32_t known = 0;
    while (amqp && known < amqp->allowed_count &&
           !(amqp->allowed[known].len == len && memcmp(amqp->allowed[known].name, exchange, len) == 0))
        known++;
    if (amqp && known < amqp->allowed_count) {
        amqp->allowed_next = known;
    } else if (amqp && amqp->allowed_count < OM_ALLOWED_MAX) {
        uint32_t count = amqp->allowed_count + 1;
        om_allowed *allowed = realloc(amqp->allowed, count * sizeof *allowed);
        if (allowed) {
            amqp->allowed = allowed;
            amqp->allowed_next = amqp->allowed_count++;
        } else {
            result = OM_E_NO_MEMORY;
        }
    }
    if (result == OM_OK) {
        om_allowed *allowed = &amqp->allowed[amqp->allowed_next];
        allowed->len = (uint8_t)len;
        allowed->salt = salt;
        allowed->by_event = (flags & OM_EXCHANGE_BY_EVENT) != 0;
        allowed->permissions = engine->permissions;
        memcpy(allowed->name, exchange, len);
        amqp->allowed_next = (amqp->allowed_next + 1) % OM_ALLOWED_MAX; /* the next one replaces the oldest */
        if (amqp->allowed_next >= amqp->allowed_count)
            amqp->allowed_next = 0;
    }
    om_engine_leave(engine);
    return result;
}
