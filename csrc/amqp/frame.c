/* frame.c -- cuts frames out of the input and calls what handles them.
 *
 *   0      1         3             7                  7+size
 *   | type | channel | size (u32)  | payload          | 0xCE |
 *
 * Nothing is copied: payloads are spans into the read buffer. A frame was handled, or more bytes are needed, or the
 * connection is held (paused for Python, or stalled for the disk). Lengths are checked once, here; what handles a
 * payload checks its contents.
 */
#include "amqp/frame.h"
#include "amqp/ack.h"
#include "amqp/amqp_conn.h"
#include "amqp/get.h"
#include "base/bytes.h"
#include "net/engine_core.h"

#include <stdio.h>
#include <string.h>

static const uint8_t GREETING[8] = {'A', 'M', 'Q', 'P', 0, 0, 9, 1};

/* ---- the protocol header ---- */

static size_t greet(om_conn *conn, const uint8_t *data, size_t len) {
    size_t have = len < sizeof GREETING ? len : sizeof GREETING;
    if (memcmp(data, GREETING, have) != 0) {
        om_event event = {
            .kind = OM_EV_BAD_HEADER,
            .conn = conn->id,
            .payload = {data, (int32_t)have},
            .text = {(const uint8_t *)conn->peer, (int32_t)strlen(conn->peer)},
        };
        om_event_push(conn->engine, &event);
        om_conn_put_bytes(conn, GREETING, sizeof GREETING);
        conn->has_final_output = 1;
        conn->state = OM_CONN_FLUSHING;
        return len;
    }
    if (len < sizeof GREETING)
        return 0;
    conn->state = OM_CONN_HANDSHAKE;
    conn->paused = 1;
    om_event event = {
        .kind = OM_EV_CONN_HELLO,
        .conn = conn->id,
        .text = {(const uint8_t *)conn->peer, (int32_t)strlen(conn->peer)},
    };
    om_event_push(conn->engine, &event);
    return sizeof GREETING;
}

/* ---- methods ---- */

static enum om_verdict ask_python(om_conn *conn, int channel, const uint8_t *payload, size_t len) {
    if (conn->state == OM_CONN_OPEN && om_conn_is_over_output_limit(conn))
        return OM_STALL;
    om_event event = {
        .kind = OM_EV_METHOD,
        .conn = conn->id,
        .channel = channel,
        .method = om_get_be32(payload),
        .payload = {payload, (int32_t)len},
    };
    conn->paused = 1;
    om_event_push(conn->engine, &event);
    return OM_PAUSE;
}

/* basic.get of a queue that Python has allowed before. */
static enum om_verdict get(om_channel *channel, const uint8_t *payload, size_t len) {
    om_conn *conn = channel->conn;
    const om_amqp_conn *amqp = om_amqp_of(conn);
    const uint8_t *args = payload + 4;
    size_t name_len = len > 6 ? args[2] : 0;
    if (om_conn_is_over_output_limit(conn))
        return OM_STALL;
    if (len != 4 + 3 + name_len + 1 || amqp->gets_permissions != conn->engine->permissions)
        return ask_python(conn, channel->number, payload, len);
    om_queue *queue = om_queue_named(conn->engine, amqp->vhost, args + 3, name_len);
    for (uint32_t i = 0; queue && i < amqp->gets_count; i++)
        if (amqp->gets[i] == queue->id)
            return om_get(channel, queue, args[3 + name_len] & 1) == OM_E_NOT_RESIDENT ? OM_STALL : OM_GO_ON;
    return ask_python(conn, channel->number, payload, len);
}

/* In RabbitMQ's words. */
static const char *due(const om_channel *channel) {
    return channel->stage == OM_STAGE_IDLE     ? "method frame, got non method"
           : channel->stage == OM_STAGE_HEADER ? "content header for class 60, got non content header"
                                               : "content body, got non content body";
}

static enum om_verdict on_open_channel(om_channel *channel, const uint8_t *payload, size_t len) {
    om_conn *conn = channel->conn;
    uint32_t method = om_get_be32(payload);
    if (channel->stage != OM_STAGE_IDLE)
        return om_amqp_error(conn, channel->number, 505, OM_BASIC_PUBLISH,
                             "UNEXPECTED_FRAME - expected %s frame instead", due(channel));
    switch (method) {
    case OM_BASIC_PUBLISH:
        if (om_conn_is_over_output_limit(conn) && (channel->confirms || (len > 4 && payload[len - 1] & 1)))
            return OM_STALL; /* its confirms, or what would be returned */
        return om_publish_method(channel, payload + 4, len - 4);
    case OM_BASIC_ACK:
        return om_basic_ack(channel, payload + 4, len - 4);
    case OM_BASIC_NACK:
        return om_basic_nack(channel, payload + 4, len - 4);
    case OM_BASIC_REJECT:
        return om_basic_reject(channel, payload + 4, len - 4);
    case OM_BASIC_GET:
        return get(channel, payload, len);
    default:
        return ask_python(conn, channel->number, payload, len);
    }
}

/* The same one as the frame before, most of the time. */
static inline om_channel *channel_of(om_conn *conn, int number) {
    om_amqp_conn *amqp = om_amqp_of(conn);
    if (!amqp->last_channel || amqp->last_channel->number != number)
        amqp->last_channel = om_channel_find(conn, number);
    return amqp->last_channel;
}

static enum om_verdict on_method(om_conn *conn, int number, const uint8_t *payload, size_t len) {
    if (len < 4)
        return om_frame_error(conn, OM_FRAME_METHOD, payload, len, "unknown_frame");
    uint32_t method = om_get_be32(payload);
    if (conn->state == OM_CONN_CLOSING) {
        int ends = number == 0 && (method == OM_CONNECTION_CLOSE || method == OM_CONNECTION_CLOSE_OK);
        return ends ? ask_python(conn, 0, payload, len) : OM_GO_ON;
    }
    if (number == 0 || conn->state != OM_CONN_OPEN)
        return ask_python(conn, number, payload, len);
    om_channel *channel = channel_of(conn, number);
    if (!channel) {
        if (method == OM_CHANNEL_OPEN)
            return ask_python(conn, number, payload, len);
        /* A client that closes what we have just closed is late, not wrong. */
        if (method == OM_CHANNEL_CLOSE_OK)
            return OM_GO_ON;
        return om_amqp_error(conn, number, 504, method, "CHANNEL_ERROR - expected 'channel.open'");
    }
    if (channel->subscriber.closing)
        return method == OM_CHANNEL_CLOSE || method == OM_CHANNEL_CLOSE_OK ? ask_python(conn, number, payload, len)
                                                                           : OM_GO_ON;
    return on_open_channel(channel, payload, len);
}

/* ---- content ---- */

static enum om_verdict on_content(om_conn *conn, int type, int number, const uint8_t *payload, size_t len) {
    if (conn->state == OM_CONN_CLOSING)
        return OM_GO_ON;
    if (type == OM_FRAME_HEADER && len < OM_CONTENT_HEADER_MIN)
        return om_frame_error(conn, type, payload, len, "unknown_frame");
    if (number == 0 || conn->state != OM_CONN_OPEN)
        return om_frame_unexpected(conn, type, payload, len);
    om_channel *channel = channel_of(conn, number);
    if (!channel)
        return om_amqp_error(conn, number, 505, 0,
                             "UNEXPECTED_FRAME - expected method frame, got non method frame instead");
    if (channel->subscriber.closing)
        return OM_GO_ON;
    int wanted = type == OM_FRAME_HEADER ? OM_STAGE_HEADER : OM_STAGE_BODY;
    if (channel->stage != wanted)
        return om_amqp_error(conn, number, 505, channel->stage == OM_STAGE_IDLE ? 0 : OM_BASIC_PUBLISH,
                             "UNEXPECTED_FRAME - expected %s frame instead", due(channel));
    return type == OM_FRAME_HEADER ? om_publish_header(channel, payload, len) : om_publish_body(channel, payload, len);
}

/* ---- frames ---- */

static enum om_verdict on_frame(om_conn *conn, int type, int number, const uint8_t *payload, size_t len) {
    switch (type) {
    case OM_FRAME_METHOD:
        return on_method(conn, number, payload, len);
    case OM_FRAME_HEADER:
    case OM_FRAME_BODY:
        return on_content(conn, type, number, payload, len);
    case OM_FRAME_HEARTBEAT:
        if (len != 0)
            return om_frame_error(conn, type, payload, len, "unknown_frame");
        return number == 0 ? OM_GO_ON : om_frame_unexpected(conn, type, payload, len);
    default:
        return om_frame_error(conn, type, payload, len, "unknown_frame");
    }
}

size_t om_frames(om_conn *conn, const uint8_t *data, size_t len) {
    const om_amqp_conn *amqp = om_amqp_of(conn);
    size_t at = 0;
    if (conn->state == OM_CONN_GREETING) {
        at = greet(conn, data, len);
        if (conn->state != OM_CONN_HANDSHAKE)
            return at;
    }
    while (!om_conn_is_held(conn) && len - at >= 7) {
        const uint8_t *frame = data + at;
        int type = frame[0], number = om_get_be16(frame + 1);
        uint32_t size = om_get_be32(frame + 3);
        /* The limit counts head and end. */
        if (size > amqp->frame_max - OM_FRAME_OVERHEAD) {
            om_amqp_error(conn, 0, 501, 0, "FRAME_ERROR - type %d, all octets = <<>>: {frame_too_large,%u,%u}", type,
                          size, amqp->frame_max - OM_FRAME_OVERHEAD);
            return len;
        }
        if (len - at < 7 + (size_t)size + 1)
            break;
        if (frame[7 + size] != OM_FRAME_END) {
            char why[64];
            snprintf(why, sizeof why, "{invalid_frame_end_marker,%d}", frame[7 + size]);
            om_frame_error(conn, type, frame + 7, size, why);
            return len;
        }
        enum om_verdict verdict = on_frame(conn, type, number, frame + 7, size);
        if (verdict == OM_STALL) {
            om_conn_stall(conn);
            break;
        }
        at += 7 + (size_t)size + 1;
    }
    return at;
}
