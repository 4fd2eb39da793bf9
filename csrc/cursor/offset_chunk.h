/* offset_chunk.h -- a piece of an offset set: the members among 65,536 neighbouring offsets.
 *
 *   shape    what it holds                                          bytes
 *   RUNS     | first last | first last | ...  sorted, apart         4 per run, at most 1,024 runs
 *   BITMAP   | 1,024 words of 64 |            bit i = offset i      8,192
 *   FULL     nothing: all of `span` chunks in a row are members     0
 *
 * Runs are the sorted array of a nearly empty chunk, the list of holes of a nearly full one
 * and the two ends of a long gap, all in one: their cost is the number of borders between
 * members and non-members. With too many borders the bitmap is smaller and faster. `run_count` is
 * kept for both, so that a bitmap knows when it has become simple again.
 *
 * Offsets in here are 0 .. 65,535, ranges include both ends.
 */
#ifndef OM_OFFSET_CHUNK_H
#define OM_OFFSET_CHUNK_H
#include <stddef.h>
#include <stdint.h>

#define OM_CHUNK_SIZE 65536
#define OM_CHUNK_WORDS 1024
#define OM_CHUNK_RUNS_MAX 1024 /* more than these become a bitmap ... */
#define OM_CHUNK_RUNS_LOW 512  /* ... and a bitmap of these becomes runs: apart, or it would flap */

enum om_chunk_shape { OM_CHUNK_RUNS = 0, OM_CHUNK_BITMAP = 1, OM_CHUNK_FULL = 2 };

typedef struct om_run {
    uint16_t first, last;
} om_run;

typedef struct om_chunk {
    int64_t number; /* of the (first) chunk: offset / 65,536 */
    union {
        om_run *runs;
        uint64_t *words;
        int64_t span;
    };
    uint32_t run_count; /* RUNS and BITMAP */
    uint16_t run_cap;   /* RUNS: allocated */
    uint16_t shape;
} om_chunk;

/* A chunk with a run of its own, [0, 65,535], or with none. OM_OK or OM_E_NO_MEMORY. */
int om_chunk_init(om_chunk *chunk, int64_t number, int whole);
/* From a bitmap, in the shape that suits it. */
int om_chunk_init_words(om_chunk *chunk, int64_t number, const uint64_t *words);
void om_chunk_free(om_chunk *chunk);
size_t om_chunk_memory(const om_chunk *chunk);

/* The rest is for RUNS and BITMAP only. */

int om_chunk_contains(const om_chunk *chunk, uint32_t at);
/* The first member in [from, to], the first non-member at or after; OM_CHUNK_SIZE: none. */
uint32_t om_chunk_next_member(const om_chunk *chunk, uint32_t from, uint32_t to);
uint32_t om_chunk_next_gap(const om_chunk *chunk, uint32_t from);
uint32_t om_chunk_count(const om_chunk *chunk, uint32_t first, uint32_t last);
int om_chunk_is_whole(const om_chunk *chunk);

/* A change has two steps: the first may run out of memory and changes nothing that can be
 * seen, the second can't fail. */
int om_chunk_reserve(om_chunk *chunk);
void om_chunk_add(om_chunk *chunk, uint32_t first, uint32_t last);
void om_chunk_remove(om_chunk *chunk, uint32_t first, uint32_t last);
/* After a change: is it empty or whole now, or could it do with less memory? */
int om_chunk_is_untidy(const om_chunk *chunk);
/* Give back memory, simplify a bitmap. */
void om_chunk_fit(om_chunk *chunk);
#endif
