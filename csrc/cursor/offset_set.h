/* offset_set.h -- a compressed set of offsets: those a cursor has settled, those that were returned.
 *
 *   chunks   | RUNS 7 | BITMAP 8 | FULL 9..4711 | RUNS 4712 |      sorted by number, apart
 *                |        |
 *              runs     words                     a chunk not in the list is empty
 *
 * A chunk is 65,536 offsets (offset_chunk.h). Memory is 24 bytes per chunk that is neither
 * empty nor full, plus its runs or its bitmap; a stretch of full chunks is one entry however
 * long it is, so a gap of a billion offsets, or a jump to the far end of the numbers, costs as
 * much as a gap of one. An empty set holds no heap at all.
 *
 * Offsets are 0 .. OM_OFFSET_MAX, ranges include both ends. Whatever changes the set either
 * does all of it or returns OM_E_NO_MEMORY (OM_E_INVALID for a bad range) with the members
 * unchanged.
 */
#ifndef OM_OFFSET_SET_H
#define OM_OFFSET_SET_H
#include "cursor/offset_chunk.h"

/* One less than the largest int64, so that "one past the last" is a number too. */
#define OM_OFFSET_MAX 9223372036854775806

typedef struct om_offset_set {
    om_chunk *chunks;
    uint32_t len, cap;
    uint32_t hint; /* where the last change was: the next one is often there too */
} om_offset_set;

void om_offset_set_init(om_offset_set *set);
void om_offset_set_clear(om_offset_set *set); /* empty again, heap given back */
size_t om_offset_set_memory(const om_offset_set *set);
int om_offset_set_is_empty(const om_offset_set *set);

int om_offset_set_contains(const om_offset_set *set, int64_t offset);
/* The first member in [from, to]; -1: none. */
int64_t om_offset_set_next_member(const om_offset_set *set, int64_t from, int64_t to);
/* The first offset at or after `from` that is no member. */
int64_t om_offset_set_next_gap(const om_offset_set *set, int64_t from);
/* The first run of members that ends at or after `from`, cut to start there at the earliest:
 * 1 and its two ends, or 0. */
int om_offset_set_next_run(const om_offset_set *set, int64_t from, int64_t *first, int64_t *last);
int64_t om_offset_set_count(const om_offset_set *set, int64_t first, int64_t last);

int om_offset_set_add(om_offset_set *set, int64_t first, int64_t last);
int om_offset_set_remove(om_offset_set *set, int64_t first, int64_t last);
/* Get the memory that removing [first, last] may need: the removal then can't fail, as long as
 * nothing else changes the set in between. */
int om_offset_set_prepare_remove(om_offset_set *set, int64_t first, int64_t last);

/* Loading, in growing order: takes over the chunk (also when it fails). OM_E_INVALID when it
 * doesn't lie after the last one or passes OM_OFFSET_MAX. */
int om_offset_set_append(om_offset_set *set, om_chunk *chunk);
#endif
