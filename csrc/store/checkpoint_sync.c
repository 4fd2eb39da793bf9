/* checkpoint_sync.c -- steps 3 and 4 of a checkpoint: what the writer wrote is synced; see checkpoint_sync.h. */
#define _GNU_SOURCE
#include "store/checkpoint_sync.h"

#include "base/blob.h"
#include "base/file_util.h"
#include "base/ticket_lock.h"
#include "segment/index.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_list.h"
#include "store/log_offsets.h"
#include "store/manifest.h"
#include "store/producer.h"
#include "store/recover.h"
#include "store/segment_rebuild.h"
#include "store/store.h"
#include "store/writer.h"

#include <stdlib.h>
#include <unistd.h>

/* More dirty files than this are synced with one syncfs: file by file 100 files took 23-28 ms
 * where one call took 0.5 ms (design, section 2). */
#define SYNCFS_FROM 32
#define LOGS_A_TURN 256
/* Index entries not yet in the file before a checkpoint bothers to write them: a restart scans
 * what they would have covered, 64 KiB or so. */
#define INDEX_WORTH_SAVING 16

/* A log that was written to since the last checkpoint, and where its new recovery point is. */
typedef struct om_touched_log {
    om_log *log;
    om_segment **segments; /* held */
    uint32_t count;
    int64_t point, base;
    uint64_t position;
    om_blob manifest; /* empty: the one on disk is right */
} touched;

/* ---- gathering: under the lock ---- */

/* The segments to sync, and the new recovery point: where the first batch that isn't in a file
 * for certain has its place, or the end of all that was placed. */
static int note_segments(touched *item, om_log *log) {
    const om_hot *unwritten = log->hot.count ? om_hot_at(&log->hot, 0) : NULL;
    uint32_t from = 0;
    while (from < log->segment_count && log->segments[from]->base_offset < log->recovery_base)
        from++;
    if (from == log->segment_count)
        return OM_OK;
    item->segments = malloc((log->segment_count - from) * sizeof *item->segments);
    if (!item->segments)
        return OM_E_NO_MEMORY;
    for (uint32_t i = from; i < log->segment_count; i++) {
        om_segment *segment = log->segments[i];
        int is_last = unwritten && unwritten->segment == segment;
        uint64_t position = is_last ? unwritten->position : segment->size;
        if (!position)
            break;
        om_segment_ref(segment);
        item->segments[item->count++] = segment;
        item->base = segment->base_offset;
        item->position = position;
        if (is_last)
            break;
    }
    item->point = om_log_written_offset(log);
    return OM_OK;
}

static int note_touched(om_checkpoint_sync *work, om_log *log) {
    if (work->count == work->cap) {
        size_t cap = work->cap ? work->cap * 2 : 64;
        touched *logs = realloc(work->logs, cap * sizeof *logs);
        if (!logs)
            return OM_E_NO_MEMORY;
        work->logs = logs;
        work->cap = cap;
    }
    touched *item = &work->logs[work->count];
    *item = (touched){
        .log = log, .point = log->recovery_point, .base = log->recovery_base, .position = log->recovery_position};
    if (note_segments(item, log) != OM_OK)
        return OM_E_NO_MEMORY;
    if (log->manifest_stale && log->segment_count && om_manifest_text(log, &item->manifest) == OM_OK)
        log->manifest_stale = 0;
    log->syncing = 1;
    om_log_ref(log);
    work->files += item->count + (item->manifest.len != 0);
    work->count++;
    return OM_OK;
}

void om_checkpoint_sync_gather(om_store *store, om_checkpoint_sync *work) {
    for (int more = 1; more;) {
        om_ticket_lock_take(&store->lock);
        for (int i = 0; i < LOGS_A_TURN && more; i++) {
            om_log *log = om_list_pop(&store->checkpoint.touched, OM_LINK(next_touched));
            more = log != NULL;
            if (!log)
                continue;
            log->touched = 0;
            if (!log->deleted && !(log->options.flags & OM_LOG_SCRATCH))
                note_touched(work, log);
        }
        om_ticket_lock_give(&store->lock);
    }
}

/* Not synced after all: they stay touched for the next time. */
void om_checkpoint_sync_give_back(om_store *store, const om_checkpoint_sync *work) {
    om_ticket_lock_take(&store->lock);
    for (size_t i = 0; i < work->count; i++) {
        om_log *log = work->logs[i].log;
        log->manifest_stale |= work->logs[i].manifest.len != 0;
        if (!log->deleted)
            om_log_touch(log);
    }
    om_ticket_lock_give(&store->lock);
}

/* ---- syncing: without the lock ---- */

static int write_manifest(const touched *item, int sync) {
    const om_blob *text = &item->manifest;
    return text->len ? om_file_write_tmp(item->log->folder, "manifest", text->data, text->len, sync) : OM_OK;
}

static void save_index(om_segment *segment, uint32_t worth) {
    om_index unsaved;
    if (om_segment_unsaved_index(segment, &unsaved) != OM_OK)
        return;
    if (unsaved.offset_count >= worth)
        om_segment_save_index(segment, unsaved.offsets, unsaved.offset_count, unsaved.times, unsaved.time_count);
    om_index_free(&unsaved);
}

/* A segment was made again, and may be shorter now. */
static int renew_manifest(om_store *store, touched *item) {
    item->manifest.len = 0;
    om_ticket_lock_take(&store->lock);
    int result = om_manifest_text(item->log, &item->manifest);
    if (result == OM_OK)
        item->log->manifest_stale = 0;
    om_ticket_lock_give(&store->lock);
    return result == OM_OK ? write_manifest(item, 1) : result;
}

static int sync_each(om_store *store, om_checkpoint_sync *work) {
    int result = OM_OK;
    for (size_t i = 0; i < work->count; i++) {
        touched *item = &work->logs[i];
        for (uint32_t j = 0; j < item->count; j++) {
            om_segment **segment = &item->segments[j];
            int synced = __atomic_load_n(&(*segment)->suspect, __ATOMIC_RELAXED) ? OM_E_IO : om_segment_sync(*segment);
            if (synced == OM_E_IO) {
                /* After a failed sync the page cache can't be trusted, however often it is
                 * asked again: the WAL still has the records. */
                __atomic_store_n(&(*segment)->suspect, 1, __ATOMIC_RELAXED);
                synced = om_segment_rebuild(store, item->log, segment);
                if (synced == OM_OK)
                    synced = renew_manifest(store, item);
                if (synced == OM_OK && item->base == (*segment)->base_offset) {
                    item->position = (*segment)->size;
                    item->point = (*segment)->next_offset;
                }
            }
            result = result == OM_OK ? synced : result;
        }
    }
    return result;
}

/* A folder's name may never have been synced: made by a life that was killed, or by another log
 * that is gone by now. Once a life, all of them up to the data folder. */
static void doubt_folders(const om_store *store, om_checkpoint_sync *work) {
    for (size_t i = 0; i < work->count; i++)
        if (!work->logs[i].log->folder_synced && work->logs[i].count)
            om_segment_doubt_name(store, work->logs[i].log, work->logs[i].segments[0]);
}

static void suspect_all(om_checkpoint_sync *work) {
    for (size_t i = 0; i < work->count; i++)
        for (uint32_t j = 0; j < work->logs[i].count; j++)
            __atomic_store_n(&work->logs[i].segments[j]->suspect, 1, __ATOMIC_RELAXED);
}

static int has_suspect(const om_checkpoint_sync *work) {
    for (size_t i = 0; i < work->count; i++)
        for (uint32_t j = 0; j < work->logs[i].count; j++)
            if (__atomic_load_n(&work->logs[i].segments[j]->suspect, __ATOMIC_RELAXED))
                return 1;
    return 0;
}

static int write_manifests(om_checkpoint_sync *work, int sync) {
    int result = OM_OK;
    for (size_t i = 0; i < work->count && result == OM_OK; i++)
        result = write_manifest(&work->logs[i], sync);
    return result;
}

int om_checkpoint_sync_run(om_store *store, om_checkpoint_sync *work) {
    for (size_t i = 0; i < work->count; i++)
        for (uint32_t j = 0; j < work->logs[i].count; j++)
            save_index(work->logs[i].segments[j], INDEX_WORTH_SAVING);
    int many = work->files > SYNCFS_FROM && !has_suspect(work);
    int result = write_manifests(work, !many);
    if (result == OM_OK && many && syncfs(store->dir_fd) != 0) {
        /* One call for all, and when it fails it doesn't say which. An fsync of one of them may
         * succeed now: the kernel has called the pages clean. */
        many = 0;
        suspect_all(work);
        result = write_manifests(work, 1);
    }
    if (result == OM_OK && !many) {
        doubt_folders(store, work);
        result = sync_each(store, work);
    }
    int renamed = 0;
    for (size_t i = 0; i < work->count && result == OM_OK; i++)
        if (work->logs[i].manifest.len) {
            result = om_file_commit_tmp(work->logs[i].log->folder, "manifest", !many);
            renamed = 1;
        }
    /* A manifest that is older than the checkpoint would miss segments that were cut off since. */
    if (result == OM_OK && many && renamed && syncfs(store->dir_fd) != 0)
        result = OM_E_IO;
    return result;
}

void om_checkpoint_sync_done(om_store *store, const om_checkpoint_sync *work) {
    for (size_t i = 0; i < work->count;) {
        om_ticket_lock_take(&store->lock);
        for (size_t end = i + LOGS_A_TURN; i < work->count && i < end; i++) {
            const touched *item = &work->logs[i];
            item->log->recovery_point = item->point;
            item->log->recovery_base = item->base;
            item->log->recovery_position = item->position;
            item->log->folder_synced |= item->count > 0;
        }
        om_ticket_lock_give(&store->lock);
    }
}

void om_checkpoint_sync_indexes(om_store *store) {
    /* Closing: nobody else runs any more that would change the table. */
    for (uint32_t i = 0; i < store->table_size; i++)
        for (om_log *log = store->table[i]; log; log = log->next_in_table)
            if (log->segment_count && log->segments[log->segment_count - 1]->exists) {
                save_index(log->segments[log->segment_count - 1], 1);
                om_producers_save(log, log->segments[log->segment_count - 1]);
            }
}

/* ---- the end ---- */

static void free_work(om_checkpoint_sync *work) {
    for (size_t i = 0; i < work->count; i++) {
        for (uint32_t j = 0; j < work->logs[i].count; j++)
            om_segment_unref(work->logs[i].segments[j]);
        free(work->logs[i].segments);
        free(work->logs[i].manifest.data);
        om_log_release(work->logs[i].log);
    }
    free(work->logs);
}

/* Files of logs that were deleted meanwhile may go now. */
void om_checkpoint_sync_end(om_store *store, om_checkpoint_sync *work) {
    om_ticket_lock_take(&store->lock);
    for (size_t i = 0; i < work->count; i++)
        work->logs[i].log->syncing = 0;
    int deleted = store->deleted_logs.with_files != NULL;
    om_ticket_lock_give(&store->lock);
    if (deleted)
        om_writer_wake(store);
    free_work(work);
}
