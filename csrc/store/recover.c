/* recover.c -- the start: every log from its checkpoint and segments, then the WAL over it.
 *
 * A logged batch is in its segment, or in the WAL, or settled for good (then neither may have it).
 * Replay appends what comes after a log's end. A batch that is missing *before* the end means
 * that the machine lost pages the kernel had not written yet: unless the cursor says that it
 * was settled, the log is cut there and made again from the WAL in a second pass. Records that
 * were in no WAL and vanished leave a gap; gaps count as settled.
 */
#define _GNU_SOURCE
#include "store/recover.h"

#include "cursor/cursor.h"
#include "cursor/offset_set.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/checkpoint_file.h"
#include "store/delivered_mark.h"
#include "store/log.h"
#include "store/log_control.h"
#include "store/log_count.h"
#include "store/log_list.h"
#include "store/producer.h"
#include "store/removal_record.h"
#include "store/store.h"
#include "store/store_report.h"
#include "wal/wal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- loading, side by side ---- */

static void *load_some(void *arg) {
    om_recovery *recovery = arg;
    size_t i;
    while ((i = __atomic_fetch_add(&recovery->next, 1, __ATOMIC_RELAXED)) < recovery->count) {
        int result = om_store_called_off(recovery->store) ? OM_E_INTERRUPTED
                                                          : om_log_recovery_load(recovery->store, &recovery->logs[i]);
        if (result != OM_OK)
            __atomic_store_n(&recovery->result, result, __ATOMIC_RELAXED);
        __atomic_add_fetch(&recovery->store->progress.logs_done, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static int load_all(om_recovery *recovery) {
    enum { MOST = 16 };
    pthread_t threads[MOST];
    long wanted = recovery->store->options.recovery_threads;
    if (!wanted)
        wanted = sysconf(_SC_NPROCESSORS_ONLN);
    long helpers = 0;
    while (helpers < wanted - 1 && helpers < MOST && (size_t)helpers + 1 < recovery->count &&
           pthread_create(&threads[helpers], NULL, load_some, recovery) == 0)
        helpers++;
    load_some(recovery);
    for (long i = 0; i < helpers; i++)
        pthread_join(threads[i], NULL);
    return recovery->result;
}

/* ---- holes ---- */

static int is_settled(const om_log *log, int64_t first, int64_t last) {
    const om_cursor *cursor = log->cursor;
    if (!cursor || (log->options.flags & OM_LOG_KEEP_SETTLED))
        return 0;
    if (first < cursor->floor)
        first = cursor->floor;
    return (cursor->settled.len ? om_offset_set_next_gap(&cursor->settled, first) : first) > last;
}

static int64_t first_hole(const om_recovery *recovery, const om_log_recovery *found) {
    int64_t hole = INT64_MAX;
    for (uint32_t i = 0; i < found->missing.count; i++) {
        int64_t first = found->missing.items[i].first;
        if (first < hole && !is_settled(found->log, first, found->missing.items[i].last))
            hole = first;
    }
    /* Nobody vouches for what stands behind such a gap, so it is not at its place. It was never
     * logged: where the WAL is whole, it would have it. */
    for (uint32_t i = 0; i < found->doubt_count && !recovery->has_hole; i++) {
        int64_t gap = found->doubts[i].gap;
        if (gap < hole && !is_settled(found->log, gap, found->doubts[i].base - 1))
            hole = gap;
    }
    return hole;
}

/* What stood at a spoilt place has taken the cursor's end there; no offset past all leases was shown. */
static void bring_back_end(const om_log_recovery *found, int64_t hole) {
    const om_log *log = found->log;
    int64_t end = hole > found->saved_next ? hole : found->saved_next;
    end = log->lease_end > end ? log->lease_end : end;
    end = found->saved_end > end ? found->saved_end : end;
    if (end < log->cursor->end) {
        om_cursor_settle(log->cursor, end, log->cursor->end - 1, 0);
        om_cursor_truncate(log->cursor, end);
    }
}

/* Cut the log at the hole; its cursor and producers keep what they know. */
static int cut_at_hole(om_store *store, om_log_recovery *found, int64_t hole) {
    om_log *log = found->log;
    om_cursor *cursor = log->cursor;
    om_producers *producers = log->producers;
    log->cursor = NULL;
    log->producers = NULL;
    om_log_cut(log, hole, log->leader_epoch);
    log->cursor = cursor;
    log->producers = producers;
    int removed = om_replay_remove_cut(store, OM_RULE_REBUILT);
    if (removed != OM_OK)
        return removed;
    om_ranges_cut(&found->present, hole);
    om_seen_cut(&found->seen, hole, 1);
    found->missing.count = 0;
    found->rebuild_from = hole;
    if (cursor && found->doubt_count)
        bring_back_end(found, hole);
    om_segment *last = log->segment_count ? log->segments[log->segment_count - 1] : NULL;
    return last && last->exists ? om_segment_trim_file(last, last->size) : OM_OK;
}

static int mend_holes(om_recovery *recovery, om_wal_tail *tail, char *err, size_t err_len) {
    int any = 0;
    for (size_t i = 0; i < recovery->count; i++) {
        om_log_recovery *found = &recovery->logs[i];
        int64_t hole = found->log->deleted ? INT64_MAX : first_hole(recovery, found);
        if (hole == INT64_MAX)
            continue;
        any = 1;
        int result = cut_at_hole(recovery->store, found, hole);
        if (result != OM_OK) {
            snprintf(err, err_len, "can't cut %s: %s", found->log->folder, om_result_text(result));
            return result;
        }
    }
    recovery->pass = 2;
    return any ? om_replay(recovery, tail, err, err_len) : OM_OK;
}

/* ---- the end of it ---- */

static void report_damage(om_store *store, om_log_recovery *found) {
    om_log *log = found->log;
    for (om_damage *damage = found->damages; damage; damage = damage->next) {
        int64_t first = damage->first > log->start_offset ? damage->first : log->start_offset;
        if (damage->last < first)
            continue;
        char aside[512] = "";
        int opened;
        om_segment *segment =
            damage->segment_base < 0 ? NULL : om_segment_open(store->files, log->folder, damage->segment_base, &opened);
        om_removal_record_one(log, segment, segment ? OM_RULE_SET_ASIDE : OM_RULE_MISSING, first, damage->last + 1, 0);
        if (segment) {
            om_segment_set_aside(segment, aside, sizeof aside);
            om_segment_unref(segment);
        }
        om_store_add_report(store, OM_REPORT_CORRUPT, log, first, damage->last,
                            "records %lld to %lld of '%.64s' are lost: segment %s%s%.100s", (long long)first,
                            (long long)damage->last, log->name, damage->why, *aside ? ", set aside as " : "", aside);
        log->manifest_stale = 1;
        /* The next checkpoint names a segment that is there: a loss is told once. */
        if (damage->first <= log->recovery_base && log->recovery_base <= damage->last) {
            log->recovery_base = -1;
            log->recovery_position = 0;
        }
        if (log->cursor)
            om_cursor_skip(log->cursor, first, damage->last);
    }
}

/* What isn't there weighs nothing, unless the checkpoint's cursor knew and had weighed it. */
static void skip_gap(om_log_recovery *found, int64_t first, int64_t last) {
    om_cursor *cursor = found->log->cursor;
    if (last >= found->saved_end) {
        int64_t unknown = first > found->saved_end ? first : found->saved_end;
        om_cursor_settle(cursor, unknown, last, 0);
        last = unknown - 1;
    }
    if (first <= last)
        om_cursor_skip(cursor, first, last);
}

/* Of the records past the recovery point, those that aren't there count as settled. */
static void skip_gaps(om_log_recovery *found) {
    om_log *log = found->log;
    int64_t at = log->recovery_point;
    for (uint32_t i = 0; i < found->present.count; i++) {
        if (found->present.items[i].first > at)
            skip_gap(found, at, found->present.items[i].first - 1);
        if (found->present.items[i].last >= at)
            at = found->present.items[i].last + 1;
    }
    if (log->cursor->end > at)
        skip_gap(found, at, log->cursor->end - 1);
}

static void finish(om_store *store, om_log_recovery *found) {
    om_log *log = found->log;
    int64_t end = log->next_offset, next = end;
    report_damage(store, found);
    if (log->cursor) {
        skip_gaps(found);
        next = log->cursor->end > next ? log->cursor->end : next;
    }
    log->gap_start = log->cursor ? next : om_log_record_end(log);
    next = log->lease_end > next ? log->lease_end : next;
    next = found->saved_next > next ? found->saved_next : next;
    if (next > end && next > found->saved_next) {
        /* An unclean stop: a client that saw offsets we don't know of must not meet them again. */
        log->leader_epoch++;
    }
    log->gap_end = next > log->gap_start ? next : 0;
    if (!log->cursor && log->gap_end)
        om_removal_note_range(log, OM_RULE_SKIPPED, log->gap_start, log->gap_end);
    if (next > end) {
        log->next_offset = next;
        if (log->cursor)
            om_cursor_skip(log->cursor, end, next - 1);
    }
    /* A tail that was never synced may reach past the lease. Before anybody is shown that it does,
     * the offsets must be leased, or a power loss would let them be given again. */
    log->lease_durable = om_log_uses_wal(log) && log->lease_end < next ? log->lease_end : next;
    log->lease_end = log->lease_from = next;
    if (log->lease_durable < next) {
        log->leased = 1;
        log->lease_seq = UINT64_MAX; /* it has none yet */
        om_list_push(&store->leases, log, OM_LINK(next_lease));
    }
    om_log_start_at(log, found->trim_to);
    om_producers_trim(log, log->start_offset);
    om_log_note_missing(log);
    if (log->cursor) {
        om_delivered_mark_recall(log);
        om_cursor_return_all(log->cursor, 0);
    }
    if (end > log->recovery_point || log->manifest_stale || found->damages)
        om_log_touch(log);
}

static void log_recovery_free(om_log_recovery *found) {
    while (found->damages) {
        om_damage *damage = found->damages;
        found->damages = damage->next;
        free(damage);
    }
    free(found->present.items);
    free(found->control.items);
    free(found->seen.items);
    free(found->missing.items);
    free(found->cuts);
    free(found->doubts);
}

static int note_logs(om_store *store, om_recovery *recovery) {
    recovery->logs = calloc(store->log_count ? store->log_count : 1, sizeof *recovery->logs);
    if (!recovery->logs)
        return OM_E_NO_MEMORY;
    for (uint32_t slot = 0; slot < store->table_size; slot++) {
        for (om_log *log = store->table[slot]; log; log = log->next_in_table) {
            log->recovery = &recovery->logs[recovery->count++];
            log->recovery->log = log;
            om_log_ref(log);
        }
    }
    store->progress.logs_total = recovery->count;
    return OM_OK;
}

int om_recover(om_store *store, om_wal_tail *tail, char *err, size_t err_len) {
    om_recovery recovery = {.store = store, .pass = 1};
    int result = note_logs(store, &recovery);
    if (result == OM_OK)
        result = om_saved_note_unknown(store);
    if (result == OM_OK)
        result = load_all(&recovery);
    if (result < 0)
        snprintf(err, err_len, "can't load the logs: %s", om_result_text(result));
    if (result == OM_OK)
        result = om_replay(&recovery, tail, err, err_len);
    if (result == OM_OK)
        result = mend_holes(&recovery, tail, err, err_len);
    for (size_t i = 0; i < recovery.count && result == OM_OK; i++)
        if (!recovery.logs[i].log->deleted)
            result = om_producers_replay(recovery.logs[i].log, &recovery.logs[i].seen);
    for (size_t i = 0; i < recovery.count; i++) {
        if (result == OM_OK && !recovery.logs[i].log->deleted)
            finish(store, &recovery.logs[i]);
        recovery.logs[i].log->recovery = NULL;
        log_recovery_free(&recovery.logs[i]);
        om_log_release(recovery.logs[i].log);
    }
    free(recovery.logs);
    om_saved_free(store);
    return result;
}
