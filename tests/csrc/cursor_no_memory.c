/* cursor_no_memory.c -- two cursors live the same life, one of them short of memory.
 *
 * Built by test_cursor_no_memory.py with malloc, calloc and realloc wrapped. A call that is
 * refused must leave the cursor as its twin is, and must work in the end when tried again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cursor/cursor.h"

#define ROUNDS 20
#define TRIES 1000

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);

static unsigned odds; /* one allocation in so many fails; 0: none */
static uint64_t dice = 1;
static long refused;

static uint64_t roll(uint64_t sides) {
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return dice % sides;
}

static int fails(void) {
    return odds > 0 && roll(odds) == 0;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size) {
    return fails() ? NULL : __real_realloc(block, size);
}

static void demand(int holds, const char *what, int round) {
    if (!holds) {
        printf("round %d: %s\n", round, what);
        exit(1);
    }
}

static int same_members(const om_offset_set *a, const om_offset_set *b) {
    int64_t first[2], last[2], from = 0;
    for (;;) {
        int more = om_offset_set_next_run(a, from, &first[0], &last[0]);
        if (more != om_offset_set_next_run(b, from, &first[1], &last[1]))
            return 0;
        if (!more)
            return 1;
        if (first[0] != first[1] || last[0] != last[1])
            return 0;
        from = last[0] + 1;
    }
}

static int is_tidy(const om_offset_set *set) {
    return set->len > 0 || set->chunks == NULL;
}

/* Counts are the one thing that may get lost; they never become too many. */
static int counts_no_more(const om_cursor *poor, const om_cursor *twin, int64_t offset) {
    int32_t acquired[2], delivered[2];
    om_cursor_counts(poor, offset, &acquired[0], &delivered[0]);
    om_cursor_counts(twin, offset, &acquired[1], &delivered[1]);
    return acquired[0] <= acquired[1] && delivered[0] <= delivered[1];
}

static int same(const om_cursor *a, const om_cursor *b) {
    return is_tidy(&a->settled) && is_tidy(&a->returned) && a->floor == b->floor && a->next == b->next &&
           a->end == b->end && a->ready_count == b->ready_count && a->unacked_count == b->unacked_count &&
           a->returned_count == b->returned_count && om_cursor_peek(a) == om_cursor_peek(b) &&
           same_members(&a->settled, &b->settled) && same_members(&a->returned, &b->returned);
}

enum { APPEND, ACQUIRE, SETTLE_ONE, SETTLE_RANGE, RETURN, WHOLE, SKIP = WHOLE, TRUNCATE, PURGE, RETURN_ALL, CALLS };

static int64_t call(om_cursor *cursor, int what, int64_t first, int64_t last) {
    switch (what) {
    case APPEND:
        return om_cursor_appended(cursor, first, last - first + 1, 1000);
    case ACQUIRE:
        return om_cursor_acquire(cursor, first, 1);
    case SETTLE_ONE:
        return om_cursor_settle(cursor, first, first, 1);
    case SETTLE_RANGE:
        return om_cursor_settle(cursor, first, last, -1);
    case RETURN:
        return om_cursor_return(cursor, first, 1, (int)(last & 1));
    case SKIP:
        return om_cursor_skip(cursor, first, last);
    case TRUNCATE:
        return om_cursor_truncate(cursor, first);
    case PURGE:
        return om_cursor_purge(cursor, INT64_MAX);
    default:
        return om_cursor_return_all(cursor, (int)(last & 1));
    }
}

/* The twin does it once; the poor one as often as it takes. Calls from WHOLE on may stop half
 * way, and add up to the same when they go on. */
static void both(om_cursor *poor, om_cursor *twin, int what, int64_t first, int64_t last, int round) {
    int64_t result;
    for (int tries = 0;; tries++) {
        odds = 2 + (unsigned)roll(3);
        result = call(poor, what, first, last);
        odds = 0;
        if (result != OM_E_NO_MEMORY)
            break;
        refused++;
        demand(what >= WHOLE || same(poor, twin), "a refused call changed something", round);
        demand(tries < TRIES, "refused for ever", round);
    }
    int64_t expected = call(twin, what, first, last);
    demand(what >= WHOLE ? (result < 0) == (expected < 0) : result == expected, "another result", round);
    demand(what >= WHOLE || counts_no_more(poor, twin, first), "more counts than calls", round);
}

/* The bytes decode whole or not at all. */
static void reload(om_cursor **poor, int round) {
    size_t size = (size_t)om_cursor_encode(*poor, NULL, 0);
    uint8_t *bytes = malloc(size);
    om_cursor *loaded = NULL;
    om_cursor_encode(*poor, bytes, size);
    for (int result = OM_E_NO_MEMORY; result != OM_OK;) {
        odds = 40;
        result = om_cursor_decode(&loaded, bytes, size);
        odds = 0;
        demand(result == OM_OK || (result == OM_E_NO_MEMORY && loaded == NULL), "a bad load", round);
        refused += result != OM_OK;
    }
    demand(same(*poor, loaded), "another cursor was loaded", round);
    om_cursor_free(*poor);
    *poor = loaded;
    free(bytes);
}

static void live(int round) {
    om_cursor *poor = om_cursor_new(0), *twin = om_cursor_new(0);
    int64_t idle;
    om_cursor_stat stat;
    om_cursor_stat_get(poor, &stat);
    idle = stat.memory;
    for (int step = 0; step < 60; step++) {
        int what = (int)roll(CALLS);
        /* The calls that wipe much are rare: without a past there is little to get wrong. */
        if (what >= TRUNCATE && roll(4) > 0)
            what = ACQUIRE;
        int64_t end = twin->end, first = (int64_t)roll((uint64_t)end + 1);
        int64_t last = first + (int64_t)roll(roll(2) ? 50 : 150000);
        if (what == APPEND) {
            first = end + (roll(3) ? 0 : (int64_t)roll(200000));
            last = first + (int64_t)roll(3000);
        }
        if (what == SKIP && last > end)
            last = end;
        int repeat = what == ACQUIRE || what == SETTLE_ONE || what == RETURN ? 300 : 1;
        for (int i = 0; i < repeat; i++) {
            if (repeat > 1 && what != ACQUIRE)
                first = twin->floor + (int64_t)roll((uint64_t)(twin->end - twin->floor) + 1);
            if (what == ACQUIRE)
                first = om_cursor_peek(twin);
            both(poor, twin, what, first, last, round);
        }
        demand(same(poor, twin), "the twins differ", round);
    }
    reload(&poor, round);
    odds = 2;
    while (om_cursor_settle(poor, 0, poor->end, -1) < 0)
        refused++;
    odds = 0;
    om_cursor_stat_get(poor, &stat);
    demand(stat.memory == idle, "memory is left", round);
    om_cursor_free(poor);
    om_cursor_free(twin);
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        dice = (uint64_t)round * 7919 + 1;
        live(round);
    }
    printf("%ld refused\n", refused);
    return 0;
}
