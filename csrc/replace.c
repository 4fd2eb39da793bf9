/* replace.c -- a sealed segment's file gives way to a smaller one that means the same: compaction.
 *
 *   <base>.log.rewrite   written by the caller   -> synced -> the manifest no longer names <base>
 *                                                 -> renamed to .log
 *
 * Promise: a crash at any line leaves one of the two files under the name, whole. The manifest tells
 * a sealed segment's size, and two files can't be changed at once: so its line goes first, and a
 * segment without one is read whole at the next start, whichever file it is. The next checkpoint
 * names it again.
 *
 * Only segments before the one with the recovery point: all in those is synced, no WAL record will
 * ever be applied to them, and a checkpoint has no business with them.
 */
#define _GNU_SOURCE
#include "store.h"

#include "files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Under the lock. Held for the caller; NULL: not one that can be replaced. */
static om_segment *find(om_log *log, int64_t base_offset) {
    for (uint32_t i = 0; i < log->segment_count && !log->deleted; i++) {
        om_segment *segment = log->segments[i];
        if (segment->base_offset != base_offset)
            continue;
        if (!segment->sealed || base_offset >= log->recovery_base || om_segment_is(&segment->fenced) ||
            om_segment_is_damaged(segment))
            return NULL;
        om_segment_ref(segment);
        return segment;
    }
    return NULL;
}

int om_log_rewrite_begin(om_log *log, int64_t base_offset, int *fd) {
    om_turn_take(&log->store->turn);
    om_segment *segment = find(log, base_offset);
    om_turn_give(&log->store->turn);
    if (!segment)
        return OM_E_RANGE;
    int result = om_segment_rewrite_begin(segment, 0, fd);
    om_segment_unref(segment);
    return result;
}

static int rewrite_path(const om_log *log, int64_t base_offset, const char *suffix, char *path, size_t cap) {
    int len = snprintf(path, cap, "%s/%020lld%s", log->folder, (long long)base_offset, suffix);
    return len > 0 && (size_t)len < cap ? OM_OK : OM_E_IO;
}

void om_log_rewrite_abort(om_log *log, int64_t base_offset, int fd) {
    char path[OM_PATH_MAX];
    close(fd);
    if (rewrite_path(log, base_offset, ".log.rewrite", path, sizeof path) == OM_OK)
        unlink(path);
}

/* What the last checkpoint covered, without the one that is about to change. */
static int forget_in_manifest(om_log *log, int64_t base_offset) {
    om_blob text = {0};
    om_turn_take(&log->store->turn);
    int result = om_manifest_text_but(log, log->recovery_base, base_offset, &text);
    log->manifest_stale = 1;
    om_turn_give(&log->store->turn);
    if (result == OM_OK)
        result = om_file_write_tmp(log->folder, "manifest", text.data, text.len, 1);
    if (result == OM_OK)
        result = om_file_commit_tmp(log->folder, "manifest", 1);
    free(text.data);
    return result;
}

/* The name goes over to the new file. Whoever opens the old segment's from here on must be told. */
static om_segment *take_name(om_log *log, om_segment *old, const om_rewritten *rewritten, int *result) {
    char path[OM_PATH_MAX], fresh_path[OM_PATH_MAX];
    static const char *const indexes[] = {".index", ".timeindex"};
    *result = rewrite_path(log, old->base_offset, ".log.rewrite", fresh_path, sizeof fresh_path);
    if (*result == OM_OK)
        *result = rewrite_path(log, old->base_offset, ".log", path, sizeof path);
    if (*result != OM_OK)
        return NULL;
    __atomic_store_n(&old->deleted, 1, __ATOMIC_RELEASE);
    if (rename(fresh_path, path) != 0) {
        __atomic_store_n(&old->deleted, 0, __ATOMIC_RELEASE);
        *result = om_errno_result();
        return NULL;
    }
    for (int i = 0; i < 2; i++)
        if (rewrite_path(log, old->base_offset, indexes[i], path, sizeof path) == OM_OK)
            unlink(path);
    om_segment *fresh = om_segment_open(log->store->files, log->folder, old->base_offset, result);
    if (!fresh) { /* no memory: what is under the name now is read at the next start */
        om_segment_fence(old);
        return NULL;
    }
    om_segment_trust(fresh, old->next_offset, rewritten->size, rewritten->first_timestamp, rewritten->max_timestamp);
    om_segment_seal(fresh);
    fresh->snapshot = old->snapshot;
    return fresh;
}

static int swap(om_log *log, om_segment *old, om_segment *fresh) {
    int swapped = 0;
    om_store *store = log->store;
    om_turn_take(&store->turn);
    for (uint32_t i = 0; i < log->segment_count && !swapped; i++) {
        if (log->segments[i] != old)
            continue;
        om_segment_ref(fresh);
        log->segments[i] = fresh;
        om_segment_unref(old);
        swapped = 1;
    }
    if (!log->touched && !log->deleted) {
        log->touched = 1;
        om_list_push(&store->touched, log, OM_LINK(next_touched));
    }
    log->syncing = 0;
    int graves = store->graves != NULL;
    om_turn_give(&store->turn);
    if (graves)
        om_writer_wake(store);
    return swapped;
}

static int replace(om_log *log, om_segment *old, const om_rewritten *rewritten) {
    int result = om_removal_record_one(log, old, OM_RULE_COMPACTION, old->base_offset, old->next_offset, rewritten->size);
    if (result == OM_OK)
        result = forget_in_manifest(log, old->base_offset);
    om_segment *fresh = result == OM_OK ? take_name(log, old, rewritten, &result) : NULL;
    int swapped = swap(log, old, fresh ? fresh : old);
    if (!fresh)
        return result;
    if (swapped) {
        result = om_fsync_folder(log->folder);
        om_segment_load_index(fresh); /* made anew, and saved: for tools that look at the files */
    } else {
        om_segment_unlink(fresh); /* trimmed meanwhile */
        result = OM_E_RANGE;
    }
    om_segment_unref(fresh);
    return result;
}

int om_log_rewrite_commit(om_log *log, int64_t base_offset, int fd, const om_rewritten *rewritten) {
    if (fsync(fd) != 0) {
        int result = om_errno_result();
        om_log_rewrite_abort(log, base_offset, fd);
        return result;
    }
    om_checkpoint_lock(log->store);
    om_turn_take(&log->store->turn);
    om_segment *old = log->store->closing ? NULL : find(log, base_offset);
    if (old)
        log->syncing = 1; /* its files stay, deleted or not */
    om_turn_give(&log->store->turn);
    int result = old ? replace(log, old, rewritten) : OM_E_RANGE;
    om_checkpoint_unlock(log->store);
    if (old)
        om_segment_unref(old);
    if (result == OM_OK)
        close(fd);
    else
        om_log_rewrite_abort(log, base_offset, fd);
    om_files_reap(log->store->files);
    return result;
}
