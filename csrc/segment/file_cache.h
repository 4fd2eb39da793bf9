/* file_cache.h -- the inside of the cache of open files, shared by the segment's files only.
 *
 *   om_segment --file_slot--> om_file     in use: on no list, or `detached` when the segment
 *              --map_slot---> om_mapping           has a newer one
 *                                         idle: on an LRU list, most recent first
 *                                         retired: waits for om_file_cache_reap to close or unmap it
 *
 * The cache's lock is never held over a system call.
 */
#ifndef OM_FILE_CACHE_H
#define OM_FILE_CACHE_H
#include "base/bytes.h"
#include "format/batch.h"
#include "segment/segment.h"

typedef struct om_slot {
    struct om_slot *prev, *next;
    om_segment *segment; /* NULL once the segment has let go of it */
    int refs;            /* guarded by the cache's lock */
} om_slot;

typedef struct om_file {
    om_slot slot; /* first: a slot on a list of files is a file */
    int fd;
    uint8_t dirty; /* written since its last sync */
} om_file;

/* A loaded index of a sealed segment. A wrong one is replaced, but others may be searching it:
 * it stays in the chain until the mapping goes. */
typedef struct om_loaded_index {
    om_index index;
    struct om_loaded_index *older;
} om_loaded_index;

typedef struct om_mapping {
    om_slot slot; /* first */
    uint8_t *base;
    size_t len;             /* a growing file's is mapped beyond its end: it grows into it */
    size_t good;            /* atomic: the lowest byte that faulted, len when none has */
    om_loaded_index *index; /* atomic: sealed segments only, NULL until it is needed */
    int written;            /* it is for writing too: so must be what stands in for a lost page */
} om_mapping;
/* The same as a view's guard, for a mapping of another kind: until it is called with NULL. */
void om_sigbus_mapping(const om_mapping *mapping);

void om_file_cache_lock(om_file_cache *files);
void om_file_cache_unlock(om_file_cache *files);
/* One index at a time is saved: this one is held while its files are written. */
void om_file_cache_lock_saving(om_file_cache *files);
void om_file_cache_unlock_saving(om_file_cache *files);

/* The segment's open file, opened when it isn't; a count is taken. */
int om_file_cache_open(om_segment *segment, om_file **out);
/* A descriptor just created for this segment goes into the cache, with a count taken. */
int om_file_cache_adopt(om_segment *segment, int fd, om_file **out);
void om_file_cache_close(om_file_cache *files, om_file *file);
void om_file_cache_set_dirty(om_file_cache *files, om_file *file, int dirty);
/* The file behind a descriptor that a range holds. */
om_file *om_file_cache_by_fd(om_segment *segment, int fd);

/* A mapping of [0, end) or more. OM_E_RANGE: the file has been cut below `end` on purpose. */
int om_file_cache_map(om_segment *segment, uint64_t end, om_mapping **out);
void om_file_cache_unmap(om_file_cache *files, om_mapping *mapping);

/* New readers open and map anew; what is in use stays until it is let go. */
void om_file_cache_forget(om_segment *segment);
void om_file_cache_forget_map(om_segment *segment);

/* ---- segment.c ---- */
#define OM_PATH_MAX 4096
int om_segment_path(const om_segment *segment, const char *suffix, char *path, size_t cap);
/* Count a batch in: its place, its timestamps, its index entries. No lock, no file. */
int om_segment_count_in(om_segment *segment, const om_batch_info *batch);
void om_segment_fence(om_segment *segment);

/* ---- segment_write.c ---- */
/* Replace an index file as a whole. No entries: it is removed. */
int om_segment_replace_index(const om_segment *segment, const om_index *index);

/* ---- segment_index.c ---- */
/* The index files' bytes, checked; missing files are empty ones. OM_E_CORRUPT: not an index. */
int om_segment_read_index(const om_segment *segment, uint64_t size, om_index *out);
/* Have an index to search: the segment's own, or the mapping's. The view is all that is written. */
int om_segment_need_index(om_segment *segment, const om_view *view);
/* The one at hand proved wrong: make it anew from the batch headers. */
int om_segment_rebuild_index(om_segment *segment, const om_view *view);

static inline uint64_t om_segment_written(const om_segment *segment) {
    return __atomic_load_n(&segment->written, __ATOMIC_ACQUIRE);
}

static inline int om_segment_is(const uint8_t *mark) {
    return __atomic_load_n(mark, __ATOMIC_ACQUIRE);
}

/* As much of a batch header as a walk needs: to see that it is one, and to step on. */
typedef struct om_step {
    int64_t first, last; /* offsets */
    int64_t max_timestamp;
    uint64_t size;
    int bad; /* a stretch that can't be read: nothing but its offsets and size counts */
} om_step;

/* The batch at `at`, which must end at or before `end` and not go back below offset `least`.
 * OM_E_SHORT: it isn't all there. */
static inline int om_step_at(const uint8_t *base, uint64_t at, uint64_t end, int64_t least, om_step *step) {
    const uint8_t *header = base + at;
    if (end - at < OM_BATCH_OVERHEAD)
        return OM_E_SHORT;
    uint32_t length = om_get_be32(header + 8);
    int32_t delta = (int32_t)om_get_be32(header + 23);
    step->first = (int64_t)om_get_be64(header);
    step->max_timestamp = (int64_t)om_get_be64(header + 35);
    if (length < OM_BATCH_OVERHEAD - 12 || length > INT32_MAX - 12 || header[16] != OM_BATCH_MAGIC || delta < 0 ||
        step->first < least || step->first > INT64_MAX - delta)
        return OM_E_CORRUPT;
    step->last = step->first + delta;
    step->size = length + UINT64_C(12);
    step->bad = 0;
    return step->size <= end - at ? OM_OK : OM_E_SHORT;
}

/* ---- segment_damage.c ---- */
int om_segment_step_surveyed(const om_segment *segment, const om_view *view, uint64_t at, int64_t least, om_step *step);

/* The same for all that is known of the segment: a bad stretch is one step. The view begins at 0. */
static inline int om_segment_step(const om_segment *segment, const om_view *view, uint64_t at, int64_t least,
                                  om_step *step) {
    return __atomic_load_n(&segment->damages, __ATOMIC_ACQUIRE)
               ? om_segment_step_surveyed(segment, view, at, least, step)
               : om_step_at(view->data, at, view->len, least, step);
}
#endif
