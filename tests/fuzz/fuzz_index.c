/* fuzz_index.c -- index files that anyone may have damaged: check, then search what passed.
 *
 *   input: | segment size u32 | length of the offset index u16 | offset index | time index |
 *
 * Promises: what om_index_check lets through is searched without a step outside its bytes; the
 * answers are those of a plain walk over the entries; a cut leaves an index that passes as well.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I csrc tests/fuzz/fuzz_index.c csrc/[a-z]*.c
 */
#include "base/bytes.h"
#include "segment/index.h"
#include <stdlib.h>

#define HEADER 6
#define WALKS 64 /* a walk an entry would be quadratic: enough of them */

#define PROMISE(holds)                                                                                                 \
    do {                                                                                                               \
        if (!(holds))                                                                                                  \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Memory of exactly this size, so that the sanitizer sees a read one byte past it. */
static uint8_t *copy_of(const uint8_t *data, size_t len) {
    uint8_t *copy = malloc(len ? len : 1);
    PROMISE(copy != NULL);
    if (len)
        memcpy(copy, data, len);
    return copy;
}

static void search_offset(const om_index *index, int64_t wanted) {
    uint32_t rank = 0;
    while (rank < index->offset_count && om_index_offset(index, rank) <= wanted)
        rank++;
    PROMISE(om_index_rank(index, wanted) == rank);
}

static void search_time(const om_index *index, int64_t wanted) {
    uint32_t rank = 0;
    while (rank < index->time_count && om_index_time(index, rank) <= wanted)
        rank++;
    PROMISE(om_index_rank_time(index, wanted) == rank);
}

static void search(const om_index *index) {
    for (uint32_t i = 0; i < index->offset_count && i < WALKS; i++)
        for (int64_t near = -1; near <= 1; near++)
            search_offset(index, om_index_offset(index, i) + near);
    for (uint32_t i = 0; i < index->time_count && i < WALKS; i++)
        for (int64_t near = -1; near <= 1; near++)
            if (om_index_time(index, i) < INT64_MAX)
                search_time(index, om_index_time(index, i) + near);
    search_offset(index, INT64_MIN);
    search_offset(index, INT64_MAX);
    search_time(index, INT64_MIN);
    search_time(index, INT64_MAX);
}

/* Cut in the middle, then add what was there again: it is as it was. */
static void cut_and_grow(om_index *index, int64_t segment_size) {
    uint32_t half = index->offset_count / 2;
    int64_t position = half ? om_index_position(index, half) : 0;
    int64_t offset = half ? om_index_offset(index, half) : 0;
    om_index_cut(index, offset, position);
    PROMISE(index->offset_count == half);
    PROMISE(!index->time_count || om_index_time_offset(index, index->time_count - 1) < offset);
    PROMISE(om_index_check(index->offsets, (size_t)index->offset_count * OM_OFFSET_ENTRY, index->times,
                           (size_t)index->time_count * OM_TIME_ENTRY, segment_size) == OM_OK);
    if (half)
        PROMISE(om_index_add(index, (int32_t)offset, (int32_t)position) == OM_OK);
    search(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEADER)
        return 0;
    int64_t segment_size = om_get_be32(data);
    size_t offsets_len = om_get_be16(data + 4);
    data += HEADER;
    size -= HEADER;
    if (offsets_len > size)
        offsets_len = size;
    size_t times_len = size - offsets_len;
    om_index index;
    om_index_init(&index);
    index.offsets = copy_of(data, offsets_len);
    index.times = copy_of(data + offsets_len, times_len);
    if (om_index_check(index.offsets, offsets_len, index.times, times_len, segment_size) == OM_OK) {
        index.offset_count = index.offset_cap = (uint32_t)(offsets_len / OM_OFFSET_ENTRY);
        index.time_count = index.time_cap = (uint32_t)(times_len / OM_TIME_ENTRY);
        if (index.offset_count)
            PROMISE(om_index_position(&index, index.offset_count - 1) < segment_size);
        search(&index);
        cut_and_grow(&index, segment_size);
    }
    om_index_free(&index);
    return 0;
}
