/* content.c -- the properties of an AMQP message: the content header frame from its flags on.
 *
 *   flags u16:  15 content-type   14 content-encoding   13 headers    12 delivery-mode
 *               11 priority       10 correlation-id      9 reply-to    8 expiration
 *                7 message-id      6 timestamp           5 type        4 user-id
 *                3 app-id          2 cluster-id          1 (nothing)   0 another flags word follows
 *
 * Promise: what parses can be sent to any client as it is. Every value lies within the bytes,
 * none are left over, every table is one in all its depths. A further flags word is legal, but
 * there is no property it could announce, so it must be empty.
 */
#include "format/content.h"
#include "base/bytes.h"

#define CONTINUES 0x0001
#define UNDEFINED 0x0002
#define EXPIRATION_MAX 315360000000 /* ten years, as in RabbitMQ */

/* A reader that remembers having failed, so that the properties below read as a list. */
typedef struct walk {
    const uint8_t *at, *end;
    uint16_t flags;
    int bad;
} walk;

static inline int take(walk *walk, size_t len, const uint8_t **value) {
    if (len > (size_t)(walk->end - walk->at)) {
        walk->bad = 1;
        return 0;
    }
    *value = walk->at;
    walk->at += len;
    return 1;
}

static inline void take_text(walk *walk, uint16_t flag, om_span *out) {
    const uint8_t *value;
    *out = (om_span){NULL, -1};
    if (!(walk->flags & flag) || !take(walk, 1, &value))
        return;
    uint8_t len = *value;
    if (take(walk, len, &value))
        *out = (om_span){value, len};
}

static inline uint8_t take_octet(walk *walk, uint16_t flag) {
    const uint8_t *value;
    return (walk->flags & flag) && take(walk, 1, &value) ? *value : 0;
}

static inline int64_t take_time(walk *walk, uint16_t flag) {
    const uint8_t *value;
    return (walk->flags & flag) && take(walk, 8, &value) ? (int64_t)om_get_be64(value) : 0;
}

static inline void take_table(walk *walk, uint16_t flag, om_span *out) {
    const uint8_t *value;
    *out = (om_span){NULL, -1};
    if (!(walk->flags & flag) || !take(walk, 4, &value))
        return;
    uint32_t len = om_get_be32(value);
    if (!take(walk, len, &value) || om_table_check(value, len) != OM_OK)
        walk->bad = 1;
    else
        *out = (om_span){value, (int32_t)len};
}

int om_properties_parse(const uint8_t *data, size_t len, om_properties *out) {
    if (len < 2 || len > INT32_MAX)
        return OM_E_CORRUPT;
    walk walk = {.at = data + 2, .end = data + len, .flags = om_get_be16(data)};
    if (walk.flags & UNDEFINED)
        return OM_E_CORRUPT;
    for (int more = walk.flags & CONTINUES; more;) {
        const uint8_t *word;
        if (!take(&walk, 2, &word) || (om_get_be16(word) & ~CONTINUES) != 0)
            return OM_E_CORRUPT;
        more = om_get_be16(word) & CONTINUES;
    }
    walk.flags &= (uint16_t)~CONTINUES;

    out->data = data;
    out->len = (uint32_t)len;
    out->flags = walk.flags;
    take_text(&walk, OM_HAS_CONTENT_TYPE, &out->content_type);
    take_text(&walk, OM_HAS_CONTENT_ENCODING, &out->content_encoding);
    take_table(&walk, OM_HAS_HEADERS, &out->headers);
    out->delivery_mode = take_octet(&walk, OM_HAS_DELIVERY_MODE);
    out->priority = take_octet(&walk, OM_HAS_PRIORITY);
    take_text(&walk, OM_HAS_CORRELATION_ID, &out->correlation_id);
    take_text(&walk, OM_HAS_REPLY_TO, &out->reply_to);
    take_text(&walk, OM_HAS_EXPIRATION, &out->expiration);
    take_text(&walk, OM_HAS_MESSAGE_ID, &out->message_id);
    out->timestamp = take_time(&walk, OM_HAS_TIMESTAMP);
    take_text(&walk, OM_HAS_TYPE, &out->type);
    take_text(&walk, OM_HAS_USER_ID, &out->user_id);
    take_text(&walk, OM_HAS_APP_ID, &out->app_id);
    take_text(&walk, OM_HAS_CLUSTER_ID, &out->cluster_id);
    return walk.bad || walk.at != walk.end ? OM_E_CORRUPT : OM_OK;
}

int om_expiration_ms(om_span text, int64_t *out) {
    int64_t value = 0;
    int32_t sign = text.len > 1 && (text.data[0] == '+' || text.data[0] == '-');
    if (text.len <= 0)
        return OM_E_INVALID;
    for (int32_t i = sign; i < text.len; i++) {
        uint8_t digit = (uint8_t)(text.data[i] - '0');
        if (digit > 9)
            return OM_E_INVALID;
        value = value * 10 + digit;
        if (value > EXPIRATION_MAX)
            return OM_E_INVALID;
    }
    if (value && text.data[0] == '-')
        return OM_E_INVALID;
    *out = value;
    return OM_OK;
}

static int copies_named(const om_properties *p, const char *name, om_span *out) {
    om_field field;
    *out = (om_span){NULL, -1};
    if (om_table_get(p->headers.data, (size_t)p->headers.len, name, &field) != OM_OK)
        return OM_OK;
    if (field.type != 'A')
        return OM_E_INVALID;
    *out = field.value;
    return OM_OK;
}

int om_properties_copies(const om_properties *p, om_span *cc, om_span *bcc) {
    int cc_result = copies_named(p, "CC", cc), bcc_result = copies_named(p, "BCC", bcc);
    return cc_result != OM_OK ? cc_result : bcc_result;
}
