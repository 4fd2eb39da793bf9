/* offset_counts.h -- a small number for each offset, 0 for most: how often acquired, how often failed.
 *
 *   offset     ... 41 42 43 44 45 ...
 *   plane 0         .  1  .  1  1          the offsets whose number is odd
 *   plane 1         .  1  .  .  .          ... has bit 1 set: 42 -> 3, 44 -> 1, 45 -> 1
 *
 * The numbers are stored bit by bit, each binary digit as an offset set. A number costs no more
 * than its bits do in compressed sets, and a million offsets that all get one more (everything
 * in flight came back after a crash) are a few runs, where a map would hold a million entries.
 * Counts that are all zero hold no heap.
 */
#ifndef OM_OFFSET_COUNTS_H
#define OM_OFFSET_COUNTS_H
#include "cursor/offset_set.h"

#define OM_COUNT_PLANES 31 /* the numbers are an int32_t's; one that passes them starts again */

typedef struct om_offset_counts {
    om_offset_set *planes; /* low bit first; the last one is not empty */
    uint32_t len;
} om_offset_counts;

void om_offset_counts_clear(om_offset_counts *counts);
size_t om_offset_counts_memory(const om_offset_counts *counts);
int32_t om_offset_counts_get(const om_offset_counts *counts, int64_t offset);
/* One more for each of [first, last]. OM_E_NO_MEMORY: a single offset keeps its number, some of
 * a longer range may have it wrong. */
int om_offset_counts_raise(om_offset_counts *counts, int64_t first, int64_t last);
/* Back to zero. As with sets, it can't fail when it was prepared. */
int om_offset_counts_prepare_forget(om_offset_counts *counts, int64_t first, int64_t last);
int om_offset_counts_forget(om_offset_counts *counts, int64_t first, int64_t last);
/* One plane more, empty, to be filled: loading. NULL: no memory. */
om_offset_set *om_offset_counts_append_plane(om_offset_counts *counts);
#endif
