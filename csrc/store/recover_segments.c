/* recover_segments.c -- one log's files at the start: what the checkpoint vouches for is taken
 * as it is, the tail after it is read batch by batch, and what should be there but isn't is noted.
 *
 *   segments   | sealed, in the manifest | sealed ... | recovery segment        | tail | tail |
 *   trusted    |<-------------------------------------------------->|            recovery point
 *   scanned                                                         |<--------------------->|
 */
#define _GNU_SOURCE
#include "store/recover.h"

#include "base/ticket_lock.h"
#include "cursor/cursor.h"
#include "format/batch.h"
#include "segment/segment.h"
#include "store/checkpoint_file.h"
#include "store/log.h"
#include "store/log_damage.h"
#include "store/log_segments.h"
#include "store/manifest.h"
#include "store/removal_record.h"
#include "store/segment_delete.h"
#include "store/segment_node.h"
#include "store/segment_swap.h"
#include "store/store.h"
#include "store/store_report.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- ranges ---- */

int om_ranges_add(om_ranges *ranges, int64_t first, int64_t last) {
    uint32_t at = ranges->count;
    while (at && ranges->items[at - 1].first > first)
        at--;
    if (at && ranges->items[at - 1].last + 1 >= first) {
        if (ranges->items[at - 1].last < last)
            ranges->items[at - 1].last = last;
        return OM_OK;
    }
    if (ranges->count == ranges->cap) {
        uint32_t cap = ranges->cap ? ranges->cap * 2 : 4;
        void *items = realloc(ranges->items, cap * sizeof *ranges->items);
        if (!items)
            return OM_E_NO_MEMORY;
        ranges->items = items;
        ranges->cap = cap;
    }
    memmove(&ranges->items[at + 1], &ranges->items[at], (ranges->count - at) * sizeof *ranges->items);
    ranges->items[at].first = first;
    ranges->items[at].last = last;
    ranges->count++;
    return OM_OK;
}

int om_ranges_contain(const om_ranges *ranges, int64_t offset) {
    uint32_t low = 0, high = ranges->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (ranges->items[mid].last < offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low < ranges->count && ranges->items[low].first <= offset;
}

void om_ranges_cut(om_ranges *ranges, int64_t from) {
    while (ranges->count && ranges->items[ranges->count - 1].first >= from)
        ranges->count--;
    if (ranges->count && ranges->items[ranges->count - 1].last >= from)
        ranges->items[ranges->count - 1].last = from - 1;
}

/* ---- what is in the folder ---- */

typedef struct listing {
    int64_t *bases;
    size_t count, cap;
} listing;

typedef struct folder {
    listing segments;
    listing damaged; /* an earlier life marked them so */
} folder;

static int by_offset(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static int has_suffix(const char *name, const char *suffix) {
    size_t len = strlen(name), wanted = strlen(suffix);
    return len > wanted && strcmp(name + len - wanted, suffix) == 0;
}

/* A write that a crash cut short under a temporary name. */
static int is_leftover(const char *name) {
    return has_suffix(name, ".tmp") || has_suffix(name, ".rewrite") || strstr(name, ".log.merged-");
}

static int add_base(listing *listing, const char *name, const char *suffix) {
    char *end;
    long long base = strtoll(name, &end, 10);
    if (end - name != 20 || strcmp(end, suffix) != 0 || base < 0)
        return OM_OK;
    if (listing->count == listing->cap) {
        size_t cap = listing->cap ? listing->cap * 2 : 16;
        int64_t *bases = realloc(listing->bases, cap * sizeof *bases);
        if (!bases)
            return OM_E_NO_MEMORY;
        listing->bases = bases;
        listing->cap = cap;
    }
    listing->bases[listing->count++] = base;
    return OM_OK;
}

static void sort(listing *listing) {
    if (listing->count)
        qsort(listing->bases, listing->count, sizeof *listing->bases, by_offset);
}

static int list_folder(const char *path, folder *folder) {
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? OM_OK : OM_E_IO;
    int result = OM_OK;
    struct dirent *entry;
    while (result == OM_OK && (entry = readdir(dir))) {
        if (is_leftover(entry->d_name))
            unlinkat(dirfd(dir), entry->d_name, 0);
        else
            result = add_base(&folder->segments, entry->d_name, ".log");
        if (result == OM_OK)
            result = add_base(&folder->damaged, entry->d_name, ".log.damaged");
    }
    closedir(dir);
    sort(&folder->segments);
    sort(&folder->damaged);
    return result;
}

static int is_listed(const listing *listing, int64_t base) {
    return listing->count && bsearch(&base, listing->bases, listing->count, sizeof base, by_offset) != NULL;
}

/* ---- damage ---- */

#define OM_ASIDE_MAX 4096 /* a path */

static int note_damage(om_log_recovery *found, int64_t first, int64_t last, int64_t base, const char *why) {
    om_damage *damage = malloc(sizeof *damage);
    if (!damage)
        return OM_E_NO_MEMORY;
    *damage = (om_damage){first, last, base, why, found->damages};
    found->damages = damage;
    return OM_OK;
}

/* Of what a checkpoint vouches for, [0, end), a part can't be read: it is told, and the rest serves. OM_END:
 * there is no rest. */
static int survey_trusted(om_log_recovery *found, om_segment *segment, uint64_t end, int64_t limit) {
    om_log *log = found->log;
    om_survey survey;
    int result = om_segment_survey(segment, end, limit, OM_NO_SUSPECT, &survey);
    if (result != OM_OK)
        return result;
    if (!survey.batches) {
        om_survey_free(&survey);
        return OM_END;
    }
    if (segment->max_timestamp < 0)
        om_segment_trust(segment, survey.next_offset, end, survey.first_timestamp, survey.max_timestamp);
    om_log_tell_damage(log, segment, NULL, &survey, OM_REPORT_CORRUPT);
    log->damaged = log->damaged || survey.count;
    om_survey_free(&survey);
    return OM_OK;
}

/* ---- the tail: which records are there ---- */

/* A base offset has no checksum. One that isn't where the batch before ended is right where a life
 * began (its epoch is higher, or the checkpoint knows of it), where the WAL has the same batch, or
 * where what lies between was settled. The last two show when the WAL has been read. */
static int note_doubt(om_log_recovery *found, int64_t gap, int64_t base) {
    void *doubts = realloc(found->doubts, (found->doubt_count + 1) * sizeof *found->doubts);
    if (!doubts)
        return OM_E_NO_MEMORY;
    found->doubts = doubts;
    found->doubts[found->doubt_count].gap = gap;
    found->doubts[found->doubt_count++].base = base;
    return OM_OK;
}

/* Walk the batch headers of [from, end of the segment), for gaps that a scan doesn't find. The first is
 * expected at `end`; the one before was of `epoch`. */
static int note_present(om_log_recovery *found, om_segment *segment, uint64_t from, int64_t end, int32_t epoch,
                        int64_t counted, int64_t *weight) {
    if (from >= segment->size)
        return OM_OK;
    om_view view;
    int result = om_view_open(segment, from, segment->size - from, &view);
    if (result != OM_OK)
        return result;
    size_t at = 0;
    om_batch_info info;
    om_sigbus_begin(&view);
    while (at < view.len && om_batch_peek(view.data + at, view.len - at, &info) == OM_OK &&
           (size_t)info.size <= view.len - at) {
        int64_t last = info.base_offset + info.last_offset_delta;
        if (om_ranges_add(&found->present, info.base_offset, last) != OM_OK ||
            ((info.attributes & OM_ATTR_CONTROL) && om_ranges_add(&found->control, info.base_offset, last) != OM_OK) ||
            om_seen_note(&found->seen, view.data + at, (size_t)info.size, &info, 0) != OM_OK)
            break;
        if (info.base_offset > end && info.base_offset > found->saved_next && info.leader_epoch <= epoch &&
            note_doubt(found, end, info.base_offset) != OM_OK)
            break;
        end = last + 1;
        epoch = info.leader_epoch;
        if (last >= counted)
            *weight += om_batch_weight(view.data + at, (size_t)info.size);
        at += (size_t)info.size;
    }
    int whole = at == view.len;
    result = om_sigbus_end(&view);
    om_view_release(&view);
    return result != OM_OK ? result : whole ? OM_OK : OM_E_CORRUPT;
}

static void count_scanned(om_store *store, uint64_t bytes) {
    __atomic_add_fetch(&store->progress.done, bytes, __ATOMIC_RELAXED);
    __atomic_add_fetch(&store->progress.total, bytes, __ATOMIC_RELAXED);
}

/* A crash leaves a torn end, or sectors of zeros. Something else with whole batches behind it is damage: what
 * was logged comes back from the WAL, what wasn't is in the copy. A disk without room for it is no reason not
 * to start. */
static void keep_copy(const om_segment *segment, const om_scan *scan) {
    char aside[OM_ASIDE_MAX];
    if (om_segment_goes_on(segment, scan->valid_size, scan->next_offset) == 1)
        om_segment_copy_aside(segment, aside, sizeof aside);
}

static int scan_tail(om_store *store, om_log_recovery *found, om_segment *segment, uint64_t from, int64_t first_offset,
                     int64_t counted, int64_t *weight) {
    om_log *log = found->log;
    om_scan scan;
    uint64_t on_disk = segment->size > from ? segment->size : from;
    int32_t epoch = log->leader_epoch;
    int result = om_segment_scan(segment, from, first_offset, epoch, &scan);
    if (result != OM_OK)
        return result;
    if (scan.valid_size < from)
        return OM_E_UNREADABLE; /* what the checkpoint vouches for isn't what it was */
    count_scanned(store, scan.valid_size - from);
    /* An unlogged batch may be all that is left of the life that wrote it. */
    if (scan.last_epoch > log->leader_epoch)
        log->leader_epoch = scan.last_epoch;
    if (scan.stopped != OM_OK) {
        keep_copy(segment, &scan);
        om_store_add_report(store, OM_REPORT_TAIL_CUT, log, scan.next_offset, scan.next_offset,
                            "%s/%020lld.log: %llu bytes after the recovery point cut at %llu (%s)", log->folder,
                            (long long)segment->base_offset, (unsigned long long)(on_disk - scan.valid_size),
                            (unsigned long long)scan.valid_size, om_result_text(scan.stopped));
        result =
            om_removal_record_one(log, segment, OM_RULE_TAIL_CUT, scan.next_offset, scan.next_offset, scan.valid_size);
        if (result == OM_OK)
            result = om_segment_trim_file(segment, scan.valid_size);
        if (result != OM_OK)
            return result;
    }
    /* A segment that is read from its beginning has its first batch's offset in its name. */
    return from ? note_present(found, segment, from, first_offset, epoch, counted, weight)
                : note_present(found, segment, 0, segment->base_offset, INT32_MAX, counted, weight);
}

/* ---- segment by segment ---- */

/* Sealed and below the recovery point: as the manifest says, or read whole when it says nothing. */
static int load_sealed(om_store *store, om_log_recovery *found, om_segment *segment, const om_manifest_entry *entry,
                       int64_t next_base, int marked) {
    uint64_t size = segment->size;
    const char *why = NULL;
    if (entry) {
        om_segment_trust(segment, entry->next_offset, entry->size, entry->first_timestamp, entry->max_timestamp);
        why = size < entry->size ? "cut short" : marked ? "damaged" : NULL;
    } else {
        om_scan scan;
        int result = om_segment_scan(segment, 0, segment->base_offset, 0, &scan);
        if (result != OM_OK || scan.stopped != OM_OK || !scan.valid_size || scan.next_offset > next_base) {
            why = result != OM_OK ? "unreadable" : "damaged";
            om_segment_trust(segment, next_base, size, -1, -1);
        } else {
            count_scanned(store, scan.valid_size);
        }
    }
    if (why) {
        int result = survey_trusted(found, segment, segment->size, segment->next_offset);
        if (result != OM_OK)
            return note_damage(found, segment->base_offset, segment->next_offset - 1, segment->base_offset, why);
    }
    om_segment_seal(segment);
    om_segment_ref(segment);
    return om_log_add_segment(found->log, segment);
}

static void trust_recovery_point(const om_log *log, om_segment *segment) {
    om_segment_trust(segment, log->recovery_point, log->recovery_position, log->recovery_first_timestamp,
                     log->recovery_max_timestamp);
}

static int load_recovery_segment(om_store *store, om_log_recovery *found, om_segment *segment, int64_t counted,
                                 int64_t *weight, int marked) {
    om_log *log = found->log;
    int is_short = segment->size < log->recovery_position, result = OM_E_UNREADABLE;
    trust_recovery_point(log, segment);
    if (!is_short && !marked)
        result = scan_tail(store, found, segment, log->recovery_position, log->recovery_point, counted, weight);
    if (result == OM_E_IO || result == OM_E_UNREADABLE || result == OM_E_CORRUPT) {
        trust_recovery_point(log, segment);
        result = survey_trusted(found, segment, log->recovery_position, log->recovery_point);
        if (result != OM_OK)
            return note_damage(found, segment->base_offset, log->recovery_point - 1, segment->base_offset,
                               is_short ? "cut short" : "unreadable");
        if (!is_short)
            result = scan_tail(store, found, segment, log->recovery_position, log->recovery_point, counted, weight);
        if (result != OM_OK) { /* nothing of the tail can be had: the WAL has it */
            trust_recovery_point(log, segment);
            result = OM_OK;
        }
        om_segment_seal(segment);
    }
    if (result != OM_OK)
        return result;
    om_segment_ref(segment);
    return om_log_add_segment(log, segment);
}

/* The process that created it may have died before its name, and its folders' names, were on disk. */
void om_segment_doubt_name(const om_store *store, const om_log *log, om_segment *segment) {
    int folders = 2; /* its own, and the data folder; between them: */
    for (const char *at = log->folder + strlen(store->dir) + 1; *at; at++)
        folders += *at == '/';
    __atomic_store_n(&segment->unsynced_folders, (uint8_t)folders, __ATOMIC_RELEASE);
}

static int load_tail_segment(om_store *store, om_log_recovery *found, om_segment *segment, int64_t end, int64_t counted,
                             int64_t *weight) {
    int result = scan_tail(store, found, segment, 0, end, counted, weight);
    if (result != OM_OK && result != OM_E_IO && result != OM_E_UNREADABLE)
        return result;
    if (result != OM_OK && segment->size) { /* the WAL has it, or it is in the file that is kept */
        char aside[OM_ASIDE_MAX];
        if (om_removal_record_one(found->log, segment, OM_RULE_SET_ASIDE, end, end, 0) != OM_OK)
            return OM_E_IO;
        return om_segment_set_aside(segment, aside, sizeof aside);
    }
    if (!segment->size) { /* nothing of it is worth keeping: the WAL has it */
        if (segment->size && om_removal_record_one(found->log, segment, OM_RULE_REBUILT, end, end, 0) != OM_OK)
            return OM_E_IO;
        return om_segment_unlink(segment);
    }
    om_segment_doubt_name(store, found->log, segment);
    om_segment_ref(segment);
    return om_log_add_segment(found->log, segment);
}

static int64_t end_of(const om_log *log) {
    int64_t end = log->segment_count ? log->segments[log->segment_count - 1]->next_offset : 0;
    return end > log->recovery_point ? end : log->recovery_point;
}

/* All but the last take no more batches; the last goes on if it may. */
static void seal_all_but_last(om_log *log) {
    for (uint32_t i = 0; i + 1 < log->segment_count; i++)
        if (!log->segments[i]->sealed)
            om_segment_seal(log->segments[i]);
}

/* Trimmed: the crash came before the removal. It goes with the first checkpoint, like any other. */
static int doom_trimmed(om_log_recovery *found, om_segment *segment, int64_t next_base, int marked) {
    om_store *store = found->log->store;
    om_survey survey;
    if (marked && om_segment_survey(segment, segment->size, INT64_MAX, OM_NO_SUSPECT, &survey) == OM_OK)
        om_survey_free(&survey); /* the survey's result is noted for removal */
    om_segment_ref(segment);
    om_segment_node *node = om_segment_node_new(found->log, segment);
    if (!node) {
        om_segment_unref(segment);
        return OM_E_NO_MEMORY;
    }
    om_segment_trust(segment, next_base < found->first_segment ? next_base : found->first_segment, segment->size, -1,
                     -1);
    node->rule = found->log->trim_rule;
    om_ticket_lock_take(&store->lock);
    om_segment_delete_add(store, node);
    om_ticket_lock_give(&store->lock);
    return OM_OK;
}

static int load_segments(om_store *store, om_log_recovery *found, const folder *folder, const om_manifest *manifest,
                         int64_t counted, int64_t *weight) {
    const listing *listing = &folder->segments;
    om_log *log = found->log;
    int result = OM_OK;
    for (size_t i = 0; i < listing->count && result == OM_OK; i++) {
        if (om_store_called_off(store))
            return OM_E_INTERRUPTED;
        int64_t base = listing->bases[i];
        int64_t next_base = i + 1 < listing->count ? listing->bases[i + 1] : log->recovery_point;
        om_segment *segment = om_segment_open(store->files, log->folder, base, &result);
        if (!segment) {
            if (base <= log->recovery_base && base >= found->first_segment)
                result = note_damage(found, base, next_base - 1, -1, "unreadable");
            continue;
        }
        const om_manifest_entry *entry = om_manifest_find(manifest, base);
        int marked = is_listed(&folder->damaged, base);
        if (base < found->first_segment) {
            result = doom_trimmed(found, segment, next_base, marked);
        } else if (base < log->recovery_base ||
                   (entry && entry->next_offset <= log->recovery_point && base != log->recovery_base)) {
            result = load_sealed(store, found, segment, entry, next_base, marked);
        } else if (base == log->recovery_base) {
            result = load_recovery_segment(store, found, segment, counted, weight, marked);
        } else {
            result = load_tail_segment(store, found, segment, end_of(log), counted, weight);
        }
        om_segment_unref(segment);
    }
    seal_all_but_last(log);
    return result;
}

/* What the manifest and the checkpoint name but the folder doesn't have. */
static int note_missing_files(om_log_recovery *found, const listing *listing, const om_manifest *manifest) {
    om_log *log = found->log;
    int result = OM_OK;
    for (uint32_t i = 0; i < manifest->count && result == OM_OK; i++) {
        const om_manifest_entry *entry = &manifest->entries[i];
        /* Past the recovery point the manifest is older than the checkpoint: a truncation was last. */
        if (!is_listed(listing, entry->base_offset) && entry->next_offset > log->start_offset &&
            entry->base_offset >= found->first_segment && entry->base_offset < log->recovery_point)
            result = note_damage(found, entry->base_offset, entry->next_offset - 1, -1, "missing");
    }
    if (result == OM_OK && log->recovery_base >= 0 && log->recovery_base >= found->first_segment &&
        log->recovery_point > log->start_offset && !is_listed(listing, log->recovery_base) &&
        !om_manifest_find(manifest, log->recovery_base))
        result = note_damage(found, log->recovery_base, log->recovery_point - 1, -1, "missing");
    return result;
}

static int restore(om_store *store, om_log_recovery *found) {
    om_log *log = found->log;
    int result = om_saved_restore(store, log, &found->cursor_seq, &found->first_segment);
    if (result == OM_E_CORRUPT) {
        om_store_add_report(store, OM_REPORT_CORRUPT, log, log->start_offset, log->next_offset,
                            "%s: its cursor can't be read: the queue starts over from its first record", log->folder);
        result = OM_OK;
    }
    found->saved_next = log->next_offset;
    found->rebuild_from = -1;
    return result < 0 ? result : OM_OK;
}

int om_log_recovery_load(om_store *store, om_log_recovery *found) {
    om_log *log = found->log;
    int result = restore(store, found);
    if (result != OM_OK)
        return result;
    folder folder = {0};
    om_manifest manifest = {0};
    if (log->has_files)
        result = om_log_finish_merges(log);
    if (log->has_files && result == OM_OK) {
        result = list_folder(log->folder, &folder);
        log->manifest_stale = om_manifest_load(log->folder, &manifest) != OM_OK && folder.segments.count;
    }
    om_cursor_stat cursor = {0};
    if (log->cursor)
        om_cursor_stat_get(log->cursor, &cursor);
    found->saved_end = cursor.end;
    int64_t weight = 0;
    if (result == OM_OK)
        result = load_segments(store, found, &folder, &manifest, cursor.end, &weight);
    if (result == OM_OK)
        result = note_missing_files(found, &folder.segments, &manifest);
    log->next_offset = end_of(log);
    /* The whole tail counts as appended, gaps included: what turns out not to be there is skipped
     * once the WAL has been read, what it knows to be settled is no gap at all. */
    if (result == OM_OK && log->cursor && log->next_offset > cursor.end) {
        om_cursor_appended(log->cursor, cursor.end, log->next_offset - cursor.end, weight);
        for (uint32_t i = 0; i < found->control.count; i++)
            om_cursor_skip(log->cursor, found->control.items[i].first, found->control.items[i].last);
    }
    free(folder.segments.bases);
    free(folder.damaged.bases);
    free(manifest.entries);
    return result;
}
