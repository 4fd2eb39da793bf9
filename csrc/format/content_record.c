/* content_record.c -- an AMQP message as a record of the log, and back. content.h draws it.
 *
 * This runs once per message, so the way there and the way back avoid all work that a stream of
 * like messages needs only once: writing copies ready-made header bytes, reading looks at the first
 * header's first bytes and at nothing behind it.
 *
 * A client that may write a Kafka topic may write a header "amqp" into it, and claim by it who published the message,
 * where, and where it died. So such a header gets a mark before it is appended (om_content_disown), we write
 * no compressed batches, and a record whose "amqp" is not ours is what it is: a Kafka producer's. Properties
 * are checked all the same before a client sees them (but not again when they equal the last ones).
 */
#include "base/attributes.h"
#include "base/bytes.h"
#include "format/batch.h"
#include "format/content.h"

#define VERSION 1
#define DIED 0x80
#define DISOWNED 0x40
#define MARK_SIZE 4
#define MARK "amqp"
/* With at most so many headers their count is one byte of varint. */
#define HEADERS_MAX 63
#define TEXT_MAX 255 /* of a shortstr */

static inline int starts_with_mark(const uint8_t *text) {
    return memcmp(text, MARK, MARK_SIZE) == 0;
}

/* ---- UTF-8: names and texts that clients will decode --------------------------------- */

/* Bytes of the character at `at` if it is one (no surrogates, no longer forms), else 0. */
static size_t utf8_character(const uint8_t *at, size_t left) {
    uint8_t first = at[0];
    size_t len = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (len == 0 || len > left || first > 0xf4)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] > 0x9f) || (first == 0xf0 && at[1] < 0x90) ||
        (first == 0xf4 && at[1] > 0x8f))
        return 0;
    return len;
}

static int is_utf8(const om_span *text) {
    const uint8_t *at = text->data;
    size_t left = (size_t)text->len;
    while (left > 0) {
        uint64_t word;
        if (left >= sizeof word) {
            memcpy(&word, at, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                at += sizeof word;
                left -= sizeof word;
                continue;
            }
        }
        size_t len = utf8_character(at, left);
        if (len == 0)
            return 0;
        at += len;
        left -= len;
    }
    return 1;
}

/* ---- writing ------------------------------------------------------------------------- */

size_t om_content_headers_bound(om_span exchange, const om_properties *p) {
    return 1 + 1 + MARK_SIZE + OM_VARINT_MAX + 2 + (size_t)exchange.len + p->len + OM_CONTENT_READABLE_MAX;
}

/* The headers for Kafka readers, as far as they fit. */
typedef struct readable {
    uint8_t *at;
    size_t left; /* of what Kafka readers are given */
    size_t room; /* of the buffer */
    int count;
    int full; /* the buffer is too small, not the share */
} readable;

static void add_readable(readable *to, const uint8_t *name, size_t name_len, const om_span *value) {
    size_t size = om_varint_size((int32_t)name_len) + name_len + om_varint_size(value->len) + (size_t)value->len;
    if (to->count == HEADERS_MAX || size > to->left)
        return;
    if (size > to->room) {
        to->full = 1;
        return;
    }
    to->left -= size;
    to->room -= size;
    to->at = om_put_varint(to->at, (int32_t)name_len);
    memcpy(to->at, name, name_len);
    to->at = om_put_varint(to->at + name_len, value->len);
    memcpy(to->at, value->data, (size_t)value->len);
    to->at += value->len;
    to->count++;
}

static void add_readable_table(readable *to, const om_span *table) {
    om_field field;
    size_t at = 0;
    while (om_table_next(table->data, (size_t)table->len, &at, &field) == OM_OK) {
        if (field.type != 'S' || field.name.len == 0 || !is_utf8(&field.name))
            continue;
        if (field.name.len >= MARK_SIZE && starts_with_mark(field.name.data))
            continue;
        add_readable(to, field.name.data, (size_t)field.name.len, &field.value);
    }
}

static void add_readable_properties(readable *to, const om_properties *p) {
    const uint16_t texts = OM_HAS_CONTENT_TYPE | OM_HAS_CONTENT_ENCODING | OM_HAS_CORRELATION_ID | OM_HAS_REPLY_TO |
                           OM_HAS_EXPIRATION | OM_HAS_MESSAGE_ID | OM_HAS_TYPE | OM_HAS_USER_ID | OM_HAS_APP_ID;
    if (!(p->flags & texts))
        return;
#define ADD(name, value)                                                                                               \
    if ((value).len >= 0)                                                                                              \
        add_readable(to, (const uint8_t *)(name), sizeof(name) - 1, &(value));
    ADD("content-type", p->content_type)
    ADD("content-encoding", p->content_encoding)
    ADD("correlation-id", p->correlation_id)
    ADD("reply-to", p->reply_to)
    ADD("expiration", p->expiration)
    ADD("message-id", p->message_id)
    ADD("type", p->type)
    ADD("user-id", p->user_id)
    ADD("app-id", p->app_id)
#undef ADD
}

int64_t om_content_template(uint8_t *out, size_t cap, om_span exchange, const om_properties *p) {
    if (exchange.len < 0 || exchange.len > TEXT_MAX || p->len > INT32_MAX - 2 - TEXT_MAX)
        return OM_E_INVALID;
    int32_t value = 2 + exchange.len + (int32_t)p->len;
    size_t size = 1 + 1 + MARK_SIZE + om_varint_size(value) + (size_t)value;
    if (size > cap)
        return OM_E_SHORT;
    uint8_t *at = om_put_varint(out + 1, MARK_SIZE);
    memcpy(at, MARK, MARK_SIZE);
    at = om_put_varint(at + MARK_SIZE, value);
    *at++ = VERSION;
    *at++ = (uint8_t)exchange.len;
    if (exchange.len > 0)
        memcpy(at, exchange.data, (size_t)exchange.len);
    at += exchange.len;
    memcpy(at, p->data, p->len);
    at += p->len;

    readable readable = {.at = at, .left = OM_CONTENT_READABLE_MAX, .room = cap - size, .count = 1};
    add_readable_properties(&readable, p);
    if (p->headers.len > 0)
        add_readable_table(&readable, &p->headers);
    if (readable.full)
        return OM_E_SHORT;
    om_put_varint(out, readable.count);
    return readable.at - out;
}

void om_content_mark_died(uint8_t *made) {
    uint8_t *at = made + 2 + MARK_SIZE;
    while (*at & 0x80) /* the value's length */
        at++;
    at[1] |= DIED;
}

int om_content_disown(uint8_t *batch, size_t len) {
    om_record_iter iter;
    om_record record;
    om_header first;
    int changed = 0;
    int result = om_record_iter_init(&iter, batch, len);
    while (result == OM_OK && (result = om_record_next(&iter, &record, &first, 1)) == OM_OK) {
        if (record.header_count == 0 || first.key.len != MARK_SIZE || !starts_with_mark(first.key.data))
            continue;
        if (first.value.len > 0 && (first.value.data[0] & ~DIED) == VERSION) {
            batch[first.value.data - batch] |= DISOWNED;
            changed++;
        }
    }
    return changed;
}

int64_t om_content_record(uint8_t *out, size_t cap, int64_t time_delta, int32_t offset_delta, om_span routing_key,
                          om_span body, om_span tail, size_t *body_at) {
    if (routing_key.len < 0 || body.len < 0 || tail.len < 0 || offset_delta < 0)
        return OM_E_INVALID;
    int64_t size = 1 + (int64_t)om_varlong_size(time_delta) + (int64_t)om_varint_size(offset_delta) +
                   (int64_t)om_varint_size(routing_key.len) + routing_key.len + (int64_t)om_varint_size(body.len) +
                   body.len + tail.len;
    if (size > INT32_MAX)
        return OM_E_INVALID;
    if ((uint64_t)size + om_varint_size((int32_t)size) > cap)
        return OM_E_SHORT;
    uint8_t *at = om_put_varint(out, (int32_t)size);
    *at++ = 0; /* a record's own attributes: none are defined */
    at = om_put_varlong(at, time_delta);
    at = om_put_varint(at, offset_delta);
    at = om_put_varint(at, routing_key.len);
    if (routing_key.len > 0)
        memcpy(at, routing_key.data, (size_t)routing_key.len);
    at = om_put_varint(at + routing_key.len, body.len);
    if (body_at != NULL)
        *body_at = (size_t)(at - out);
    if (body.len > 0 && body.data != NULL)
        memcpy(at, body.data, (size_t)body.len);
    at += body.len;
    if (tail.len > 0)
        memcpy(at, tail.data, (size_t)tail.len);
    return at + tail.len - out;
}

/* ---- reading ------------------------------------------------------------------------- */

static inline const uint8_t *get_span(const uint8_t *at, const uint8_t *end, om_span *span) {
    int32_t len;
    at = om_get_varint(at, end, &len);
    if (at == NULL || len < -1 || len > end - at)
        return NULL;
    *span = (om_span){at, len};
    return len < 0 ? at : at + len;
}

/* The first header, if it is ours: 1, or 0 for whatever else. */
static inline int read_own(const uint8_t *at, const uint8_t *end, om_span *checked, om_content *out) {
    om_span value;
    /* Count, key length, key, value length, version, exchange length, flags. */
    if (end - at < 1 + 1 + MARK_SIZE + 1 + 2 + 2)
        return 0;
    if (at[0] == 0 || at[0] >= 0x80 || at[1] != MARK_SIZE << 1 || !starts_with_mark(at + 2))
        return 0;
    at = get_span(at + 2 + MARK_SIZE, end, &value);
    if (at == NULL || value.len < 4 || (value.data[0] & ~DIED) != VERSION || value.data[1] > value.len - 4)
        return 0;
    out->died = (value.data[0] & DIED) != 0;
    out->exchange = (om_span){value.data + 2, value.data[1]};
    out->properties = (om_span){value.data + 2 + value.data[1], value.len - 2 - value.data[1]};
    if (checked != NULL && checked->len == out->properties.len &&
        memcmp(checked->data, out->properties.data, (size_t)checked->len) == 0)
        return 1;
    om_properties properties;
    if (om_properties_parse(out->properties.data, (size_t)out->properties.len, &properties) != OM_OK)
        return 0;
    if (checked != NULL)
        *checked = out->properties;
    return 1;
}

/* One entry of a headers table, or `at` again when it has no room or no name clients could read. */
static uint8_t *put_entry(uint8_t *at, const uint8_t *end, const om_span *name, const om_span *value) {
    int null = value->len < 0;
    size_t value_size = null ? 0 : 4 + (size_t)value->len;
    if (name->len > TEXT_MAX || !is_utf8(name) || 1 + (size_t)name->len + 1 + value_size > (size_t)(end - at))
        return at;
    *at++ = (uint8_t)name->len;
    memcpy(at, name->data, (size_t)name->len);
    at += name->len;
    *at++ = null ? 'V' : is_utf8(value) ? 'S' : 'x';
    if (null)
        return at;
    om_put_be32(at, (uint32_t)value->len);
    memcpy(at + 4, value->data, (size_t)value->len);
    return at + 4 + value->len;
}

/* A tombstone: its body is as empty as one that was sent empty, and means something else. */
static uint8_t *put_tombstone(uint8_t *at, const uint8_t *end) {
    static const uint8_t entry[] = "\x11x-kafka-tombstonet\x01";
    size_t size = sizeof entry - 1;
    if (size > (size_t)(end - at))
        return at;
    memcpy(at, entry, size);
    return at + size;
}

/* A Kafka producer's record: what an AMQP client gets to see of it. */
static int read_foreign(const uint8_t *at, const uint8_t *end, uint8_t *scratch, size_t cap, int is_tombstone,
                        om_content *out) {
    const om_span key_name = {(const uint8_t *)"x-kafka-key", 11};
    const size_t before = 2 + 4, after = 1 + 8; /* flags, table length; delivery mode, timestamp */
    if (cap < OM_CONTENT_SCRATCH_MIN)
        return OM_E_SHORT;
    uint8_t *put = scratch + before, *put_end = scratch + cap - after;
    if (out->routing_key.len > TEXT_MAX || !is_utf8(&out->routing_key)) {
        put = put_entry(put, put_end, &key_name, &out->routing_key);
        out->routing_key.len = 0;
    }
    if (is_tombstone)
        put = put_tombstone(put, put_end);
    int32_t count;
    at = om_get_varint(at, end, &count);
    if (at == NULL || count < 0 || count > (end - at) / 2)
        return OM_E_CORRUPT;
    for (int32_t i = 0; i < count; i++) {
        om_span name, value;
        if ((at = get_span(at, end, &name)) == NULL || name.len < 0 || (at = get_span(at, end, &value)) == NULL)
            return OM_E_CORRUPT;
        put = put_entry(put, put_end, &name, &value);
    }
    if (at != end)
        return OM_E_CORRUPT;

    uint16_t flags = OM_HAS_DELIVERY_MODE;
    uint32_t table = (uint32_t)(put - scratch - (ptrdiff_t)before);
    if (table > 0) {
        flags |= OM_HAS_HEADERS;
        om_put_be32(scratch + 2, table);
    } else {
        put = scratch + 2;
    }
    *put++ = 2; /* persistent: it is in a log */
    if (out->timestamp >= 0) {
        flags |= OM_HAS_TIMESTAMP;
        om_put_be64(put, (uint64_t)out->timestamp / 1000);
        put += 8;
    }
    om_put_be16(scratch, flags);
    out->exchange = (om_span){scratch, 0};
    out->properties = (om_span){scratch, (int32_t)(put - scratch)};
    out->foreign = 1;
    out->died = 0;
    return OM_OK;
}

OM_PER_MESSAGE
int om_content_read(const uint8_t *body, size_t len, const om_batch_info *batch, uint8_t *scratch, size_t scratch_cap,
                    om_span *checked, om_content *out) {
    const uint8_t *at = body, *end = body + len;
    int64_t time_delta;
    int32_t offset_delta;
    if (len < 1)
        return OM_E_CORRUPT;
    at++; /* a record's own attributes: none are defined */
    if ((at = om_get_varlong(at, end, &time_delta)) == NULL || (at = om_get_varint(at, end, &offset_delta)) == NULL ||
        (at = get_span(at, end, &out->routing_key)) == NULL || (at = get_span(at, end, &out->body)) == NULL)
        return OM_E_CORRUPT;
    if (offset_delta < 0 || offset_delta > batch->last_offset_delta)
        return OM_E_CORRUPT;
    out->offset = batch->base_offset + offset_delta;
    if (batch->attributes & OM_ATTR_LOG_APPEND_TIME)
        out->timestamp = batch->max_timestamp;
    else if (__builtin_add_overflow(batch->base_timestamp, time_delta, &out->timestamp))
        return OM_E_CORRUPT;
    if (out->timestamp > batch->max_timestamp) /* what was checked when a compressed batch came */
        out->timestamp = batch->max_timestamp;
    out->foreign = 0;
    int is_tombstone = out->body.len < 0;
    if (is_tombstone)
        out->body.len = 0;
    if (out->routing_key.len < 0)
        out->routing_key.len = 0;
    int may_be_own = out->routing_key.len <= TEXT_MAX && !(batch->attributes & OM_ATTR_DECOMPRESSED);
    if (may_be_own && read_own(at, end, checked, out))
        return OM_OK;
    return read_foreign(at, end, scratch, scratch_cap, is_tombstone, out);
}

/* ---- a batch's messages -------------------------------------------------------------- */

int om_content_iter_init(om_content_iter *iter, const uint8_t *batch, size_t len, uint8_t *scratch,
                         size_t scratch_cap) {
    int result = om_record_iter_init(&iter->records, batch, len);
    if (result != OM_OK)
        return result;
    iter->checked = (om_span){NULL, -1};
    iter->scratch = scratch;
    iter->scratch_cap = scratch_cap;
    if (iter->records.batch.attributes & OM_ATTR_CONTROL) {
        iter->records.left = 0;
        iter->records.at = iter->records.end;
    }
    return OM_OK;
}

/* The next record's first byte after its length, and its end; NULL when it isn't all there. */
static inline const uint8_t *next_body(const om_record_iter *records, const uint8_t **end) {
    int32_t length;
    const uint8_t *at = om_get_varint(records->at, records->end, &length);
    if (at == NULL || length < 1 || length > records->end - at)
        return NULL;
    *end = at + length;
    return at;
}

int om_content_next(om_content_iter *iter, om_content *out) {
    om_record_iter *records = &iter->records;
    const uint8_t *end;
    if (records->left == 0)
        return records->at == records->end ? OM_END : OM_E_CORRUPT;
    const uint8_t *body = next_body(records, &end);
    if (body == NULL)
        return OM_E_CORRUPT;
    int result = om_content_read(body, (size_t)(end - body), &records->batch, iter->scratch, iter->scratch_cap,
                                 &iter->checked, out);
    if (result != OM_OK)
        return result;
    int64_t delta = out->offset - records->batch.base_offset;
    if (delta < records->next_delta)
        return OM_E_CORRUPT;
    records->next_delta = delta + 1;
    records->at = end;
    records->left--;
    return OM_OK;
}

int om_content_seek(om_content_iter *iter, int64_t offset) {
    om_record_iter *records = &iter->records;
    while (records->left > 0) {
        const uint8_t *end, *at = next_body(records, &end);
        int64_t time_delta;
        int32_t delta;
        if (at == NULL || (at = om_get_varlong(at + 1, end, &time_delta)) == NULL ||
            om_get_varint(at, end, &delta) == NULL || delta < records->next_delta ||
            delta > records->batch.last_offset_delta)
            return OM_E_CORRUPT;
        if (records->batch.base_offset + delta >= offset)
            return OM_OK;
        records->next_delta = (int64_t)delta + 1;
        records->at = end;
        records->left--;
    }
    return OM_OK;
}
