/* log_delete.c -- deleted logs: out of the table at once, their files once the deletion is durable.
 *
 *   om_log_delete: DELETE record -> with_files -> recorded (removal_record.h) and removed -> listed -> freed
 *
 * The writer's thread removes the files. Not those that it writes at the moment or that a checkpoint works on.
 */
#include "store/log_delete.h"

#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/delivered_mark.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_control.h"
#include "store/log_hot.h"
#include "store/producer.h"
#include "store/removal_record.h"
#include "store/store.h"
#include "store/wal_records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void om_log_delete_add(om_log *log, om_deleted_log *deleted, uint64_t seq) {
    om_log_deletions *deletions = &log->store->deleted_logs;
    log->deleted = 1;
    om_store_forget(log->store, log);
    *deleted = (om_deleted_log){.log = log, .seq = seq, .next = deletions->with_files};
    deletions->with_files = deleted;
}

int om_log_delete(om_log *log, uint64_t *seq) {
    om_deleted_log *deleted = calloc(1, sizeof *deleted);
    if (!deleted)
        return OM_E_NO_MEMORY;
    om_store_enter(log->store);
    int result = log->deleted ? OM_E_DELETED : OM_OK;
    uint64_t record = 0;
    if (result == OM_OK) {
        om_log_seal(log);
        log->op_count = 0;
        record = om_log_put_control(log, OM_REC_DELETE, 0, 0, 1);
        result = record ? OM_OK : OM_E_FENCED;
    }
    if (result == OM_OK) {
        om_log_delete_add(log, deleted, record == UINT64_MAX ? 0 : record);
        deleted = NULL;
    }
    *seq = om_store_leave(log->store);
    free(deleted);
    return result;
}

/* ---- the writer's thread ---- */

static void remove_files(om_log *log) {
    for (uint32_t i = 0; i < log->segment_count; i++)
        if (log->segments[i]->exists)
            om_segment_unlink(log->segments[i]);
    char path[4096];
    static const char *const others[] = {"manifest", "leader-epoch-checkpoint"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/%s", log->folder, others[i]);
        unlink(path);
    }
    if (rmdir(log->folder) != 0 && errno == ENOTEMPTY) {
        om_snapshots_remove(log->folder); /* of an earlier life: no segment knows of them */
        rmdir(log->folder);
    }
}

static int is_listed(const om_log *log) {
    return log->staged || log->queued || log->wants_write_now || log->touched || log->leased || log->writing;
}

static void forget_contents(om_log *log) {
    om_delivered_mark_let_go(log);
    om_log_drop_hot(log, log->hot.count);
    for (uint32_t i = 0; i < log->segment_count; i++)
        om_segment_unref(log->segments[i]);
    log->segment_count = 0;
}

/* Off that list: those that may be dealt with now. */
static om_deleted_log *take_some(om_deleted_log **link, int (*may)(const om_deleted_log *, uint64_t),
                                 uint64_t durable) {
    om_deleted_log *taken = NULL;
    while (*link) {
        om_deleted_log *deleted = *link;
        if (!may(deleted, durable)) {
            link = &deleted->next;
            continue;
        }
        *link = deleted->next;
        deleted->next = taken;
        taken = deleted;
    }
    return taken;
}

static int may_lose_files(const om_deleted_log *deleted, uint64_t durable) {
    return deleted->seq <= durable && !deleted->log->writing && !deleted->log->syncing;
}

static int may_be_forgotten(const om_deleted_log *deleted, uint64_t durable) {
    (void)durable;
    return !is_listed(deleted->log);
}

static void remove_deleted(om_store *store, uint64_t durable) {
    om_ticket_lock_take(&store->lock);
    om_deleted_log *some = take_some(&store->deleted_logs.with_files, may_lose_files, durable);
    om_ticket_lock_give(&store->lock);
    int recorded = om_removal_record_deleted(store, some) == OM_OK;
    while (some) {
        om_deleted_log *deleted = some;
        some = deleted->next;
        if (recorded)
            remove_files(deleted->log);
        om_ticket_lock_take(&store->lock);
        if (recorded)
            forget_contents(deleted->log);
        om_deleted_log **list = recorded ? &store->deleted_logs.listed : &store->deleted_logs.with_files;
        deleted->next = *list;
        *list = deleted;
        om_ticket_lock_give(&store->lock);
    }
}

void om_log_delete_some(om_store *store, uint64_t durable) {
    remove_deleted(store, durable);
    om_ticket_lock_take(&store->lock);
    om_deleted_log *done = take_some(&store->deleted_logs.listed, may_be_forgotten, 0);
    om_ticket_lock_give(&store->lock);
    while (done) {
        om_deleted_log *deleted = done;
        done = deleted->next;
        om_log_release(deleted->log);
        free(deleted);
    }
}
