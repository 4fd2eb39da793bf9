/* kafka_conn.c -- a Kafka connection: requests are cut out of the input by their size prefix.
 *
 *   0           4         6         8             12
 *   | size i32  | API key | version | correlation | client id, then the body |
 *
 * A request that fits the buffer that all connections share is cut there, and only an unfinished rest stays with its
 * connection. A larger one is read into a buffer of its own, which grows with what has come, never with what was
 * claimed.
 */
#include "format/kafka_wire.h"
#include "kafka/kafka.h"
#include "net/socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define REQUEST_MIN 8 /* without a client id there is this much */
#define KEY_MAX 1000  /* no API has such a number: it isn't Kafka */
#define LARGE_STEP (1u << 20)
#define REPLY_LEAST (64u << 10)
#define REPLY_KEPT (4u << 20)
#define PRODUCE_FLEXIBLE 9
#define FETCH_FLEXIBLE 12

static void end(om_conn *conn) {
    om_kafka_conn *kafka = om_kafka_of(conn);
    om_conn **link = &conn->engine->kafka->delayed;
    while (kafka->on_delayed && *link != conn)
        link = &om_kafka_of(*link)->next_delayed;
    if (kafka->on_delayed)
        *link = kafka->next_delayed;
    om_kafka_fetch_free(conn);
    om_wheel_clear(&conn->engine->kafka->wheel, &kafka->mute);
    om_kafka_rights_clear(&kafka->rights);
    om_kafka_repack_forget(conn);
    free(kafka->producer);
    free(kafka->delayed);
    free(kafka->held);
}

/* ---- standing still ---- */

void om_kafka_hold(om_conn *conn, enum om_kafka_wait why) {
    om_kafka_of(conn)->wait = (uint8_t)why;
    conn->paused = 1;
}

void om_kafka_go_on(om_conn *conn) {
    om_kafka_of(conn)->wait = OM_KAFKA_GOES_ON;
    conn->paused = 0;
    om_conn_continue(conn);
}

/* ---- the first request ---- */

static void refuse(om_conn *conn, const uint8_t *data, size_t len) {
    om_event event = {
        .kind = OM_EV_BAD_HEADER,
        .protocol = conn->protocol,
        .conn = conn->id,
        .payload = {data, len < 64 ? (int32_t)len : 64},
        .text = {(const uint8_t *)conn->peer, (int32_t)strlen(conn->peer)},
    };
    om_event_push(conn->engine, &event);
    conn->state = OM_CONN_FLUSHING;
    om_conn_dirty(conn);
}

/* Advertised to a client that asks where to go: the address it came to. */
static int own_address(const om_conn *conn, char *out, int len) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (conn->fd < 0 || getsockname(conn->fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    om_socket_describe(&address, out, len);
    return (int)strlen(out);
}

static void open_conn(om_conn *conn) {
    char address[64];
    int len = own_address(conn, address, sizeof address);
    om_event event = {
        .kind = OM_EV_CONN_HELLO,
        .protocol = conn->protocol,
        .conn = conn->id,
        .header = {(const uint8_t *)address, len},
        .text = {(const uint8_t *)conn->peer, (int32_t)strlen(conn->peer)},
    };
    conn->state = OM_CONN_HANDSHAKE;
    om_event_push(conn->engine, &event);
}

/* ---- requests ---- */

uint8_t *om_kafka_reply_room(om_engine *engine, size_t len) {
    struct om_kafka *kafka = engine->kafka;
    if (len > kafka->reply_cap || kafka->reply_cap > REPLY_KEPT) {
        size_t cap = len > REPLY_LEAST ? len : REPLY_LEAST;
        free(kafka->reply);
        kafka->reply = malloc(cap);
        kafka->reply_cap = kafka->reply ? cap : 0;
    }
    return kafka->reply;
}

uint32_t om_kafka_take_throttle(om_conn *conn) {
    uint32_t ms = om_kafka_of(conn)->throttle_ms;
    om_kafka_of(conn)->throttle_ms = 0;
    if (ms) {
        om_kafka_hold(conn, OM_KAFKA_MUTED);
        om_kafka_set_timer(conn, &om_kafka_of(conn)->mute, OM_KAFKA_TIMER_MUTE, conn->engine->now_ms + ms);
    }
    return ms;
}

/* Returns whether the request was taken; if not, it stays where it is. */
static int ask_python(const om_kafka_request *request) {
    om_conn *conn = request->conn;
    int may_be_ours =
        conn->state != OM_CONN_OPEN && (request->key == OM_KAFKA_PRODUCE || request->key == OM_KAFKA_FETCH);
    om_event event = {
        .kind = OM_EV_KAFKA_REQUEST,
        .protocol = conn->protocol,
        .conn = conn->id,
        .code = request->key,
        .method = (uint32_t)request->version,
        .count = om_kafka_of(conn)->slot,
        .payload = {request->data, (int32_t)request->len},
    };
    om_kafka_hold(conn, may_be_ours ? OM_KAFKA_ASKED_FIRST : OM_KAFKA_ASKED);
    om_event_push(conn->engine, &event);
    return !may_be_ours;
}

/* Behind the client id, which is no compact string even where all else is. NULL: it can't be read. */
static const uint8_t *find_body(const om_kafka_request *request, int flexible_from) {
    om_wire wire = {.at = request->data + 8, .end = request->data + request->len};
    om_wire_string(&wire);
    wire.flexible = request->version >= flexible_from;
    om_wire_skip_tags(&wire);
    if (wire.bad)
        om_conn_break(request->conn, "invalid request header");
    return wire.bad ? NULL : wire.at;
}

static int on_request(om_conn *conn, const uint8_t *data, size_t len) {
    om_kafka_conn *kafka = om_kafka_of(conn);
    om_kafka_request request = {
        .conn = conn,
        .key = (int16_t)om_get_be16(data),
        .version = (int16_t)om_get_be16(data + 2),
        .correlation = (int32_t)om_get_be32(data + 4),
        .data = data,
        .len = len,
    };
    if (om_conn_is_over_output_limit(conn)) {
        om_conn_stall(conn);
        return 0;
    }
    if (conn->state == OM_CONN_OPEN && request.key == OM_KAFKA_PRODUCE) {
        const uint8_t *body = find_body(&request, PRODUCE_FLEXIBLE);
        int taken = !body || om_kafka_produce(&request, body);
        kafka->slot += taken;
        return taken;
    }
    if (kafka->delayed_count) {
        om_conn_stall(conn); /* until they are sent */
        return 0;
    }
    kafka->slot++;
    if (conn->state == OM_CONN_OPEN && request.key == OM_KAFKA_FETCH) {
        const uint8_t *body = find_body(&request, FETCH_FLEXIBLE);
        return !body || om_kafka_fetch_take(&request, body);
    }
    return ask_python(&request);
}

/* A request that is too large before a login. A client that needs none may begin with it: it is read
 * once Python has said so. */
static void on_large_first_request(om_conn *conn, size_t have) {
    if (conn->state != OM_CONN_GREETING) {
        om_conn_break(conn, "request too large before login");
    } else if (have >= REQUEST_MIN) {
        open_conn(conn);
        om_kafka_hold(conn, OM_KAFKA_ASKED_WHO);
    }
}

/* Acts on as many requests as there are; returns the bytes used. */
static size_t cut(om_conn *conn, const uint8_t *data, size_t len) {
    size_t at = 0;
    while (!om_conn_is_held(conn) && len - at >= 4) {
        uint32_t size = om_get_be32(data + at);
        size_t have = len - at - 4;
        if (size < REQUEST_MIN || size > conn->engine->options.kafka_max_request ||
            (conn->state == OM_CONN_GREETING && have >= 2 && om_get_be16(data + at + 4) > KEY_MAX)) {
            if (conn->state == OM_CONN_GREETING)
                refuse(conn, data, len);
            else
                om_conn_break(conn, "invalid request size");
            return len;
        }
        if (conn->is_unauth && size > OM_UNAUTH_INPUT) {
            on_large_first_request(conn, have);
            break;
        }
        if (have < size)
            break;
        if (conn->state == OM_CONN_GREETING)
            open_conn(conn);
        if (om_kafka_of(conn)->drop)
            om_kafka_of(conn)->drop = 0;
        else if (!on_request(conn, data + at + 4, size))
            break;
        at += 4 + (size_t)size;
    }
    return at;
}

/* ---- input ---- */

/* How many bytes the request at the front of the input has; 0: not known yet. */
static size_t whole_size(const om_conn *conn) {
    return conn->in_len < 4 ? 0 : 4 + (size_t)om_get_be32(conn->in);
}

static int need_room(om_conn *conn, size_t cap) {
    if (cap <= conn->in_cap)
        return OM_OK;
    uint8_t *in = realloc(conn->in, cap);
    if (!in) {
        om_conn_break(conn, "out of memory");
        return OM_E_NO_MEMORY;
    }
    conn->in = in;
    conn->in_cap = (uint32_t)cap;
    return OM_OK;
}

/* What is left at the front of conn->in after `used` bytes of it. */
static void drop_used(om_conn *conn, size_t used) {
    conn->in_len -= (uint32_t)used;
    if (conn->in_len) {
        if (used)
            memmove(conn->in, conn->in + used, conn->in_len);
    } else if (conn->in_cap > 4096) {
        free(conn->in);
        conn->in = NULL;
        conn->in_cap = 0;
    }
}

static void cut_kept(om_conn *conn) {
    size_t used = cut(conn, conn->in, conn->in_len);
    if (!conn->broken)
        drop_used(conn, used);
}

/* Bytes that lie elsewhere; nothing was kept before them. */
static void cut_passing(om_conn *conn, const uint8_t *data, size_t len) {
    size_t used = cut(conn, data, len);
    if (conn->broken || used == len || need_room(conn, len - used) != OM_OK)
        return;
    memcpy(conn->in, data + used, len - used);
    conn->in_len = (uint32_t)(len - used);
}

static ssize_t receive(om_conn *conn, uint8_t *into, size_t len) {
    ssize_t got = recv(conn->fd, into, len, MSG_DONTWAIT);
    if (got > 0)
        om_conn_heard(conn, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        om_conn_break(conn, got == 0 ? "closed by the client" : "connection lost");
    return got;
}

static void read_large(om_conn *conn, size_t whole) {
    size_t cap = (size_t)conn->in_len * 2 > LARGE_STEP ? (size_t)conn->in_len * 2 : LARGE_STEP;
    if (need_room(conn, cap < whole ? cap : whole) != OM_OK)
        return;
    size_t room =
        whole - conn->in_len < conn->in_cap - conn->in_len ? whole - conn->in_len : conn->in_cap - conn->in_len;
    ssize_t got = receive(conn, conn->in + conn->in_len, room < LARGE_STEP ? room : LARGE_STEP);
    if (got <= 0)
        return;
    conn->in_len += (uint32_t)got;
    if (conn->in_len == whole)
        cut_kept(conn);
}

static void read_socket(om_conn *conn) {
    uint8_t *scratch = conn->engine->scratch;
    size_t whole = whole_size(conn), have = conn->in_len;
    if (whole > OM_READ_BUDGET) {
        read_large(conn, whole);
        return;
    }
    if (have)
        memcpy(scratch, conn->in, have);
    ssize_t got = receive(conn, scratch + have, om_conn_read_most(conn));
    if (got <= 0)
        return;
    conn->in_len = 0;
    cut_passing(conn, scratch, have + (size_t)got);
    if (!conn->broken)
        drop_used(conn, 0);
}

static void take(om_conn *conn, const uint8_t *data, size_t len) {
    om_conn_heard(conn, len);
    if (!conn->in_len) {
        cut_passing(conn, data, len);
        return;
    }
    size_t whole = whole_size(conn), most = conn->in_len + len;
    size_t doubled = (size_t)conn->in_len * 2;
    size_t cap = doubled > most && doubled < whole ? doubled : most;
    if (need_room(conn, cap) != OM_OK)
        return;
    memcpy(conn->in + conn->in_len, data, len);
    conn->in_len += (uint32_t)len;
    cut_kept(conn);
}

static void resume(om_conn *conn) {
    if (!om_conn_is_held(conn) && conn->in_len)
        cut_kept(conn);
}

/* A fetch's answer may be a large part of a file, which isn't in memory for our sake. */
static uint64_t held_bytes(const om_conn *conn) {
    uint64_t bytes = 0;
    for (const om_piece *piece = conn->out.head; piece; piece = piece->next)
        if (piece->kind != OM_PIECE_FILE)
            bytes += piece->len - piece->sent;
    return bytes;
}

/* ---- time ---- */

static void check_time(om_conn *conn, int64_t now_ms) {
    const om_engine_options *options = &conn->engine->options;
    if (conn->state < OM_CONN_OPEN)
        return;
    if (conn->paused || conn->stalled)
        conn->last_in = now_ms; /* its silence is our doing */
    int64_t silent = now_ms - conn->last_in;
    if (conn->in_len && silent > options->kafka_patience_ms)
        om_conn_break(conn, "incomplete request timeout");
    else if (options->kafka_idle_ms && silent > options->kafka_idle_ms)
        om_conn_break(conn, "idle timeout");
}

/* ---- the table ---- */

static void stat(const om_conn *conn, om_conn_stat *stat) {
    stat->produced_bytes = om_kafka_of(conn)->produced_bytes;
    stat->fetched_bytes = om_kafka_of(conn)->fetched_bytes;
}

/* Kafka has no consumers to wake and no message about alarms. */
static void nothing(om_conn *conn) {
    (void)conn;
}

static void no_alarm(om_conn *conn, const char *reason) {
    (void)conn;
    (void)reason;
}

const om_protocol om_kafka_protocol = {
    .conn_size = sizeof(om_kafka_conn),
    .begin = nothing,
    .read = read_socket,
    .take = take,
    .resume = resume,
    .drained = nothing,
    .release = nothing,
    .end = end,
    .check_time = check_time,
    .alarm = no_alarm,
    .held_bytes = held_bytes,
    .stat = stat,
};
