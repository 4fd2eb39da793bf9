/* store.c -- a store that is open: its tick, the table of its logs, what it answers. */
#include "store/store.h"

#include "base/clock.h"
#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_cursor.h"
#include "store/log_list.h"
#include "store/trouble.h"
#include "store/undo.h"
#include "store/writer.h"
#include "wal/wal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the tick ---- */

void om_store_enter(om_store *store) {
    om_ticket_lock_take(&store->lock);
}

/* Leases that have become durable let their offsets be seen. The list is in sequence order
 * but for renewals, which only make a log wait a little longer. */
static void settle_leases(om_store *store) {
    uint64_t durable = om_wal_durable_seq(store->wal);
    while (store->leases.head && store->leases.head->lease_seq <= durable) {
        om_log *log = om_list_pop(&store->leases, OM_LINK(next_lease));
        log->leased = 0;
        log->lease_durable = log->lease_end;
    }
}

uint64_t om_store_end_tick(om_store *store) {
    om_log *log;
    while ((log = om_list_pop(&store->staged, OM_LINK(next_staged)))) {
        log->staged = 0;
        om_log_seal(log);
        om_log_log_ops(log);
    }
    uint64_t seq = 0;
    if (store->wal) {
        seq = om_wal_last_seq(store->wal);
        om_wal_submit(store->wal, !store->urgent);
        store->urgent = 0;
        settle_leases(store);
        if (store->undos.first)
            om_undo_forget(store, om_wal_durable_seq(store->wal));
    }
    return seq;
}

void om_store_let_go(om_store *store) {
    int wants = om_writer_wants(store);
    om_ticket_lock_give(&store->lock);
    if (wants)
        om_writer_wake(store);
}

uint64_t om_store_leave(om_store *store) {
    uint64_t seq = om_store_end_tick(store);
    store->refused = 0; /* no publisher was in this one */
    om_store_let_go(store);
    return seq;
}

void om_store_tell(om_store *store) {
    uint64_t one = 1;
    while (write(store->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

int om_store_hot_is_full(om_store *store) {
    int full = store->hot_bytes > store->options.hot_buffer_size;
    store->full_reported |= full;
    return full;
}

/* ---- the table of logs ---- */

static om_log **slot_of(om_store *store, uint64_t id) {
    return &store->table[(id * 0x9E3779B97F4A7C15u >> 32) & (store->table_size - 1)];
}

om_log *om_store_find(om_store *store, uint64_t id) {
    om_log *log = *slot_of(store, id);
    while (log && log->id != id)
        log = log->next_in_table;
    return log;
}

static int grow_table(om_store *store) {
    uint32_t old_size = store->table_size;
    om_log **old = store->table;
    om_log **table = calloc((size_t)old_size * 2, sizeof *table);
    if (!table)
        return OM_E_NO_MEMORY;
    store->table = table;
    store->table_size = old_size * 2;
    for (uint32_t i = 0; i < old_size; i++) {
        for (om_log *log = old[i], *next; log; log = next) {
            next = log->next_in_table;
            om_log **slot = slot_of(store, log->id);
            log->next_in_table = *slot;
            *slot = log;
        }
    }
    free(old);
    return OM_OK;
}

void om_store_forget(om_store *store, om_log *log) {
    om_log **slot = slot_of(store, log->id);
    while (*slot && *slot != log)
        slot = &(*slot)->next_in_table;
    if (!*slot)
        return;
    *slot = log->next_in_table;
    store->log_count--;
}

om_log *om_store_add(om_store *store, uint64_t id, const char *folder, const char *name, int has_files,
                     const om_log_options *options) {
    om_log *log = om_log_new(store, id, folder, name, options);
    if (!log)
        return NULL;
    log->has_files = has_files != 0;
    om_store_enter(store);
    log->unnamed = store->wal && !(options->flags & OM_LOG_SCRATCH);
    int known = om_store_find(store, id) != NULL;
    if (!known && (store->log_count < store->table_size || store->snapshotting || grow_table(store) == OM_OK)) {
        om_log **slot = slot_of(store, id);
        log->next_in_table = *slot;
        *slot = log;
        store->log_count++;
    } else {
        known = 1;
    }
    om_store_leave(store);
    if (known) {
        om_log_release(log);
        om_log_release(log);
        return NULL;
    }
    return log;
}

int64_t om_store_now_ms(om_store *store) {
    return om_clock_ms(&store->clock);
}

/* ---- the outside's questions ---- */

int om_store_event_fd(om_store *store) {
    return store->event_fd;
}

uint64_t om_store_durable_seq(om_store *store) {
    return om_wal_durable_seq(store->wal);
}

int om_store_wait(om_store *store, uint64_t seq, int timeout_ms) {
    return om_wal_wait(store->wal, seq, timeout_ms);
}

int om_store_takes(om_store *store) {
    if (om_store_is_low_on_disk(store) || om_trouble_is_alarm(store))
        return OM_E_NO_SPACE;
    int result = om_wal_admit(store->wal, OM_WAL_APPEND);
    return result == OM_OK && (store->closing || om_store_hot_is_full(store)) ? OM_E_FULL : result;
}

int om_store_admits(om_store *store) {
    om_store_enter(store);
    int result = om_store_takes(store);
    om_store_leave(store);
    return result;
}

int om_store_unfence(om_store *store, char *err, size_t err_len) {
    om_store_enter(store);
    int handled = store->fence_handled;
    om_store_leave(store);
    if (!handled) {
        snprintf(err, err_len, "the WAL isn't fenced");
        return OM_E_INVALID;
    }
    int result = om_wal_unfence(store->wal, err, err_len);
    if (result != OM_OK)
        return result;
    om_store_enter(store);
    store->fence_handled = 0;
    om_store_leave(store);
    /* What was refused has left gaps that only memory can explain: a checkpoint makes them history. */
    om_checkpoint_wake(store);
    return OM_OK;
}

int om_store_checkpoint(om_store *store) {
    return om_checkpoint_run(store, 0);
}

void om_store_progress(om_store *store, om_progress *out) {
    out->done = __atomic_load_n(&store->progress.done, __ATOMIC_RELAXED);
    out->total = __atomic_load_n(&store->progress.total, __ATOMIC_RELAXED);
    out->logs_done = __atomic_load_n(&store->progress.logs_done, __ATOMIC_RELAXED);
    out->logs_total = __atomic_load_n(&store->progress.logs_total, __ATOMIC_RELAXED);
    out->replayed = __atomic_load_n(&store->progress.replayed, __ATOMIC_RELAXED);
}

void om_store_stat_get(om_store *store, om_store_stat *out) {
    om_wal_stat wal;
    om_file_cache_stat files;
    om_wal_stat_get(store->wal, &wal);
    om_file_cache_stat_get(store->files, &files);
    int fence_kept = 0;
    int fenced = om_wal_fenced(store->wal, &fence_kept, NULL, 0);
    om_store_enter(store);
    om_trouble_look(store);
    *out = (om_store_stat){
        .logs = store->log_count,
        .hot_bytes = store->hot_bytes,
        .hot_batches = store->hot_batches,
        .wal_used = om_wal_used(store->wal),
        .wal_groups = wal.groups,
        .wal_bytes = wal.bytes,
        .wal_sync_ns = wal.sync_ns,
        .wal_files = wal.files,
        .checkpoints = store->checkpoint.count,
        .checkpoint_ns = store->checkpoint.ns,
        .segments_rewritten = store->segments_rewritten,
        .open_files = files.open_files,
        .mappings = files.mappings,
        .mapped_bytes = files.mapped_bytes,
        .written_bytes = store->written_bytes,
        .skipped_bytes = store->skipped_bytes,
        .fenced = fenced,
        .fence_kept = fence_kept,
        .no_space = om_store_short_of_space(store),
        .wal_direct_io = wal.direct_io,
        .writer_stuck = store->trouble.writer_since_ns != 0,
        .checkpoint_failing = store->trouble.checkpoint_since_ns != 0,
        .stalled = om_trouble_is_alarm(store),
    };
    om_store_leave(store);
}
