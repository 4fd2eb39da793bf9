/* cursor.h -- the inside of a cursor: which records of a work queue's log are settled, in flight or returned.
 *
 *              floor            next                 end
 *   -------------|----------------|--------------------|
 *    all settled | settled        | settled (skipped)  | not there yet
 *                | returned       | fresh              |
 *                | in flight      |                    |
 *
 *   ready = returned + fresh; unacked = in flight; neither is stored, each is the rest of the
 *   others. `floor` and `next` never rest on a settled offset (unless it is `end`).
 *
 * So the memory is that of two compressed sets: one forgotten ack costs a hole in one of them,
 * ten million ready records cost nothing. Every unsettled offset below `next` was given out at
 * least once by definition: that is all it takes to know what is redelivered after a crash.
 * Only offsets given out a second time, or returned and counted, have bits in a count.
 */
#ifndef OM_CURSOR_H
#define OM_CURSOR_H
#include "cursor/offset_counts.h"
#include "cursor/offset_set.h"
#include "om_base.h"

struct om_cursor {
    int64_t floor, next, end;
    int64_t ready_count, unacked_count, returned_count;
    int64_t ready_bytes, unacked_bytes;
    int64_t returned_from;          /* no returned offset lies below: where peek starts to look */
    om_offset_set settled;          /* in (floor, end), never floor or next */
    om_offset_set returned;         /* in [floor, next), none of them settled */
    om_offset_counts again;         /* given out so many times more than once */
    om_offset_counts failed_counts; /* failed deliveries: counted returns */
};

enum om_cursor_op_kind {
    OM_OP_ACQUIRE = 1,
    OM_OP_SETTLE = 2,
    OM_OP_RETURN = 3,
    OM_OP_RETURN_COUNTED = 4,
    OM_OP_PURGE = 5,
    OM_OP_PASS = 6, /* given out by a life that was killed: delivered_mark.c knew */
};

/* A change, as the WAL has it (little-endian). Runs of the same kind join while a tick lasts. */
typedef struct om_cursor_op {
    uint64_t kind;
    int64_t first, last;
    int64_t bytes;
} om_cursor_op;

om_cursor_op om_cursor_op_at(const uint8_t *at);
/* Do again what was done: what isn't there is passed over. OM_E_CORRUPT: no such change. */
int om_cursor_apply(om_cursor *cursor, const om_cursor_op *op);

/* A log's calls on its cursor, besides those of om_base.h; results and bytes as there. */

/* Offsets [first, last] hold no record to give out (gap, control, aborted, compacted): settled,
 * past `end` too, which then moves to last + 1. */
int om_cursor_skip(om_cursor *cursor, int64_t first, int64_t last);
/* The log was cut: nothing at or past offset was ever there; `end` goes back to it, `next` and
 * `floor` too if they lie beyond. */
int om_cursor_truncate(om_cursor *cursor, int64_t offset);
/* The offset to give out next, lowest returned one first; -1: none. Doesn't move. */
int64_t om_cursor_peek(const om_cursor *cursor);
/* Give out one offset of that many bytes: `next`, or any returned one. */
int om_cursor_acquire(om_cursor *cursor, int64_t offset, int64_t bytes);
/* Recovery: an offset past `next` was given out, so all below it had been, or were never there. As
 * nobody knows which, they count as in flight. They weigh `bytes` together, or what their like weigh
 * on average when that is below 0. Returns how many. */
int64_t om_cursor_pass(om_cursor *cursor, int64_t offset, int64_t bytes);
/* How often acquired, how often delivered without success (counted returns)? Returns 1 if it was given
 * out before (asked ahead of om_cursor_acquire: redelivered), 0 if not; 0/0 once settled. */
int om_cursor_counts(const om_cursor *cursor, int64_t offset, int32_t *acquired, int32_t *delivered);
/* Back to its place; `counted`: the return counts against the delivery limit. */
int om_cursor_return(om_cursor *cursor, int64_t offset, int64_t bytes, int counted);
/* Take a settle back: offsets in [first, last] that are settled are ready again, as returned ones.
 * Only for what was settled a moment ago: a gap would come to life too. Returns how many. */
int64_t om_cursor_unsettle(om_cursor *cursor, int64_t first, int64_t last);
/* Settle all that is ready below `before`, leave what is in flight (queue.purge). Returns how
 * many. */
int64_t om_cursor_purge(om_cursor *cursor, int64_t before);

/* For a cursor that is embedded in something else. Start is an offset: 0 .. OM_OFFSET_MAX. */
void om_cursor_init(om_cursor *cursor, int64_t start);
#endif
