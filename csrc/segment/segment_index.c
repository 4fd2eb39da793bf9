/* segment_index.c -- bringing a segment's index into memory, and making it anew when it is wrong.
 *
 * Promise: an index file is never believed. It is checked as a whole when loaded; it must reach
 * as far as the segment does; and an entry that turns out to point at no batch (a look-up
 * finds it) has the whole index rebuilt from the batch headers. A rebuilt index of a sealed segment
 * also replaces the files: best effort, they are a hint.
 */
#define _GNU_SOURCE
#include "segment/file_cache.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- from the files ------------------------------------------------------------------- */

static int read_all(int fd, uint8_t *out, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t got = pread(fd, out + done, len - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return OM_E_CORRUPT;
        done += (size_t)got;
    }
    return OM_OK;
}

static int read_entries(const om_segment *segment, const char *suffix, size_t max, uint8_t **out, size_t *len) {
    char path[OM_PATH_MAX];
    *out = NULL;
    *len = 0;
    if (om_segment_path(segment, suffix, path, sizeof path) != OM_OK)
        return OM_E_IO;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? OM_OK : OM_E_CORRUPT;
    struct stat info;
    int result = OM_E_CORRUPT;
    /* More entries than the segment can hold batches: not worth the memory to find out more. */
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size <= max) {
        *len = (size_t)info.st_size;
        *out = *len ? malloc(*len) : NULL;
        result = *len && !*out ? OM_E_NO_MEMORY : read_all(fd, *out, *len);
    }
    close(fd);
    return result;
}

int om_segment_read_index(const om_segment *segment, uint64_t size, om_index *out) {
    size_t offsets_len, times_len = 0, most = size / OM_BATCH_OVERHEAD;
    om_index_init(out);
    int result = read_entries(segment, ".index", most * OM_OFFSET_ENTRY, &out->offsets, &offsets_len);
    if (result == OM_OK)
        result = read_entries(segment, ".timeindex", most * OM_TIME_ENTRY, &out->times, &times_len);
    if (result == OM_OK)
        result = om_index_check(out->offsets, offsets_len, out->times, times_len, (int64_t)size);
    if (result != OM_OK) {
        om_index_free(out);
        return result;
    }
    out->offset_count = out->offset_cap = (uint32_t)(offsets_len / OM_OFFSET_ENTRY);
    out->time_count = out->time_cap = (uint32_t)(times_len / OM_TIME_ENTRY);
    return OM_OK;
}

/* Does it reach as far as the segment does? From the last entry on there must be no batch that
 * ought to have one. The time index must know of the last entry's batch, and a sealed segment's
 * ends with the largest timestamp of all. */
static int is_whole(const om_index *index, const om_segment *segment, const om_view *view) {
    uint64_t entry = 0, end = view->len;
    int64_t least = segment->base_offset, max_timestamp = -1;
    if (index->time_count)
        max_timestamp = om_index_time(index, index->time_count - 1);
    if (om_segment_is(&segment->sealed) && max_timestamp < segment->max_timestamp)
        return 0;
    if (index->offset_count)
        entry = (uint64_t)om_index_position(index, index->offset_count - 1);
    for (uint64_t at = entry; at < end;) {
        om_step step;
        if (om_segment_step(segment, view, at, least, &step) != OM_OK || (at - entry > OM_INDEX_INTERVAL && !step.bad))
            return 0;
        if (at == entry && index->offset_count &&
            (step.bad || step.last - segment->base_offset != om_index_offset(index, index->offset_count - 1) ||
             step.max_timestamp > max_timestamp))
            return 0;
        if (step.max_timestamp > max_timestamp)
            max_timestamp = step.max_timestamp;
        least = step.last + 1;
        at += step.size;
    }
    return max_timestamp >= segment->max_timestamp;
}

/* ---- from the batches ----------------------------------------------------------------- */

/* Nothing points into a bad stretch. */
static void pass_bad(om_segment *fresh, const om_bad *bad) {
    fresh->size = bad->end;
    fresh->since_index += bad->end - bad->position;
    if (fresh->next_offset <= bad->last)
        fresh->next_offset = bad->last + 1;
}

/* Walk the headers into a fresh segment of the same name: its index is the one wanted. Stops at
 * the first header that isn't one, unless it is known: a reader that looks past it will find out. */
static void walk_headers(const om_segment *segment, const om_view *view, om_segment *fresh) {
    *fresh = (om_segment){
        .files = segment->files,
        .dir = segment->dir,
        .base_offset = segment->base_offset,
        .next_offset = segment->base_offset,
        .first_timestamp = -1,
        .max_timestamp = -1,
        .max_timestamp_offset = -1,
        .index_loaded = 1,
    };
    om_batch_info batch;
    while (fresh->size < view->len) {
        size_t left = view->len - fresh->size;
        const om_bad *bad = om_segment_bad_at(segment, fresh->size);
        if (bad) {
            pass_bad(fresh, bad);
            continue;
        }
        if (om_batch_peek(view->data + fresh->size, left, &batch) != OM_OK || (size_t)batch.size > left ||
            om_segment_count_in(fresh, &batch) != OM_OK)
            return;
    }
}

/* ---- where it goes -------------------------------------------------------------------- */

/* Under the lock. Takes `index` over. */
static void put_in_segment(om_segment *segment, om_index *index) {
    om_index_free(&segment->index);
    segment->index = *index;
    segment->since_index = segment->size;
    if (index->offset_count)
        segment->since_index -= (uint64_t)om_index_position(index, index->offset_count - 1);
    if (segment->max_timestamp_offset < 0 && index->time_count &&
        om_index_time(index, index->time_count - 1) == segment->max_timestamp)
        segment->max_timestamp_offset = segment->base_offset + om_index_time_offset(index, index->time_count - 1);
    __atomic_store_n(&segment->index_loaded, 1, __ATOMIC_RELEASE);
}

/* Takes `index` over. */
static int put_in_mapping(om_mapping *mapping, om_index *index) {
    om_loaded_index *loaded = malloc(sizeof *loaded);
    if (!loaded) {
        om_index_free(index);
        return OM_E_NO_MEMORY;
    }
    loaded->index = *index;
    loaded->older = __atomic_load_n(&mapping->index, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(&mapping->index, &loaded->older, loaded, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    return OM_OK;
}

int om_segment_rebuild_index(om_segment *segment, const om_view *view) {
    om_segment fresh;
    om_sigbus_begin(view);
    walk_headers(segment, view, &fresh);
    int result = om_sigbus_end(view);
    if (result != OM_OK) {
        om_index_free(&fresh.index);
        return result;
    }
    int clean = fresh.size == view->len;
    if (om_segment_is(&segment->sealed))
        om_segment_seal(&fresh);
    om_file_cache_lock(segment->files);
    if (clean && fresh.size == segment->size) {
        segment->max_timestamp = fresh.max_timestamp;
        segment->max_timestamp_offset = fresh.max_timestamp_offset;
    }
    if (segment->index_loaded || !segment->sealed) {
        /* Entries for batches not yet in the file go too: which ones were right is not known, and
         * a hole in a sparse index costs a longer walk, no more. */
        put_in_segment(segment, &fresh.index);
        segment->index_saved = segment->time_saved = 0;
        segment->index_stale = 1;
        om_file_cache_unlock(segment->files);
        return OM_OK;
    }
    om_file_cache_unlock(segment->files);
    if (clean)
        om_segment_replace_index(segment, &fresh.index);
    return put_in_mapping(view->mapping, &fresh.index);
}

int om_segment_need_index(om_segment *segment, const om_view *view) {
    om_mapping *mapping = view->mapping;
    if (om_segment_is(&segment->index_loaded))
        return OM_OK;
    if (om_segment_is(&segment->sealed) && __atomic_load_n(&mapping->index, __ATOMIC_ACQUIRE))
        return OM_OK;
    om_index index;
    int whole = 0, result = om_segment_read_index(segment, view->len, &index);
    if (result == OM_E_NO_MEMORY)
        return result;
    if (result == OM_OK) {
        om_sigbus_begin(view);
        whole = is_whole(&index, segment, view);
        result = om_sigbus_end(view);
        if (result != OM_OK || !whole)
            om_index_free(&index);
        if (result != OM_OK)
            return result;
    }
    if (!whole)
        return om_segment_rebuild_index(segment, view);
    om_file_cache_lock(segment->files);
    if (segment->index_loaded) {
        om_index_free(&index); /* another thread was faster */
    } else if (!segment->sealed) {
        segment->index_saved = index.offset_count;
        segment->time_saved = index.time_count;
        put_in_segment(segment, &index);
    } else {
        om_file_cache_unlock(segment->files);
        return put_in_mapping(mapping, &index);
    }
    om_file_cache_unlock(segment->files);
    return OM_OK;
}

int om_segment_load_index(om_segment *segment) {
    if (om_segment_is(&segment->index_loaded))
        return OM_OK;
    om_view view;
    int result = om_view_open(segment, 0, SIZE_MAX, &view);
    if (result != OM_OK)
        return result == OM_END ? OM_OK : result;
    result = om_segment_need_index(segment, &view);
    om_view_release(&view);
    return result;
}
