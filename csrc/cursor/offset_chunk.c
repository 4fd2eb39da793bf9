/* offset_chunk.c -- runs and bitmaps of 65,536 offsets; see offset_chunk.h.
 *
 * Promise: memory follows the number of runs, a step costs at most one move of 4 KiB or one
 * pass over 8 KiB, and no change fails once om_chunk_reserve has said OM_OK.
 */
#include "cursor/offset_chunk.h"

#include <stdlib.h>
#include <string.h>

#include "om_base.h"

#define RUNS_FIRST_CAP 4

/* ---- bitmaps -------------------------------------------------------------------------- */

/* The plain x86-64 baseline has no popcnt instruction and would call a table look-up. */
static inline uint32_t bits_set(uint64_t word) {
    word -= (word >> 1) & 0x5555555555555555u;
    word = (word & 0x3333333333333333u) + ((word >> 2) & 0x3333333333333333u);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (uint32_t)((word * 0x0101010101010101u) >> 56);
}

/* The part of word `index` that lies in [first, last]. */
static inline uint64_t word_mask(uint32_t index, uint32_t first, uint32_t last) {
    uint64_t mask = UINT64_MAX;
    if (index == first >> 6)
        mask &= UINT64_MAX << (first & 63);
    if (index == last >> 6)
        mask &= UINT64_MAX >> (63 - (last & 63));
    return mask;
}

static inline int bit_at(const uint64_t *words, uint32_t at) {
    return (int)(words[at >> 6] >> (at & 63)) & 1;
}

/* How many runs start in [first, last]. */
static uint32_t count_starts(const uint64_t *words, uint32_t first, uint32_t last) {
    uint32_t starts = 0;
    for (uint32_t i = first >> 6; i <= last >> 6; i++) {
        uint64_t before = words[i] << 1 | (i > 0 ? words[i - 1] >> 63 : 0);
        starts += bits_set(words[i] & ~before & word_mask(i, first, last));
    }
    return starts;
}

/* One ack, one return: a bit joins its neighbours, or leaves them. */
static void fill_bit(om_chunk *chunk, uint32_t at, int value) {
    uint64_t *words = chunk->words;
    if (bit_at(words, at) == value)
        return;
    int beside = (at > 0 && bit_at(words, at - 1)) + (at + 1 < OM_CHUNK_SIZE && bit_at(words, at + 1));
    chunk->run_count += (uint32_t)(value ? 1 - beside : beside - 1);
    words[at >> 6] ^= (uint64_t)1 << (at & 63);
}

/* Set or clear [first, last]: runs that start in there or right after it may come or go. */
static void fill_words(om_chunk *chunk, uint32_t first, uint32_t last, int value) {
    uint64_t *words = chunk->words;
    uint32_t after = last + 1 < OM_CHUNK_SIZE ? last + 1 : last;
    if (first == last) {
        fill_bit(chunk, first, value);
        return;
    }
    chunk->run_count -= count_starts(words, first, after);
    for (uint32_t i = first >> 6; i <= last >> 6; i++) {
        uint64_t mask = word_mask(i, first, last);
        words[i] = value ? words[i] | mask : words[i] & ~mask;
    }
    chunk->run_count += count_starts(words, first, after);
}

/* The first bit in [from, to] that is set (flip 0) or clear (flip all ones). */
static uint32_t scan_words(const uint64_t *words, uint32_t from, uint32_t to, uint64_t flip) {
    uint32_t i = from >> 6;
    uint64_t word = (words[i] ^ flip) & UINT64_MAX << (from & 63);
    while (word == 0) {
        if (++i > to >> 6)
            return OM_CHUNK_SIZE;
        word = words[i] ^ flip;
    }
    uint32_t at = i << 6 | (uint32_t)__builtin_ctzll(word);
    return at <= to ? at : OM_CHUNK_SIZE;
}

static void runs_to_words(const om_chunk *runs, om_chunk *bitmap) {
    for (uint32_t i = 0; i < runs->run_count; i++)
        fill_words(bitmap, runs->runs[i].first, runs->runs[i].last, 1);
}

static void words_to_runs(const uint64_t *words, om_run *runs) {
    uint32_t end = OM_CHUNK_SIZE - 1, first = scan_words(words, 0, end, 0);
    while (first < OM_CHUNK_SIZE) {
        uint32_t after = scan_words(words, first, end, UINT64_MAX);
        *runs++ = (om_run){(uint16_t)first, (uint16_t)(after - 1)};
        first = after < OM_CHUNK_SIZE ? scan_words(words, after, end, 0) : after;
    }
}

/* ---- runs ----------------------------------------------------------------------------- */

/* The first run that ends at or after `at`; run_count when there is none. */
static uint32_t find_run(const om_chunk *chunk, uint32_t at) {
    const om_run *runs = chunk->runs;
    uint32_t low = 0, high = chunk->run_count;
    /* Acks come in order more often than not: look at the end first. */
    if (high > 0 && runs[high - 1].last < at)
        return high;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (runs[middle].last < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Put `count` runs in the place of [from, to). */
static void splice_runs(om_chunk *chunk, uint32_t from, uint32_t to, const om_run *runs, uint32_t count) {
    if (from + count != to && to < chunk->run_count)
        memmove(chunk->runs + from + count, chunk->runs + to, (chunk->run_count - to) * sizeof *runs);
    for (uint32_t i = 0; i < count; i++)
        chunk->runs[from + i] = runs[i];
    chunk->run_count += count - (to - from);
}

static void add_to_runs(om_chunk *chunk, uint32_t first, uint32_t last) {
    /* Neighbours that touch are swallowed too: runs always stand apart. */
    uint32_t from = find_run(chunk, first > 0 ? first - 1 : 0), to = from;
    om_run joined = {(uint16_t)first, (uint16_t)last};
    while (to < chunk->run_count && chunk->runs[to].first <= last + 1)
        to++;
    if (from < to) {
        if (chunk->runs[from].first < first)
            joined.first = chunk->runs[from].first;
        if (chunk->runs[to - 1].last > last)
            joined.last = chunk->runs[to - 1].last;
    }
    splice_runs(chunk, from, to, &joined, 1);
}

static void remove_from_runs(om_chunk *chunk, uint32_t first, uint32_t last) {
    uint32_t from = find_run(chunk, first), to = from, left = 0;
    om_run kept[2];
    while (to < chunk->run_count && chunk->runs[to].first <= last)
        to++;
    if (from == to)
        return;
    if (chunk->runs[from].first < first)
        kept[left++] = (om_run){chunk->runs[from].first, (uint16_t)(first - 1)};
    if (chunk->runs[to - 1].last > last)
        kept[left++] = (om_run){(uint16_t)(last + 1), chunk->runs[to - 1].last};
    splice_runs(chunk, from, to, kept, left);
}

static int resize_runs(om_chunk *chunk, uint32_t cap) {
    om_run *runs = realloc(chunk->runs, cap * sizeof *runs);
    if (runs == NULL)
        return OM_E_NO_MEMORY;
    chunk->runs = runs;
    chunk->run_cap = (uint16_t)cap;
    return OM_OK;
}

/* Room for `count` runs and one more, so that the change that follows finds its place. */
static uint32_t fitting_cap(uint32_t count) {
    uint32_t cap = RUNS_FIRST_CAP;
    while (cap <= count)
        cap *= 2;
    return cap;
}

/* ---- a chunk -------------------------------------------------------------------------- */

int om_chunk_init(om_chunk *chunk, int64_t number, int whole) {
    *chunk = (om_chunk){.number = number, .shape = OM_CHUNK_RUNS};
    if (resize_runs(chunk, RUNS_FIRST_CAP) != OM_OK)
        return OM_E_NO_MEMORY;
    if (whole)
        add_to_runs(chunk, 0, OM_CHUNK_SIZE - 1);
    return OM_OK;
}

int om_chunk_init_words(om_chunk *chunk, int64_t number, const uint64_t *words) {
    uint32_t count = count_starts(words, 0, OM_CHUNK_SIZE - 1);
    *chunk = (om_chunk){.number = number, .shape = OM_CHUNK_BITMAP};
    if (count <= OM_CHUNK_RUNS_LOW) {
        chunk->shape = OM_CHUNK_RUNS;
        if (resize_runs(chunk, fitting_cap(count)) != OM_OK)
            return OM_E_NO_MEMORY;
        words_to_runs(words, chunk->runs);
    } else {
        chunk->words = malloc(OM_CHUNK_WORDS * sizeof *words);
        if (chunk->words == NULL)
            return OM_E_NO_MEMORY;
        memcpy(chunk->words, words, OM_CHUNK_WORDS * sizeof *words);
    }
    chunk->run_count = count;
    return OM_OK;
}

void om_chunk_free(om_chunk *chunk) {
    if (chunk->shape == OM_CHUNK_RUNS)
        free(chunk->runs);
    else if (chunk->shape == OM_CHUNK_BITMAP)
        free(chunk->words);
}

size_t om_chunk_memory(const om_chunk *chunk) {
    if (chunk->shape == OM_CHUNK_RUNS)
        return chunk->run_cap * sizeof(om_run);
    return chunk->shape == OM_CHUNK_BITMAP ? OM_CHUNK_WORDS * sizeof(uint64_t) : 0;
}

int om_chunk_contains(const om_chunk *chunk, uint32_t at) {
    if (chunk->shape == OM_CHUNK_BITMAP)
        return bit_at(chunk->words, at);
    uint32_t run = find_run(chunk, at);
    return run < chunk->run_count && chunk->runs[run].first <= at;
}

uint32_t om_chunk_next_member(const om_chunk *chunk, uint32_t from, uint32_t to) {
    if (chunk->shape == OM_CHUNK_BITMAP)
        return scan_words(chunk->words, from, to, 0);
    uint32_t run = find_run(chunk, from);
    if (run == chunk->run_count || chunk->runs[run].first > to)
        return OM_CHUNK_SIZE;
    return chunk->runs[run].first > from ? chunk->runs[run].first : from;
}

uint32_t om_chunk_next_gap(const om_chunk *chunk, uint32_t from) {
    if (chunk->shape == OM_CHUNK_BITMAP)
        return scan_words(chunk->words, from, OM_CHUNK_SIZE - 1, UINT64_MAX);
    uint32_t run = find_run(chunk, from);
    if (run == chunk->run_count || chunk->runs[run].first > from)
        return from;
    return chunk->runs[run].last + 1u;
}

uint32_t om_chunk_count(const om_chunk *chunk, uint32_t first, uint32_t last) {
    uint32_t count = 0;
    if (chunk->shape == OM_CHUNK_BITMAP) {
        for (uint32_t i = first >> 6; i <= last >> 6; i++)
            count += bits_set(chunk->words[i] & word_mask(i, first, last));
        return count;
    }
    for (uint32_t i = find_run(chunk, first); i < chunk->run_count; i++) {
        uint32_t from = chunk->runs[i].first, to = chunk->runs[i].last;
        if (from > last)
            break;
        count += (to < last ? to : last) - (from > first ? from : first) + 1;
    }
    return count;
}

int om_chunk_is_whole(const om_chunk *chunk) {
    return chunk->run_count == 1 && om_chunk_next_gap(chunk, 0) == OM_CHUNK_SIZE;
}

int om_chunk_reserve(om_chunk *chunk) {
    if (chunk->shape == OM_CHUNK_BITMAP || chunk->run_count < chunk->run_cap)
        return OM_OK;
    if (chunk->run_cap < OM_CHUNK_RUNS_MAX)
        return resize_runs(chunk, chunk->run_cap * 2u);
    om_chunk bitmap = {.number = chunk->number, .shape = OM_CHUNK_BITMAP};
    bitmap.words = calloc(OM_CHUNK_WORDS, sizeof *bitmap.words);
    if (bitmap.words == NULL)
        return OM_E_NO_MEMORY;
    runs_to_words(chunk, &bitmap);
    free(chunk->runs);
    *chunk = bitmap;
    return OM_OK;
}

void om_chunk_add(om_chunk *chunk, uint32_t first, uint32_t last) {
    if (chunk->shape == OM_CHUNK_BITMAP)
        fill_words(chunk, first, last, 1);
    else
        add_to_runs(chunk, first, last);
}

void om_chunk_remove(om_chunk *chunk, uint32_t first, uint32_t last) {
    if (chunk->shape == OM_CHUNK_BITMAP)
        fill_words(chunk, first, last, 0);
    else
        remove_from_runs(chunk, first, last);
}

static inline int is_too_large(const om_chunk *chunk) {
    if (chunk->shape == OM_CHUNK_BITMAP)
        return chunk->run_count <= OM_CHUNK_RUNS_LOW;
    return chunk->run_cap > RUNS_FIRST_CAP && chunk->run_count * 4 <= chunk->run_cap;
}

int om_chunk_is_untidy(const om_chunk *chunk) {
    return chunk->run_count == 0 || is_too_large(chunk) || om_chunk_is_whole(chunk);
}

void om_chunk_fit(om_chunk *chunk) {
    if (!is_too_large(chunk))
        return;
    /* Giving back is a favour: when there is no smaller block, the larger one serves on. */
    if (chunk->shape == OM_CHUNK_RUNS) {
        (void)resize_runs(chunk, fitting_cap(chunk->run_count));
        return;
    }
    uint32_t cap = fitting_cap(chunk->run_count);
    om_run *runs = malloc(cap * sizeof *runs);
    if (runs == NULL)
        return;
    words_to_runs(chunk->words, runs);
    free(chunk->words);
    chunk->runs = runs;
    chunk->run_cap = (uint16_t)cap;
    chunk->shape = OM_CHUNK_RUNS;
}
