/* undo.c -- what transactions settled, until their records are durable; see undo.h. */
#include "store/undo.h"

#include "cursor/cursor.h"
#include "store/log.h"
#include "store/store.h"

#include <stdlib.h>

static int add(om_log *log, uint64_t seq, int64_t first, int64_t last) {
    om_store *store = log->store;
    om_undo *undo = malloc(sizeof *undo);
    if (!undo)
        return OM_E_NO_MEMORY;
    *undo = (om_undo){.log = log, .seq = seq, .first = first, .last = last};
    om_log_ref(log);
    if (store->undos.last)
        store->undos.last->next = undo;
    else
        store->undos.first = undo;
    store->undos.last = undo;
    return OM_OK;
}

/* What of it isn't settled yet, run by run. */
int om_undo_note(om_log *log, uint64_t seq, const om_cursor_op *settle) {
    om_cursor_stat stat;
    om_cursor_stat_get(log->cursor, &stat);
    int64_t last = settle->last < stat.end ? settle->last : stat.end - 1;
    int result = OM_OK;
    for (int64_t at = settle->first > stat.floor ? settle->first : stat.floor; at <= last && result == OM_OK;) {
        int64_t first = at;
        while (at <= last && !om_cursor_is_settled(log->cursor, at))
            at++;
        if (at > first)
            result = add(log, seq, first, at - 1);
        else
            at++;
    }
    return result;
}

static void pop(om_store *store) {
    om_undo *undo = store->undos.first;
    store->undos.first = undo->next;
    if (!store->undos.first)
        store->undos.last = NULL;
    om_log_release(undo->log);
    free(undo);
}

void om_undo_forget(om_store *store, uint64_t durable) {
    while (store->undos.first && store->undos.first->seq <= durable)
        pop(store);
}

void om_undo_all(om_store *store) {
    while (store->undos.first) {
        om_undo *undo = store->undos.first;
        int64_t first = undo->first > undo->log->start_offset ? undo->first : undo->log->start_offset;
        if (!undo->log->deleted && first <= undo->last)
            om_cursor_unsettle(undo->log->cursor, first, undo->last);
        pop(store);
    }
}
