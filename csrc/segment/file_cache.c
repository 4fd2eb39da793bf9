/* file_cache.c -- the cache of open files and mappings: counted, LRU-bounded (file_cache.h draws it).
 *
 * Promise: files and mappings in use are never closed or unmapped; idle ones stay while they fit the
 * bounds. A warm mapping is taken in constant time under one short lock and without a system
 * call. Letting go closes and unmaps nothing: om_file_cache_reap does.
 */
#define _GNU_SOURCE
#include "segment/file_cache.h"

#include "base/file_util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel allows some 65,000 maps per process by default; the rest of the process needs some, too. */
#define MAPPINGS_MAX 16384
#define FIRST_MAPPING 65536
/* A look-up lets the dead wait for a thread that may block, but not without bound. */
#define RETIRED_MAX 64

struct om_file_cache {
    pthread_mutex_t mutex, saving;
    uint32_t max_open;
    uint64_t max_mapped;
    uint64_t open_files, mappings, mapped_bytes, evictions;
    om_slot clean, dirty; /* idle files: those with unsynced bytes go last */
    om_slot maps;         /* idle mappings */
    om_slot detached;     /* files in use that no segment points to any more */
    om_slot *retired_files, *retired_maps;
    uint32_t retired;
};

void om_file_cache_lock(om_file_cache *files) {
    pthread_mutex_lock(&files->mutex);
}

void om_file_cache_unlock(om_file_cache *files) {
    pthread_mutex_unlock(&files->mutex);
}

void om_file_cache_lock_saving(om_file_cache *files) {
    pthread_mutex_lock(&files->saving);
}

void om_file_cache_unlock_saving(om_file_cache *files) {
    pthread_mutex_unlock(&files->saving);
}

/* ---- lists: a ring with its head as an element ---------------------------------------- */

static void list_init(om_slot *list) {
    list->prev = list->next = list;
}

static void list_push(om_slot *list, om_slot *slot) {
    slot->prev = list;
    slot->next = list->next;
    slot->next->prev = slot;
    list->next = slot;
}

static void list_remove(om_slot *slot) {
    slot->prev->next = slot->next;
    slot->next->prev = slot->prev;
}

static om_slot *list_oldest(om_slot *list) {
    return list->prev == list ? NULL : list->prev;
}

/* ---- the bounds ----------------------------------------------------------------------- */

static void retire_file(om_file_cache *files, om_file *file) {
    if (file->slot.segment)
        file->slot.segment->file_slot = NULL;
    files->open_files--;
    files->retired++;
    file->slot.next = files->retired_files;
    files->retired_files = &file->slot;
}

static void retire_map(om_file_cache *files, om_mapping *mapping) {
    if (mapping->slot.segment)
        mapping->slot.segment->map_slot = NULL;
    files->mappings--;
    files->mapped_bytes -= mapping->len;
    files->retired++;
    mapping->slot.next = files->retired_maps;
    files->retired_maps = &mapping->slot;
}

static int evict_file(om_file_cache *files) {
    om_slot *slot = list_oldest(&files->clean);
    if (!slot)
        slot = list_oldest(&files->dirty);
    if (!slot)
        return 0;
    list_remove(slot);
    retire_file(files, (om_file *)slot);
    files->evictions++;
    return 1;
}

static int evict_map(om_file_cache *files) {
    om_slot *slot = list_oldest(&files->maps);
    if (!slot)
        return 0;
    list_remove(slot);
    retire_map(files, (om_mapping *)slot);
    files->evictions++;
    return 1;
}

static void keep_bounds(om_file_cache *files) {
    while (files->open_files > files->max_open && evict_file(files))
        ;
    while ((files->mapped_bytes > files->max_mapped || files->mappings > MAPPINGS_MAX) && evict_map(files))
        ;
}

void om_file_cache_reap(om_file_cache *files) {
    om_file_cache_lock(files);
    om_slot *dead_files = files->retired_files, *dead_maps = files->retired_maps;
    files->retired_files = files->retired_maps = NULL;
    files->retired = 0;
    om_file_cache_unlock(files);
    int kept = errno;
    while (dead_files) {
        om_file *file = (om_file *)dead_files;
        dead_files = dead_files->next;
        close(file->fd);
        free(file);
    }
    while (dead_maps) {
        om_mapping *mapping = (om_mapping *)dead_maps;
        dead_maps = dead_maps->next;
        munmap(mapping->base, mapping->len);
        while (mapping->index) {
            om_loaded_index *index = mapping->index;
            mapping->index = index->older;
            om_index_free(&index->index);
            free(index);
        }
        free(mapping);
    }
    errno = kept;
}

static void reap_when_many(om_file_cache *files) {
    om_file_cache_lock(files);
    int many = files->retired > RETIRED_MAX;
    om_file_cache_unlock(files);
    if (many)
        om_file_cache_reap(files);
}

/* Descriptors or maps ran out, in this process or in the whole system: give some back. */
static void make_room(om_file_cache *files) {
    om_file_cache_lock(files);
    for (int i = 0; i < RETIRED_MAX; i++) {
        evict_file(files);
        evict_map(files);
    }
    om_file_cache_unlock(files);
    om_file_cache_reap(files);
}

/* ---- life ----------------------------------------------------------------------------- */

om_file_cache *om_file_cache_new(uint32_t max_open, uint64_t max_mapped) {
    om_file_cache *files = calloc(1, sizeof *files);
    if (!files)
        return NULL;
    pthread_mutex_init(&files->mutex, NULL);
    pthread_mutex_init(&files->saving, NULL);
    files->max_open = max_open;
    files->max_mapped = max_mapped;
    list_init(&files->clean);
    list_init(&files->dirty);
    list_init(&files->maps);
    list_init(&files->detached);
    return files;
}

void om_file_cache_free(om_file_cache *files) {
    if (!files)
        return;
    om_file_cache_reap(files);
    pthread_mutex_destroy(&files->saving);
    pthread_mutex_destroy(&files->mutex);
    free(files);
}

void om_file_cache_stat_get(om_file_cache *files, om_file_cache_stat *out) {
    om_file_cache_lock(files);
    *out = (om_file_cache_stat){files->open_files, files->mappings, files->mapped_bytes, files->evictions};
    om_file_cache_unlock(files);
}

static void detach_file(om_segment *segment) {
    om_file *file = segment->file_slot;
    if (!file)
        return;
    segment->file_slot = NULL;
    file->slot.segment = NULL;
    if (file->slot.refs) {
        list_push(&segment->files->detached, &file->slot);
    } else {
        list_remove(&file->slot);
        retire_file(segment->files, file);
    }
}

static void detach_map(om_segment *segment) {
    om_mapping *mapping = segment->map_slot;
    if (!mapping)
        return;
    segment->map_slot = NULL;
    mapping->slot.segment = NULL;
    if (!mapping->slot.refs) {
        list_remove(&mapping->slot);
        retire_map(segment->files, mapping);
    }
}

void om_file_cache_forget_map(om_segment *segment) {
    om_file_cache_lock(segment->files);
    detach_map(segment);
    om_file_cache_unlock(segment->files);
}

void om_file_cache_forget(om_segment *segment) {
    om_file_cache_lock(segment->files);
    detach_file(segment);
    detach_map(segment);
    om_file_cache_unlock(segment->files);
}

/* ---- files ---------------------------------------------------------------------------- */

static om_file *take_file(om_segment *segment) {
    om_file *file = segment->file_slot;
    if (file && file->slot.refs++ == 0)
        list_remove(&file->slot);
    return file;
}

int om_file_cache_adopt(om_segment *segment, int fd, om_file **out) {
    om_file_cache *files = segment->files;
    om_file *file = calloc(1, sizeof *file);
    if (!file) {
        close(fd);
        return OM_E_NO_MEMORY;
    }
    file->fd = fd;
    om_file_cache_lock(files);
    files->open_files++;
    *out = take_file(segment);
    if (*out) {
        /* Another thread was faster: one descriptor is enough. */
        retire_file(files, file);
    } else {
        file->slot.segment = segment;
        file->slot.refs = 1;
        segment->file_slot = *out = file;
    }
    keep_bounds(files);
    om_file_cache_unlock(files);
    return OM_OK;
}

int om_file_cache_open(om_segment *segment, om_file **out) {
    om_file_cache *files = segment->files;
    om_file_cache_lock(files);
    *out = take_file(segment);
    om_file_cache_unlock(files);
    if (*out)
        return OM_OK;
    if (om_segment_is(&segment->deleted))
        return OM_E_DELETED;

    char path[OM_PATH_MAX];
    if (om_segment_path(segment, ".log", path, sizeof path) != OM_OK)
        return OM_E_IO;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        make_room(files);
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (fd < 0 && (errno == EROFS || errno == EACCES))
        fd = open(path, O_RDONLY | O_CLOEXEC); /* enough to look at it */
    if (fd < 0)
        return om_errno_result();
    if (om_segment_is(&segment->deleted)) {
        close(fd); /* just now: the name may be another file's already */
        return OM_E_DELETED;
    }
    return om_file_cache_adopt(segment, fd, out);
}

void om_file_cache_close(om_file_cache *files, om_file *file) {
    om_file_cache_lock(files);
    if (--file->slot.refs == 0) {
        if (file->slot.segment) {
            list_push(file->dirty ? &files->dirty : &files->clean, &file->slot);
            keep_bounds(files);
        } else {
            list_remove(&file->slot);
            retire_file(files, file);
        }
    }
    om_file_cache_unlock(files);
}

void om_file_cache_set_dirty(om_file_cache *files, om_file *file, int dirty) {
    om_file_cache_lock(files);
    file->dirty = (uint8_t)dirty;
    om_file_cache_unlock(files);
}

om_file *om_file_cache_by_fd(om_segment *segment, int fd) {
    om_file_cache *files = segment->files;
    om_file_cache_lock(files);
    om_file *file = segment->file_slot;
    if (!file || file->fd != fd) {
        file = NULL;
        for (om_slot *slot = files->detached.next; slot != &files->detached; slot = slot->next)
            if (((om_file *)slot)->fd == fd)
                file = (om_file *)slot;
    }
    om_file_cache_unlock(files);
    return file;
}

/* ---- mappings ------------------------------------------------------------------------- */

static om_mapping *take_map(om_segment *segment, uint64_t end) {
    om_mapping *mapping = segment->map_slot;
    /* Past a page that faulted there are zeros of ours: a reader that needs that part maps anew. */
    if (!mapping || end > __atomic_load_n(&mapping->good, __ATOMIC_RELAXED))
        return NULL;
    if (mapping->slot.refs++ == 0)
        list_remove(&mapping->slot);
    return mapping;
}

/* A growing segment is mapped with room to grow: remapped each time it doubles, not with each
 * batch. Pages beyond the end of the file are there as soon as the file is. */
static size_t mapping_len(const om_segment *segment, uint64_t end) {
    if (om_segment_is(&segment->sealed)) {
        uint64_t written = om_segment_written(segment);
        return written > end ? written : end;
    }
    size_t len = FIRST_MAPPING;
    while (len < end)
        len *= 2;
    return len;
}

static int map_file(om_segment *segment, int fd, uint64_t end, om_mapping **out) {
    struct stat stat;
    if (fstat(fd, &stat) < 0)
        return om_errno_result();
    /* Shorter than what was written to it: cut by someone else. Once that is known, readers keep to what
     * is left, and the guard is there for those that don't. */
    if ((uint64_t)stat.st_size < end && (om_segment_written(segment) < end || !om_segment_is_damaged(segment)))
        return om_segment_written(segment) < end ? OM_E_RANGE : OM_E_UNREADABLE;
    om_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return OM_E_NO_MEMORY;
    mapping->len = mapping->good = mapping_len(segment, end);
    mapping->slot.refs = 1;
    mapping->base = mmap(NULL, mapping->len, PROT_READ, MAP_SHARED, fd, 0);
    if (mapping->base == MAP_FAILED) {
        make_room(segment->files);
        mapping->base = mmap(NULL, mapping->len, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (mapping->base == MAP_FAILED) {
        free(mapping);
        return om_errno_result();
    }
    *out = mapping;
    return OM_OK;
}

/* Put a fresh mapping in the place of the segment's old one, unless another thread was faster. */
static om_mapping *install_map(om_segment *segment, uint64_t end, om_mapping *fresh) {
    om_file_cache *files = segment->files;
    om_file_cache_lock(files);
    files->mappings++;
    files->mapped_bytes += fresh->len;
    om_mapping *taken = take_map(segment, end);
    if (taken) {
        retire_map(files, fresh);
        fresh = taken;
    } else if (!om_segment_is(&segment->deleted)) {
        detach_map(segment);
        fresh->slot.segment = segment;
        segment->map_slot = fresh;
    }
    keep_bounds(files);
    om_file_cache_unlock(files);
    return fresh;
}

int om_file_cache_map(om_segment *segment, uint64_t end, om_mapping **out) {
    om_file_cache *files = segment->files;
    om_file_cache_lock(files);
    *out = take_map(segment, end);
    om_file_cache_unlock(files);
    if (*out)
        return OM_OK;

    om_file *file;
    int result = om_file_cache_open(segment, &file);
    if (result != OM_OK) {
        int gone = result == OM_E_IO && errno != EMFILE && errno != ENFILE;
        return gone ? OM_E_UNREADABLE : result;
    }
    om_mapping *fresh = NULL;
    result = map_file(segment, file->fd, end, &fresh);
    om_file_cache_close(files, file);
    if (result == OM_OK)
        *out = install_map(segment, end, fresh);
    reap_when_many(files);
    return result;
}

void om_file_cache_unmap(om_file_cache *files, om_mapping *mapping) {
    om_file_cache_lock(files);
    if (--mapping->slot.refs == 0) {
        if (mapping->slot.segment) {
            list_push(&files->maps, &mapping->slot);
            keep_bounds(files);
        } else {
            retire_map(files, mapping);
        }
    }
    om_file_cache_unlock(files);
}
