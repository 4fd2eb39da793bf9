/* cursor_codec.c -- a cursor as bytes, for the checkpoint.
 *
 *   cursor  | version u8 = 1 | floor | next - floor | end - next | ready bytes | unacked bytes |
 *           | settled: set | returned: set | again: counts | failed: counts |
 *   counts  | planes | plane 0: set | plane 1: set | ...
 *   set     | chunks | chunk | chunk | ...
 *   chunk   | skipped << 2 + shape | body |
 *             skipped: chunk numbers left out since the chunk before; for the first one, since
 *             that of floor. A body is
 *     shape 0   | runs - 1 | first | length - 1 | left out - 1 | length - 1 | left out - 1 | ...
 *     shape 1   | 1,024 words u64 |       bit i = offset i of the chunk
 *     shape 2   | chunks - 1 |            all full
 *
 * Numbers are unsigned varints (7 bits per byte, low first), words little-endian. Of shapes 0 and
 * 1 the shorter is written. Counts aren't written: they follow from the sets, and what is in
 * flight is what the sets leave over.
 *
 * Promise: bytes from anywhere are either a cursor that holds together or OM_E_CORRUPT, and the
 * memory they take is a small multiple of their length. The checksum is the store's.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "cursor/cursor.h"

#define VERSION 1
#define BITMAP_BYTES (OM_CHUNK_WORDS * 8)
/* More runs than this are longer than a bitmap, at two bytes or more each. */
#define RUNS_WRITTEN_MAX (BITMAP_BYTES / 2)

/* ---- writing ---------------------------------------------------------------------------- */

/* out is NULL while only the size is asked for. */
typedef struct om_sink {
    uint8_t *out;
    size_t len;
} om_sink;

static void put_number(om_sink *sink, int64_t number) {
    uint8_t raw[OM_VARLONG_MAX];
    size_t len = (size_t)(om_put_uvarlong(raw, (uint64_t)number) - raw);
    if (sink->out != NULL)
        memcpy(sink->out + sink->len, raw, len);
    sink->len += len;
}

static void put_runs(om_sink *sink, const om_chunk *chunk) {
    uint32_t end = OM_CHUNK_SIZE - 1, first = om_chunk_next_member(chunk, 0, end);
    put_number(sink, chunk->run_count - 1);
    put_number(sink, first);
    for (;;) {
        uint32_t after = om_chunk_next_gap(chunk, first);
        put_number(sink, after - first - 1);
        first = after < OM_CHUNK_SIZE ? om_chunk_next_member(chunk, after, end) : OM_CHUNK_SIZE;
        if (first == OM_CHUNK_SIZE)
            return;
        put_number(sink, first - after - 1);
    }
}

static void put_words(om_sink *sink, const om_chunk *chunk) {
    if (sink->out != NULL)
        for (uint32_t i = 0; i < OM_CHUNK_WORDS; i++)
            om_put_le64(sink->out + sink->len + i * 8, chunk->words[i]);
    sink->len += BITMAP_BYTES;
}

static int runs_are_shorter(const om_chunk *chunk) {
    om_sink size = {0};
    if (chunk->shape == OM_CHUNK_RUNS)
        return 1;
    if (chunk->run_count > RUNS_WRITTEN_MAX)
        return 0;
    put_runs(&size, chunk);
    return size.len <= BITMAP_BYTES;
}

static void put_set(om_sink *sink, const om_offset_set *set, int64_t expected) {
    put_number(sink, set->len);
    for (uint32_t i = 0; i < set->len; i++) {
        const om_chunk *chunk = &set->chunks[i];
        int64_t skipped = (chunk->number - expected) << 2;
        expected = chunk->number + 1;
        if (chunk->shape == OM_CHUNK_FULL) {
            put_number(sink, skipped | OM_CHUNK_FULL);
            put_number(sink, chunk->span - 1);
            expected = chunk->number + chunk->span;
        } else if (runs_are_shorter(chunk)) {
            put_number(sink, skipped | OM_CHUNK_RUNS);
            put_runs(sink, chunk);
        } else {
            put_number(sink, skipped | OM_CHUNK_BITMAP);
            put_words(sink, chunk);
        }
    }
}

static void put_counts(om_sink *sink, const om_offset_counts *counts, int64_t expected) {
    put_number(sink, counts->len);
    for (uint32_t i = 0; i < counts->len; i++)
        put_set(sink, &counts->planes[i], expected);
}

static size_t put_cursor(const om_cursor *cursor, uint8_t *out) {
    om_sink sink = {out, 0};
    int64_t expected = cursor->floor / OM_CHUNK_SIZE;
    put_number(&sink, VERSION);
    put_number(&sink, cursor->floor);
    put_number(&sink, cursor->next - cursor->floor);
    put_number(&sink, cursor->end - cursor->next);
    put_number(&sink, cursor->ready_bytes);
    put_number(&sink, cursor->unacked_bytes);
    put_set(&sink, &cursor->settled, expected);
    put_set(&sink, &cursor->returned, expected);
    put_counts(&sink, &cursor->again, expected);
    put_counts(&sink, &cursor->failed_counts, expected);
    return sink.len;
}

int64_t om_cursor_encode(const om_cursor *cursor, uint8_t *out, size_t cap) {
    size_t size = put_cursor(cursor, NULL);
    if (size <= cap)
        put_cursor(cursor, out);
    return (int64_t)size;
}

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct om_source {
    const uint8_t *at, *end;
} om_source;

/* 0 .. max, or OM_E_CORRUPT. */
static int get_number(om_source *source, int64_t max, int64_t *number) {
    uint64_t raw = 0;
    for (unsigned shift = 0; shift < 63 && source->at < source->end; shift += 7) {
        uint8_t byte = *source->at++;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *number = (int64_t)raw;
            return raw <= (uint64_t)max ? OM_OK : OM_E_CORRUPT;
        }
    }
    return OM_E_CORRUPT;
}

static int get_runs(om_source *source, om_chunk *chunk) {
    int64_t count, left_out, length, at = 0;
    int result = get_number(source, RUNS_WRITTEN_MAX - 1, &count);
    for (int64_t i = 0; i <= count && result == OM_OK; i++) {
        result = get_number(source, OM_CHUNK_SIZE - 1, &left_out);
        if (result == OM_OK)
            result = get_number(source, OM_CHUNK_SIZE - 1, &length);
        if (result != OM_OK)
            break;
        int64_t first = at + left_out + (i > 0), last = first + length;
        if (last >= OM_CHUNK_SIZE)
            return OM_E_CORRUPT;
        result = om_chunk_reserve(chunk);
        if (result == OM_OK)
            om_chunk_add(chunk, (uint32_t)first, (uint32_t)last);
        at = last + 1;
    }
    return result;
}

static int get_words(om_source *source, om_chunk *chunk, int64_t number) {
    uint64_t words[OM_CHUNK_WORDS], any = 0;
    if (source->end - source->at < BITMAP_BYTES)
        return OM_E_CORRUPT;
    for (uint32_t i = 0; i < OM_CHUNK_WORDS; i++) {
        words[i] = om_get_le64(source->at + i * 8);
        any |= words[i];
    }
    source->at += BITMAP_BYTES;
    return any != 0 ? om_chunk_init_words(chunk, number, words) : OM_E_CORRUPT;
}

static int get_chunk(om_source *source, om_offset_set *set, int64_t *expected) {
    om_chunk chunk;
    int64_t head, more;
    int result = get_number(source, INT64_MAX, &head);
    if (result != OM_OK)
        return result;
    int64_t number = *expected + (head >> 2);
    *expected = number + 1;
    switch (head & 3) {
    case OM_CHUNK_RUNS:
        result = om_chunk_init(&chunk, number, 0);
        if (result != OM_OK)
            return result;
        result = get_runs(source, &chunk);
        if (result != OM_OK) {
            om_chunk_free(&chunk);
            return result;
        }
        break;
    case OM_CHUNK_BITMAP:
        result = get_words(source, &chunk, number);
        if (result != OM_OK)
            return result;
        break;
    case OM_CHUNK_FULL:
        result = get_number(source, OM_OFFSET_MAX / OM_CHUNK_SIZE, &more);
        if (result != OM_OK)
            return result;
        chunk = (om_chunk){.number = number, .span = more + 1, .shape = OM_CHUNK_FULL};
        *expected = number + more + 1;
        break;
    default:
        return OM_E_CORRUPT;
    }
    result = om_offset_set_append(set, &chunk);
    return result == OM_E_INVALID ? OM_E_CORRUPT : result;
}

/* A set whose members all lie in [first, last]. */
static int get_set(om_source *source, om_offset_set *set, int64_t expected, int64_t first, int64_t last) {
    int64_t count;
    int result = get_number(source, UINT32_MAX, &count);
    for (int64_t i = 0; i < count && result == OM_OK; i++)
        result = get_chunk(source, set, &expected);
    if (result != OM_OK || count == 0)
        return result;
    if (om_offset_set_next_member(set, 0, OM_OFFSET_MAX) < first ||
        om_offset_set_next_member(set, last + 1, OM_OFFSET_MAX) >= 0)
        return OM_E_CORRUPT;
    return OM_OK;
}

/* Do the two have a member in common? */
static int overlap(const om_offset_set *a, const om_offset_set *b) {
    int64_t first, last, from = 0;
    while (om_offset_set_next_run(a, from, &first, &last)) {
        int64_t other = om_offset_set_next_member(b, first, OM_OFFSET_MAX);
        if (other < 0)
            return 0;
        if (other <= last)
            return 1;
        from = other;
    }
    return 0;
}

static int get_counts(om_source *source, om_offset_counts *counts, const om_cursor *cursor) {
    int64_t planes;
    int result = get_number(source, OM_COUNT_PLANES, &planes);
    for (int64_t i = 0; i < planes && result == OM_OK; i++) {
        om_offset_set *plane = om_offset_counts_append_plane(counts);
        if (plane == NULL)
            return OM_E_NO_MEMORY;
        result = get_set(source, plane, cursor->floor / OM_CHUNK_SIZE, cursor->floor, cursor->next - 1);
        if (result == OM_OK && (overlap(plane, &cursor->settled) || (i == planes - 1 && plane->len == 0)))
            result = OM_E_CORRUPT;
    }
    return result;
}

static int get_cursor(om_source *source, om_cursor *cursor) {
    int64_t version, floor, given_out, fresh, ready_bytes, unacked_bytes;
    if (get_number(source, VERSION, &version) != OM_OK || version != VERSION ||
        get_number(source, INT64_MAX, &floor) != OM_OK || get_number(source, INT64_MAX - floor, &given_out) != OM_OK ||
        get_number(source, INT64_MAX - floor - given_out, &fresh) != OM_OK ||
        get_number(source, INT64_MAX, &ready_bytes) != OM_OK || get_number(source, INT64_MAX, &unacked_bytes) != OM_OK)
        return OM_E_CORRUPT;
    om_cursor_init(cursor, floor);
    cursor->next = floor + given_out;
    cursor->end = cursor->next + fresh;
    cursor->ready_bytes = ready_bytes;
    cursor->unacked_bytes = unacked_bytes;

    int64_t chunk = floor / OM_CHUNK_SIZE;
    int result = get_set(source, &cursor->settled, chunk, floor + 1, cursor->end - 1);
    if (result == OM_OK)
        result = get_set(source, &cursor->returned, chunk, floor, cursor->next - 1);
    if (result == OM_OK)
        result = get_counts(source, &cursor->again, cursor);
    if (result == OM_OK)
        result = get_counts(source, &cursor->failed_counts, cursor);
    if (result != OM_OK)
        return result;

    if (source->at != source->end || om_offset_set_contains(&cursor->settled, cursor->next) ||
        overlap(&cursor->returned, &cursor->settled))
        return OM_E_CORRUPT;
    cursor->returned_count = om_offset_set_count(&cursor->returned, floor, cursor->end);
    cursor->unacked_count = given_out - cursor->returned_count;
    cursor->ready_count = cursor->returned_count + fresh;
    if (cursor->settled.len > 0) {
        cursor->unacked_count -= om_offset_set_count(&cursor->settled, floor, cursor->next - 1);
        cursor->ready_count -= om_offset_set_count(&cursor->settled, cursor->next, cursor->end);
    }
    if ((cursor->ready_count == 0 && ready_bytes > 0) || (cursor->unacked_count == 0 && unacked_bytes > 0))
        return OM_E_CORRUPT;
    return OM_OK;
}

int om_cursor_decode(om_cursor **out, const uint8_t *data, size_t len) {
    om_source source = {data, data + len};
    om_cursor *cursor = om_cursor_new(0);
    *out = NULL;
    if (cursor == NULL)
        return OM_E_NO_MEMORY;
    int result = get_cursor(&source, cursor);
    if (result == OM_OK)
        *out = cursor;
    else
        om_cursor_free(cursor);
    return result;
}
