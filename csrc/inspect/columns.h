/* columns.h -- the inside of om_columns: see columns.c. */
#ifndef OM_COLUMNS_H
#define OM_COLUMNS_H
#include "om_inspect.h"

typedef struct om_column_buffer {
    uint8_t *data;
    size_t cap;
} om_column_buffer;

typedef struct om_values {
    om_column_buffer valid, ends, values;
    int64_t rows, bytes; /* bytes: of values, where they have any length */
    int64_t nulls;
} om_values;

struct om_columns {
    om_values columns[OM_COLUMN_COUNT];
    om_header *headers; /* of one record */
    int32_t header_cap;
    int64_t rows, row_limit;
    uint32_t wanted;
};

static inline int om_column_wanted(const om_columns *columns, int which) {
    return columns->wanted >> which & 1;
}

/* Room for so many rows more, and so many bytes in columns of any length. The others need it. */
int om_columns_reserve(om_columns *columns, int64_t rows, size_t bytes);
void om_columns_put_bits(uint8_t *bits, int64_t from, int64_t count, int value);
void om_columns_put_valid(om_values *column, int64_t count, int is_valid);
void om_columns_put_span(om_values *column, om_span span);
void om_columns_put_headers(om_columns *columns, const om_record *record);
void om_columns_put_null(om_columns *columns, int which);
void om_columns_put_same(om_columns *columns, int which, int64_t count, int64_t value, int is_valid);
#endif
