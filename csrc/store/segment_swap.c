/* segment_swap.c -- sealed segments' files give way to a smaller one that means the same: compaction.
 *
 * One segment:
 *
 *   <base>.log.rewrite   written by the caller   -> synced -> the manifest no longer names <base>
 *                                                 -> renamed to .log
 *
 * Several that follow each other, up to the offset `next`:
 *
 *   .log.rewrite -> .log.merged-<next>   its name is synced: a whole file
 *                   .log.merge-<next>    an empty one, its name is synced: from here on a start finishes it
 *                -> .log                 over the first one's name; readers go there at once
 *                   the others' files go, then the empty one
 *
 * Promise: a crash at any line leaves, after the start that follows, either the old files or the new one, whole.
 * The manifest has a sealed segment's size, and two files can't be changed at once: so its lines go first, and
 * a segment without one is read whole at the next start, whichever file it is. The next checkpoint names it again.
 *
 * Only segments before the one with the recovery point: all in those is synced, no WAL record will
 * ever be applied to them, and no checkpoint refers to them.
 */
#define _GNU_SOURCE
#include "store/segment_swap.h"

#include "base/blob.h"
#include "base/file_util.h"
#include "base/ticket_lock.h"
#include "segment/file_cache.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/log.h"
#include "store/manifest.h"
#include "store/removal_record.h"
#include "store/store.h"
#include "store/writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Segments that follow each other; held. */
typedef struct group {
    om_segment **items;
    uint32_t count;
} group;

static void let_go(group *group) {
    for (uint32_t i = 0; i < group->count; i++)
        om_segment_unref(group->items[i]);
    free(group->items);
    *group = (struct group){0};
}

/* Under the lock: those from base_offset up to next, or the first one alone (-1). None: not such that can be
 * replaced, or no memory. */
static void find(om_log *log, int64_t base_offset, int64_t next, group *out) {
    *out = (group){0};
    uint32_t at = 0, end;
    while (at < log->segment_count && log->segments[at]->base_offset != base_offset)
        at++;
    for (end = at; end < log->segment_count && !log->deleted; end++) {
        const om_segment *segment = log->segments[end];
        if (!segment->sealed || segment->base_offset >= log->recovery_base || om_segment_is(&segment->fenced) ||
            om_segment_is_damaged(segment))
            return;
        if (next < 0 || segment->next_offset >= next)
            break;
    }
    if (end >= log->segment_count || log->deleted || (next >= 0 && log->segments[end]->next_offset != next))
        return;
    out->items = malloc((end - at + 1) * sizeof *out->items);
    for (; out->items && at <= end; at++) {
        om_segment_ref(log->segments[at]);
        out->items[out->count++] = log->segments[at];
    }
}

int om_log_rewrite_begin(om_log *log, int64_t base_offset, int *fd) {
    group group;
    om_ticket_lock_take(&log->store->lock);
    find(log, base_offset, -1, &group);
    om_ticket_lock_give(&log->store->lock);
    int result = group.count ? om_segment_rewrite_begin(group.items[0], 0, fd) : OM_E_GONE;
    let_go(&group);
    return result;
}

static int path_of(const om_log *log, int64_t base_offset, const char *suffix, char *path, size_t cap) {
    int len = snprintf(path, cap, "%s/%020lld%s", log->folder, (long long)base_offset, suffix);
    return len > 0 && (size_t)len < cap ? OM_OK : OM_E_LIMIT;
}

static void remove_file(const om_log *log, int64_t base_offset, const char *suffix) {
    char path[OM_PATH_MAX];
    if (path_of(log, base_offset, suffix, path, sizeof path) == OM_OK)
        unlink(path);
}

void om_log_rewrite_abort(om_log *log, int64_t base_offset, int fd) {
    close(fd);
    remove_file(log, base_offset, ".log.rewrite");
}

/* What the last checkpoint covered, without those that are about to change. */
static int forget_in_manifest(om_log *log, int64_t from, int64_t to) {
    om_blob text = {0};
    om_ticket_lock_take(&log->store->lock);
    int result = om_manifest_text_but(log, log->recovery_base, from, to, &text);
    log->manifest_stale = 1;
    om_ticket_lock_give(&log->store->lock);
    if (result == OM_OK)
        result = om_file_write_tmp(log->folder, "manifest", text.data, text.len, 1);
    if (result == OM_OK)
        result = om_file_commit_tmp(log->folder, "manifest", 1);
    free(text.data);
    return result;
}

/* ---- several become one ---- */

#define MERGED ".log.merged-"
#define MERGE ".log.merge-"
#define SUFFIX_MAX 40

static void suffix_of(const char *kind, int64_t next, char *suffix) {
    snprintf(suffix, SUFFIX_MAX, "%s%020lld", kind, (long long)next);
}

static int rename_to(const om_log *log, int64_t base, const char *from, const char *to) {
    char before[OM_PATH_MAX], after[OM_PATH_MAX];
    int result = path_of(log, base, from, before, sizeof before);
    if (result == OM_OK)
        result = path_of(log, base, to, after, sizeof after);
    if (result != OM_OK)
        return result;
    return rename(before, after) == 0 ? OM_OK : om_errno_result();
}

static int make_empty(const om_log *log, int64_t base, const char *suffix) {
    char path[OM_PATH_MAX];
    int result = path_of(log, base, suffix, path, sizeof path);
    if (result != OM_OK)
        return result;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    return fd < 0 || close(fd) != 0 ? om_errno_result() : OM_OK;
}

static void call_off_merge(const om_log *log, int64_t base, int64_t next) {
    char suffix[SUFFIX_MAX];
    suffix_of(MERGE, next, suffix);
    remove_file(log, base, suffix);
    om_fsync_folder(log->folder); /* before the file that it speaks of */
    suffix_of(MERGED, next, suffix);
    remove_file(log, base, suffix);
}

/* From OM_OK on a start would finish it. */
static int announce_merge(const om_log *log, int64_t base, int64_t next) {
    char merged[SUFFIX_MAX], merge[SUFFIX_MAX];
    suffix_of(MERGED, next, merged);
    suffix_of(MERGE, next, merge);
    int result = rename_to(log, base, ".log.rewrite", merged);
    if (result == OM_OK)
        result = om_fsync_folder(log->folder);
    if (result == OM_OK)
        result = make_empty(log, base, merge);
    if (result == OM_OK)
        result = om_fsync_folder(log->folder);
    if (result != OM_OK)
        call_off_merge(log, base, next);
    return result;
}

/* For Kafka's tools: the aborted transactions of a segment that goes are the merged one's now. Not synced, as
 * these files never are. */
static void hand_over_txnindex(const om_segment *from, const om_segment *to) {
    char path[OM_PATH_MAX];
    uint8_t entries[4096];
    int source = om_segment_path(from, ".txnindex", path, sizeof path) == OM_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (source < 0)
        return;
    int target = om_segment_path(to, ".txnindex", path, sizeof path) == OM_OK
                     ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640)
                     : -1;
    for (ssize_t got; target >= 0 && (got = read(source, entries, sizeof entries)) > 0;)
        if (write(target, entries, (size_t)got) != got)
            break;
    if (target >= 0)
        close(target);
    close(source);
}

/* The new file has the first one's name: the others go. */
static int finish_merge(om_log *log, const group *old, om_segment *fresh) {
    char suffix[SUFFIX_MAX];
    int result = om_fsync_folder(log->folder);
    for (uint32_t i = 1; i < old->count && result == OM_OK; i++) {
        hand_over_txnindex(old->items[i], fresh);
        result = om_segment_unlink(old->items[i]);
    }
    if (result == OM_OK)
        result = om_fsync_folder(log->folder);
    if (result != OM_OK)
        return result; /* the next start goes on with it */
    suffix_of(MERGE, fresh->next_offset, suffix);
    remove_file(log, fresh->base_offset, suffix);
    return om_fsync_folder(log->folder);
}

/* ---- what a crash left of that: before anything else is looked at ---- */

/* 00000000000000000100.log.merge-00000000000000000200 */
static int parse(const char *name, int64_t *base, int64_t *next) {
    char *end;
    *base = strtoll(name, &end, 10);
    if (end - name != 20 || strncmp(end, MERGE, strlen(MERGE)) != 0)
        return 0;
    const char *digits = end + strlen(MERGE);
    *next = strtoll(digits, &end, 10);
    return end - digits == 20 && !*end && *base >= 0 && *next > *base;
}

/* All files that are named after an offset between them. */
static int remove_between(const char *folder, int64_t base, int64_t next) {
    static const char *const suffixes[] = {".log", ".index", ".timeindex", ".txnindex", ".log.damaged"};
    DIR *dir = opendir(folder);
    if (!dir)
        return om_errno_result();
    int result = OM_OK;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *end;
        long long named = strtoll(entry->d_name, &end, 10);
        int goes = 0;
        for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
            goes |= strcmp(end, suffixes[i]) == 0;
        if (end - entry->d_name == 20 && named > base && named < next && goes &&
            unlinkat(dirfd(dir), entry->d_name, 0) < 0)
            result = om_errno_result();
    }
    closedir(dir);
    return result;
}

static int go_on_with(const om_log *log, int64_t base, int64_t next) {
    char suffix[SUFFIX_MAX];
    suffix_of(MERGED, next, suffix);
    int result = rename_to(log, base, suffix, ".log");
    if (result == OM_OK) {
        remove_file(log, base, ".index");
        remove_file(log, base, ".timeindex");
    } else if (errno == ENOENT) {
        result = OM_OK; /* that was done */
    }
    if (result == OM_OK)
        result = om_fsync_folder(log->folder);
    if (result == OM_OK)
        result = remove_between(log->folder, base, next);
    if (result == OM_OK)
        result = om_fsync_folder(log->folder);
    if (result != OM_OK)
        return result;
    suffix_of(MERGE, next, suffix);
    remove_file(log, base, suffix);
    return om_fsync_folder(log->folder);
}

int om_log_finish_merges(const om_log *log) {
    DIR *dir = opendir(log->folder);
    if (!dir)
        return errno == ENOENT ? OM_OK : OM_E_IO;
    int result = OM_OK;
    int64_t base, next;
    for (struct dirent *entry; result == OM_OK && (entry = readdir(dir));)
        if (parse(entry->d_name, &base, &next))
            result = go_on_with(log, base, next);
    closedir(dir);
    return result;
}

/* ---- the swap ---- */

/* The first one's name goes over to the new file. A reader that opens the old segment's from here on must find that
 * out. */
static om_segment *take_name(om_log *log, const group *group, const om_rewritten *rewritten, int *result) {
    char suffix[SUFFIX_MAX] = ".log.rewrite";
    om_segment *old = group->items[0];
    if (group->count > 1)
        suffix_of(MERGED, rewritten->next_offset, suffix);
    __atomic_store_n(&old->deleted, 1, __ATOMIC_RELEASE);
    *result = rename_to(log, old->base_offset, suffix, ".log");
    if (*result != OM_OK) {
        __atomic_store_n(&old->deleted, 0, __ATOMIC_RELEASE);
        return NULL;
    }
    remove_file(log, old->base_offset, ".index");
    remove_file(log, old->base_offset, ".timeindex");
    om_segment *fresh = om_segment_open(log->store->files, log->folder, old->base_offset, result);
    if (!fresh) { /* no memory: what is under the names now is read at the next start */
        for (uint32_t i = 0; i < group->count; i++)
            om_segment_fence(group->items[i]);
        return NULL;
    }
    om_segment_trust(fresh, rewritten->next_offset, rewritten->size, rewritten->first_timestamp,
                     rewritten->max_timestamp);
    om_segment_seal(fresh);
    fresh->snapshot = old->snapshot;
    return fresh;
}

static int is_in(const group *group, const om_segment *segment) {
    for (uint32_t i = 0; i < group->count; i++)
        if (group->items[i] == segment)
            return 1;
    return 0;
}

/* Under the lock. 0: all of them were trimmed meanwhile. */
static int put_in_place(om_log *log, const group *old, om_segment *fresh) {
    uint32_t kept = 0, found = 0;
    for (uint32_t i = 0; i < log->segment_count; i++) {
        om_segment *segment = log->segments[i];
        if (!is_in(old, segment)) {
            log->segments[kept++] = segment;
            continue;
        }
        if (!found++) {
            om_segment_ref(fresh);
            log->segments[kept++] = fresh;
        }
        om_segment_unref(segment);
    }
    log->segment_count = kept;
    /* A trim that took only some along will remove those by their names: the first one's is another file's. */
    if (found && found < old->count)
        __atomic_store_n(&old->items[0]->exists, 0, __ATOMIC_RELEASE);
    return found > 0;
}

/* fresh: NULL when it came to nothing. */
static int swap(om_log *log, const group *old, om_segment *fresh) {
    om_store *store = log->store;
    om_ticket_lock_take(&store->lock);
    int swapped = fresh && put_in_place(log, old, fresh);
    if (!log->deleted)
        om_log_touch(log);
    om_ticket_lock_give(&store->lock);
    return swapped;
}

static int replace(om_log *log, const group *old, const om_rewritten *rewritten) {
    int64_t base = old->items[0]->base_offset, next = rewritten->next_offset;
    int result = om_removal_record_merged(log, old->items, old->count, rewritten->size);
    if (result == OM_OK)
        result = forget_in_manifest(log, base, next);
    if (result == OM_OK && old->count > 1)
        result = announce_merge(log, base, next);
    om_segment *fresh = result == OM_OK ? take_name(log, old, rewritten, &result) : NULL;
    int swapped = swap(log, old, fresh);
    if (!fresh) {
        if (old->count > 1 && !om_segment_is(&old->items[0]->fenced))
            call_off_merge(log, base, next);
        return result;
    }
    result = old->count > 1 ? finish_merge(log, old, fresh) : om_fsync_folder(log->folder);
    if (swapped) {
        om_segment_load_index(fresh); /* made anew, and saved: for tools that look at the files */
    } else {
        om_segment_unlink(fresh); /* trimmed meanwhile */
        result = OM_E_GONE;
    }
    om_segment_unref(fresh);
    return result;
}

int om_log_rewrite_commit(om_log *log, int64_t base_offset, int fd, const om_rewritten *rewritten) {
    om_store *store = log->store;
    if (fsync(fd) != 0) {
        int result = om_errno_result();
        om_log_rewrite_abort(log, base_offset, fd);
        return result;
    }
    group old;
    om_checkpoint_lock(store);
    om_ticket_lock_take(&store->lock);
    find(log, base_offset, rewritten->next_offset, &old);
    if (store->closing)
        let_go(&old);
    if (old.count)
        log->syncing = 1; /* its files stay, deleted or not */
    om_ticket_lock_give(&store->lock);
    int result = old.count ? replace(log, &old, rewritten) : OM_E_GONE;
    if (old.count) {
        om_ticket_lock_take(&store->lock);
        log->syncing = 0;
        int deleted = store->deleted_logs.with_files != NULL;
        om_ticket_lock_give(&store->lock);
        if (deleted)
            om_writer_wake(store);
    }
    om_checkpoint_unlock(store);
    let_go(&old);
    if (result == OM_OK)
        close(fd);
    else
        om_log_rewrite_abort(log, base_offset, fd);
    om_file_cache_reap(store->files);
    return result;
}
