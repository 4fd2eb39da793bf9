/* columns.c -- records in bulk, as columns that Arrow can take as they are.
 *
 *   batch | header | record record record |        offset    | 60 61 62 |         int64
 *                                           -->     settled   | 1  1  0  |         bits
 *                                                   key       | ends 0 1 2 3 | k k k |
 *
 * Only what is asked for is kept: without bodies a body is stepped over. Here the columns and their
 * memory; columns_read.c fills them from batches.
 */
#include "inspect/columns.h"

#include <stdlib.h>
#include <string.h>

/* How wide a value is: bytes, BITS for a bit, ENDS for bytes of any length or a list. */
enum { BITS = 0, ENDS = -1 };

static const int8_t WIDTH[OM_COLUMN_COUNT] = {
    [OM_COL_OFFSET] = 8,           [OM_COL_TIMESTAMP] = 8,    [OM_COL_SIZE] = 4,        [OM_COL_POSITION] = 8,
    [OM_COL_BATCH_BASE] = 8,       [OM_COL_CODEC] = 1,        [OM_COL_PRODUCER_ID] = 8, [OM_COL_PRODUCER_EPOCH] = 4,
    [OM_COL_BASE_SEQUENCE] = 4,    [OM_COL_LEADER_EPOCH] = 4, [OM_COL_DELIVERIES] = 4,  [OM_COL_CRC_OK] = BITS,
    [OM_COL_TRANSACTIONAL] = BITS, [OM_COL_CONTROL] = BITS,   [OM_COL_ABORTED] = BITS,  [OM_COL_SETTLED] = BITS,
    [OM_COL_KEY] = ENDS,           [OM_COL_BODY] = ENDS,      [OM_COL_HEADERS] = ENDS,  [OM_COL_HEADER_KEY] = ENDS,
    [OM_COL_HEADER_VALUE] = ENDS,
};

/* ---- memory ---- */

static int reserve(om_column_buffer *buffer, size_t size) {
    if (size <= buffer->cap && buffer->data) /* for no rows, too: places in it are counted from there */
        return OM_OK;
    size_t cap = buffer->cap * 2 > size ? buffer->cap * 2 : size + 64;
    uint8_t *data = realloc(buffer->data, cap);
    if (!data)
        return OM_E_NO_MEMORY;
    buffer->data = data;
    buffer->cap = cap;
    return OM_OK;
}

static int reserve_column(om_values *column, int width, int64_t rows, size_t bytes) {
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

int om_columns_reserve(om_columns *columns, int64_t rows, size_t bytes) {
    int result = OM_OK;
    for (int i = 0; i < OM_COLUMN_COUNT && result == OM_OK; i++) {
        /* A header is at least two bytes long. */
        int64_t most = i == OM_COL_HEADER_KEY || i == OM_COL_HEADER_VALUE ? (int64_t)(bytes / 2) : rows;
        if (om_column_wanted(columns, i))
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
        if (!om_column_wanted(columns, i))
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

void om_columns_put_bits(uint8_t *bits, int64_t from, int64_t count, int value) {
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

void om_columns_put_valid(om_values *column, int64_t count, int is_valid) {
    om_columns_put_bits(column->valid.data, column->rows, count, is_valid);
    column->nulls += is_valid ? 0 : count;
}

static void put_end(om_values *column) {
    uint32_t end = (uint32_t)column->bytes;
    memcpy(column->ends.data + (column->rows + 1) * 4, &end, 4);
    column->rows++;
}

void om_columns_put_span(om_values *column, om_span span) {
    om_columns_put_valid(column, 1, span.len >= 0);
    if (span.len > 0) {
        memcpy(column->values.data + column->bytes, span.data, (size_t)span.len);
        column->bytes += span.len;
    }
    put_end(column);
}

void om_columns_put_headers(om_columns *columns, const om_record *record) {
    om_values *list = &columns->columns[OM_COL_HEADERS];
    for (int32_t i = 0; i < record->header_count; i++) {
        om_columns_put_span(&columns->columns[OM_COL_HEADER_KEY], record->headers[i].key);
        om_columns_put_span(&columns->columns[OM_COL_HEADER_VALUE], record->headers[i].value);
    }
    om_columns_put_valid(list, 1, 1);
    list->bytes += record->header_count; /* of a list, the ends count its items */
    put_end(list);
}

void om_columns_put_null(om_columns *columns, int which) {
    om_values *column = &columns->columns[which];
    om_columns_put_valid(column, 1, 0);
    if (WIDTH[which] == ENDS) {
        put_end(column);
        return;
    }
    if (WIDTH[which] == BITS)
        om_columns_put_bits(column->values.data, column->rows, 1, 0);
    else
        memset(column->values.data + column->rows * WIDTH[which], 0, (size_t)WIDTH[which]);
    column->rows++;
}

void om_columns_put_same(om_columns *columns, int which, int64_t count, int64_t value, int is_valid) {
    om_values *column = &columns->columns[which];
    if (!om_column_wanted(columns, which) || !count)
        return;
    om_columns_put_valid(column, count, is_valid);
    if (WIDTH[which] == BITS)
        om_columns_put_bits(column->values.data, column->rows, count, value != 0);
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

/* ---- the columns, for Arrow ---- */

int64_t om_columns_rows(const om_columns *columns) {
    return columns->rows;
}

int64_t om_columns_items(const om_columns *columns) {
    return columns->columns[OM_COL_HEADER_KEY].rows;
}

const void *om_columns_part(const om_columns *columns, int which, int part, size_t *len) {
    *len = 0;
    if (which < 0 || which >= OM_COLUMN_COUNT || !om_column_wanted(columns, which))
        return NULL;
    const om_values *column = &columns->columns[which];
    size_t rows = (size_t)column->rows;
    if (part == OM_PART_VALID) {
        *len = column->nulls ? (rows + 7) / 8 : 0;
        return column->valid.data;
    }
    if (part == OM_PART_ENDS) {
        *len = WIDTH[which] == ENDS ? (rows + 1) * 4 : 0;
        return column->ends.data;
    }
    if (which == OM_COL_HEADERS)
        return NULL; /* a list's values are columns of their own */
    *len = WIDTH[which] == BITS   ? (rows + 7) / 8
           : WIDTH[which] == ENDS ? (size_t)column->bytes
                                  : rows * (size_t)WIDTH[which];
    return column->values.data;
}
