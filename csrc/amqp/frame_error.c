/* frame_error.c -- the errors for malformed frames, in RabbitMQ's words, which quote the first bytes as Erlang
 * writes them.
 *
 *   type 7, all octets = <<"abc">>: unknown_frame
 *   type 1, first 16 octets = <<0,60,0,10,0,0,0,0,0,0,0,0,0,0,0,0>>: {invalid_frame_end_marker,0}
 *   cannot decode <<0,0,5,97,98>>
 *
 * Bytes that aren't ASCII are always quoted as numbers: a reply's text is UTF-8.
 */
#include "amqp/amqp_conn.h"

#include <stdio.h>

#define QUOTED 16   /* bytes of a frame */
#define LONGEST 255 /* of a reply's text: what is behind is cut off anyway */

static const char *escape_of(uint8_t byte) {
    switch (byte) {
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    case '\v':
        return "\\v";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case 27:
        return "\\e";
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    default:
        return NULL;
    }
}

static int is_text(const uint8_t *data, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (!escape_of(data[i]) && (data[i] < ' ' || data[i] > '~'))
            return 0;
    return len > 0;
}

static void put_text(char *out, size_t cap, const uint8_t *data, size_t len) {
    size_t at = (size_t)snprintf(out, cap, "<<\"");
    for (size_t i = 0; i < len && at < cap; i++) {
        const char *escape = escape_of(data[i]);
        at +=
            (size_t)(escape ? snprintf(out + at, cap - at, "%s", escape) : snprintf(out + at, cap - at, "%c", data[i]));
    }
    if (at < cap)
        snprintf(out + at, cap - at, "\">>");
}

static void put_numbers(char *out, size_t cap, const uint8_t *data, size_t len) {
    size_t at = (size_t)snprintf(out, cap, "<<");
    for (size_t i = 0; i < len && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%u", i ? "," : "", data[i]);
    if (at < cap)
        snprintf(out + at, cap - at, ">>");
}

static enum om_verdict tell(om_conn *conn, int code, const char *name, int type, const uint8_t *payload, size_t len,
                            const char *why) {
    char quoted[128];
    size_t shown = len > QUOTED ? QUOTED : len;
    (is_text(payload, shown) ? put_text : put_numbers)(quoted, sizeof quoted, payload, shown);
    return om_amqp_error(conn, 0, code, 0, "%s - type %d, %s octets = %s%s%s", name, type,
                         len > QUOTED ? "first 16" : "all", quoted, why ? ": " : "", why ? why : "");
}

enum om_verdict om_frame_error(om_conn *conn, int type, const uint8_t *payload, size_t len, const char *why) {
    return tell(conn, 501, "FRAME_ERROR", type, payload, len, why);
}

enum om_verdict om_frame_unexpected(om_conn *conn, int type, const uint8_t *payload, size_t len) {
    return tell(conn, 505, "UNEXPECTED_FRAME", type, payload, len, NULL);
}

enum om_verdict om_frame_undecodable(om_conn *conn, uint32_t method, const uint8_t *args, size_t len) {
    char quoted[LONGEST + 8];
    put_numbers(quoted, sizeof quoted, args, len);
    return om_amqp_error(conn, 0, 501, method, "FRAME_ERROR - cannot decode %s", quoted);
}
