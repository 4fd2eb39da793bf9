/* columns_read.c -- batches of a segment into columns.
 *
 * A batch becomes rows as a whole or not at all. A damaged one is reported, never read past, and
 * stays for the caller to step over. A compressed one is for the caller to decompress.
 */
#include "inspect/columns.h"

#include "cursor/cursor.h"
#include "format/batch.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_SIZE_MIN 7
#define BYTES_ENOUGH (64u << 20) /* in one column: time to hand out what is there */
#define US_A_MS 1000

/* ---- a batch ---- */

/* The outcome of a batch's transaction. */
static int find_transaction(const om_reading *reading, const om_batch_info *batch) {
    if (!(batch->attributes & OM_ATTR_TRANSACTIONAL) || batch->attributes & OM_ATTR_CONTROL)
        return 0;
    for (uint32_t i = 0; i < reading->transaction_count; i++) {
        const om_aborted *each = &reading->transactions[i];
        if (each->producer_id == batch->producer_id && each->first_offset <= batch->base_offset &&
            batch->base_offset <= each->last_offset)
            return each->last_offset == INT64_MAX ? -1 : 1;
    }
    return 0;
}

static void put_batch(om_columns *columns, const om_reading *reading, const om_batch_info *batch, int64_t count) {
    int has_producer = batch->producer_id >= 0, transaction = find_transaction(reading, batch);
    om_columns_put_same(columns, OM_COL_POSITION, count, (int64_t)reading->position, 1);
    om_columns_put_same(columns, OM_COL_BATCH_BASE, count, batch->base_offset, 1);
    om_columns_put_same(columns, OM_COL_CODEC, count, batch->attributes & OM_ATTR_CODEC_MASK, 1);
    om_columns_put_same(columns, OM_COL_PRODUCER_ID, count, batch->producer_id, has_producer);
    om_columns_put_same(columns, OM_COL_PRODUCER_EPOCH, count, batch->producer_epoch, has_producer);
    om_columns_put_same(columns, OM_COL_BASE_SEQUENCE, count, batch->base_sequence,
                        has_producer && batch->base_sequence >= 0);
    om_columns_put_same(columns, OM_COL_LEADER_EPOCH, count, batch->leader_epoch, 1);
    om_columns_put_same(columns, OM_COL_CRC_OK, count, 1, 1);
    om_columns_put_same(columns, OM_COL_TRANSACTIONAL, count, batch->attributes & OM_ATTR_TRANSACTIONAL, 1);
    om_columns_put_same(columns, OM_COL_CONTROL, count, batch->attributes & OM_ATTR_CONTROL, 1);
    om_columns_put_same(columns, OM_COL_ABORTED, count, transaction > 0, transaction >= 0);
}

static int64_t offset_at(const om_columns *columns, int64_t row) {
    int64_t offset;
    memcpy(&offset, columns->columns[OM_COL_OFFSET].values.data + (columns->rows + row) * 8, 8);
    return offset;
}

static void put_settled(om_columns *columns, const om_reading *reading, const om_batch_info *batch, int64_t count) {
    const om_cursor *cursor = reading->cursor;
    if (!cursor || batch->base_offset + batch->last_offset_delta < cursor->floor)
        om_columns_put_same(columns, OM_COL_SETTLED, count, 1, cursor != NULL);
    else if (cursor->settled.len == 0 && batch->base_offset >= cursor->floor)
        om_columns_put_same(columns, OM_COL_SETTLED, count, 0, 1);
    else
        for (int64_t i = 0; i < count; i++)
            om_columns_put_same(columns, OM_COL_SETTLED, 1, om_cursor_is_settled(cursor, offset_at(columns, i)), 1);
}

/* Deliveries of a settled record aren't counted any more: nobody knows. */
static void put_deliveries(om_columns *columns, const om_reading *reading, const om_batch_info *batch, int64_t count) {
    const om_cursor *cursor = reading->cursor;
    if (!cursor || batch->base_offset + batch->last_offset_delta < cursor->floor)
        om_columns_put_same(columns, OM_COL_DELIVERIES, count, 0, 0);
    else if (cursor->settled.len == 0 && batch->base_offset >= cursor->next)
        om_columns_put_same(columns, OM_COL_DELIVERIES, count, 0, 1);
    else
        for (int64_t i = 0; i < count; i++) {
            int64_t offset = offset_at(columns, i);
            int32_t acquired, failed;
            om_cursor_counts(cursor, offset, &acquired, &failed);
            om_columns_put_same(columns, OM_COL_DELIVERIES, 1, acquired, !om_cursor_is_settled(cursor, offset));
        }
}

/* OM_E_NO_MEMORY, or as om_record_next; a record with more headers than there is room for makes room. */
static int next_record(om_columns *columns, om_record_iter *iter, om_record *record) {
    if (!om_column_wanted(columns, OM_COL_HEADERS))
        return om_record_next(iter, record, NULL, 0);
    om_record_iter before = *iter;
    int result = om_record_next(iter, record, columns->headers, columns->header_cap);
    if (result != OM_OK || record->header_count <= columns->header_cap)
        return result;
    om_header *headers = realloc(columns->headers, (size_t)record->header_count * sizeof *headers);
    if (!headers)
        return OM_E_NO_MEMORY;
    columns->headers = headers;
    columns->header_cap = record->header_count;
    *iter = before;
    return om_record_next(iter, record, headers, columns->header_cap);
}

static int is_in_range(const om_reading *reading, const om_record *record) {
    return record->offset >= reading->from && record->offset < reading->to && record->timestamp >= reading->since &&
           record->timestamp < reading->until;
}

/* Into column after column, where there is room for all of them. */
static int put_records(om_columns *columns, const om_reading *reading, om_record_iter *iter, int64_t *count) {
    om_values *all = columns->columns;
    int64_t *offsets = (int64_t *)(void *)all[OM_COL_OFFSET].values.data + columns->rows;
    int64_t *times = om_column_wanted(columns, OM_COL_TIMESTAMP)
                         ? (int64_t *)(void *)all[OM_COL_TIMESTAMP].values.data + columns->rows
                         : NULL;
    int32_t *sizes =
        om_column_wanted(columns, OM_COL_SIZE) ? (int32_t *)(void *)all[OM_COL_SIZE].values.data + columns->rows : NULL;
    int keys = om_column_wanted(columns, OM_COL_KEY), bodies = om_column_wanted(columns, OM_COL_BODY),
        headers = om_column_wanted(columns, OM_COL_HEADERS);
    om_record record;
    const uint8_t *start = iter->at;
    int64_t n = 0;
    int result;
    while ((result = next_record(columns, iter, &record)) == OM_OK) {
        int32_t size = (int32_t)(iter->at - start);
        start = iter->at;
        if (!is_in_range(reading, &record))
            continue;
        offsets[n] = record.offset;
        if (times) {
            int has_time = !__builtin_mul_overflow(record.timestamp, US_A_MS, &times[n]) && record.timestamp != -1;
            om_columns_put_bits(all[OM_COL_TIMESTAMP].valid.data, columns->rows + n, 1, has_time);
            all[OM_COL_TIMESTAMP].nulls += !has_time;
        }
        if (sizes)
            sizes[n] = size;
        if (keys)
            om_columns_put_span(&all[OM_COL_KEY], record.key);
        if (bodies)
            om_columns_put_span(&all[OM_COL_BODY], record.value);
        if (headers)
            om_columns_put_headers(columns, &record);
        n++;
    }
    *count = n;
    return result == OM_END ? OM_OK : result;
}

/* As if the batch had not been looked at. */
static void take_back(om_columns *columns, const om_values *before) {
    for (int i = 0; i < OM_COLUMN_COUNT; i++) {
        columns->columns[i].rows = before[i].rows;
        columns->columns[i].bytes = before[i].bytes;
        columns->columns[i].nulls = before[i].nulls;
    }
}

static int add_batch(om_columns *columns, om_reading *reading, om_record_iter *iter) {
    int64_t count = 0;
    size_t bytes = (size_t)(iter->end - iter->at);
    int result = (size_t)iter->left > bytes / RECORD_SIZE_MIN ? OM_E_CORRUPT : OM_OK;
    if (result == OM_OK)
        result = om_columns_reserve(columns, iter->left, bytes);
    if (result != OM_OK)
        return result;
    om_values before[OM_COLUMN_COUNT];
    memcpy(before, columns->columns, sizeof before);
    result = put_records(columns, reading, iter, &count);
    if (result != OM_OK) {
        take_back(columns, before);
        return result;
    }
    om_columns_put_bits(columns->columns[OM_COL_OFFSET].valid.data, columns->rows, count, 1);
    columns->columns[OM_COL_OFFSET].rows += count;
    columns->columns[OM_COL_TIMESTAMP].rows += count;
    if (om_column_wanted(columns, OM_COL_SIZE))
        om_columns_put_valid(&columns->columns[OM_COL_SIZE], count, 1);
    columns->columns[OM_COL_SIZE].rows += count;
    put_batch(columns, reading, &iter->batch, count);
    if (om_column_wanted(columns, OM_COL_SETTLED))
        put_settled(columns, reading, &iter->batch, count);
    if (om_column_wanted(columns, OM_COL_DELIVERIES))
        put_deliveries(columns, reading, &iter->batch, count);
    columns->rows += count;
    return OM_OK;
}

/* ---- reading ---- */

static void step(om_reading *reading, const om_batch_info *batch) {
    reading->position += (uint64_t)batch->size;
    reading->next_offset = batch->base_offset + batch->last_offset_delta + 1;
}

static int is_full(const om_columns *columns, size_t more) {
    if (columns->rows >= columns->row_limit)
        return 1;
    for (int i = OM_COL_KEY; i < OM_COLUMN_COUNT; i++) {
        size_t bytes = (size_t)columns->columns[i].bytes;
        if (bytes >= BYTES_ENOUGH || (bytes && bytes + more > INT32_MAX))
            return 1;
    }
    return 0;
}

/* Nothing in it is asked for: its header says so. */
static int is_beside(const om_reading *reading, const om_batch_info *batch) {
    return batch->base_offset >= reading->to || batch->base_offset + batch->last_offset_delta < reading->from ||
           batch->max_timestamp < reading->since;
}

/* Behind a gap the next header shows whether the base offset is right. */
static int look_behind(const om_reading *reading, const om_batch_info *batch, const uint8_t *data, size_t len) {
    om_batch_info behind;
    if (batch->base_offset == reading->next_offset)
        return OM_OK;
    int result = om_batch_peek_behind(batch, data, len, reading->size - reading->position, &behind);
    if (result != OM_OK)
        return result == OM_END ? OM_OK : result;
    return om_batch_is_astray(batch, reading->next_offset, &behind) ? OM_E_RANGE : OM_OK;
}

int om_columns_read(om_columns *columns, om_reading *reading, const uint8_t *data, size_t len, uint64_t stop) {
    uint64_t start = reading->position;
    while (reading->position < stop) {
        size_t at = (size_t)(reading->position - start);
        om_record_iter iter;
        om_batch_info batch;
        int result = om_batch_peek(data + at, len - at, &batch);
        if (result == OM_OK && (size_t)batch.size > len - at)
            result = OM_E_SHORT;
        if (result == OM_OK && batch.base_offset < reading->next_offset)
            result = OM_E_RANGE;
        if (result == OM_OK)
            result = look_behind(reading, &batch, data + at, len - at);
        if (result != OM_OK)
            return result;
        if (!is_beside(reading, &batch)) {
            if (is_full(columns, (size_t)batch.size))
                return OM_E_FULL;
            result = om_batch_check(data + at, len - at, &batch);
            if (result == OM_OK)
                result = om_record_iter_init(&iter, data + at, len - at);
            if (result == OM_OK)
                result = add_batch(columns, reading, &iter);
            if (result != OM_OK)
                return result;
        }
        step(reading, &batch);
    }
    return OM_OK;
}

int om_columns_decompressed(om_columns *columns, om_reading *reading, const uint8_t *header, const uint8_t *records,
                            size_t len) {
    om_record_iter iter = {.at = records, .end = records + len};
    int result = om_batch_peek(header, OM_BATCH_OVERHEAD, &iter.batch);
    if (result != OM_OK)
        return result;
    if (len > INT32_MAX)
        return OM_E_CORRUPT;
    if (is_full(columns, len))
        return OM_E_FULL;
    iter.left = iter.batch.record_count;
    result = add_batch(columns, reading, &iter);
    if (result == OM_OK)
        step(reading, &iter.batch);
    return result;
}

int om_columns_damaged(om_columns *columns, om_reading *reading, uint64_t size) {
    int result = om_columns_reserve(columns, 1, 0);
    if (result != OM_OK)
        return result;
    for (int i = 0; i < OM_COL_HEADER_KEY; i++) {
        if (!om_column_wanted(columns, i))
            continue;
        else if (i == OM_COL_OFFSET)
            om_columns_put_same(columns, i, 1, reading->next_offset, 1);
        else if (i == OM_COL_POSITION)
            om_columns_put_same(columns, i, 1, (int64_t)reading->position, 1);
        else if (i == OM_COL_SIZE)
            om_columns_put_same(columns, i, 1, size > INT32_MAX ? INT32_MAX : (int64_t)size, 1);
        else if (i == OM_COL_CRC_OK)
            om_columns_put_same(columns, i, 1, 0, 1);
        else
            om_columns_put_null(columns, i);
    }
    columns->rows++;
    reading->position += size;
    return OM_OK;
}
