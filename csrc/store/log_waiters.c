/* log_waiters.c -- readers that wait until a log's high watermark moves.
 *
 * A waiting reader hangs on each of its logs. A log that gets a batch while somebody waits is put on the store's
 * list; at the end of a tick the engine takes from it those whose high watermark has moved and wakes their readers.
 * A log with batches that aren't durable yet stays on the list until the disk has news. So an append costs one look
 * at a pointer, and nothing is ever polled.
 */
#include "store/log_waiters.h"

#include "store/log.h"
#include "store/log_list.h"
#include "store/log_offsets.h"
#include "store/store.h"

void om_log_add_waiter(om_log *log, om_log_waiter *waiter) {
    int64_t end = om_log_high_watermark(log);
    if (!log->waiters)
        log->waiters_know = end;
    om_log_ref(log);
    *waiter = (om_log_waiter){.next = log->waiters, .link = &log->waiters, .log = log};
    if (waiter->next)
        waiter->next->link = &waiter->next;
    log->waiters = waiter;
    if (end < log->next_offset)
        om_log_wake_waiters(log);
}

void om_log_remove_waiter(om_log_waiter *waiter) {
    *waiter->link = waiter->next;
    if (waiter->next)
        waiter->next->link = waiter->link;
    waiter->link = NULL;
    om_log_release(waiter->log);
}

void om_log_wake_waiters(om_log *log) {
    if (log->to_wake)
        return;
    log->to_wake = 1;
    om_log_ref(log);
    om_list_push(&log->store->to_wake, log, OM_LINK(next_to_wake));
}

static void leave_list(om_log *log) {
    log->to_wake = 0;
    om_log_release(log);
}

void om_log_wake_due(om_store *store, void (*wake)(om_log_waiter *waiter)) {
    om_list later = {0};
    om_log *log;
    while ((log = om_list_pop(&store->to_wake, OM_LINK(next_to_wake)))) {
        int64_t end = om_log_high_watermark(log);
        for (om_log_waiter *waiter = end != log->waiters_know ? log->waiters : NULL; waiter; waiter = waiter->next)
            wake(waiter);
        log->waiters_know = end;
        if (log->waiters && end < log->next_offset)
            om_list_push(&later, log, OM_LINK(next_to_wake));
        else
            leave_list(log);
    }
    store->to_wake = later;
}

void om_log_forget_to_wake(om_store *store) {
    om_log *log;
    while ((log = om_list_pop(&store->to_wake, OM_LINK(next_to_wake))))
        leave_list(log);
}
