/* columns.c -- records in bulk, as columns that Arrow can take as they are.
 *
 *   batch | header | record record record |        offset    | 60 61 62 |         int64
 *                                           -->     settled   | 1  1  0  |         bits
 *                                                   key       | ends 0 1 2 3 | k k k |
 *
 * Only what is asked for is written: without bodies a body is stepped over. A batch becomes rows
 * as a whole or not at all; what isn't right is answered, never read past, and stays for the caller
 * to step over. A batch that is compressed is for the caller to open (om_columns_opened).
 */
#include "batch.h"
#include "bytes.h"
#include "cursor.h"

#include <stdlib.h>

#define RECORD_SIZE_MIN 7
#define BYTES_ENOUGH (64u << 20)     /* in one column: time to hand out what is there */
#define US_A_MS 1000

/* How wide a value is: bytes, BITS for a bit, ENDS for bytes of any length or a list. */
enum { BITS = 0, ENDS = -1 };

static const int8_t WIDTH[OM_COLUMN_COUNT] = {
    [OM_COL_OFFSET] = 8,         [OM_COL_TIMESTAMP] = 8,      [OM_COL_SIZE] = 4,         [OM_COL_POSITION] = 8,
    [OM_COL_BATCH_BASE] = 8,     [OM_COL_CODEC] = 1,          [OM_COL_PRODUCER_ID] = 8,  [OM_COL_PRODUCER_EPOCH] = 4,
    [OM_COL_BASE_SEQUENCE] = 4,  [OM_COL_LEADER_EPOCH] = 4,   [OM_COL_CRC_OK] = BITS,    [OM_COL_TRANSACTIONAL] = BITS,
    [OM_COL_CONTROL] = BITS,     [OM_COL_ABORTED] = BITS,     [OM_COL_SETTLED] = BITS,   [OM_COL_KEY] = ENDS,
    [OM_COL_BODY] = ENDS,        [OM_COL_HEADERS] = ENDS,     [OM_COL_HEADER_KEY] = ENDS, [OM_COL_HEADER_VALUE] = ENDS,
};

typedef struct buffer {
    uint8_t *data;
    size_t cap;
} buffer;

typedef struct column {
    buffer valid, ends, values;
    int64_t rows, bytes;             /* bytes: of values, where they have any length */
    int64_t nulls;
} column;

struct om_columns {
    column columns[OM_COLUMN_COUNT];
    om_header *headers;              /* of one record */
    int32_t header_cap;
    int64_t rows, row_limit;
    uint32_t wanted;
};

/* ---- memory ---- */

static int reserve(buffer *buffer, size_t size) {
    if (size <= buffer->cap)
        return OM_OK;
    size_t cap = buffer->cap * 2 > size ? buffer->cap * 2 : size + 64;
    uint8_t *data = realloc(buffer->data, cap);
    if (!data)
        return OM_E_NO_MEMORY;
    buffer->data = data;
    buffer->cap = cap;
    return OM_OK;
}

static int is_wanted(const om_columns *columns, int which) {
    return columns->wanted >> which & 1;
}

/* Room for so many rows more, and so many bytes in columns of any length. */
static int reserve_column(column *column, int width, int64_t rows, size_t bytes) {
    size_t all = (size_t)(column->rows + rows);
    int result = reserve(&column->valid, all / 8 + 1);
    if (result == OM_OK && width == ENDS) {
        result = reserve(&column->ends, (all + 1) * 4);
        if (result == OM_OK)
            result = reserve(&column->values, (size_t)column->bytes + bytes);
    } else if (result == OM_OK) {
        result = reserve(&column->values, width == BITS ? all / 8 + 1 : all * (size_t)width);
    }
    return result;
}

static int reserve_rows(om_columns *columns, int64_t rows, size_t bytes) {
    int result = OM_OK;
    for (int i = 0; i < OM_COLUMN_COUNT && result == OM_OK; i++) {
        /* A header is at least two bytes long. */
        int64_t most = i == OM_COL_HEADER_KEY || i == OM_COL_HEADER_VALUE ? (int64_t)(bytes / 2) : rows;
        if (is_wanted(columns, i))
            result = reserve_column(&columns->columns[i], WIDTH[i], most, i == OM_COL_HEADERS ? 0 : bytes);
    }
    return result;
}

om_columns *om_columns_new(uint32_t wanted, int64_t row_limit) {
    om_columns *columns = calloc(1, sizeof *columns);
    if (!columns)
        return NULL;
    if (wanted >> OM_COL_HEADERS & 1)
        wanted |= 1u << OM_COL_HEADER_KEY | 1u << OM_COL_HEADER_VALUE;
    columns->wanted = wanted | 1u << OM_COL_OFFSET;
    columns->row_limit = row_limit;
    for (int i = 0; i < OM_COLUMN_COUNT; i++) {
        if (!is_wanted(columns, i))
            continue;
        if (reserve_column(&columns->columns[i], WIDTH[i], 0, 0) != OM_OK) {
            om_columns_free(columns);
            return NULL;
        }
        if (WIDTH[i] == ENDS)
            memset(columns->columns[i].ends.data, 0, 4);
    }
    return columns;
}

void om_columns_free(om_columns *columns) {
    if (!columns)
        return;
    for (int i = 0; i < OM_COLUMN_COUNT; i++) {
        free(columns->columns[i].valid.data);
        free(columns->columns[i].ends.data);
        free(columns->columns[i].values.data);
    }
    free(columns->headers);
    free(columns);
}

/* ---- values, for which there is room ---- */

static void put_bits(uint8_t *bits, int64_t from, int64_t count, int value) {
    while (count > 0) {
        int shift = (int)(from & 7);
        int64_t here = count < 8 - shift ? count : 8 - shift;
        uint8_t mask = (uint8_t)(((1u << here) - 1) << shift);
        bits[from >> 3] = (uint8_t)(value ? bits[from >> 3] | mask : bits[from >> 3] & ~mask);
        from += here;
        count -= here;
        if (count >= 8 && !(from & 7)) {
            memset(bits + (from >> 3), value ? 0xff : 0, (size_t)(count >> 3));
            from += count & ~(int64_t)7;
            count &= 7;
        }
    }
}

static void put_valid(column *column, int64_t count, int is_valid) {
    put_bits(column->valid.data, column->rows, count, is_valid);
    column->nulls += is_valid ? 0 : count;
}

static void put_end(column *column) {
    uint32_t end = (uint32_t)column->bytes;
    memcpy(column->ends.data + (column->rows + 1) * 4, &end, 4);
    column->rows++;
}

static void put_span(column *column, om_span span) {
    put_valid(column, 1, span.len >= 0);
    if (span.len > 0) {
        memcpy(column->values.data + column->bytes, span.data, (size_t)span.len);
        column->bytes += span.len;
    }
    put_end(column);
}

static void put_headers(om_columns *columns, const om_record *record) {
    column *list = &columns->columns[OM_COL_HEADERS];
    for (int32_t i = 0; i < record->header_count; i++) {
        put_span(&columns->columns[OM_COL_HEADER_KEY], record->headers[i].key);
        put_span(&columns->columns[OM_COL_HEADER_VALUE], record->headers[i].value);
    }
    put_valid(list, 1, 1);
    list->bytes += record->header_count; /* of a list, the ends count its items */
    put_end(list);
}

static void put_null(om_columns *columns, int which) {
    column *column = &columns->columns[which];
    put_valid(column, 1, 0);
    if (WIDTH[which] == ENDS) {
        put_end(column);
        return;
    }
    if (WIDTH[which] == BITS)
        put_bits(column->values.data, column->rows, 1, 0);
    else
        memset(column->values.data + column->rows * WIDTH[which], 0, (size_t)WIDTH[which]);
    column->rows++;
}

static void put_same(om_columns *columns, int which, int64_t count, int64_t value, int is_valid) {
    column *column = &columns->columns[which];
    if (!is_wanted(columns, which) || !count)
        return;
    put_valid(column, count, is_valid);
    if (WIDTH[which] == BITS)
        put_bits(column->values.data, column->rows, count, value != 0);
    else if (WIDTH[which] == 1)
        memset(column->values.data + column->rows, (int)value, (size_t)count);
    else if (WIDTH[which] == 4)
        for (int64_t i = 0; i < count; i++)
            ((int32_t *)(void *)column->values.data)[column->rows + i] = (int32_t)value;
    else
        for (int64_t i = 0; i < count; i++)
            ((int64_t *)(void *)column->values.data)[column->rows + i] = value;
    column->rows += count;
}

/* ---- a batch ---- */

/* What the records of a transaction came to. */
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
    put_same(columns, OM_COL_POSITION, count, (int64_t)reading->position, 1);
    put_same(columns, OM_COL_BATCH_BASE, count, batch->base_offset, 1);
    put_same(columns, OM_COL_CODEC, count, batch->attributes & OM_ATTR_CODEC_MASK, 1);
    put_same(columns, OM_COL_PRODUCER_ID, count, batch->producer_id, has_producer);
    put_same(columns, OM_COL_PRODUCER_EPOCH, count, batch->producer_epoch, has_producer);
    put_same(columns, OM_COL_BASE_SEQUENCE, count, batch->base_sequence, has_producer && batch->base_sequence >= 0);
    put_same(columns, OM_COL_LEADER_EPOCH, count, batch->leader_epoch, 1);
    put_same(columns, OM_COL_CRC_OK, count, 1, 1);
    put_same(columns, OM_COL_TRANSACTIONAL, count, batch->attributes & OM_ATTR_TRANSACTIONAL, 1);
    put_same(columns, OM_COL_CONTROL, count, batch->attributes & OM_ATTR_CONTROL, 1);
    put_same(columns, OM_COL_ABORTED, count, transaction > 0, transaction >= 0);
}

static void put_settled(om_columns *columns, const om_reading *reading, const om_batch_info *batch, int64_t count) {
    const om_cursor *cursor = reading->cursor;
    if (!cursor || batch->base_offset + batch->last_offset_delta < cursor->floor)
        put_same(columns, OM_COL_SETTLED, count, 1, cursor != NULL);
    else if (cursor->settled.len == 0 && batch->base_offset >= cursor->floor)
        put_same(columns, OM_COL_SETTLED, count, 0, 1);
    else
        for (int64_t i = 0; i < count; i++) {
            int64_t offset;
            memcpy(&offset, columns->columns[OM_COL_OFFSET].values.data + (columns->rows + i) * 8, 8);
            put_same(columns, OM_COL_SETTLED, 1, om_cursor_is_settled(cursor, offset), 1);
        }
}

/* OM_E_NO_MEMORY, or as om_record_next; a record with more headers than there is room for makes room. */
static int next_record(om_columns *columns, om_record_iter *iter, om_record *record) {
    if (!is_wanted(columns, OM_COL_HEADERS))
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
    column *all = columns->columns;
    int64_t *offsets = (int64_t *)(void *)all[OM_COL_OFFSET].values.data + columns->rows;
    int64_t *times = is_wanted(columns, OM_COL_TIMESTAMP)
                         ? (int64_t *)(void *)all[OM_COL_TIMESTAMP].values.data + columns->rows
                         : NULL;
    int32_t *sizes =
        is_wanted(columns, OM_COL_SIZE) ? (int32_t *)(void *)all[OM_COL_SIZE].values.data + columns->rows : NULL;
    int keys = is_wanted(columns, OM_COL_KEY), bodies = is_wanted(columns, OM_COL_BODY),
        headers = is_wanted(columns, OM_COL_HEADERS);
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
            put_bits(all[OM_COL_TIMESTAMP].valid.data, columns->rows + n, 1, has_time);
            all[OM_COL_TIMESTAMP].nulls += !has_time;
        }
        if (sizes)
            sizes[n] = size;
        if (keys)
            put_span(&all[OM_COL_KEY], record.key);
        if (bodies)
            put_span(&all[OM_COL_BODY], record.value);
        if (headers)
            put_headers(columns, &record);
        n++;
    }
    *count = n;
    return result == OM_END ? OM_OK : result;
}

/* As if the batch had not been looked at. */
static void take_back(om_columns *columns, const column *before) {
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
        result = reserve_rows(columns, iter->left, bytes);
    if (result != OM_OK)
        return result;
    column before[OM_COLUMN_COUNT];
    memcpy(before, columns->columns, sizeof before);
    result = put_records(columns, reading, iter, &count);
    if (result != OM_OK) {
        take_back(columns, before);
        return result;
    }
    put_bits(columns->columns[OM_COL_OFFSET].valid.data, columns->rows, count, 1);
    columns->columns[OM_COL_OFFSET].rows += count;
    columns->columns[OM_COL_TIMESTAMP].rows += count;
    if (is_wanted(columns, OM_COL_SIZE))
        put_valid(&columns->columns[OM_COL_SIZE], count, 1);
    columns->columns[OM_COL_SIZE].rows += count;
    put_batch(columns, reading, &iter->batch, count);
    if (is_wanted(columns, OM_COL_SETTLED))
        put_settled(columns, reading, &iter->batch, count);
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
        if (result != OM_OK)
            return result;
        if (!is_beside(reading, &batch)) {
            if (is_full(columns, (size_t)batch.size))
                return OM_E_FULL;
            result = om_batch_check(data + at, len - at, &batch);
            if (result == OM_OK)
                result = om_record_iter_init(&iter, data + at, len - at); /* OM_E_INVALID: compressed */
            if (result == OM_OK)
                result = add_batch(columns, reading, &iter);
            if (result != OM_OK)
                return result;
        }
        step(reading, &batch);
    }
    return OM_OK;
}

int om_columns_opened(om_columns *columns, om_reading *reading, const uint8_t *header, const uint8_t *records, size_t len) {
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
    int result = reserve_rows(columns, 1, 0);
    if (result != OM_OK)
        return result;
    for (int i = 0; i < OM_COL_HEADER_KEY; i++) {
        if (!is_wanted(columns, i))
            continue;
        else if (i == OM_COL_OFFSET)
            put_same(columns, i, 1, reading->next_offset, 1);
        else if (i == OM_COL_POSITION)
            put_same(columns, i, 1, (int64_t)reading->position, 1);
        else if (i == OM_COL_SIZE)
            put_same(columns, i, 1, size > INT32_MAX ? INT32_MAX : (int64_t)size, 1);
        else if (i == OM_COL_CRC_OK)
            put_same(columns, i, 1, 0, 1);
        else
            put_null(columns, i);
    }
    columns->rows++;
    reading->position += size;
    return OM_OK;
}

/* ---- what came of it ---- */

int64_t om_columns_rows(const om_columns *columns) {
    return columns->rows;
}

int64_t om_columns_items(const om_columns *columns) {
    return columns->columns[OM_COL_HEADER_KEY].rows;
}

const void *om_columns_part(const om_columns *columns, int which, int part, size_t *len) {
    *len = 0;
    if (which < 0 || which >= OM_COLUMN_COUNT || !is_wanted(columns, which))
        return NULL;
    const column *column = &columns->columns[which];
    size_t rows = (size_t)column->rows;
    if (part == OM_PART_VALID) {
        *len = column->nulls ? (rows + 7) / 8 : 0;
        return column->valid.data;
    }
    if (part == OM_PART_ENDS) {
        *len = WIDTH[which] == ENDS ? (rows + 1) * 4 : 0;
        return column->ends.data;
    }
    *len = WIDTH[which] == BITS   ? (rows + 7) / 8
           : WIDTH[which] == ENDS ? (size_t)column->bytes
                                  : rows * (size_t)WIDTH[which];
    return column->values.data;
}
