/* fuzz_columns.c -- segments in any state into columns: what the audit's data source reads.
 *
 * An input is a byte that chooses the columns, one that chooses the row limit, and the bytes of a
 * segment. What isn't a batch is stepped over by a byte, later in larger steps: thousands of bytes of
 * noise tell no more than a few, and took most of the time. A batch that says it is compressed is given
 * its own bytes as if they had been opened. Each input is tried as it is, and with the CRC its first
 * batch should have. Whatever comes: the columns agree about how many rows there are, ends grow and
 * stay within the values, and every row of it can be looked at.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I csrc tests/fuzz/fuzz_columns.c $(find csrc -name '*.c')
 */
#include "base/bytes.h"
#include "format/batch.h"
#include "inspect/columns.h"
#include <stdlib.h>

#define NOISE_BY_BYTE 128

#define PROMISE(holds)                                                                                                 \
    do {                                                                                                               \
        if (!(holds))                                                                                                  \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const void *part(const om_columns *columns, int which, int part, size_t *len) {
    const void *data = om_columns_part(columns, which, part, len);
    if (*len)
        om_crc32c(0, data, *len);
    return data;
}

static void look_at_ends(const om_columns *columns, int which, int64_t rows, size_t most) {
    size_t len;
    const uint8_t *ends = part(columns, which, OM_PART_ENDS, &len);
    PROMISE(len == (size_t)(rows + 1) * 4);
    uint32_t before = 0;
    for (int64_t i = 0; i <= rows; i++) {
        uint32_t end;
        memcpy(&end, ends + i * 4, 4);
        PROMISE(end >= before && end <= most);
        before = end;
    }
    PROMISE(before == most);
}

static void look_at(const om_columns *columns, uint32_t wanted) {
    int64_t rows = om_columns_rows(columns), items = om_columns_items(columns);
    for (int i = 0; i < OM_COLUMN_COUNT; i++) {
        size_t len, values;
        if (!(wanted >> i & 1))
            continue;
        int64_t own = i >= OM_COL_HEADER_KEY ? items : rows;
        part(columns, i, OM_PART_VALID, &len);
        PROMISE(len == 0 || len == (size_t)(own + 7) / 8);
        part(columns, i, OM_PART_VALUES, &values);
        if (i == OM_COL_HEADERS)
            look_at_ends(columns, i, own, (size_t)items);
        else if (i >= OM_COL_KEY)
            look_at_ends(columns, i, own, values);
    }
}

static om_columns *next_columns(om_columns *full, uint32_t wanted, int64_t limit) {
    if (full)
        look_at(full, wanted);
    om_columns_free(full);
    om_columns *columns = om_columns_new(wanted, limit);
    PROMISE(columns);
    return columns;
}

static void try(const uint8_t *data, size_t size, uint32_t wanted, int64_t limit) {
    om_aborted aborted[] = {{7, 0, 5, 5}, {7, 6, INT64_MAX, 6}};
    om_cursor *cursor = om_cursor_new(3);
    PROMISE(cursor && om_cursor_appended(cursor, 3, 100, 0) == OM_OK && om_cursor_settle(cursor, 10, 20, 0) >= 0);
    om_reading reading = {.size = size,
                          .to = INT64_MAX,
                          .since = INT64_MIN,
                          .until = INT64_MAX,
                          .cursor = cursor,
                          .transactions = aborted,
                          .transaction_count = 2};
    om_columns *columns = next_columns(NULL, wanted, limit);
    uint64_t noise = 0;
    while (reading.position < size) {
        uint64_t before = reading.position;
        size_t at = (size_t)before;
        int64_t rows = om_columns_rows(columns);
        int result = om_columns_read(columns, &reading, data + at, size - at, size);
        PROMISE(reading.position >= before && reading.position <= size);
        PROMISE(om_columns_rows(columns) >= rows);
        at = (size_t)reading.position;
        if (result == OM_E_COMPRESSED)
            result = om_columns_decompressed(columns, &reading, data + at, data + at + OM_BATCH_OVERHEAD,
                                             size - at - OM_BATCH_OVERHEAD);
        if (result == OM_E_FULL)
            columns = next_columns(columns, wanted, limit);
        else if (result != OM_OK) {
            uint64_t left = size - reading.position, step = ++noise > NOISE_BY_BYTE ? 64 : 1;
            PROMISE(om_columns_damaged(columns, &reading, step < left ? step : left) == OM_OK);
        }
    }
    look_at(columns, wanted);
    om_columns_free(columns);
    om_cursor_free(cursor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    uint32_t some = (uint32_t)data[0] << 11 | 0x7ff, all = (1u << OM_COLUMN_COUNT) - 1;
    uint32_t wanted = data[0] ? some & all : all;
    int64_t limit = data[1] + 1;
    size -= 2;
    /* A copy of exactly this size, so that the sanitizer sees a read one byte past it. */
    uint8_t *copy = malloc(size ? size : 1);
    PROMISE(copy != NULL);
    memcpy(copy, data + 2, size);
    try(copy, size, wanted, limit);
    om_batch_info info;
    if (om_batch_peek(copy, size, &info) == OM_OK && (size_t)info.size <= size) {
        om_put_be32(copy + 17, om_crc32c(0, copy + 21, (size_t)info.size - 21));
        try(copy, size, wanted, limit);
    }
    free(copy);
    return 0;
}
