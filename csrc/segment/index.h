/* index.h -- the two sparse indexes of a segment, in Kafka's own bytes (big-endian).
 *
 *   .index      | relative offset i32 | position i32 |   8 bytes: the *last* offset of the
 *                                                        batch that starts at position
 *   .timeindex  | timestamp i64 | relative offset i32 |  12 bytes: the largest timestamp so
 *                                                        far and the last offset of the batch
 *                                                        that brought it
 *
 * At most one entry per OM_INDEX_INTERVAL bytes of batches. An index is a hint: it is checked
 * when loaded (size, order, bounds), each entry again when it is used, and it is rebuilt by a
 * walk over the batch headers when missing, short or wrong.
 *
 * The bytes always live on the heap: a loaded index is checked once and must not change after
 * that, a mapped file could. 20 bytes for 4 KiB of batches is little, and a sealed segment's
 * goes with its mapping when that is evicted.
 */
#ifndef OM_INDEX_H
#define OM_INDEX_H
#include "om_base.h"

#define OM_INDEX_INTERVAL 4096
#define OM_OFFSET_ENTRY 8
#define OM_TIME_ENTRY 12

typedef struct om_index {
    uint8_t *offsets, *times; /* entries, big-endian */
    uint32_t offset_count, time_count;
    uint32_t offset_cap, time_cap;
} om_index;

void om_index_init(om_index *index);
void om_index_free(om_index *index); /* and it is empty again */
/* Both columns must grow: OM_E_INVALID otherwise. OM_E_NO_MEMORY leaves the index as it was. */
int om_index_add(om_index *index, int32_t relative_offset, int32_t position);
int om_index_add_time(om_index *index, int64_t timestamp, int32_t relative_offset);
/* How many entries lie at or below. A search begins at the last of them: every batch before that of a time
 * entry has smaller timestamps. */
uint32_t om_index_rank(const om_index *index, int64_t relative_offset);
uint32_t om_index_rank_time(const om_index *index, int64_t timestamp);
/* The fields of entry i. */
int32_t om_index_offset(const om_index *index, uint32_t i);
int32_t om_index_position(const om_index *index, uint32_t i);
int64_t om_index_time(const om_index *index, uint32_t i);
int32_t om_index_time_offset(const om_index *index, uint32_t i);
/* Drop entries at or past a position, and time entries at or past the offset (a cut). */
void om_index_cut(om_index *index, int64_t relative_offset, int64_t position);
/* Are these bytes an index? Sizes a multiple of the entry, nothing negative, both columns
 * strictly growing, positions below `segment_size`. OM_OK or OM_E_CORRUPT. Fuzzed. */
int om_index_check(const uint8_t *offsets, size_t offsets_len, const uint8_t *times, size_t times_len,
                   int64_t segment_size);
#endif
