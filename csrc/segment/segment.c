/* segment.c -- a segment's life, and the store's half of it: deciding where a batch goes.
 *
 * Promise: nothing in the store's half touches a file or waits for one. The cache's lock is
 * taken for a moment where the index changes, because look-ups of other threads search it.
 */
#include "segment/file_cache.h"

#include "base/file_util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- life ----------------------------------------------------------------------------- */

int om_segment_path(const om_segment *segment, const char *suffix, char *path, size_t cap) {
    int len = snprintf(path, cap, "%s/%020" PRId64 "%s", segment->dir, segment->base_offset, suffix);
    if (len > 0 && (size_t)len < cap)
        return OM_OK;
    errno = ENAMETOOLONG;
    return OM_E_IO;
}

om_segment *om_segment_new(om_file_cache *files, const char *dir, int64_t base_offset) {
    om_segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return NULL;
    segment->files = files;
    segment->dir = dir;
    segment->base_offset = segment->next_offset = base_offset;
    segment->first_timestamp = segment->max_timestamp = segment->max_timestamp_offset = -1;
    segment->snapshot = -1;
    segment->index_loaded = 1;
    segment->refs = 1;
    return segment;
}

om_segment *om_segment_open(om_file_cache *files, const char *dir, int64_t base_offset, int *result) {
    om_segment *segment = om_segment_new(files, dir, base_offset);
    if (!segment) {
        *result = OM_E_NO_MEMORY;
        return NULL;
    }
    char path[OM_PATH_MAX];
    struct stat info;
    *result = om_segment_path(segment, ".log", path, sizeof path);
    if (*result == OM_OK && stat(path, &info) < 0)
        *result = om_errno_result();
    if (*result != OM_OK) {
        om_segment_unref(segment);
        return NULL;
    }
    segment->size = segment->written = segment->allocated = segment->inherited = (uint64_t)info.st_size;
    segment->exists = 1;
    segment->index_loaded = 0;
    return segment;
}

void om_segment_trust(om_segment *segment, int64_t next_offset, uint64_t size, int64_t first_timestamp,
                      int64_t max_timestamp) {
    om_file_cache_lock(segment->files);
    segment->next_offset = next_offset;
    segment->size = size;
    segment->first_timestamp = first_timestamp;
    segment->max_timestamp = max_timestamp;
    segment->max_timestamp_offset = -1;
    segment->since_index = size;
    om_index_free(&segment->index);
    segment->index_saved = segment->time_saved = 0;
    segment->index_loaded = size == 0;
    segment->index_stale = size == 0;
    __atomic_store_n(&segment->written, size, __ATOMIC_RELEASE);
    om_file_cache_unlock(segment->files);
}

void om_segment_ref(om_segment *segment) {
    __atomic_add_fetch(&segment->refs, 1, __ATOMIC_RELAXED);
}

void om_segment_unref(om_segment *segment) {
    if (__atomic_sub_fetch(&segment->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    om_file_cache_forget(segment);
    om_index_free(&segment->index);
    om_damages_free(segment->damages);
    free(segment);
}

void om_segment_fence(om_segment *segment) {
    __atomic_store_n(&segment->fenced, 1, __ATOMIC_RELEASE);
}

/* ---- the store's half ---------------------------------------------------------------- */

int om_segment_must_roll(const om_segment *segment, const om_segment_limits *limits, const om_batch_info *batch,
                         int64_t now_ms) {
    if (segment->size == 0)
        return 0;
    if (segment->sealed || om_segment_is(&segment->fenced) || om_segment_is(&segment->deleted) ||
        om_segment_is_damaged(segment))
        return 1;
    uint64_t size = segment->size + (uint64_t)batch->size;
    if (size > limits->segment_size || size > INT32_MAX)
        return 1;
    if (limits->index_max && segment->index.offset_count >= limits->index_max)
        return 1;
    if (batch->base_offset + batch->last_offset_delta - segment->base_offset > INT32_MAX)
        return 1;
    if (limits->max_age_ms <= 0 || segment->first_timestamp < 0)
        return 0;
    /* Producers may send old or far-off timestamps. By the clock alone, old ones would open a
     * segment for each batch; by the batch alone, so would one that is years ahead. */
    int64_t now = batch->max_timestamp < now_ms ? batch->max_timestamp : now_ms;
    return now > segment->first_timestamp && now - segment->first_timestamp > limits->max_age_ms;
}

/* The time entry that belongs to the last offset entry, or that closes the index. None when the
 * largest timestamp has one already, or when its offset isn't known (after a cut). */
static void add_time_entry(om_segment *segment) {
    if (segment->max_timestamp >= 0 && segment->max_timestamp_offset >= segment->base_offset)
        om_index_add_time(&segment->index, segment->max_timestamp,
                          (int32_t)(segment->max_timestamp_offset - segment->base_offset));
}

int om_segment_count_in(om_segment *segment, const om_batch_info *batch) {
    int64_t last = batch->base_offset + batch->last_offset_delta;
    if (batch->base_offset < segment->next_offset || last - segment->base_offset > INT32_MAX ||
        segment->size > INT32_MAX)
        return OM_E_RANGE;
    if (segment->size == 0)
        segment->first_timestamp =
            batch->attributes & OM_ATTR_DELETE_HORIZON ? batch->max_timestamp : batch->base_timestamp;
    if (batch->max_timestamp > segment->max_timestamp) {
        __atomic_store_n(&segment->max_timestamp, batch->max_timestamp, __ATOMIC_RELAXED);
        segment->max_timestamp_offset = last;
    }
    /* An entry that finds no memory is left out: the next batch tries again. */
    if (segment->index_loaded && segment->since_index > OM_INDEX_INTERVAL &&
        om_index_add(&segment->index, (int32_t)(last - segment->base_offset), (int32_t)segment->size) == OM_OK) {
        add_time_entry(segment);
        segment->since_index = 0;
    }
    segment->since_index += (uint64_t)batch->size;
    __atomic_store_n(&segment->size, segment->size + (uint64_t)batch->size, __ATOMIC_RELAXED);
    /* Last: look-ups read these without the lock to see at once what can't be there. */
    __atomic_store_n(&segment->next_offset, last + 1, __ATOMIC_RELEASE);
    return OM_OK;
}

int64_t om_segment_place(om_segment *segment, const om_batch_info *batch) {
    if (segment->sealed || batch->size < OM_BATCH_OVERHEAD || batch->base_offset < 0 || batch->last_offset_delta < 0 ||
        batch->base_offset > INT64_MAX - batch->last_offset_delta)
        return OM_E_INVALID;
    om_file_cache_lock(segment->files);
    int64_t position = (int64_t)segment->size;
    int result = om_segment_count_in(segment, batch);
    om_file_cache_unlock(segment->files);
    return result == OM_OK ? position : result;
}

void om_segment_seal(om_segment *segment) {
    om_file_cache_lock(segment->files);
    if (!segment->sealed && segment->index_loaded)
        add_time_entry(segment);
    __atomic_store_n(&segment->sealed, 1, __ATOMIC_RELEASE);
    om_file_cache_unlock(segment->files);
}

void om_segment_cut(om_segment *segment, uint64_t size, int64_t next_offset) {
    om_file_cache_lock(segment->files);
    om_index *index = &segment->index;
    uint32_t offsets = index->offset_count, times = index->time_count;
    om_index_cut(index, next_offset - segment->base_offset, (int64_t)size);
    if (offsets != index->offset_count || times != index->time_count || !segment->index_loaded)
        segment->index_stale = 1;
    if (segment->index_saved > index->offset_count)
        segment->index_saved = index->offset_count;
    if (segment->time_saved > index->time_count)
        segment->time_saved = index->time_count;
    segment->size = size;
    segment->next_offset = next_offset;
    segment->since_index = size;
    if (index->offset_count)
        segment->since_index -= (uint64_t)om_index_position(index, index->offset_count - 1);
    /* The largest timestamp may have gone with the cut. What is left has none larger: as a bound
     * it still serves, but no batch is known to hold it, so no time entry may name it. */
    if (segment->max_timestamp_offset >= next_offset)
        segment->max_timestamp_offset = -1;
    if (size == 0) {
        segment->first_timestamp = segment->max_timestamp = segment->max_timestamp_offset = -1;
        segment->index_loaded = 1;
    }
    if (om_segment_written(segment) > size)
        __atomic_store_n(&segment->written, size, __ATOMIC_RELEASE);
    om_file_cache_unlock(segment->files);
    om_file_cache_forget_map(segment); /* and with it an index that knows what is gone */
}

static int copy_entries(uint8_t **out, const uint8_t *entries, uint32_t first, uint32_t end, size_t entry) {
    if (first == end)
        return OM_OK;
    *out = malloc((end - first) * entry);
    if (!*out)
        return OM_E_NO_MEMORY;
    memcpy(*out, entries + first * entry, (end - first) * entry);
    return OM_OK;
}

int om_segment_unsaved_index(om_segment *segment, om_index *copy) {
    om_index_init(copy);
    om_file_cache_lock(segment->files);
    const om_index *index = &segment->index;
    int result = OM_OK;
    if (segment->index_loaded) {
        result =
            copy_entries(&copy->offsets, index->offsets, segment->index_saved, index->offset_count, OM_OFFSET_ENTRY);
        if (result == OM_OK)
            result = copy_entries(&copy->times, index->times, segment->time_saved, index->time_count, OM_TIME_ENTRY);
        copy->offset_count = copy->offset_cap = index->offset_count - segment->index_saved;
        copy->time_count = copy->time_cap = index->time_count - segment->time_saved;
    }
    om_file_cache_unlock(segment->files);
    if (result != OM_OK)
        om_index_free(copy);
    return result;
}
