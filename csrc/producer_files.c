/* producer_files.c -- a log's producers for Kafka's own tools: .snapshot and .txnindex.
 *
 *   NNN.snapshot   what was known of producers when the log ended at offset NNN
 *                  version i16 = 1 | CRC32C of the rest u32 | entries i32, then each:
 *                  id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32
 *                  | timestamp i64 | coordinator epoch i32 | open transaction's first offset i64
 *   NNN.txnindex   aborted transactions whose markers lie in the segment NNN, 34 bytes each:
 *                  version i16 = 0 | producer id i64 | first, last offset i64 x 2 | last stable i64
 *
 * Big-endian, byte for byte Apache Kafka's. Written at a clean stop. We don't read them ourselves:
 * the checkpoint knows more (five batches of each producer) and costs one file for all logs.
 */
#define _GNU_SOURCE
#include "producer.h"

#include "bytes.h"

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

/* Those of an earlier stop. */
static void remove_snapshots(const char *folder, const char *kept) {
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        if (len == strlen(kept) && strcmp(entry->d_name + 20, ".snapshot") == 0 && strcmp(entry->d_name, kept) != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}

static int save(const om_log *log, int64_t offset, const char *suffix, const om_blob *bytes) {
    char name[64];
    snprintf(name, sizeof name, "%020lld%s", (long long)offset, suffix);
    int result = om_file_write_tmp(log->folder, name, bytes->data, bytes->len, 0);
    return result == OM_OK ? om_file_commit_tmp(log->folder, name, 0) : result;
}

static int save_aborted(const om_log *log, const om_segment *segment, uint32_t *at) {
    const om_producers *producers = log->producers;
    om_blob bytes = {0};
    int result = OM_OK;
    for (; *at < producers->aborted_count && result == OM_OK; ++*at) {
        const om_aborted *aborted = &producers->aborted[*at];
        uint8_t entry[TXN_ENTRY] = {0};
        if (aborted->last_offset >= segment->next_offset)
            break;
        om_put_be64(entry + 2, (uint64_t)aborted->producer_id);
        om_put_be64(entry + 10, (uint64_t)aborted->first_offset);
        om_put_be64(entry + 18, (uint64_t)aborted->last_offset);
        om_put_be64(entry + 26, (uint64_t)aborted->last_stable);
        result = om_blob_put(&bytes, entry, sizeof entry);
    }
    if (result == OM_OK && bytes.len)
        result = save(log, segment->base_offset, ".txnindex", &bytes);
    free(bytes.data);
    return result;
}

void om_producers_save(const om_log *log) {
    const om_producers *producers = log->producers;
    om_blob bytes = {0};
    char kept[64];
    uint32_t at = 0;
    int result = make_snapshot(producers, &bytes);
    snprintf(kept, sizeof kept, "%020lld.snapshot", (long long)log->next_offset);
    if (result == OM_OK)
        result = save(log, log->next_offset, ".snapshot", &bytes);
    free(bytes.data);
    if (result == OM_OK)
        remove_snapshots(log->folder, kept);
    for (uint32_t i = 0; i < log->segment_count && result == OM_OK; i++)
        result = save_aborted(log, log->segments[i], &at);
}
