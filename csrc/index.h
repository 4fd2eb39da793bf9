/* index.h -- the two sparse indexes of a segment, in Kafka's own bytes (big-endian).
 *
 *   .index      | relative offset i32 | position i32 |   8 bytes: the *last* offset of the
 *                                                        batch that starts at position
 *   .timeindex  | timestamp i64 | relative offset i32 |  12 bytes: the largest timestamp so
 *                                                        far and the offset that has it
 *
 * At most one entry per OM_INDEX_INTERVAL bytes of batches. The same bytes serve from the heap
 * (active segment, it grows) and from a mapped file (sealed segment). An index is a hint: it
 * is checked when loaded (size, order, bounds) and rebuilt by a scan when missing, short or
 * wrong; a look-up that lands on no batch asks for a rebuild too.
 */
#ifndef OM_INDEX_H
#define OM_INDEX_H
#include "ottermq.h"

#define OM_INDEX_INTERVAL 4096
#define OM_OFFSET_ENTRY 8
#define OM_TIME_ENTRY 12

typedef struct om_index {
    uint8_t *offsets, *times;            /* entries, big-endian */
    uint32_t offset_count, time_count;
    uint32_t offset_cap, time_cap;       /* 0 with count > 0: a mapping, read only */
    void *offset_map, *time_map;
    size_t offset_map_len, time_map_len;
} om_index;

void om_index_init(om_index *index);
void om_index_free(om_index *index);
int om_index_add(om_index *index, int32_t relative_offset, int32_t position);
int om_index_add_time(om_index *index, int64_t timestamp, int32_t relative_offset);
/* The greatest entry at or below; position 0 when there is none. */
int32_t om_index_find(const om_index *index, int64_t relative_offset);
/* The relative offset to start scanning from for the first record with timestamp >= ts. */
int32_t om_index_find_time(const om_index *index, int64_t timestamp);
/* Drop entries at or past a position (a cut). */
void om_index_cut(om_index *index, int64_t relative_offset, int32_t position);
/* Are these bytes an index? Size a multiple of the entry, strictly growing, positions below
 * `size`. OM_OK or OM_E_CORRUPT. Fuzzed. */
int om_index_check(const uint8_t *offsets, size_t offsets_len, const uint8_t *times,
                   size_t times_len, int64_t segment_size);
#endif
