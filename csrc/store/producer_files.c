/* producer_files.c -- a log's producers for Kafka's own tools: .snapshot and .txnindex.
 *
 *   NNN.snapshot   what was known of producers when the log ended at offset NNN
 *                  version i16 = 1 | CRC32C of the rest u32 | entries i32, then each:
 *                  id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32
 *                  | timestamp i64 | coordinator epoch i32 | open transaction's first offset i64
 *   NNN.txnindex   aborted transactions whose markers lie in the segment NNN, 34 bytes each:
 *                  version i16 = 0 | producer id i64 | first, last offset i64 x 2 | last stable i64
 *
 * Big-endian, byte for byte Apache Kafka's. Written when a segment is full and at a clean stop; they
 * go with that segment. We don't read them ourselves: the checkpoint knows more (five batches of
 * each producer) and costs one file for all logs. So they aren't synced, and what an earlier life
 * has left is made anew or removed by the first segment that this life fills.
 */
#define _GNU_SOURCE
#include "store/producer.h"

#include "base/blob.h"
#include "base/bytes.h"
#include "base/file_util.h"
#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/log.h"
#include "store/log_segments.h"
#include "store/store.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SNAPSHOT_HEAD = 10, SNAPSHOT_ENTRY = 46, TXN_ENTRY = 34 };

static void put_entry(uint8_t *at, const om_producer *producer) {
    const om_producer_batch *last = producer->count ? &producer->batches[producer->count - 1] : NULL;
    uint32_t delta = last ? ((uint32_t)last->last_sequence - (uint32_t)last->first_sequence) & INT32_MAX : 0;
    om_put_be64(at, (uint64_t)producer->id);
    om_put_be16(at + 8, (uint16_t)producer->epoch);
    om_put_be32(at + 10, last ? (uint32_t)last->last_sequence : UINT32_MAX);
    om_put_be64(at + 14, last ? (uint64_t)last->first_offset + delta : UINT64_MAX);
    om_put_be32(at + 22, delta);
    om_put_be64(at + 26, last ? (uint64_t)last->timestamp : UINT64_MAX);
    om_put_be32(at + 34, (uint32_t)producer->coordinator_epoch);
    om_put_be64(at + 38, (uint64_t)producer->first_open);
}

static int make_snapshot(const om_producers *producers, om_blob *out) {
    uint8_t head[SNAPSHOT_HEAD] = {0}, entry[SNAPSHOT_ENTRY];
    uint32_t count = 0;
    int result = om_blob_put(out, head, sizeof head);
    for (uint32_t i = 0; i < producers->cap && result == OM_OK; i++) {
        if (!producers->table[i] || producers->table[i]->epoch < 0)
            continue;
        put_entry(entry, producers->table[i]);
        result = om_blob_put(out, entry, sizeof entry);
        count++;
    }
    if (result != OM_OK)
        return result;
    om_put_be16(out->data, 1);
    om_put_be32(out->data + 6, count);
    om_put_be32(out->data + 2, om_crc32c(0, out->data + 6, out->len - 6));
    return OM_OK;
}

void om_snapshots_remove(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strchr(entry->d_name, '.');
        if (dot && strncmp(dot, ".snapshot", 9) == 0) /* or half of one, .snapshot.tmp */
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}

static int save(const om_log *log, int64_t offset, const char *suffix, const uint8_t *data, size_t len) {
    char name[64];
    snprintf(name, sizeof name, "%020lld%s", (long long)offset, suffix);
    int result = om_file_write_tmp(log->folder, name, data, len, 0);
    return result == OM_OK ? om_file_commit_tmp(log->folder, name, 0) : result;
}

/* What is to be written, as it was at one moment. */
typedef struct contents {
    int64_t end;  /* of the log then */
    int is_first; /* of this life */
    om_blob snapshot;
    om_blob aborted; /* entries of .txnindex files ... */
    om_blob bases;   /* ... and for each of them the segment it belongs to, an int64_t */
} contents;

static int put_aborted(contents *contents, const om_aborted *aborted, int64_t base) {
    uint8_t entry[TXN_ENTRY] = {0};
    om_put_be64(entry + 2, (uint64_t)aborted->producer_id);
    om_put_be64(entry + 10, (uint64_t)aborted->first_offset);
    om_put_be64(entry + 18, (uint64_t)aborted->last_offset);
    om_put_be64(entry + 26, (uint64_t)aborted->last_stable);
    int result = om_blob_put(&contents->aborted, entry, sizeof entry);
    return result == OM_OK ? om_blob_put(&contents->bases, &base, sizeof base) : result;
}

static int holds(const om_log *log, const om_segment *segment) {
    uint32_t at = om_log_segment_for(log, segment->base_offset);
    return !log->deleted && at < log->segment_count && log->segments[at] == segment;
}

/* Under the store's lock. */
static int take(om_log *log, om_segment *full, contents *contents) {
    const om_producers *producers = log->producers;
    if (!producers || !holds(log, full))
        return OM_E_GONE;
    contents->end = log->next_offset;
    contents->is_first = !log->has_snapshots;
    int result = make_snapshot(producers, &contents->snapshot);
    uint32_t i = om_aborted_from(producers, contents->is_first ? 0 : full->base_offset);
    for (; i < producers->aborted_count && result == OM_OK; i++) {
        const om_aborted *aborted = &producers->aborted[i];
        if (aborted->last_offset >= full->next_offset)
            break;
        const om_segment *segment = log->segments[om_log_segment_for(log, aborted->last_offset)];
        result = put_aborted(contents, aborted, segment->base_offset);
    }
    if (result == OM_OK) {
        full->snapshot = contents->end;
        log->has_snapshots = 1;
    }
    return result;
}

static void write_picture(const om_log *log, const contents *contents) {
    const int64_t *bases = (const int64_t *)(const void *)contents->bases.data;
    size_t count = contents->bases.len / sizeof *bases;
    if (contents->is_first)
        om_snapshots_remove(log->folder);
    save(log, contents->end, ".snapshot", contents->snapshot.data, contents->snapshot.len);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && bases[end] == bases[i];)
            end++;
        save(log, bases[i], ".txnindex", contents->aborted.data + i * TXN_ENTRY, (end - i) * TXN_ENTRY);
    }
}

void om_producers_save(om_log *log, om_segment *full) {
    contents contents = {0};
    om_ticket_lock_take(&log->store->lock);
    int result = take(log, full, &contents);
    om_ticket_lock_give(&log->store->lock);
    if (result == OM_OK)
        write_picture(log, &contents);
    free(contents.snapshot.data);
    free(contents.aborted.data);
    free(contents.bases.data);
}
