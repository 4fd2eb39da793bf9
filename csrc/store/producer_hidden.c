/* producer_hidden.c -- records of open or aborted transactions, hidden from a queue's consumers.
 *
 * A queue's count of ready messages is its cursor's, which counts offsets. So the records of each open
 * transaction are remembered, as a set of offsets, and taken off it until they are committed. When the
 * transaction is aborted they are settled at once, not only when a consumer reaches them. That follows from its
 * marker, so recovery does the same when it meets one; the sets themselves lie in the checkpoint.
 *
 * Without memory for a set its records count as ready too early: a number is wrong, no message is.
 */
#include "store/producer.h"

#include "cursor/cursor.h"
#include "cursor/offset_set.h"
#include "store/log.h"
#include "store/log_cursor.h"

void om_hidden_add(om_log *log, om_producer *producer, int64_t first, int64_t last) {
    if (!log->cursor)
        return;
    int64_t known = om_offset_set_count(&producer->hidden, first, last);
    if (om_offset_set_add(&producer->hidden, first, last) == OM_OK)
        log->producers->hidden += last - first + 1 - known;
}

void om_hidden_settle(om_log *log, om_producer *producer) {
    int64_t first, last, from = 0;
    while (log->cursor && om_offset_set_next_run(&producer->hidden, from, &first, &last)) {
        if (log->recovery)
            om_cursor_skip(log->cursor, first, last);
        else
            om_log_settle_run(log, first, last, -1);
        from = last + 1;
    }
}

void om_hidden_forget(om_producers *producers, om_producer *producer) {
    producers->hidden -= om_offset_set_count(&producer->hidden, 0, OM_OFFSET_MAX);
    om_offset_set_clear(&producer->hidden);
}

static void remove_settled(const om_cursor *cursor, om_offset_set *hidden) {
    int64_t first, last, from = cursor->floor;
    if (cursor->floor > 0)
        (void)om_offset_set_remove(hidden, 0, cursor->floor - 1);
    while (!om_offset_set_is_empty(hidden) && om_offset_set_next_run(&cursor->settled, from, &first, &last)) {
        (void)om_offset_set_remove(hidden, first, last);
        from = last + 1;
    }
    if (cursor->end <= OM_OFFSET_MAX)
        (void)om_offset_set_remove(hidden, cursor->end, OM_OFFSET_MAX);
}

void om_hidden_prune(om_log *log) {
    om_producers *producers = log->producers;
    if (!producers || !log->cursor)
        return;
    producers->hidden = 0;
    for (om_producer *producer = producers->oldest; producer; producer = producer->newer) {
        remove_settled(log->cursor, &producer->hidden);
        producers->hidden += om_offset_set_count(&producer->hidden, 0, OM_OFFSET_MAX);
    }
}
