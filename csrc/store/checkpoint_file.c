/* checkpoint_file.c -- data/checkpoint: every log's recovery point and cursor, in one file.
 *
 * One file and not two in each log's folder: a checkpoint of 10,000 busy queues is then one write
 * and one sync, where 20,000 files replaced one by one would take seconds (docs/design.md has
 * the measurement).
 *
 *   header   "OTTERCKP" | version u32 | zero u32 | WAL sequence u64 | entries u64 | written at i64 (ms)
 *   entry    log id u64 | start i64 | next i64 | lease end i64 | recovery point i64
 *            | recovery segment i64 (-1: none) | recovery position u64 | its first, max timestamp i64 x 2
 *            | cursor sequence u64 | first segment i64 | leader epoch i32 | cursor length u32
 *            | producers length u32 (version 2) | trim rule u32 (with 256: its row may not be on disk yet)
 *            | cursor | producers, each with zeros to 8 bytes
 *   trailer  xxh3 of all the bytes before, u64
 *
 * All little-endian. Recovery replays WAL records past the sequence in the header; of a log's
 * cursor records only those past the entry's own cursor sequence.
 */
#define _GNU_SOURCE
#include "store/checkpoint_file.h"

#include "base/blob.h"
#include "base/bytes.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/file_util.h"
#include "cursor/cursor.h"
#include "segment/segment.h"
#include "store/log.h"
#include "store/log_offsets.h"
#include "store/producer.h"
#include "store/store.h"
#include "store/store_report.h"
#include "store/unknown_logs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "checkpoint"
#define SPARE NAME ".tmp"
#define SLACK 65536
#define MAGIC "OTTERCKP"
#define VERSION 2
#define HEADER 40
#define ENTRY 104
#define ENTRY_1 96 /* of version 1, which knew no producers */
#define TRAILER 8
#define TELL_BEHIND_MS 1000
#define UNNAMED 0x100u /* beside the rule */

struct om_saved {
    uint8_t *data;
    size_t len;
    const uint8_t **entries; /* by log id */
    size_t count;
    size_t entry; /* bytes of one, without what follows it */
};

/* ---- writing ---- */

/* No file of this log below it is needed. A trimmed segment may never have been synced: what a
 * crash leaves of its file must be known for what it is, not taken for damage. */
static int64_t first_segment(const om_log *log) {
    if (log->segment_count)
        return log->segments[0]->base_offset;
    int64_t unwritten = om_log_written_offset(log);
    return unwritten < log->start_offset ? unwritten : log->start_offset;
}

static size_t padded(size_t len) {
    return (len + 7) & ~(size_t)7;
}

int om_saved_put(om_blob *blob, om_log *log, uint64_t cursor_seq, int closing) {
    uint8_t entry[ENTRY];
    int64_t cursor_len = log->cursor ? om_cursor_encode(log->cursor, NULL, 0) : 0;
    size_t producers_len = om_producers_size(log);
    if (cursor_len < 0 || cursor_len > UINT32_MAX || producers_len > UINT32_MAX)
        return OM_E_NO_MEMORY;
    om_segment *last = log->segment_count ? log->segments[log->segment_count - 1] : NULL;
    int has_times = last && last->base_offset == log->recovery_base;
    om_put_le64(entry, log->id);
    om_put_le64(entry + 8, (uint64_t)log->start_offset);
    om_put_le64(entry + 16, (uint64_t)log->next_offset);
    om_put_le64(entry + 24, (uint64_t)(closing ? log->next_offset : log->lease_end));
    om_put_le64(entry + 32, (uint64_t)log->recovery_point);
    om_put_le64(entry + 40, (uint64_t)log->recovery_base);
    om_put_le64(entry + 48, log->recovery_position);
    om_put_le64(entry + 56, (uint64_t)(has_times ? last->first_timestamp : -1));
    om_put_le64(entry + 64, (uint64_t)(has_times ? last->max_timestamp : -1));
    om_put_le64(entry + 72, cursor_seq);
    om_put_le64(entry + 80, (uint64_t)first_segment(log));
    om_put_le32(entry + 88, (uint32_t)log->leader_epoch);
    om_put_le32(entry + 92, (uint32_t)cursor_len);
    om_put_le32(entry + 96, (uint32_t)producers_len);
    om_put_le32(entry + 100, log->trim_rule | (log->unnamed ? UNNAMED : 0u));
    int result = om_blob_put(blob, entry, sizeof entry);
    size_t cursor_padded = padded((size_t)cursor_len), len = cursor_padded + padded(producers_len);
    if (result != OM_OK || !len)
        return result;
    uint8_t *bytes = calloc(1, len);
    if (!bytes)
        return OM_E_NO_MEMORY;
    if (cursor_len)
        om_cursor_encode(log->cursor, bytes, (size_t)cursor_len);
    if (producers_len)
        om_producers_encode(log, bytes + cursor_padded);
    result = om_blob_put(blob, bytes, len);
    free(bytes);
    return result;
}

/* The checkpoint before this one stays, under the temporary name, and the next is written over it.
 * So a checkpoint needs no space: it must be possible on a full disk, or nothing could be removed
 * there. */
static int write_over(om_store *store, const uint8_t *data, size_t len) {
    int fd = openat(store->dir_fd, SPARE, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0)
        return errno == ENOSPC || errno == EDQUOT ? OM_E_NO_SPACE : OM_E_IO;
    int result = om_write_all(fd, data, len);
    if (result == OM_OK && (ftruncate(fd, (off_t)len) != 0 || fsync(fd) != 0))
        result = OM_E_IO;
    if (result == OM_OK && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)(len + SLACK)) != 0)
        errno = 0; /* cursors grow: a little ahead where it can be had */
    close(fd);
    if (result == OM_E_IO)
        unlinkat(store->dir_fd, SPARE, 0); /* other blocks next time */
    return result;
}

/* For the first ones, before which there is none, and for a start that finds no such file. */
void om_saved_reserve(om_store *store) {
    struct stat last = {0};
    if (fstatat(store->dir_fd, NAME, &last, 0) != 0)
        last.st_size = 0;
    int fd = openat(store->dir_fd, SPARE, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0)
        return; /* the checkpoint itself will tell */
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, last.st_size + SLACK) != 0)
        errno = 0;
    close(fd);
}

static int swap_in(om_store *store) {
    if (renameat2(store->dir_fd, SPARE, store->dir_fd, NAME, RENAME_EXCHANGE) == 0)
        return OM_OK;
    if (errno != ENOENT && errno != EINVAL && errno != ENOSYS)
        return OM_E_IO;
    if (renameat(store->dir_fd, SPARE, store->dir_fd, NAME) != 0)
        return OM_E_IO;
    om_saved_reserve(store);
    return OM_OK;
}

int om_saved_write(om_store *store, const om_blob *entries, uint64_t count, uint64_t seq) {
    uint8_t header[HEADER] = MAGIC;
    om_put_le32(header + 8, VERSION);
    om_put_le64(header + 16, seq);
    om_put_le64(header + 24, count);
    om_put_le64(header + 32, (uint64_t)om_clock_ms(&store->clock));
    om_blob file = {0};
    uint8_t trailer[TRAILER];
    int result = om_blob_put(&file, header, sizeof header);
    if (result == OM_OK && entries->len)
        result = om_blob_put(&file, entries->data, entries->len);
    if (result == OM_OK) {
        om_put_le64(trailer, om_xxh3(file.data, file.len));
        result = om_blob_put(&file, trailer, sizeof trailer);
    }
    if (result == OM_OK)
        result = write_over(store, file.data, file.len);
    if (result == OM_OK)
        result = swap_in(store);
    if (result == OM_OK && fsync(store->dir_fd) != 0)
        result = OM_E_IO;
    free(file.data);
    return result;
}

/* ---- reading ---- */

static int by_id(const void *a, const void *b) {
    uint64_t left = om_get_le64(*(const uint8_t *const *)a), right = om_get_le64(*(const uint8_t *const *)b);
    return left < right ? -1 : left > right;
}

/* Where the entry after this one starts; 0: it doesn't fit. */
static size_t entry_end(const struct om_saved *saved, size_t at) {
    size_t end = saved->len - TRAILER;
    if (end - at < saved->entry)
        return 0;
    size_t rest = padded(om_get_le32(saved->data + at + 92));
    if (saved->entry == ENTRY)
        rest += padded(om_get_le32(saved->data + at + 96));
    return end - at - saved->entry < rest ? 0 : at + saved->entry + rest;
}

static int parse(struct om_saved *saved, uint64_t *seq) {
    const uint8_t *data = saved->data;
    uint32_t version = saved->len < HEADER + TRAILER ? 0 : om_get_le32(data + 8);
    if (version < 1 || version > VERSION || memcmp(data, MAGIC, 8) != 0 ||
        om_xxh3(data, saved->len - TRAILER) != om_get_le64(data + saved->len - TRAILER))
        return OM_E_CORRUPT;
    saved->entry = version == 1 ? ENTRY_1 : ENTRY;
    *seq = om_get_le64(data + 16);
    uint64_t count = om_get_le64(data + 24);
    if (count > saved->len / saved->entry)
        return OM_E_CORRUPT;
    saved->entries = malloc((count ? count : 1) * sizeof *saved->entries);
    if (!saved->entries)
        return OM_E_NO_MEMORY;
    size_t at = HEADER;
    for (saved->count = 0; saved->count < count; saved->count++) {
        size_t next = entry_end(saved, at);
        if (!next)
            return OM_E_CORRUPT;
        saved->entries[saved->count] = data + at;
        at = next;
    }
    qsort(saved->entries, saved->count, sizeof *saved->entries, by_id);
    return at == saved->len - TRAILER ? OM_OK : OM_E_CORRUPT;
}

static int read_file(const char *path, uint8_t **data, size_t *len) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? OM_END : OM_E_IO;
    struct stat stat;
    int result = fstat(fd, &stat) == 0 ? OM_OK : OM_E_IO;
    *len = result == OM_OK ? (size_t)stat.st_size : 0;
    *data = malloc(*len ? *len : 1);
    if (!*data)
        result = OM_E_NO_MEMORY;
    for (size_t at = 0; result == OM_OK && at < *len;) {
        ssize_t got = read(fd, *data + at, *len - at);
        if (got > 0)
            at += (size_t)got;
        else if (got == 0 || errno != EINTR)
            result = OM_E_IO;
    }
    close(fd);
    return result;
}

/* Messages have been given times up to that one. */
static void go_on_from(om_store *store, int64_t saved_ms) {
    int64_t behind = om_clock_raise(&store->clock, saved_ms);
    if (behind > TELL_BEHIND_MS)
        om_store_add_report(store, OM_REPORT_CLOCK_BEHIND, NULL, 0, 0,
                            "the system's clock is %lld s behind the time of the last checkpoint: messages go on "
                            "from that time, so that those with a TTL or a delay don't wait longer",
                            (long long)behind / 1000);
}

int om_saved_load(om_store *store, char *err, size_t err_len) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", store->dir, NAME);
    store->saved = calloc(1, sizeof *store->saved);
    if (!store->saved)
        return OM_E_NO_MEMORY;
    int result = read_file(path, &store->saved->data, &store->saved->len);
    if (result == OM_END)
        return OM_OK;
    if (result == OM_OK)
        result = parse(store->saved, &store->checkpoint.seq);
    if (result == OM_OK)
        go_on_from(store, (int64_t)om_get_le64(store->saved->data + 32));
    else
        snprintf(err, err_len,
                 "%s is damaged (%s): restore it from a backup, or remove it to rebuild from the segments "
                 "(queues then start over from their first record)",
                 path, om_result_text(result));
    return result;
}

void om_saved_free(om_store *store) {
    if (!store->saved)
        return;
    free(store->saved->entries);
    free(store->saved->data);
    free(store->saved);
    store->saved = NULL;
}

static const uint8_t *find_entry(const struct om_saved *saved, uint64_t id) {
    size_t low = 0, high = saved ? saved->count : 0;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (om_get_le64(saved->entries[mid]) < id)
            low = mid + 1;
        else
            high = mid;
    }
    return saved && low < saved->count && om_get_le64(saved->entries[low]) == id ? saved->entries[low] : NULL;
}

int om_saved_note_unknown(om_store *store) {
    const struct om_saved *saved = store->saved;
    int result = OM_OK;
    for (size_t i = 0; saved && i < saved->count && result == OM_OK; i++) {
        uint64_t id = om_get_le64(saved->entries[i]);
        int unnamed = saved->entry == ENTRY && (om_get_le32(saved->entries[i] + 100) & UNNAMED);
        if (!om_store_find(store, id))
            result = om_unknown_logs_note(&store->unknown_logs, id, unnamed ? 0 : OM_UNKNOWN_NAMED);
    }
    return result;
}

int om_saved_restore(om_store *store, om_log *log, uint64_t *cursor_seq, int64_t *first_segment) {
    const uint8_t *entry = find_entry(store->saved, log->id);
    if (!entry)
        return OM_END;
    log->start_offset = (int64_t)om_get_le64(entry + 8);
    log->next_offset = (int64_t)om_get_le64(entry + 16);
    log->lease_end = (int64_t)om_get_le64(entry + 24);
    log->recovery_point = (int64_t)om_get_le64(entry + 32);
    log->recovery_base = (int64_t)om_get_le64(entry + 40);
    log->recovery_position = om_get_le64(entry + 48);
    log->recovery_first_timestamp = (int64_t)om_get_le64(entry + 56);
    log->recovery_max_timestamp = (int64_t)om_get_le64(entry + 64);
    *cursor_seq = om_get_le64(entry + 72);
    *first_segment = (int64_t)om_get_le64(entry + 80);
    log->leader_epoch = (int32_t)om_get_le32(entry + 88);
    uint32_t cursor_len = om_get_le32(entry + 92);
    const uint8_t *behind = entry + store->saved->entry;
    uint32_t producers_len = store->saved->entry == ENTRY ? om_get_le32(entry + 96) : 0;
    log->trim_rule = store->saved->entry == ENTRY ? (uint8_t)om_get_le32(entry + 100) : OM_RULE_UNKNOWN;
    int result = producers_len ? om_producers_decode(log, behind + padded(cursor_len), producers_len) : OM_OK;
    if (result != OM_OK || !log->cursor || !cursor_len)
        return result;
    om_cursor *cursor = NULL;
    result = om_cursor_decode(&cursor, behind, cursor_len);
    if (result != OM_OK)
        return result;
    om_cursor_free(log->cursor);
    log->cursor = cursor;
    return OM_OK;
}
