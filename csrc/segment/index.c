/* index.c -- a segment's offset index and time index: add, find, cut, check (index.h draws them).
 *
 * Promise: nothing here reads a file or trusts one. What om_index_check let through is searched
 * within its bounds, whatever it says.
 */
#include "segment/index.h"
#include "base/bytes.h"
#include <stdlib.h>
#include <string.h>

#define FIRST_ENTRIES 16

void om_index_init(om_index *index) {
    memset(index, 0, sizeof *index);
}

void om_index_free(om_index *index) {
    free(index->offsets);
    free(index->times);
    om_index_init(index);
}

/* ---- fields -------------------------------------------------------------------------- */

int32_t om_index_offset(const om_index *index, uint32_t i) {
    return (int32_t)om_get_be32(index->offsets + (size_t)i * OM_OFFSET_ENTRY);
}

int32_t om_index_position(const om_index *index, uint32_t i) {
    return (int32_t)om_get_be32(index->offsets + (size_t)i * OM_OFFSET_ENTRY + 4);
}

int64_t om_index_time(const om_index *index, uint32_t i) {
    return (int64_t)om_get_be64(index->times + (size_t)i * OM_TIME_ENTRY);
}

int32_t om_index_time_offset(const om_index *index, uint32_t i) {
    return (int32_t)om_get_be32(index->times + (size_t)i * OM_TIME_ENTRY + 8);
}

/* ---- growing ------------------------------------------------------------------------- */

static uint8_t *room_for_one(uint8_t **entries, uint32_t count, uint32_t *cap, size_t entry) {
    if (count == *cap) {
        uint32_t wanted = *cap ? *cap * 2 : FIRST_ENTRIES;
        if (wanted <= *cap)
            return NULL;
        uint8_t *larger = realloc(*entries, wanted * entry);
        if (!larger)
            return NULL;
        *entries = larger;
        *cap = wanted;
    }
    return *entries + count * entry;
}

int om_index_add(om_index *index, int32_t relative_offset, int32_t position) {
    uint32_t count = index->offset_count;
    if (relative_offset < 0 || position < 0)
        return OM_E_INVALID;
    if (count &&
        (relative_offset <= om_index_offset(index, count - 1) || position <= om_index_position(index, count - 1)))
        return OM_E_INVALID;
    uint8_t *entry = room_for_one(&index->offsets, count, &index->offset_cap, OM_OFFSET_ENTRY);
    if (!entry)
        return OM_E_NO_MEMORY;
    om_put_be32(entry, (uint32_t)relative_offset);
    om_put_be32(entry + 4, (uint32_t)position);
    index->offset_count++;
    return OM_OK;
}

int om_index_add_time(om_index *index, int64_t timestamp, int32_t relative_offset) {
    uint32_t count = index->time_count;
    if (relative_offset < 0 || timestamp < 0)
        return OM_E_INVALID;
    if (count &&
        (timestamp <= om_index_time(index, count - 1) || relative_offset <= om_index_time_offset(index, count - 1)))
        return OM_E_INVALID;
    uint8_t *entry = room_for_one(&index->times, count, &index->time_cap, OM_TIME_ENTRY);
    if (!entry)
        return OM_E_NO_MEMORY;
    om_put_be64(entry, (uint64_t)timestamp);
    om_put_be32(entry + 8, (uint32_t)relative_offset);
    index->time_count++;
    return OM_OK;
}

/* ---- searching ----------------------------------------------------------------------- */

/* Halving without a branch on the entry: the next step depends on a load either way, and a
 * wrong guess would cost more than the compare. */
uint32_t om_index_rank(const om_index *index, int64_t relative_offset) {
    uint32_t low = 0, left = index->offset_count;
    while (left > 0) {
        uint32_t half = left / 2;
        int below = om_index_offset(index, low + half) <= relative_offset;
        low = below ? low + half + 1 : low;
        left = below ? left - half - 1 : half;
    }
    return low;
}

uint32_t om_index_rank_time(const om_index *index, int64_t timestamp) {
    uint32_t low = 0, left = index->time_count;
    while (left > 0) {
        uint32_t half = left / 2;
        int below = om_index_time(index, low + half) <= timestamp;
        low = below ? low + half + 1 : low;
        left = below ? left - half - 1 : half;
    }
    return low;
}

void om_index_cut(om_index *index, int64_t relative_offset, int64_t position) {
    while (index->offset_count && om_index_position(index, index->offset_count - 1) >= position)
        index->offset_count--;
    while (index->time_count && om_index_time_offset(index, index->time_count - 1) >= relative_offset)
        index->time_count--;
}

/* ---- checking ------------------------------------------------------------------------ */

int om_index_check(const uint8_t *offsets, size_t offsets_len, const uint8_t *times, size_t times_len,
                   int64_t segment_size) {
    if (offsets_len % OM_OFFSET_ENTRY || times_len % OM_TIME_ENTRY)
        return OM_E_CORRUPT;
    /* An entry a byte of the segment is more than there can be: counts fit 32 bits from here on. */
    if (offsets_len / OM_OFFSET_ENTRY > INT32_MAX || times_len / OM_TIME_ENTRY > INT32_MAX)
        return OM_E_CORRUPT;
    int64_t last_offset = -1, last_position = -1;
    for (size_t at = 0; at < offsets_len; at += OM_OFFSET_ENTRY) {
        int32_t offset = (int32_t)om_get_be32(offsets + at);
        int32_t position = (int32_t)om_get_be32(offsets + at + 4);
        if (offset <= last_offset || position <= last_position)
            return OM_E_CORRUPT;
        last_offset = offset;
        last_position = position;
    }
    if (offsets_len && last_position >= segment_size)
        return OM_E_CORRUPT;
    int64_t last_time = -1;
    last_offset = -1;
    for (size_t at = 0; at < times_len; at += OM_TIME_ENTRY) {
        int64_t time = (int64_t)om_get_be64(times + at);
        int32_t offset = (int32_t)om_get_be32(times + at + 8);
        if (time <= last_time || offset <= last_offset)
            return OM_E_CORRUPT;
        last_time = time;
        last_offset = offset;
    }
    if (times_len && segment_size <= 0)
        return OM_E_CORRUPT;
    return OM_OK;
}
