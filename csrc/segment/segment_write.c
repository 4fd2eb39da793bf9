/* segment_write.c -- the writer's half: the bytes of a segment go to its file.
 *
 * Promise: OM_OK means that every byte is in the file (and on disk, for a sync); anything else
 * leaves the segment so that the same call can be made again. Everything here may block.
 */
#define _GNU_SOURCE
#include "segment/file_cache.h"

#include "base/file_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_ALLOCATION 65536
#define WRITE_MOST (64 * 1024)
#define WRITE_BACK (4u << 20)

/* ---- folders and files ---------------------------------------------------------------- */

/* Cut a path down to its parent. 0 when there is none. */
static int to_parent(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return 0;
    *slash = 0;
    return 1;
}

/* mkdir -p. Returns how many folders were made, -1 with errno. */
static int make_folders(const char *dir) {
    char path[OM_PATH_MAX];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (mkdir(path, 0777) == 0)
        return 1;
    if (errno == EEXIST)
        return 0;
    if (errno != ENOENT || !to_parent(path))
        return -1;
    int made = make_folders(path);
    if (made < 0)
        return -1;
    if (mkdir(dir, 0777) == 0)
        return made + 1;
    return errno == EEXIST ? made : -1;
}

/* A new segment starts empty, whatever an earlier life may have left under its name: old bytes
 * past the new ones would be taken for batches by the scan after a crash. */
static int create(om_segment *segment, om_file **file) {
    char path[OM_PATH_MAX];
    if (om_segment_path(segment, ".log", path, sizeof path) != OM_OK)
        return OM_E_IO;
    int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, made = 0;
    int fd = open(path, flags, 0666);
    if (fd < 0 && errno == ENOENT) {
        made = make_folders(segment->dir);
        if (made < 0)
            return om_errno_result();
        fd = open(path, flags, 0666);
    }
    if (fd < 0)
        return om_errno_result();
    segment->allocated = 0;
    __atomic_store_n(&segment->unsynced_folders, (uint8_t)(made < 200 ? made + 1 : 200), __ATOMIC_RELEASE);
    __atomic_store_n(&segment->exists, 1, __ATOMIC_RELEASE);
    return om_file_cache_adopt(segment, fd, file);
}

static int open_for_writing(om_segment *segment, om_file **file) {
    if (om_segment_is(&segment->deleted))
        return OM_E_DELETED;
    return segment->exists ? om_file_cache_open(segment, file) : create(segment, file);
}

/* ---- writing -------------------------------------------------------------------------- */

static int truncate_to(int fd, uint64_t size) {
    int result;
    do {
        result = ftruncate(fd, (off_t)size);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? om_errno_result() : OM_OK;
}

/* Allocate ahead, doubling: few extents for a large segment, 64 KiB for a small one. Only a
 * hint: where the file system can't or the disk is nearly full, the write itself decides. */
static void allocate(om_segment *segment, const om_segment_limits *limits, int fd, uint64_t end) {
    if (!limits->pre_allocate || end <= segment->allocated)
        return;
    uint64_t target = limits->initial_size ? limits->initial_size : FIRST_ALLOCATION;
    while (target < end)
        target *= 2;
    if (target > limits->segment_size)
        target = end > limits->segment_size ? end : limits->segment_size;
    int result;
    do {
        result = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)segment->allocated, (off_t)(target - segment->allocated));
    } while (result < 0 && errno == EINTR);
    if (result == 0) {
        segment->allocated = target;
    } else if (errno == EOPNOTSUPP || errno == ENOSYS) {
        segment->allocated = UINT64_MAX; /* never here: don't ask again */
    } else {
        /* What it got before the disk was full would be missing elsewhere: back with it, and
         * not asked for again with the very next batch. */
        struct stat info;
        if (fstat(fd, &info) == 0)
            truncate_to(fd, (uint64_t)info.st_size);
        segment->allocated = end + FIRST_ALLOCATION;
    }
}

/* The next piece to write: iov from byte `done` of entry `next` on, up to the next multiple of
 * WRITE_MOST in the file: blocks of the page cache are then written once and whole. Not more: the
 * kernel takes page cache in blocks as large as the write, and large blocks are memory that a virtual
 * machine has often not touched before; the host then gives it page by page, at a tenth of the speed.
 * 64 KiB per call costs nothing (3 GB/s either way where the memory is there). */
static int next_piece(const struct iovec *iov, int iovcnt, int next, size_t done, uint64_t position,
                      struct iovec *window) {
    int count = 0;
    size_t room = WRITE_MOST - position % WRITE_MOST;
    for (; next < iovcnt && count < IOV_MAX && room; next++, done = 0) {
        size_t len = iov[next].iov_len - done;
        if (len > room)
            len = room;
        window[count++] = (struct iovec){(uint8_t *)iov[next].iov_base + done, len};
        room -= len;
    }
    return count;
}

/* All of iov at position, however the kernel cuts it up. */
static int write_all(int fd, const struct iovec *iov, int iovcnt, uint64_t position) {
    struct iovec window[IOV_MAX];
    int next = 0;
    size_t done = 0; /* bytes of iov[next] already written */
    for (;;) {
        while (next < iovcnt && done == iov[next].iov_len) {
            next++;
            done = 0;
        }
        if (next == iovcnt)
            return OM_OK;
        int count = next_piece(iov, iovcnt, next, done, position, window);
        ssize_t wrote = pwritev(fd, window, count, (off_t)position);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            if (wrote == 0)
                errno = EIO;
            return om_errno_result();
        }
        position += (uint64_t)wrote;
        for (size_t left = (size_t)wrote; left > 0;) {
            size_t here = iov[next].iov_len - done;
            if (left < here) {
                done += left;
                break;
            }
            left -= here;
            next++;
            done = 0;
        }
    }
}

/* Complete blocks go on their way to the disk. Left to the kernel they gather for half a minute, or to
 * the next checkpoint, and then take the disk from the WAL all at once. */
static void begin_write_back(int fd, uint64_t position, uint64_t end) {
    uint64_t from = position / WRITE_BACK * WRITE_BACK, to = end / WRITE_BACK * WRITE_BACK;
    if (to > from)
        sync_file_range(fd, (off_t)from, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
}

/* The bytes [position, end) are in the file: readable, once nothing is missing before them. */
static void join(om_segment *segment, uint64_t position, uint64_t end) {
    uint64_t written = om_segment_written(segment);
    if (position <= written && end > written)
        __atomic_store_n(&segment->written, end, __ATOMIC_RELEASE);
}

int om_segment_write(om_segment *segment, const om_segment_limits *limits, const struct iovec *iov, int iovcnt,
                     uint64_t position) {
    uint64_t end = position;
    for (int i = 0; i < iovcnt; i++)
        if (__builtin_add_overflow(end, iov[i].iov_len, &end) || end > INT64_MAX)
            return OM_E_INVALID;
    om_file *file;
    int result = open_for_writing(segment, &file);
    if (result != OM_OK)
        return result;
    om_file_cache_set_dirty(segment->files, file, 1);
    allocate(segment, limits, file->fd, end);
    result = write_all(file->fd, iov, iovcnt, position);
    if (result == OM_OK && limits->write_back)
        begin_write_back(file->fd, position, end);
    if (result == OM_OK)
        join(segment, position, end);
    om_file_cache_close(segment->files, file);
    om_file_cache_reap(segment->files);
    return result;
}

/* The new file's entry in its folder, and the folders' own where we made them. */
static int sync_folders(om_segment *segment) {
    char path[OM_PATH_MAX];
    if (snprintf(path, sizeof path, "%s", segment->dir) >= (int)sizeof path)
        return OM_E_IO;
    int folders = om_segment_is(&segment->unsynced_folders);
    for (int i = 0; i < folders; i++) {
        int result = om_fsync_folder(path);
        if (result != OM_OK)
            return result;
        if (!to_parent(path))
            break;
    }
    __atomic_store_n(&segment->unsynced_folders, 0, __ATOMIC_RELEASE);
    return OM_OK;
}

int om_segment_sync(om_segment *segment) {
    if (!om_segment_is(&segment->exists))
        return OM_OK;
    om_file *file;
    int result = om_file_cache_open(segment, &file);
    if (result != OM_OK)
        return result;
    /* Clean from here on: bytes written while the sync runs make it dirty again. */
    om_file_cache_set_dirty(segment->files, file, 0);
    if (fdatasync(file->fd) < 0) {
        result = OM_E_IO; /* whatever the reason, the kernel may have dropped the pages: not to be asked again */
        om_file_cache_set_dirty(segment->files, file, 1);
    }
    om_file_cache_close(segment->files, file);
    om_file_cache_reap(segment->files);
    return result == OM_OK && om_segment_is(&segment->unsynced_folders) ? sync_folders(segment) : result;
}

/* ---- index files ---------------------------------------------------------------------- */

/* A copy of entries, and the number of the first one in the index it was made from. */
typedef struct om_entries {
    const uint8_t *data;
    uint32_t first, count;
} om_entries;

/* Are they (still) in the index, with all before them in the file? Others may have saved them
 * meanwhile, or a cut may have dropped them. Under the cache's lock. */
static int is_next(const uint8_t *index, uint32_t index_count, uint32_t saved, uint32_t first, om_entries *entries,
                   size_t entry) {
    entries->first = entries->count ? first : saved;
    if (!entries->count)
        return 1;
    return first <= saved && entries->count <= index_count - first &&
           memcmp(index + first * entry, entries->data, entries->count * entry) == 0;
}

static int are_next(const om_segment *segment, om_entries *offsets, om_entries *times) {
    const om_index *index = &segment->index;
    uint32_t offset = offsets->count ? om_index_rank(index, (int32_t)om_get_be32(offsets->data)) : 1;
    uint32_t time = times->count ? om_index_rank_time(index, (int64_t)om_get_be64(times->data)) : 1;
    return segment->index_loaded && offset && time &&
           is_next(index->offsets, index->offset_count, segment->index_saved, offset - 1, offsets, OM_OFFSET_ENTRY) &&
           is_next(index->times, index->time_count, segment->time_saved, time - 1, times, OM_TIME_ENTRY);
}

/* Put them at their place in the file. When it is known to hold others, nothing may follow. */
static int save_entries(const om_segment *segment, const char *suffix, const om_entries *entries, size_t entry,
                        int stale) {
    char path[OM_PATH_MAX];
    uint32_t first = entries->first, count = entries->count;
    if (!count && !stale)
        return OM_OK;
    if (om_segment_path(segment, suffix, path, sizeof path) != OM_OK)
        return OM_E_IO;
    if (first + count == 0)
        return unlink(path) == 0 || errno == ENOENT ? OM_OK : om_errno_result();
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return om_errno_result();
    struct iovec iov = {(void *)entries->data, count * entry};
    int result = stale ? truncate_to(fd, first * entry) : OM_OK;
    if (result == OM_OK)
        result = write_all(fd, &iov, 1, first * entry);
    int kept = errno;
    if (close(fd) < 0 && result == OM_OK)
        return om_errno_result();
    errno = kept;
    return result;
}

/* What is in the files now, if it is still what the index says. Under the cache's lock. */
static void note_saved(om_segment *segment, om_entries *offsets, om_entries *times) {
    if (!are_next(segment, offsets, times)) {
        segment->index_stale = 1;
        return;
    }
    uint32_t offsets_end = offsets->first + offsets->count, times_end = times->first + times->count;
    if (segment->index_saved < offsets_end)
        segment->index_saved = offsets_end;
    if (segment->time_saved < times_end)
        segment->time_saved = times_end;
    segment->index_stale = 0;
    if (segment->sealed && segment->index_saved == segment->index.offset_count &&
        segment->time_saved == segment->index.time_count) {
        om_index_free(&segment->index);
        segment->index_saved = segment->time_saved = 0;
        __atomic_store_n(&segment->index_loaded, 0, __ATOMIC_RELEASE);
    }
}

static int save_index(om_segment *segment, om_entries *offsets, om_entries *times) {
    om_file_cache_lock(segment->files);
    int wanted = are_next(segment, offsets, times), stale = segment->index_stale;
    om_file_cache_unlock(segment->files);
    if (!wanted)
        return OM_OK;
    int result = save_entries(segment, ".index", offsets, OM_OFFSET_ENTRY, stale);
    if (result == OM_OK)
        result = save_entries(segment, ".timeindex", times, OM_TIME_ENTRY, stale);
    if (result != OM_OK)
        return result;
    om_file_cache_lock(segment->files);
    note_saved(segment, offsets, times);
    om_file_cache_unlock(segment->files);
    return OM_OK;
}

int om_segment_save_index(om_segment *segment, const uint8_t *offsets, uint32_t offset_count, const uint8_t *times,
                          uint32_t time_count) {
    om_entries offset_entries = {offsets, 0, offset_count}, time_entries = {times, 0, time_count};
    if (om_segment_is(&segment->deleted))
        return OM_E_DELETED;
    /* Nothing in the file yet: the entries stay unsaved until there is. */
    if (!om_segment_is(&segment->exists))
        return OM_OK;
    /* A checkpoint saves what the writer may be sealing. */
    om_file_cache_lock_saving(segment->files);
    int result = save_index(segment, &offset_entries, &time_entries);
    om_file_cache_unlock_saving(segment->files);
    om_file_cache_reap(segment->files);
    return result;
}

static int replace_file(const om_segment *segment, const char *suffix, const uint8_t *entries, size_t len) {
    char path[OM_PATH_MAX], fresh[OM_PATH_MAX], ending[32];
    snprintf(ending, sizeof ending, "%s.new", suffix);
    if (om_segment_path(segment, suffix, path, sizeof path) != OM_OK ||
        om_segment_path(segment, ending, fresh, sizeof fresh) != OM_OK)
        return OM_E_IO;
    if (!len)
        return unlink(path) == 0 || errno == ENOENT ? OM_OK : om_errno_result();
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return om_errno_result();
    struct iovec iov = {(void *)entries, len};
    int result = write_all(fd, &iov, 1, 0);
    if (close(fd) < 0 && result == OM_OK)
        result = om_errno_result();
    if (result == OM_OK && rename(fresh, path) < 0)
        result = om_errno_result();
    if (result != OM_OK)
        unlink(fresh);
    return result;
}

int om_segment_replace_index(const om_segment *segment, const om_index *index) {
    int result = replace_file(segment, ".index", index->offsets, (size_t)index->offset_count * OM_OFFSET_ENTRY);
    if (result == OM_OK)
        result = replace_file(segment, ".timeindex", index->times, (size_t)index->time_count * OM_TIME_ENTRY);
    return result;
}

/* ---- cutting, removing ---------------------------------------------------------------- */

/* Also gives back the blocks allocated past the end. */
int om_segment_trim_file(om_segment *segment, uint64_t size) {
    if (!segment->exists)
        return OM_OK;
    om_file *file;
    int result = om_file_cache_open(segment, &file);
    if (result != OM_OK)
        return result;
    /* Readers first: one that comes now maps no more than what will be left. */
    if (om_segment_written(segment) > size)
        __atomic_store_n(&segment->written, size, __ATOMIC_RELEASE);
    om_file_cache_set_dirty(segment->files, file, 1);
    result = truncate_to(file->fd, size);
    if (result == OM_OK)
        segment->allocated = size;
    om_file_cache_close(segment->files, file);
    om_file_cache_reap(segment->files);
    return result;
}

static void remove_snapshot(const om_segment *segment) {
    char path[OM_PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/%020lld.snapshot", segment->dir, (long long)segment->snapshot);
    if (segment->snapshot >= 0 && len > 0 && (size_t)len < sizeof path)
        unlink(path);
}

int om_segment_unlink(om_segment *segment) {
    static const char *const suffixes[] = {".log", ".index", ".timeindex", ".txnindex", ".log.damaged"};
    __atomic_store_n(&segment->deleted, 1, __ATOMIC_RELEASE);
    om_file_cache_forget(segment);
    int result = OM_OK;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && segment->exists; i++) {
        char path[OM_PATH_MAX];
        if (om_segment_path(segment, suffixes[i], path, sizeof path) != OM_OK)
            result = OM_E_IO;
        else if (unlink(path) < 0 && errno != ENOENT)
            result = om_errno_result();
    }
    remove_snapshot(segment);
    om_file_cache_reap(segment->files);
    return result;
}
