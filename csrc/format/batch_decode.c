/* batch_decode.c -- reading record batches that may come from untrusted clients or from a damaged disk.
 *
 * Promise: never a byte read outside [data, data + len), whatever the bytes say. Four depths:
 *
 *   peek      the header makes sense            (a scan that only needs to step on)
 *   check     + it is all there, CRC right      (recovery: what we wrote is what we read)
 *   validate  + every record lies in its place  (a producer's batch: the CRC proves nothing)
 *   iterate   record by record, each checked as it is read, CRC taken for granted
 */
#include "base/bytes.h"
#include "format/batch.h"

#define LAST_CODEC 4 /* none, gzip, snappy, lz4, zstd */
/* Length, attributes, two deltas, two lengths and the header count: a byte each. */
#define RECORD_SIZE_MIN 7

int om_batch_peek(const uint8_t *data, size_t len, om_batch_info *info) {
    memset(info, 0, sizeof *info);
    if (len < 12)
        return OM_E_SHORT;
    uint32_t length = om_get_be32(data + 8);
    if (length < OM_BATCH_OVERHEAD - 12 || length > INT32_MAX - 12)
        return OM_E_CORRUPT;
    info->base_offset = (int64_t)om_get_be64(data);
    info->size = (int32_t)length + 12;
    /* Magic lies at the same place in all versions: no need to wait for the rest. */
    if (len >= 17 && data[16] != OM_BATCH_MAGIC)
        return OM_E_CORRUPT;
    if (len < OM_BATCH_OVERHEAD)
        return OM_E_SHORT;

    info->leader_epoch = (int32_t)om_get_be32(data + 12);
    info->crc = om_get_be32(data + 17);
    info->attributes = (int16_t)om_get_be16(data + 21);
    info->last_offset_delta = (int32_t)om_get_be32(data + 23);
    info->base_timestamp = (int64_t)om_get_be64(data + 27);
    info->max_timestamp = (int64_t)om_get_be64(data + 35);
    info->producer_id = (int64_t)om_get_be64(data + 43);
    info->producer_epoch = (int16_t)om_get_be16(data + 51);
    info->base_sequence = (int32_t)om_get_be32(data + 53);
    info->record_count = (int32_t)om_get_be32(data + 57);

    if (info->base_offset < 0 || info->last_offset_delta < 0 || info->base_offset > INT64_MAX - info->last_offset_delta)
        return OM_E_CORRUPT;
    if (info->record_count < 0 || info->record_count - 1 > info->last_offset_delta)
        return OM_E_CORRUPT;
    if ((info->attributes & OM_ATTR_CODEC_MASK) == 0 &&
        info->record_count > (info->size - OM_BATCH_OVERHEAD) / RECORD_SIZE_MIN)
        return OM_E_CORRUPT;
    return OM_OK;
}

/* The header, and the whole batch is there. */
static int peek_whole(const uint8_t *data, size_t len, om_batch_info *info) {
    int result = om_batch_peek(data, len, info);
    if (result == OM_OK && len < (size_t)info->size)
        result = OM_E_SHORT;
    return result;
}

int om_batch_check(const uint8_t *data, size_t len, om_batch_info *info) {
    int result = peek_whole(data, len, info);
    if (result != OM_OK)
        return result;
    if (om_crc32c(0, data + 21, (size_t)info->size - 21) != info->crc)
        return OM_E_CORRUPT;
    return OM_OK;
}

int om_batch_peek_behind(const om_batch_info *batch, const uint8_t *data, size_t len, uint64_t left,
                         om_batch_info *behind) {
    uint64_t need = (uint64_t)batch->size + OM_BATCH_OVERHEAD;
    if (left < need)
        return OM_END;
    if (len < need)
        return OM_E_SHORT;
    return om_batch_peek(data + batch->size, OM_BATCH_OVERHEAD, behind) == OM_OK ? OM_OK : OM_END;
}

int om_batch_is_astray(const om_batch_info *batch, int64_t least, const om_batch_info *behind) {
    int64_t room = behind->base_offset - least;
    return batch->base_offset > least && behind->base_offset <= batch->base_offset + batch->last_offset_delta &&
           room > batch->last_offset_delta;
}

/* ---- records ------------------------------------------------------------------------- */

static inline const uint8_t *get_span(const uint8_t *at, const uint8_t *end, om_span *span) {
    int32_t len;
    at = om_get_varint(at, end, &len);
    if (at == NULL || len < -1 || len > end - at)
        return NULL;
    *span = (om_span){len < 0 ? NULL : at, len};
    return len < 0 ? at : at + len;
}

/* Moves on only past a record that is right: a bad one answers the same again. */
static inline int next_record(om_record_iter *iter, om_record *record, om_header *headers, int32_t header_cap) {
    const om_batch_info *batch = &iter->batch;
    int32_t length, offset_delta, header_count;
    int64_t time_delta;

    const uint8_t *at = om_get_varint(iter->at, iter->end, &length);
    if (at == NULL || length < 1 || length > iter->end - at)
        return OM_E_CORRUPT;
    const uint8_t *end = at + length;
    at++; /* a record's own attributes: none are defined */
    if ((at = om_get_varlong(at, end, &time_delta)) == NULL || (at = om_get_varint(at, end, &offset_delta)) == NULL ||
        (at = get_span(at, end, &record->key)) == NULL || (at = get_span(at, end, &record->value)) == NULL ||
        (at = om_get_varint(at, end, &header_count)) == NULL)
        return OM_E_CORRUPT;
    if (offset_delta < iter->next_delta || offset_delta > batch->last_offset_delta)
        return OM_E_CORRUPT;
    if (batch->attributes & OM_ATTR_LOG_APPEND_TIME)
        record->timestamp = batch->max_timestamp;
    else if (__builtin_add_overflow(batch->base_timestamp, time_delta, &record->timestamp))
        return OM_E_CORRUPT;
    if (header_count < 0 || header_count > (end - at) / 2)
        return OM_E_CORRUPT;
    for (int32_t i = 0; i < header_count; i++) {
        om_header header;
        if ((at = get_span(at, end, &header.key)) == NULL || header.key.len < 0 ||
            (at = get_span(at, end, &header.value)) == NULL)
            return OM_E_CORRUPT;
        if (i < header_cap)
            headers[i] = header;
    }
    if (at != end)
        return OM_E_CORRUPT;

    record->offset = batch->base_offset + offset_delta;
    record->headers = headers;
    record->header_count = header_count;
    iter->at = end;
    iter->next_delta = (int64_t)offset_delta + 1;
    iter->left--;
    return OM_OK;
}

static void iter_start(om_record_iter *iter, const uint8_t *data) {
    iter->at = data + OM_BATCH_OVERHEAD;
    iter->end = data + iter->batch.size;
    iter->next_delta = 0;
    iter->left = iter->batch.record_count;
}

int om_record_iter_init(om_record_iter *iter, const uint8_t *data, size_t len) {
    int result = peek_whole(data, len, &iter->batch);
    if (result != OM_OK)
        return result;
    if (iter->batch.attributes & OM_ATTR_CODEC_MASK)
        return OM_E_COMPRESSED;
    iter_start(iter, data);
    return OM_OK;
}

int om_record_next(om_record_iter *iter, om_record *record, om_header *headers, int32_t header_cap) {
    if (iter->left == 0)
        return iter->at == iter->end ? OM_END : OM_E_CORRUPT;
    return next_record(iter, record, headers, header_cap);
}

int64_t om_batch_weight(const uint8_t *data, size_t len) {
    om_record_iter iter;
    om_record record;
    int64_t weight = 0;
    if (om_record_iter_init(&iter, data, len) != OM_OK)
        return (int64_t)len; /* compressed: what it holds is not known here */
    while (om_record_next(&iter, &record, NULL, 0) == OM_OK)
        weight += record.value.len > 0 ? record.value.len : 0;
    return weight;
}

int om_records_survey(const uint8_t *data, size_t len, int keyed, om_records_seen *out) {
    om_record_iter iter;
    om_record record;
    om_header first;
    int result = om_record_iter_init(&iter, data, len);
    *out = (om_records_seen){.first_time = INT64_MAX, .last_time = -1};
    while (result == OM_OK && (result = om_record_next(&iter, &record, &first, 1)) == OM_OK) {
        if (keyed && record.key.len < 0)
            return OM_E_INVALID;
        out->first_time = record.timestamp < out->first_time ? record.timestamp : out->first_time;
        out->last_time = record.timestamp > out->last_time ? record.timestamp : out->last_time;
        if (record.header_count > 0 && first.key.len == 4 && memcmp(first.key.data, "amqp", 4) == 0)
            out->named_amqp++;
    }
    return result == OM_END ? OM_OK : OM_E_CORRUPT;
}

int om_records_find_time(const uint8_t *data, size_t len, int64_t from, int64_t wanted, int64_t *offset,
                         int64_t *time) {
    om_record_iter iter;
    om_record record;
    int result = om_record_iter_init(&iter, data, len);
    while (result == OM_OK && (result = om_record_next(&iter, &record, NULL, 0)) == OM_OK)
        if (record.offset >= from && record.timestamp >= wanted) {
            *offset = record.offset;
            *time = record.timestamp;
            return OM_OK;
        }
    return result;
}

int om_batch_validate(const uint8_t *data, size_t len, int compacted, om_batch_info *info) {
    int result = om_batch_check(data, len, info);
    if (result != OM_OK)
        return result;
    /* Without gaps, the count and growing deltas up to the last leave only 0..n-1. */
    if (!compacted && info->record_count - 1 != info->last_offset_delta)
        return OM_E_CORRUPT;
    int codec = info->attributes & OM_ATTR_CODEC_MASK;
    if (codec != 0)
        return codec <= LAST_CODEC ? OM_OK : OM_E_CORRUPT;

    om_record record;
    om_record_iter iter = {.batch = *info};
    iter_start(&iter, data);
    while (iter.left > 0)
        if (next_record(&iter, &record, NULL, 0) != OM_OK)
            return OM_E_CORRUPT;
    return iter.at == iter.end ? OM_OK : OM_E_CORRUPT;
}
