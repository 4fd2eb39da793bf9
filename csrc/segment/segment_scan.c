/* segment_scan.c -- recovery: the part of a segment's file that can be believed.
 *
 *   | trusted, or walked header by header | scanned: CRC, offsets, epochs | bad, torn or zeros |
 *   0                                     position                        valid_size
 *
 * Promise: below valid_size lie whole batches with right checksums, in order. The scan
 * reads with pread and never through the mapping, so a bad sector is an error and no signal. It
 * holds one chunk of memory, however large a batch is or claims to be.
 */
#define _GNU_SOURCE
#include "segment/chunk_reader.h"

#include "base/file_util.h"
#include "segment/file_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Blocks allocated but never written, or lost with the power, read as zeros. A hole with batches
 * behind it is damage; zeros up to the end are just the end. */
static int only_zeros_from(om_chunk_reader *chunks, uint64_t at, int *zeros) {
    *zeros = 1;
    while (at < chunks->size && *zeros) {
        const uint8_t *data;
        size_t got;
        int result = om_chunk_at(chunks, at, 1, &data, &got);
        if (result != OM_OK)
            return result;
        *zeros = got == 0 || (data[0] == 0 && memcmp(data, data + 1, got - 1) == 0);
        at += got ? got : 1;
    }
    return OM_OK;
}

/* The next batch: OM_OK, OM_END at a clean end, OM_E_IO; else *stopped says what is wrong. */
static int next_batch(om_chunk_reader *chunks, const om_segment *found, uint64_t checked_from, int32_t epoch,
                      om_batch_info *batch, int *stopped) {
    uint64_t at = found->size;
    const uint8_t *data;
    size_t got;
    *stopped = OM_OK;
    if (at >= chunks->size)
        return OM_END;
    int result = om_chunk_at(chunks, at, OM_BATCH_OVERHEAD, &data, &got);
    if (result != OM_OK)
        return result;
    *stopped = om_batch_peek(data, got, batch);
    if (*stopped != OM_OK) {
        int zeros;
        result = only_zeros_from(chunks, at, &zeros);
        if (zeros)
            *stopped = OM_OK;
        return result == OM_OK ? OM_END : result;
    }
    if ((uint64_t)batch->size > chunks->size - at) {
        *stopped = OM_E_SHORT;
    } else if (at + (uint64_t)batch->size > checked_from) {
        result = om_chunk_reader_check(chunks, at, batch);
        if (result != OM_OK && result != OM_E_SHORT && result != OM_E_CORRUPT)
            return result;
        *stopped = result;
        if (result == OM_OK && batch->leader_epoch < epoch)
            *stopped = OM_E_STALE_EPOCH;
    }
    return *stopped == OM_OK ? OM_OK : OM_END;
}

/* Where the scan may start: at the last index entry before `position` when the segment is trusted
 * up to there and its index files are right, else at 0. Header by header from there to
 * `position`, so that the index is whole and the timestamps are known. */
static void start_from_index(const om_segment *segment, om_chunk_reader *chunks, uint64_t position,
                             int64_t first_offset, om_segment *found) {
    om_index index;
    om_batch_info batch;
    const uint8_t *data;
    size_t got;
    if (om_segment_read_index(segment, chunks->size, &index) != OM_OK)
        return;
    om_index_cut(&index, first_offset - segment->base_offset, (int64_t)position);
    uint32_t offsets = index.offset_count, times = index.time_count;
    uint64_t at = offsets ? (uint64_t)om_index_position(&index, offsets - 1) : 0;
    if (!offsets || (times && om_index_time(&index, times - 1) > segment->max_timestamp) ||
        om_chunk_at(chunks, at, OM_BATCH_OVERHEAD, &data, &got) != OM_OK || om_batch_peek(data, got, &batch) != OM_OK ||
        batch.base_offset + batch.last_offset_delta - segment->base_offset != om_index_offset(&index, offsets - 1)) {
        om_index_free(&index);
        return;
    }
    found->index = index;
    found->index_saved = offsets;
    found->time_saved = times;
    found->size = at;
    found->next_offset = batch.base_offset;
    found->first_timestamp = segment->first_timestamp;
    found->max_timestamp = segment->max_timestamp;
    /* Where the time index is behind, nobody knows which batch brought the largest timestamp:
     * not the first one with it that is met from here on, necessarily. */
    if (times && om_index_time(&index, times - 1) == segment->max_timestamp)
        found->max_timestamp_offset = segment->base_offset + om_index_time_offset(&index, times - 1);
}

/* The segment becomes what was found. */
static void take_over(om_segment *segment, om_segment *found) {
    om_file_cache_lock(segment->files);
    om_index_free(&segment->index);
    segment->index = found->index;
    segment->next_offset = found->next_offset;
    segment->size = found->size;
    segment->first_timestamp = found->first_timestamp;
    segment->max_timestamp = found->max_timestamp;
    segment->max_timestamp_offset = found->max_timestamp_offset;
    segment->since_index = found->since_index;
    segment->index_saved = found->index_saved;
    segment->time_saved = found->time_saved;
    segment->index_stale = 1;
    __atomic_store_n(&segment->index_loaded, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&segment->written, found->size, __ATOMIC_RELEASE);
    om_file_cache_unlock(segment->files);
    om_file_cache_forget_map(segment); /* and with it an index that may know more */
}

/* A known bad stretch below the recovery point is no end. */
static int pass_bad(const om_segment *segment, om_segment *found) {
    const om_bad *bad;
    while ((bad = om_segment_bad_at(segment, found->size))) {
        found->since_index += bad->end - found->size;
        found->size = bad->end;
        if (found->next_offset <= bad->last)
            found->next_offset = bad->last + 1;
    }
    return OM_OK;
}

static int scan_chunks(om_segment *segment, om_chunk_reader *chunks, uint64_t position, int64_t first_offset,
                       int32_t first_epoch, om_scan *scan) {
    om_segment found = {
        .base_offset = segment->base_offset,
        .next_offset = segment->base_offset,
        .first_timestamp = -1,
        .max_timestamp = -1,
        .max_timestamp_offset = -1,
        .index_loaded = 1,
    };
    if (position && segment->size == position && segment->next_offset == first_offset)
        start_from_index(segment, chunks, position, first_offset, &found);
    *scan = (om_scan){.last_epoch = first_epoch};
    om_batch_info batch;
    int result = pass_bad(segment, &found);
    while (result == OM_OK &&
           (result = next_batch(chunks, &found, position, scan->last_epoch, &batch, &scan->stopped)) == OM_OK) {
        int scanned = found.size + (uint64_t)batch.size > position;
        /* Base offsets have no checksum: what lies before the position must end before first_offset. */
        if (scanned ? batch.base_offset < first_offset : batch.base_offset + batch.last_offset_delta >= first_offset)
            scan->stopped = OM_E_RANGE;
        else
            scan->stopped = om_segment_count_in(&found, &batch);
        if (scan->stopped != OM_OK)
            break;
        if (scanned) {
            scan->batches++;
            scan->records += batch.record_count;
            scan->last_epoch = batch.leader_epoch;
        }
        result = pass_bad(segment, &found);
    }
    if (result != OM_OK && result != OM_END) {
        om_index_free(&found.index);
        return result;
    }
    if (scan->stopped == OM_OK && found.size < position)
        scan->stopped = OM_E_SHORT;
    take_over(segment, &found);
    scan->valid_size = found.size;
    scan->next_offset = found.next_offset;
    scan->first_timestamp = found.first_timestamp;
    scan->max_timestamp = found.max_timestamp;
    return OM_OK;
}

int om_segment_scan(om_segment *segment, uint64_t position, int64_t first_offset, int32_t first_epoch, om_scan *scan) {
    om_file *file;
    int result = om_file_cache_open(segment, &file);
    if (result != OM_OK)
        return result;
    om_chunk_reader chunks;
    result = om_chunk_reader_open(&chunks, file->fd);
    if (result == OM_OK) {
        result = scan_chunks(segment, &chunks, position, first_offset, first_epoch, scan);
        om_chunk_reader_close(&chunks);
    }
    om_file_cache_close(segment->files, file);
    om_file_cache_reap(segment->files);
    return result;
}

/* ---- setting aside -------------------------------------------------------------------- */

#define ASIDE_MAX 1000

/* The first free number: an earlier file set aside is never overwritten. */
static int free_aside(const om_segment *segment, char *to, size_t to_len) {
    for (int n = 1; n <= ASIDE_MAX; n++) {
        char suffix[32];
        snprintf(suffix, sizeof suffix, ".log.corrupt-%d", n);
        if (om_segment_path(segment, suffix, to, to_len) != OM_OK)
            return OM_E_IO;
        if (access(to, F_OK) != 0)
            return OM_OK;
    }
    errno = EEXIST;
    return OM_E_IO;
}

int om_segment_set_aside(om_segment *segment, char *path, size_t path_len) {
    static const char *const suffixes[] = {".index", ".timeindex", ".log.damaged"};
    char from[OM_PATH_MAX], to[OM_PATH_MAX];
    if (om_segment_path(segment, ".log", from, sizeof from) != OM_OK)
        return OM_E_IO;
    int result = free_aside(segment, to, sizeof to);
    if (result == OM_OK && rename(from, to) < 0)
        result = om_errno_result();
    if (result != OM_OK)
        return result;
    om_segment_fence(segment);
    __atomic_store_n(&segment->deleted, 1, __ATOMIC_RELEASE);
    om_file_cache_forget(segment);
    om_file_cache_reap(segment->files);
    snprintf(path, path_len, "%s", to);
    for (int i = 0; i < 3; i++)
        if (om_segment_path(segment, suffixes[i], from, sizeof from) == OM_OK && unlink(from) < 0 && errno != ENOENT)
            result = om_errno_result();
    return result == OM_OK ? om_fsync_folder(segment->dir) : result;
}

/* All that the file can give; what it can't is zeros. */
static int copy_file(int from, int to) {
    om_chunk_reader chunks;
    int result = om_chunk_reader_open(&chunks, from);
    if (result != OM_OK)
        return result;
    chunks.tolerant = 1;
    const uint8_t *data;
    size_t got = 1;
    for (uint64_t at = 0; result == OM_OK && at < chunks.size && got; at += got) {
        result = om_chunk_at(&chunks, at, 1, &data, &got);
        if (result == OM_OK && got && pwrite(to, data, got, (off_t)at) != (ssize_t)got)
            result = om_errno_result();
    }
    om_chunk_reader_close(&chunks);
    return result == OM_OK && fsync(to) < 0 ? om_errno_result() : result;
}

int om_segment_copy_aside(const om_segment *segment, char *path, size_t path_len) {
    char from[OM_PATH_MAX];
    int result = om_segment_path(segment, ".log", from, sizeof from);
    if (result == OM_OK)
        result = free_aside(segment, path, path_len);
    if (result != OM_OK)
        return result;
    int source = open(from, O_RDONLY | O_CLOEXEC);
    int copy = source < 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    result = copy < 0 ? om_errno_result() : copy_file(source, copy);
    if (copy >= 0)
        close(copy);
    if (copy >= 0 && result != OM_OK)
        unlink(path);
    if (source >= 0)
        close(source);
    return result == OM_OK ? om_fsync_folder(segment->dir) : result;
}
