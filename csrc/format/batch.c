/* batch.c -- writing record batches: Apache Kafka's format v2, byte for byte (batch.h draws it).
 *
 * Promise: a batch written here passes om_batch_validate and Kafka's own reader, and a build
 * that refuses a record is as it was before. A record is measured once, exactly; after that its
 * bytes are stored without another look at the room left.
 */
#include "format/batch.h"
#include "base/attributes.h"
#include "base/bytes.h"
#include "base/checksum.h"
#include "base/copy_nt.h"
#include "format/content.h"
#include <stdlib.h>

#define FIRST_ALLOCATION 1024
#define LARGE (64u << 10)
/* The bytes that a record may need over body_size with both deltas 0: its length, and longer deltas. */
#define DELTAS_MAX (OM_VARINT_MAX + (OM_VARLONG_MAX - 1) + (OM_VARINT_MAX - 1))

/* ---- one record ---------------------------------------------------------------------- */

static inline int64_t span_size(const om_span *span) {
    return (int64_t)om_varint_size(span->len) + (span->len > 0 ? span->len : 0);
}

static inline uint8_t *put_span(uint8_t *at, const om_span *span) {
    at = om_put_varint(at, span->len);
    if (span->len <= 0)
        return at;
    memcpy(at, span->data, (size_t)span->len);
    return at + span->len;
}

/* The bytes that follow a record's length field; -1 for a record that has no encoding. */
static inline int64_t body_size(const om_record *record, int64_t time_delta, int32_t offset_delta) {
    if (record->key.len < -1 || record->value.len < -1 || record->header_count < 0)
        return -1;
    int64_t size = 1 + (int64_t)om_varlong_size(time_delta) + (int64_t)om_varint_size(offset_delta) +
                   span_size(&record->key) + span_size(&record->value) + (int64_t)om_varint_size(record->header_count);
    for (int32_t i = 0; i < record->header_count && size <= INT32_MAX; i++) {
        const om_header *header = &record->headers[i];
        if (header->key.len < 0 || header->value.len < -1)
            return -1;
        size += span_size(&header->key) + span_size(&header->value);
    }
    return size <= INT32_MAX ? size : -1;
}

static inline void put_record(uint8_t *at, int32_t body, const om_record *record, int64_t time_delta,
                              int32_t offset_delta) {
    at = om_put_varint(at, body);
    *at++ = 0; /* a record's own attributes: none are defined */
    at = om_put_varlong(at, time_delta);
    at = om_put_varint(at, offset_delta);
    at = put_span(at, &record->key);
    at = put_span(at, &record->value);
    at = om_put_varint(at, record->header_count);
    for (int32_t i = 0; i < record->header_count; i++) {
        at = put_span(at, &record->headers[i].key);
        at = put_span(at, &record->headers[i].value);
    }
}

/* ---- the header ---------------------------------------------------------------------- */

/* Fills in what follows from the records; the caller's part is checked here. For an empty batch
 * (what compaction leaves of one) the last offset and the timestamps are the caller's too. */
static int complete_info(om_batch_info *info, int32_t count, int64_t base_timestamp, int64_t max_timestamp,
                         size_t size) {
    const int known = OM_ATTR_LOG_APPEND_TIME | OM_ATTR_TRANSACTIONAL | OM_ATTR_CONTROL | OM_ATTR_DELETE_HORIZON;
    int32_t last = count > 0 ? count - 1 : info->last_offset_delta;
    if ((info->attributes & ~known) != 0 || info->base_offset < 0 || last < 0 || info->base_offset > INT64_MAX - last)
        return OM_E_INVALID;
    info->size = (int32_t)size;
    info->record_count = count;
    info->last_offset_delta = last;
    if (count > 0) {
        info->base_timestamp = base_timestamp;
        /* All records of such a batch were appended at one time, which only the caller knows. */
        if (!(info->attributes & OM_ATTR_LOG_APPEND_TIME))
            info->max_timestamp = max_timestamp;
    }
    return OM_OK;
}

/* All but the CRC. */
static void put_fields(uint8_t *out, const om_batch_info *info) {
    om_put_be64(out, (uint64_t)info->base_offset);
    om_put_be32(out + 8, (uint32_t)info->size - 12);
    om_put_be32(out + 12, (uint32_t)info->leader_epoch);
    out[16] = OM_BATCH_MAGIC;
    om_put_be16(out + 21, (uint16_t)info->attributes);
    om_put_be32(out + 23, (uint32_t)info->last_offset_delta);
    om_put_be64(out + 27, (uint64_t)info->base_timestamp);
    om_put_be64(out + 35, (uint64_t)info->max_timestamp);
    om_put_be64(out + 43, (uint64_t)info->producer_id);
    om_put_be16(out + 51, (uint16_t)info->producer_epoch);
    om_put_be32(out + 53, (uint32_t)info->base_sequence);
    om_put_be32(out + 57, (uint32_t)info->record_count);
}

static void put_crc(uint8_t *out, om_batch_info *info, uint32_t crc) {
    info->crc = crc;
    om_put_be32(out + OM_BATCH_CRC, crc);
}

static void put_header(uint8_t *out, om_batch_info *info) {
    put_fields(out, info);
    put_crc(out, info, om_crc32c(0, out + OM_BATCH_CRC_FROM, (size_t)info->size - OM_BATCH_CRC_FROM));
}

void om_batch_patch(uint8_t *batch, int64_t base_offset, int32_t leader_epoch) {
    om_put_be64(batch, (uint64_t)base_offset);
    om_put_be32(batch + 12, (uint32_t)leader_epoch);
}

/* ---- a whole batch into given memory ------------------------------------------------- */

int64_t om_batch_size_bound(const om_record *records, int32_t count) {
    int64_t bound = OM_BATCH_OVERHEAD;
    if (count < 0)
        return OM_E_INVALID;
    for (int32_t i = 0; i < count; i++) {
        int64_t body = body_size(&records[i], 0, 0);
        if (body < 0)
            return OM_E_INVALID;
        bound += body + DELTAS_MAX;
        if (bound > INT32_MAX)
            return OM_E_INVALID;
    }
    return bound;
}

int64_t om_batch_encode(om_batch_info *info, const om_record *records, int32_t count, uint8_t *out, size_t cap) {
    size_t limit = cap < INT32_MAX ? cap : INT32_MAX;
    int too_small = cap < INT32_MAX ? OM_E_SHORT : OM_E_INVALID;
    size_t len = OM_BATCH_OVERHEAD;
    if (count < 0)
        return OM_E_INVALID;
    if (limit < len)
        return OM_E_SHORT;

    int64_t base = 0, max = INT64_MIN;
    if (info->attributes & OM_ATTR_DELETE_HORIZON)
        base = info->base_timestamp;
    else if (count > 0)
        base = records[0].timestamp;
    for (int32_t i = 0; i < count; i++) {
        int64_t delta;
        if (__builtin_sub_overflow(records[i].timestamp, base, &delta))
            return OM_E_INVALID;
        int64_t body = body_size(&records[i], delta, i);
        if (body < 0)
            return OM_E_INVALID;
        size_t total = om_varint_size((int32_t)body) + (size_t)body;
        if (total > limit - len)
            return too_small;
        put_record(out + len, (int32_t)body, &records[i], delta, i);
        len += total;
        if (records[i].timestamp > max)
            max = records[i].timestamp;
    }
    int result = complete_info(info, count, base, max, len);
    if (result != OM_OK)
        return result;
    put_header(out, info);
    return (int64_t)len;
}

int om_batch_make(om_buffer **out, om_batch_info *info, const om_record *records, int32_t count) {
    int64_t bound = om_batch_size_bound(records, count);
    if (bound < 0 || bound > INT32_MAX)
        return OM_E_INVALID;
    om_buffer *bytes = om_buffer_new((uint32_t)bound);
    if (bytes == NULL)
        return OM_E_NO_MEMORY;
    int64_t size = om_batch_encode(info, records, count, bytes->data, bytes->room);
    if (size < 0) {
        om_buffer_unref(bytes);
        return (int)size;
    }
    bytes->len = (uint32_t)size;
    *out = bytes;
    return OM_OK;
}

/* ---- a batch that grows -------------------------------------------------------------- */

void om_build_init(om_build *build) {
    memset(build, 0, sizeof *build);
}

void om_build_free(om_build *build) {
    if (build->bytes)
        om_buffer_unref(build->bytes);
    om_build_init(build);
}

static size_t room_of(const om_build *build) {
    return build->bytes ? build->bytes->room : 0;
}

/* Doubling; but a batch of large records is soon full, and what it is given beyond that would be
 * taken back, after many a copy. */
static int reserve(om_build *build, size_t need) {
    size_t room = build->bytes ? build->bytes->room : FIRST_ALLOCATION;
    while (room < need)
        room *= 2;
    if (need > LARGE && !build->count)
        room = need;
    else if (need > LARGE && need <= 4 * LARGE)
        room = need + 3 * LARGE;
    if (build->bytes)
        build->bytes->len = (uint32_t)build->len;
    om_buffer *bytes = build->bytes ? om_buffer_resize(build->bytes, room) : om_buffer_new((uint32_t)room);
    if (bytes == NULL)
        return OM_E_NO_MEMORY;
    build->bytes = bytes;
    return OM_OK;
}

int om_build_add(om_build *build, const om_record *record) {
    int first = build->count == 0;
    int64_t base = first ? record->timestamp : build->base_timestamp;
    size_t len = first ? OM_BATCH_OVERHEAD : build->len;
    int64_t delta;
    if (__builtin_sub_overflow(record->timestamp, base, &delta))
        return OM_E_INVALID;
    int64_t body = body_size(record, delta, build->count);
    if (body < 0)
        return OM_E_INVALID;
    size_t total = om_varint_size((int32_t)body) + (size_t)body;
    if (total > INT32_MAX - len)
        return OM_E_INVALID;
    if (len + total > room_of(build)) {
        int result = reserve(build, len + total);
        if (result != OM_OK)
            return result;
    }
    put_record(build->bytes->data + len, (int32_t)body, record, delta, build->count);
    build->len = len + total;
    build->count++;
    build->base_timestamp = base;
    if (first || record->timestamp > build->max_timestamp)
        build->max_timestamp = record->timestamp;
    return OM_OK;
}

/* A large body goes past the cache, and the CRC comes along as far as its end. */
static void pass_body(om_build *build, size_t at, om_span body) {
    uint8_t *data = build->bytes->data;
    size_t from = build->crc_end ? build->crc_end : OM_BATCH_OVERHEAD;
    uint32_t before = om_crc32c(build->crc, data + from, at - from);
    build->crc = om_copy_nt(before, data + at, body.data, (size_t)body.len);
    build->crc_end = at + (size_t)body.len;
}

OM_PER_MESSAGE
int om_build_add_content(om_build *build, int64_t timestamp, om_span key, om_span body, om_span tail) {
    int first = build->count == 0;
    int64_t base = first ? timestamp : build->base_timestamp;
    size_t len = first ? OM_BATCH_OVERHEAD : build->len;
    uint64_t most = OM_CONTENT_RECORD_OVERHEAD + (uint64_t)key.len + (uint64_t)body.len + (uint64_t)tail.len;
    if (most > INT32_MAX - len)
        return OM_E_INVALID;
    if (len + most > room_of(build)) {
        int result = reserve(build, len + most);
        if (result != OM_OK)
            return result;
    }
    int is_large = body.len >= OM_BUFFER_LARGE;
    om_span copied = {is_large ? NULL : body.data, body.len};
    size_t body_at;
    int64_t size = om_content_record(build->bytes->data + len, build->bytes->room - len, timestamp - base, build->count,
                                     key, copied, tail, &body_at);
    if (size < 0)
        return (int)size;
    if (is_large)
        pass_body(build, len + body_at, body);
    build->len = len + (size_t)size;
    build->count++;
    build->base_timestamp = base;
    if (first || timestamp > build->max_timestamp)
        build->max_timestamp = timestamp;
    return OM_OK;
}

int om_build_make_room(om_build *build, om_span key, int32_t body_len, om_span tail, size_t *body_at) {
    uint64_t most =
        OM_BATCH_OVERHEAD + OM_CONTENT_RECORD_OVERHEAD + (uint64_t)key.len + (uint64_t)body_len + (uint64_t)tail.len;
    if (most > INT32_MAX)
        return OM_E_INVALID;
    int result = reserve(build, most);
    if (result != OM_OK)
        return result;
    int64_t size = om_content_record(build->bytes->data + OM_BATCH_OVERHEAD, build->bytes->room - OM_BATCH_OVERHEAD, 0,
                                     0, key, (om_span){NULL, body_len}, tail, body_at);
    if (size < 0)
        return (int)size;
    *body_at += OM_BATCH_OVERHEAD;
    build->len = OM_BATCH_OVERHEAD + (size_t)size;
    return OM_OK;
}

void om_build_put(om_build *build, size_t at, om_span part) {
    if (build->len >= OM_BUFFER_LARGE)
        pass_body(build, at, part);
    else if (part.len > 0)
        memcpy(build->bytes->data + at, part.data, (size_t)part.len);
}

void om_build_fill(om_build *build, int64_t timestamp) {
    build->count = 1;
    build->base_timestamp = build->max_timestamp = timestamp;
}

/* Bytes that the CRC covers already aren't read again. */
static void put_whole_header(const om_build *build, om_batch_info *info) {
    uint8_t *data = build->bytes->data;
    if (!build->crc_end) {
        put_header(data, info);
        return;
    }
    put_fields(data, info);
    uint32_t fields = om_crc32c(0, data + OM_BATCH_CRC_FROM, OM_BATCH_OVERHEAD - OM_BATCH_CRC_FROM);
    uint32_t records = om_crc32c(build->crc, data + build->crc_end, build->len - build->crc_end);
    put_crc(data, info, om_crc32c_join(fields, records, (uint32_t)(build->len - OM_BATCH_OVERHEAD)));
}

om_buffer *om_build_take(om_build *build, om_batch_info *info) {
    if (build->count == 0 || (info->attributes & OM_ATTR_DELETE_HORIZON) ||
        complete_info(info, build->count, build->base_timestamp, build->max_timestamp, build->len) != OM_OK)
        return NULL;
    om_buffer *bytes = build->bytes;
    put_whole_header(build, info);
    bytes->len = (uint32_t)build->len;
    if (bytes->room - build->len > build->len / 8) {
        om_buffer *fitting = om_buffer_resize(bytes, build->len);
        bytes = fitting ? fitting : bytes;
    }
    om_build_init(build);
    return bytes;
}
