/* engine_api.c -- Python's calls about connections and publishes: between two ticks. */
#include "kafka/kafka.h"

#include <stdlib.h>

/* ---- connections ---- */

int om_conn_send(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn)
        om_conn_put_bytes(conn, data, len);
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_RANGE;
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
    return conn ? OM_OK : OM_E_RANGE;
}

int om_conn_tune(om_engine *engine, uint64_t id, uint32_t frame_max, uint32_t channel_max, uint32_t heartbeat_s) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn) {
        uint32_t most = engine->options.frame_max;
        conn->frame_max = frame_max == 0 || frame_max > most ? most
                          : frame_max < OM_FRAME_MIN         ? OM_FRAME_MIN
                                                             : frame_max;
        conn->channel_max = channel_max;
        conn->heartbeat_ms = heartbeat_s * 1000;
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_RANGE;
}

int om_conn_open(om_engine *engine, uint64_t id, uint32_t vhost, const char *user, uint32_t flags) {
    size_t len = strlen(user);
    if (len > 255)
        return OM_E_INVALID;
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn) {
        conn->state = OM_CONN_OPEN;
        om_unauth_remove(conn);
        conn->vhost = vhost;
        conn->flags = flags;
        conn->user_len = (uint8_t)len;
        memcpy(conn->user, user, len + 1);
        conn->last_in = engine->now_ms;
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_RANGE;
}

int om_conn_closing(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn && conn->state < OM_CONN_FLUSHING) {
        om_conn_drop_contents(conn);
        om_conn_put_bytes(conn, data, len);
        conn->state = OM_CONN_CLOSING;
        conn->paused = 0;
        om_conn_continue(conn);
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_RANGE;
}

int om_conn_close(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    if (conn && conn->state == OM_CONN_PARTING) {
        om_conn_break(conn, "closed");
    } else if (conn) {
        om_conn_drop_contents(conn);
        om_conn_put_bytes(conn, data, len);
        conn->has_last_word = len > 0;
        conn->state = OM_CONN_FLUSHING;
        conn->last_out = engine->now_ms;
        om_conn_dirty(conn);
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_RANGE;
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
            .channels = conn->channel_count,
            .state = conn->state,
            .blocked = conn->blocked,
            .produced_bytes = conn->kafka ? conn->kafka->produced_bytes : 0,
            .fetched_bytes = conn->kafka ? conn->kafka->fetched_bytes : 0,
        };
        for (uint32_t i = 0; i < conn->channel_cap; i++) {
            const om_channel *channel = conn->channels[i];
            out->unacked += channel ? channel->unacked.live : 0;
            for (const om_consumer *c = channel ? channel->consumers : NULL; c; c = c->next)
                out->consumers++;
        }
    }
    om_engine_leave(engine);
    return conn ? OM_OK : OM_E_RANGE;
}

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
    out->queues = engine->queue_count;
    out->routes = engine->route_count;
    out->blocked = engine->alarm;
    for (uint32_t i = 0; i < engine->conn_cap; i++)
        out->output_bytes += engine->conns[i] ? engine->conns[i]->out.bytes : 0;
    for (uint32_t i = 0; i < engine->queue_buckets; i++)
        for (const om_queue *queue = engine->by_id[i]; queue; queue = queue->next_by_id)
            out->consumers += queue->consumer_count;
    om_engine_leave(engine);
}

/* ---- connections without a socket ---- */

uint64_t om_conn_virtual(om_engine *engine, int door, const char *peer) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_new(engine, -1, door, peer);
    uint64_t id = conn ? conn->id : 0;
    om_engine_leave(engine);
    return id;
}

int64_t om_conn_feed(om_engine *engine, uint64_t id, const uint8_t *data, size_t len) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    int64_t taken = conn ? 0 : OM_E_RANGE;
    if (conn && (conn->paused || conn->stalled || conn->state == OM_CONN_FLUSHING)) {
        conn->wants_room = 1;
    } else if (conn) {
        size_t room = om_conn_read_most(conn);
        taken = (int64_t)(len < room ? len : room);
        om_conn_take(conn, data, (size_t)taken);
    }
    om_engine_leave(engine);
    return taken;
}

int64_t om_conn_drain(om_engine *engine, uint64_t id, uint8_t *out, size_t cap) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    int64_t len = OM_E_RANGE;
    if (conn) {
        len = om_output_drain(&conn->out, out, cap);
        if (len < 0)
            om_conn_break(conn, "what it was to get can't be read");
        else
            om_conn_drained(conn, (uint64_t)len);
    }
    om_engine_leave(engine);
    return len;
}

/* ---- publishing ---- */

int om_conn_may_publish(om_engine *engine, uint64_t id, const uint8_t *exchange, size_t len, uint32_t salt,
                        uint32_t flags) {
    if (len > 255)
        return OM_E_INVALID;
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    int result = conn ? OM_OK : OM_E_RANGE;
    uint32_t known = 0;
    while (conn && known < conn->allowed_count &&
           !(conn->allowed[known].len == len && memcmp(conn->allowed[known].name, exchange, len) == 0))
        known++;
    if (conn && known < conn->allowed_count) {
        conn->allowed_next = known;
    } else if (conn && conn->allowed_count < OM_ALLOWED_MAX) {
        uint32_t count = conn->allowed_count + 1;
        om_allowed *allowed = realloc(conn->allowed, count * sizeof *allowed);
        if (allowed) {
            conn->allowed = allowed;
            conn->allowed_next = conn->allowed_count++;
        } else {
            result = OM_E_NO_MEMORY;
        }
    }
    if (result == OM_OK) {
        om_allowed *allowed = &conn->allowed[conn->allowed_next];
        allowed->len = (uint8_t)len;
        allowed->salt = salt;
        allowed->by_event = (flags & OM_EXCHANGE_BY_EVENT) != 0;
        allowed->permissions = engine->permissions;
        memcpy(allowed->name, exchange, len);
        conn->allowed_next = (conn->allowed_next + 1) % OM_ALLOWED_MAX; /* the next one replaces the oldest */
        if (conn->allowed_next >= conn->allowed_count)
            conn->allowed_next = 0;
    }
    om_engine_leave(engine);
    return result;
}

int om_publish_route(om_engine *engine, uint64_t id, int number, const uint64_t *queues, int32_t count, uint32_t flags,
                     uint64_t generation) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    om_channel *channel = conn ? om_channel_find(conn, number) : NULL;
    int result = channel && channel->parked ? OM_OK : OM_E_RANGE;
    if (result == OM_OK && generation != engine->generation)
        result = OM_E_STALE_EPOCH;
    om_route *route = NULL;
    if (result == OM_OK) {
        const om_publish_target *address = &channel->address;
        route =
            om_route_make(engine, conn->vhost, address->salt, address->exchange, address->key, queues, count, flags);
        result = route ? OM_OK : OM_E_NO_MEMORY;
    }
    if (route) {
        conn->paused = 0;
        om_publish_parked(channel, route); /* which may pause it again: an error */
        om_route_unref(route);
        om_conn_continue(conn);
    } else if (conn && result == OM_E_RANGE) {
        /* The channel was closed meanwhile; what comes behind that publish is still to be read. */
        conn->paused = 0;
        om_conn_continue(conn);
    }
    om_engine_leave(engine);
    return result;
}

int om_dead_letter_route(om_engine *engine, uint64_t id, const uint64_t *queues, int32_t count, uint32_t flags,
                         uint64_t generation) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, id);
    int result = queue && queue->asked_route ? OM_OK : OM_E_RANGE; /* else nobody has asked */
    if (result == OM_OK && generation != engine->generation)
        result = OM_E_STALE_EPOCH;
    if (result == OM_OK) {
        queue->asked_route = 0;
        result = om_dead_letter_answer(queue, queues, count, flags);
        om_queue_activate(queue);
    }
    om_engine_leave(engine);
    return result;
}

/* ---- basic.get ---- */

static int allow_get(om_conn *conn, const om_queue *queue) {
    uint64_t permissions = conn->engine->permissions;
    if (conn->gets_permissions != permissions)
        conn->gets_count = 0;
    conn->gets_permissions = permissions;
    for (uint32_t i = 0; i < conn->gets_count; i++)
        if (conn->gets[i] == queue->id)
            return OM_OK;
    if (conn->gets_count == OM_ALLOWED_MAX)
        conn->gets_count = 0;
    uint64_t *gets = realloc(conn->gets, (conn->gets_count + 1) * sizeof *gets);
    if (!gets)
        return OM_E_NO_MEMORY;
    conn->gets = gets;
    conn->gets[conn->gets_count++] = queue->id;
    return OM_OK;
}

int om_basic_get(om_engine *engine, uint64_t id, int number, uint64_t queue_id, int no_ack) {
    om_engine_enter(engine);
    om_conn *conn = om_conn_find(engine, id);
    om_channel *channel = conn ? om_channel_find(conn, number) : NULL;
    om_queue *queue = om_queue_find(engine, queue_id);
    int result = !channel || !queue ? OM_E_RANGE : om_queue_is_stream(queue) ? OM_E_INVALID : OM_OK;
    if (result == OM_OK) {
        allow_get(conn, queue); /* without memory Python is asked again */
        conn->paused = 0;
        om_get_later(channel, queue, no_ack);
        om_conn_continue(conn);
    }
    om_engine_leave(engine);
    return result;
}
