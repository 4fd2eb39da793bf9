/* cursor.c -- settle, return, give out again; see cursor.h.
 *
 * Promise: counts are exact whatever the order of calls. A call that runs out of memory says so
 * and has changed nothing (purge, skip, truncate and return_all: has done a part, and may be
 * called again). The one thing given up without a word when memory is out is a redelivery count: the
 * record matters more than how often it was seen.
 *
 * Bytes are what the callers say. A count that reaches zero takes its bytes to zero with it, so
 * a caller that doesn't know better does no lasting harm.
 */
#include "cursor/cursor.h"

#include <stdlib.h>

/* ---- bytes ------------------------------------------------------------------------------ */

static inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline void add_bytes(int64_t *total, int64_t bytes) {
    if (__builtin_add_overflow(*total, bytes, total))
        *total = INT64_MAX;
}

static inline void take_bytes(int64_t *total, int64_t bytes, int64_t count_left) {
    *total = count_left == 0 ? 0 : larger(*total - bytes, 0);
}

/* bytes * part / whole */
static inline int64_t share(int64_t bytes, int64_t part, int64_t whole) {
    return part == whole ? bytes : (int64_t)((__int128)bytes * part / whole);
}

/* Some ready and some unacked records are settled; they weigh `bytes` together, or what their
 * like weigh on average when that is below 0. */
static void drop_records(om_cursor *cursor, int64_t ready, int64_t unacked, int64_t bytes) {
    int64_t of_ready = bytes, of_unacked = bytes;
    if (bytes < 0) {
        of_ready = share(cursor->ready_bytes, ready, larger(cursor->ready_count, 1));
        of_unacked = share(cursor->unacked_bytes, unacked, larger(cursor->unacked_count, 1));
    } else if (ready > 0 && unacked > 0) {
        of_ready = share(bytes, ready, ready + unacked);
        of_ready = smaller(of_ready, cursor->ready_bytes);
        of_unacked = bytes - of_ready;
        if (of_unacked > cursor->unacked_bytes)
            of_ready = bytes - cursor->unacked_bytes;
    }
    cursor->ready_count -= ready;
    cursor->unacked_count -= unacked;
    if (ready > 0)
        take_bytes(&cursor->ready_bytes, of_ready, cursor->ready_count);
    if (unacked > 0)
        take_bytes(&cursor->unacked_bytes, of_unacked, cursor->unacked_count);
}

/* ---- life ------------------------------------------------------------------------------- */

void om_cursor_init(om_cursor *cursor, int64_t start) {
    *cursor = (om_cursor){.floor = start, .next = start, .end = start, .returned_from = start};
}

static void clear(om_cursor *cursor) {
    om_offset_set_clear(&cursor->settled);
    om_offset_set_clear(&cursor->returned);
    om_offset_counts_clear(&cursor->again);
    om_offset_counts_clear(&cursor->failed_counts);
}

om_cursor *om_cursor_new(int64_t start) {
    om_cursor *cursor = start < 0 || start > OM_OFFSET_MAX ? NULL : malloc(sizeof *cursor);
    if (cursor != NULL)
        om_cursor_init(cursor, start);
    return cursor;
}

void om_cursor_free(om_cursor *cursor) {
    if (cursor == NULL)
        return;
    clear(cursor);
    free(cursor);
}

/* ---- places and states ------------------------------------------------------------------ */

static inline int has(const om_offset_set *set, int64_t offset) {
    return set->len > 0 && om_offset_set_contains(set, offset);
}

static inline int64_t count_in(const om_offset_set *set, int64_t first, int64_t last) {
    return set->len > 0 && first <= last ? om_offset_set_count(set, first, last) : 0;
}

static inline int64_t gap_from(const om_offset_set *set, int64_t offset) {
    return set->len > 0 ? om_offset_set_next_gap(set, offset) : offset;
}

/* A place in the log that the cursor knows about, or knew. */
static inline int is_known(const om_cursor *cursor, int64_t offset) {
    return offset >= 0 && offset < cursor->end;
}

int om_cursor_is_settled(const om_cursor *cursor, int64_t offset) {
    return offset < cursor->floor || (offset < cursor->end && has(&cursor->settled, offset));
}

int om_cursor_counts(const om_cursor *cursor, int64_t offset, int32_t *acquired, int32_t *delivered) {
    *acquired = *delivered = 0;
    if (!is_known(cursor, offset))
        return OM_E_RANGE;
    if (offset >= cursor->next || om_cursor_is_settled(cursor, offset))
        return 0;
    *acquired = (int32_t)smaller(om_offset_counts_get(&cursor->again, offset) + (int64_t)1, INT32_MAX);
    *delivered = om_offset_counts_get(&cursor->failed_counts, offset);
    return 1;
}

void om_cursor_stat_get(const om_cursor *cursor, om_cursor_stat *out) {
    *out = (om_cursor_stat){
        .floor = cursor->floor,
        .next = cursor->next,
        .end = cursor->end,
        .ready_count = cursor->ready_count,
        .ready_bytes = cursor->ready_bytes,
        .unacked_count = cursor->unacked_count,
        .unacked_bytes = cursor->unacked_bytes,
        .returned_count = cursor->returned_count,
        .memory = (int64_t)(sizeof *cursor + om_offset_set_memory(&cursor->settled) +
                            om_offset_set_memory(&cursor->returned) + om_offset_counts_memory(&cursor->again) +
                            om_offset_counts_memory(&cursor->failed_counts)),
    };
}

/* ---- settling --------------------------------------------------------------------------- */

/* Settle [first, last], which lies in [floor, end). */
static int64_t settle_known(om_cursor *cursor, int64_t first, int64_t last, int64_t bytes) {
    int64_t fresh_first = larger(first, cursor->next);
    int64_t settled = last - first + 1 - count_in(&cursor->settled, first, last);
    if (settled == 0)
        return 0;
    int64_t returned = count_in(&cursor->returned, first, last);
    int64_t fresh = fresh_first > last ? 0 : last - fresh_first + 1 - count_in(&cursor->settled, fresh_first, last);

    /* All that may fail comes first. */
    int result = OM_OK;
    if (returned > 0)
        result = om_offset_set_prepare_remove(&cursor->returned, first, last);
    if (result == OM_OK)
        result = om_offset_counts_prepare_forget(&cursor->again, first, last);
    if (result == OM_OK)
        result = om_offset_counts_prepare_forget(&cursor->failed_counts, first, last);
    if (result != OM_OK)
        return result;
    if (first == cursor->floor) {
        /* At the floor nothing has to be remembered: the floor moves, and what it passes goes. */
        int64_t floor = gap_from(&cursor->settled, last + 1);
        if (cursor->settled.len > 0)
            result = om_offset_set_remove(&cursor->settled, first, floor - 1);
        if (result != OM_OK)
            return result;
        cursor->floor = floor;
        cursor->next = larger(cursor->next, floor);
    } else {
        result = om_offset_set_add(&cursor->settled, first, last);
        if (result != OM_OK)
            return result;
        if (cursor->next >= first && cursor->next <= last)
            cursor->next = om_offset_set_next_gap(&cursor->settled, last);
    }

    if (returned > 0) {
        (void)om_offset_set_remove(&cursor->returned, first, last);
        cursor->returned_count -= returned;
    }
    if (cursor->again.len > 0)
        (void)om_offset_counts_forget(&cursor->again, first, last);
    if (cursor->failed_counts.len > 0)
        (void)om_offset_counts_forget(&cursor->failed_counts, first, last);
    drop_records(cursor, returned + fresh, settled - returned - fresh, bytes);
    return settled;
}

int64_t om_cursor_settle(om_cursor *cursor, int64_t first, int64_t last, int64_t bytes) {
    if (first < 0 || first > last)
        return OM_E_INVALID;
    first = larger(first, cursor->floor);
    last = smaller(last, cursor->end - 1);
    return first <= last ? settle_known(cursor, first, last, bytes) : 0;
}

/* [first, last] was settled and lies below `next`: it comes back as returned. */
static int revive(om_cursor *cursor, int64_t first, int64_t last) {
    int64_t count = last - first + 1;
    int result = om_offset_set_add(&cursor->returned, first, last);
    if (result != OM_OK)
        return result;
    cursor->returned_from = smaller(cursor->returned_from, first);
    cursor->returned_count += count;
    add_bytes(&cursor->ready_bytes, share(cursor->ready_bytes, count, larger(cursor->ready_count, 1)));
    cursor->ready_count += count;
    return OM_OK;
}

/* The floor comes back to `first`; what lies between `last` and the old one is settled by name. */
static int lower_floor(om_cursor *cursor, int64_t first, int64_t last) {
    int result = last + 1 < cursor->floor ? om_offset_set_add(&cursor->settled, last + 1, cursor->floor - 1) : OM_OK;
    if (result == OM_OK)
        result = revive(cursor, first, last);
    if (result == OM_OK)
        cursor->floor = first;
    else
        (void)om_offset_set_remove(&cursor->settled, last + 1, cursor->floor - 1);
    return result;
}

int64_t om_cursor_unsettle(om_cursor *cursor, int64_t first, int64_t last) {
    last = smaller(last, cursor->end - 1);
    if (first < 0 || first > last)
        return 0;
    int64_t from, to, sum = 0, floor = cursor->floor;
    int result = OM_OK;
    if (first < floor) {
        to = smaller(last, floor - 1);
        result = lower_floor(cursor, first, to);
        sum = to - first + 1;
    }
    first = larger(first, floor);
    while (result == OM_OK && om_offset_set_next_run(&cursor->settled, first, &from, &to) && from <= last) {
        to = smaller(to, last);
        /* Given out before, or not: runs end at `next`, which is never settled. */
        result = om_offset_set_prepare_remove(&cursor->settled, from, to);
        if (result == OM_OK && to < cursor->next)
            result = revive(cursor, from, to);
        else if (result == OM_OK)
            cursor->ready_count += to - from + 1;
        if (result == OM_OK)
            (void)om_offset_set_remove(&cursor->settled, from, to);
        sum += to - from + 1;
        first = to + 1;
    }
    return result == OM_OK ? sum : result;
}

int64_t om_cursor_purge(om_cursor *cursor, int64_t before) {
    int64_t first, last, purged, sum = 0;
    before = smaller(before, cursor->end);
    if (cursor->ready_count == 0 || before <= cursor->floor)
        return 0;
    if (cursor->unacked_count == 0)
        return settle_known(cursor, cursor->floor, before - 1, -1);
    if (cursor->next < before) {
        sum = settle_known(cursor, cursor->next, before - 1, -1);
        if (sum < 0)
            return sum;
    }
    while (om_offset_set_next_run(&cursor->returned, cursor->returned_from, &first, &last) && first < before) {
        last = smaller(last, before - 1);
        purged = settle_known(cursor, first, last, -1);
        if (purged < 0)
            return purged;
        cursor->returned_from = last + 1;
        sum += purged;
    }
    return sum;
}

/* ---- appending -------------------------------------------------------------------------- */

/* [end, new_end) was never there. */
static int pass_gap(om_cursor *cursor, int64_t new_end) {
    if (cursor->floor == cursor->end) {
        cursor->floor = new_end;
    } else {
        int result = om_offset_set_add(&cursor->settled, cursor->end, new_end - 1);
        if (result != OM_OK)
            return result;
    }
    if (cursor->next == cursor->end)
        cursor->next = new_end;
    cursor->end = new_end;
    return OM_OK;
}

int om_cursor_appended(om_cursor *cursor, int64_t first, int64_t count, int64_t bytes) {
    if (count < 1 || bytes < 0 || first < 0 || count > INT64_MAX - first)
        return OM_E_INVALID;
    if (first < cursor->end)
        return OM_E_RANGE;
    if (first > cursor->end) {
        int result = pass_gap(cursor, first);
        if (result != OM_OK)
            return result;
    }
    cursor->end = first + count;
    cursor->ready_count += count;
    add_bytes(&cursor->ready_bytes, bytes);
    return OM_OK;
}

int om_cursor_skip(om_cursor *cursor, int64_t first, int64_t last) {
    if (first < 0 || first > last || last > OM_OFFSET_MAX)
        return OM_E_INVALID;
    int64_t settled = om_cursor_settle(cursor, first, last, -1);
    if (settled < 0)
        return (int)settled;
    return last >= cursor->end ? pass_gap(cursor, last + 1) : OM_OK;
}

int om_cursor_truncate(om_cursor *cursor, int64_t offset) {
    if (offset < 0)
        return OM_E_INVALID;
    if (offset >= cursor->end)
        return OM_OK;
    int64_t settled = om_cursor_settle(cursor, offset, cursor->end - 1, -1);
    int result = settled < 0 ? (int)settled : om_offset_set_remove(&cursor->settled, offset, cursor->end - 1);
    if (result != OM_OK)
        return result;
    cursor->floor = smaller(cursor->floor, offset);
    cursor->next = smaller(cursor->next, offset);
    cursor->end = offset;
    return OM_OK;
}

/* ---- giving out, taking back -------------------------------------------------------------- */

int64_t om_cursor_peek(const om_cursor *cursor) {
    if (cursor->returned_count > 0)
        return om_offset_set_next_member(&cursor->returned, cursor->returned_from, cursor->next);
    return cursor->next < cursor->end ? cursor->next : -1;
}

int om_cursor_acquire(om_cursor *cursor, int64_t offset, int64_t bytes) {
    if (bytes < 0)
        return OM_E_INVALID;
    if (!is_known(cursor, offset))
        return OM_E_RANGE;
    if (offset == cursor->next) {
        cursor->next = gap_from(&cursor->settled, offset + 1);
    } else if (has(&cursor->returned, offset)) {
        int is_lowest = om_offset_set_next_member(&cursor->returned, cursor->returned_from, offset) == offset;
        int result = om_offset_set_remove(&cursor->returned, offset, offset);
        if (result != OM_OK)
            return result;
        (void)om_offset_counts_raise(&cursor->again, offset, offset);
        cursor->returned_count--;
        if (is_lowest)
            cursor->returned_from = offset + 1;
    } else {
        return OM_E_INVALID;
    }
    cursor->ready_count--;
    take_bytes(&cursor->ready_bytes, bytes, cursor->ready_count);
    cursor->unacked_count++;
    add_bytes(&cursor->unacked_bytes, bytes);
    return OM_OK;
}

int64_t om_cursor_pass(om_cursor *cursor, int64_t offset, int64_t bytes) {
    offset = smaller(offset, cursor->end);
    if (offset <= cursor->next)
        return 0;
    int64_t count = offset - cursor->next - count_in(&cursor->settled, cursor->next, offset - 1);
    if (bytes < 0 || count == cursor->ready_count)
        bytes = share(cursor->ready_bytes, count, cursor->ready_count);
    cursor->next = gap_from(&cursor->settled, offset);
    cursor->ready_count -= count;
    take_bytes(&cursor->ready_bytes, bytes, cursor->ready_count);
    cursor->unacked_count += count;
    add_bytes(&cursor->unacked_bytes, bytes);
    return count;
}

int om_cursor_return(om_cursor *cursor, int64_t offset, int64_t bytes, int counted) {
    if (bytes < 0)
        return OM_E_INVALID;
    if (!is_known(cursor, offset))
        return OM_E_RANGE;
    if (offset >= cursor->next || om_cursor_is_settled(cursor, offset) || has(&cursor->returned, offset))
        return OM_E_INVALID;
    int result = om_offset_set_add(&cursor->returned, offset, offset);
    if (result != OM_OK)
        return result;
    if (counted)
        (void)om_offset_counts_raise(&cursor->failed_counts, offset, offset);
    cursor->returned_from = smaller(cursor->returned_from, offset);
    cursor->returned_count++;
    cursor->unacked_count--;
    take_bytes(&cursor->unacked_bytes, bytes, cursor->unacked_count);
    cursor->ready_count++;
    add_bytes(&cursor->ready_bytes, bytes);
    return OM_OK;
}

/* The first run in flight at or after `from`; one must be there. */
static void next_in_flight(const om_cursor *cursor, int64_t from, int64_t *first, int64_t *last) {
    int64_t gap = from, member;
    do {
        from = gap;
        gap = gap_from(&cursor->returned, gap_from(&cursor->settled, from));
    } while (gap != from);
    *first = from;
    *last = cursor->next - 1;
    member = om_offset_set_next_member(&cursor->settled, from, *last);
    if (member >= 0)
        *last = member - 1;
    member = om_offset_set_next_member(&cursor->returned, from, *last);
    if (member >= 0)
        *last = member - 1;
}

int64_t om_cursor_return_all(om_cursor *cursor, int counted) {
    int64_t first, last = cursor->floor - 1, sum = 0;
    while (cursor->unacked_count > 0) {
        next_in_flight(cursor, last + 1, &first, &last);
        int result = om_offset_set_add(&cursor->returned, first, last);
        if (result != OM_OK)
            return result;
        if (counted)
            (void)om_offset_counts_raise(&cursor->failed_counts, first, last);
        int64_t count = last - first + 1;
        int64_t bytes = share(cursor->unacked_bytes, count, cursor->unacked_count);
        cursor->returned_from = smaller(cursor->returned_from, first);
        cursor->returned_count += count;
        cursor->unacked_count -= count;
        cursor->unacked_bytes -= bytes;
        cursor->ready_count += count;
        add_bytes(&cursor->ready_bytes, bytes);
        sum += count;
    }
    return sum;
}
