/* log.c -- a log's life, its options, and whether it takes an append; see log.h. */
#include "store/log.h"

#include "base/buffer.h"
#include "format/batch.h"
#include "segment/segment.h"
#include "store/hot.h"
#include "store/log_append.h"
#include "store/log_offsets.h"
#include "store/producer.h"
#include "store/store.h"
#include "wal/wal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static void log_free(om_log *log) {
    om_producers_free(log);
    for (uint32_t i = 0; i < log->hot.count; i++)
        om_buffer_unref(om_hot_at(&log->hot, i)->bytes);
    free(log->hot.slots);
    for (uint32_t i = 0; i < log->segment_count; i++)
        om_segment_unref(log->segments[i]);
    free(log->segments);
    if (log->open) {
        om_build_free(log->open);
        free(log->open);
    }
    if (log->cursor)
        om_cursor_free(log->cursor);
    free(log->ops);
    free(log->name);
    free(log->folder);
    free(log);
}

om_log *om_log_new(om_store *store, uint64_t id, const char *folder, const char *name, const om_log_options *options) {
    om_log *log = calloc(1, sizeof *log);
    if (!log)
        return NULL;
    log->store = store;
    log->id = id;
    log->refs = 2; /* the table's and the caller's */
    log->options = *options;
    log->recovery_base = -1;
    log->name = strdup(name);
    log->folder = malloc(strlen(store->dir) + strlen(folder) + 2);
    if (!(options->flags & OM_LOG_NO_CURSOR))
        log->cursor = om_cursor_new(0);
    if (!log->name || !log->folder || (!log->cursor && !(options->flags & OM_LOG_NO_CURSOR))) {
        log_free(log);
        return NULL;
    }
    sprintf(log->folder, "%s/%s", store->dir, folder);
    return log;
}

void om_log_ref(om_log *log) {
    __atomic_add_fetch(&log->refs, 1, __ATOMIC_RELAXED);
}

om_log *om_log_hold(om_log *log) {
    om_log_ref(log);
    return log;
}

void om_log_release(om_log *log) {
    if (__atomic_sub_fetch(&log->refs, 1, __ATOMIC_ACQ_REL) == 0)
        log_free(log);
}

/* ---- appends ---- */

int om_log_admit(om_log *log, int32_t epoch) {
    om_store *store = log->store;
    if (log->deleted)
        return OM_E_DELETED;
    if (log->frozen || store->closing)
        return OM_E_FULL;
    if (epoch != OM_ANY_EPOCH && epoch < log->leader_epoch)
        return OM_E_STALE_EPOCH;
    if (__atomic_load_n(&store->low_space, __ATOMIC_RELAXED) || __atomic_load_n(&store->no_space, __ATOMIC_RELAXED))
        return OM_E_NO_SPACE;
    if (om_store_hot_is_full(store))
        return OM_E_FULL;
    if (om_log_uses_wal(log)) {
        int admitted = om_wal_admit(store->wal, OM_WAL_APPEND);
        if (admitted != OM_OK)
            return admitted;
    }
    if (epoch > log->leader_epoch)
        om_log_raise_epoch(log, epoch);
    return OM_OK;
}

/* ---- options ---- */

void om_log_set_options(om_log *log, const om_log_options *options) {
    om_store_enter(log->store);
    om_log_seal(log);
    /* What decides where its bytes live can't change under it. */
    uint32_t fixed = OM_LOG_SCRATCH | OM_LOG_NO_CURSOR;
    uint32_t flags = (log->options.flags & fixed) | (options->flags & ~fixed);
    log->options = *options;
    log->options.flags = flags;
    om_store_leave(log->store);
}

void om_log_keep_settled(om_log *log, int keep) {
    om_store_enter(log->store);
    log->options.flags =
        keep ? log->options.flags | OM_LOG_KEEP_SETTLED : log->options.flags & ~(uint32_t)OM_LOG_KEEP_SETTLED;
    om_store_leave(log->store);
}
