/* amqp_conn.c -- an AMQP connection: input is cut into frames, silence is judged by heartbeats.
 *
 * Input is read into the buffer that all connections share; only the rest of a frame stays with its connection.
 */
#include "amqp/amqp_conn.h"
#include "amqp/body_assembly.h"
#include "amqp/frame_write.h"
#include "amqp/get.h"
#include "net/engine_core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

om_amqp_conn *om_amqp_find(om_engine *engine, uint64_t id) {
    om_conn *conn = om_conn_find(engine, id);
    return conn && conn->ops == &om_amqp_protocol ? om_amqp_of(conn) : NULL;
}

static void begin(om_conn *conn) {
    uint32_t most = conn->engine->options.frame_max;
    /* Until it is negotiated: a client's start-ok may carry a long token, and no more. */
    om_amqp_of(conn)->frame_max = most < OM_FRAME_UNAUTH ? most : OM_FRAME_UNAUTH;
}

static void release(om_conn *conn) {
    om_amqp_conn *amqp = om_amqp_of(conn);
    for (uint32_t i = 0; i < amqp->channel_cap;) {
        if (!amqp->channels[i]) {
            i++;
            continue;
        }
        om_channel_let_go(amqp->channels[i]);
        om_channel_free(amqp->channels[i]); /* another may take its slot */
    }
    free(amqp->channels);
    amqp->channels = NULL;
    amqp->channel_cap = amqp->channel_count = 0;
}

static void end(om_conn *conn) {
    om_amqp_conn *amqp = om_amqp_of(conn);
    free(amqp->gets);
    free(amqp->allowed);
}

enum om_verdict om_amqp_error(om_conn *conn, int channel, int code, uint32_t method, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len >= (int)sizeof text)
        len = sizeof text - 1;
    om_event event = {
        .kind = OM_EV_ERROR,
        .conn = conn->id,
        .channel = channel,
        .code = code,
        .method = method,
        .text = {(const uint8_t *)text, len},
    };
    conn->paused = 1;
    om_event_push(conn->engine, &event);
    return OM_PAUSE;
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

/* The shared buffer holds so many bytes of its input. */
static void cut(om_conn *conn, size_t len) {
    const uint8_t *scratch = conn->engine->scratch;
    size_t used = om_frames(conn, scratch, len);
    if (!conn->broken)
        keep_rest(conn, scratch + used, len - used);
}

static void read_socket(om_conn *conn) {
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
    cut(conn, have + (size_t)got);
}

static void take(om_conn *conn, const uint8_t *data, size_t len) {
    uint8_t *scratch = conn->engine->scratch;
    size_t have = conn->in_len;
    if (have)
        memcpy(scratch, conn->in, have);
    memcpy(scratch + have, data, len);
    om_conn_heard(conn, len);
    cut(conn, have + len);
}

static void resume(om_conn *conn) {
    if (om_amqp_of(conn)->get_queue && !om_conn_is_held(conn))
        om_get_again(conn);
    if (om_conn_is_held(conn) || !conn->in_len)
        return;
    /* Frames are cut where they can't move: an answer may stall or pause again. */
    memcpy(conn->engine->scratch, conn->in, conn->in_len);
    cut(conn, conn->in_len);
}

/* ---- output ---- */

static void drained(om_conn *conn) {
    om_amqp_conn *amqp = om_amqp_of(conn);
    for (uint32_t i = 0; i < amqp->channel_cap; i++)
        if (amqp->channels[i])
            om_channel_wake_queues(amqp->channels[i]);
}

static void put_blocked(om_conn *conn, const char *reason) {
    uint8_t args[1 + 255], frame[OM_METHOD_HEAD + sizeof args + 1];
    size_t len = 0;
    if (reason)
        len = (size_t)(om_put_shortstr(args, (om_span){(const uint8_t *)reason, (int32_t)strlen(reason)}) - args);
    uint8_t *end = om_put_method(frame, 0, reason ? OM_CONNECTION_BLOCKED : OM_CONNECTION_UNBLOCKED, args, len);
    om_conn_put_bytes(conn, frame, (size_t)(end - frame));
    conn->blocked = reason != NULL;
}

static void alarm_changed(om_conn *conn, const char *reason) {
    if (conn->broken || conn->state != OM_CONN_OPEN || !(om_amqp_of(conn)->flags & OM_CONN_BLOCKED_CAPABLE))
        return;
    if (reason ? conn->held_back && !conn->blocked : conn->blocked)
        put_blocked(conn, reason);
}

/* ---- time ---- */

static void check_heartbeat(om_conn *conn, int64_t now_ms) {
    int64_t heartbeat_ms = om_amqp_of(conn)->heartbeat_ms;
    if (!heartbeat_ms || conn->state < OM_CONN_OPEN)
        return;
    /* While we don't read, its silence means nothing, unless that is its own doing. */
    if (conn->paused || conn->stalled)
        conn->last_in = now_ms;
    if (conn->output_over_limit && now_ms - conn->last_out > 2 * heartbeat_ms) {
        om_conn_break(conn, "output not drained");
        return;
    }
    if (now_ms - conn->last_in > 2 * heartbeat_ms) {
        om_conn_break(conn, "missed heartbeats from client");
        return;
    }
    if (now_ms - conn->last_out >= heartbeat_ms / 2 && !conn->out.head) {
        static const uint8_t beat[8] = {OM_FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, OM_FRAME_END};
        om_conn_put_bytes(conn, beat, sizeof beat);
    }
}

static void check_time(om_conn *conn, int64_t now_ms) {
    const om_amqp_conn *amqp = om_amqp_of(conn);
    check_heartbeat(conn, now_ms);
    for (uint32_t i = 0; i < amqp->channel_cap && !conn->broken; i++)
        if (amqp->channels[i])
            om_channel_check_overdue(amqp->channels[i]);
}

/* ---- figures ---- */

static uint64_t held_bytes(const om_conn *conn) {
    const om_amqp_conn *amqp = om_amqp_of(conn);
    uint64_t bytes = conn->out.bytes;
    for (uint32_t i = 0; i < amqp->channel_cap; i++)
        if (amqp->channels[i])
            bytes += om_assembly_weight(amqp->channels[i]);
    return bytes;
}

static void stat(const om_conn *conn, om_conn_stat *stat) {
    const om_amqp_conn *amqp = om_amqp_of(conn);
    stat->channels = amqp->channel_count;
    for (uint32_t i = 0; i < amqp->channel_cap; i++) {
        const om_channel *channel = amqp->channels[i];
        stat->unacked += channel ? channel->unacked.live : 0;
        stat->consumers += channel ? channel->subscriber.consumer_count : 0;
    }
}

const om_protocol om_amqp_protocol = {
    .conn_size = sizeof(om_amqp_conn),
    .begin = begin,
    .read = read_socket,
    .take = take,
    .resume = resume,
    .drained = drained,
    .release = release,
    .end = end,
    .check_time = check_time,
    .alarm = alarm_changed,
    .held_bytes = held_bytes,
    .stat = stat,
};
