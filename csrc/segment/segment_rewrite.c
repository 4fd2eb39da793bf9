/* segment_rewrite.c -- a segment whose sync failed is written again, into a new file.
 *
 *   <base>.log.rewrite   [0, good) copied | the rest, written by the caller   -> renamed to .log
 *
 * After a failed fsync the kernel may have dropped the dirty pages and forgotten the error: a read
 * of the old file proves nothing about the disk. Only the part that an earlier sync covered is
 * copied, the rest comes from the WAL.
 *
 * Promise: until the commit has synced the new file, the old one stays under its name.
 */
#define _GNU_SOURCE
#include "segment/file_cache.h"

#include "base/file_util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_CHUNK (1024 * 1024)

static int copy_chunk(int from, int to, uint8_t *chunk, uint64_t position, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t got = pread(from, chunk, len - done, (off_t)(position + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            if (got == 0)
                errno = EIO; /* shorter than what was synced of it */
            return om_errno_result();
        }
        for (ssize_t put = 0; put < got;) {
            ssize_t wrote = pwrite(to, chunk + put, (size_t)(got - put), (off_t)(position + done) + put);
            if (wrote < 0 && errno == EINTR)
                continue;
            if (wrote <= 0)
                return om_errno_result();
            put += wrote;
        }
        done += (size_t)got;
    }
    return OM_OK;
}

static int copy(int from, int to, uint64_t len) {
    uint8_t *chunk = malloc(COPY_CHUNK);
    int result = chunk ? OM_OK : OM_E_NO_MEMORY;
    for (uint64_t at = 0; result == OM_OK && at < len; at += COPY_CHUNK)
        result = copy_chunk(from, to, chunk, at, len - at < COPY_CHUNK ? len - at : COPY_CHUNK);
    free(chunk);
    return result;
}

void om_segment_rewrite_abort(om_segment *segment, int fd) {
    char path[OM_PATH_MAX];
    int kept = errno;
    close(fd);
    if (om_segment_path(segment, ".log.rewrite", path, sizeof path) == OM_OK)
        unlink(path);
    errno = kept;
}

int om_segment_rewrite_begin(om_segment *segment, uint64_t good, int *fd) {
    char path[OM_PATH_MAX];
    if (om_segment_is(&segment->deleted))
        return OM_E_DELETED;
    if (om_segment_path(segment, ".log.rewrite", path, sizeof path) != OM_OK)
        return OM_E_IO;
    *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (*fd < 0)
        return om_errno_result();
    int result = OM_OK;
    if (good) {
        om_file *old;
        result = om_file_cache_open(segment, &old);
        if (result == OM_OK) {
            result = copy(old->fd, *fd, good);
            om_file_cache_close(segment->files, old);
        }
    }
    if (result != OM_OK) {
        om_segment_rewrite_abort(segment, *fd);
        *fd = -1;
    }
    return result;
}

static int rename_into_place(const om_segment *segment) {
    char path[OM_PATH_MAX], fresh[OM_PATH_MAX];
    if (om_segment_path(segment, ".log", path, sizeof path) != OM_OK ||
        om_segment_path(segment, ".log.rewrite", fresh, sizeof fresh) != OM_OK)
        return OM_E_IO;
    return rename(fresh, path) < 0 ? om_errno_result() : OM_OK;
}

int om_segment_rewrite_commit(om_segment *segment, int fd) {
    struct stat info;
    int result = OM_OK;
    if (om_segment_is(&segment->deleted))
        result = OM_E_DELETED;
    else if (fstat(fd, &info) < 0 || fsync(fd) < 0)
        result = om_errno_result();
    else if ((uint64_t)info.st_size < om_segment_written(segment))
        result = OM_E_STALE; /* readers would lose bytes they have been shown */
    if (result == OM_OK)
        result = rename_into_place(segment);
    if (result != OM_OK) {
        om_segment_rewrite_abort(segment, fd);
        return result;
    }
    om_file_cache_forget(segment);
    om_file *file;
    if (om_file_cache_adopt(segment, fd, &file) == OM_OK)
        om_file_cache_close(segment->files, file);
    __atomic_store_n(&segment->exists, 1, __ATOMIC_RELEASE);
    segment->allocated = (uint64_t)info.st_size;
    uint64_t whole = (uint64_t)info.st_size < segment->size ? (uint64_t)info.st_size : segment->size;
    __atomic_store_n(&segment->written, whole, __ATOMIC_RELEASE);
    __atomic_store_n(&segment->fenced, 0, __ATOMIC_RELEASE);
    om_file_cache_reap(segment->files);
    result = om_fsync_folder(segment->dir);
    if (result != OM_OK && !om_segment_is(&segment->unsynced_folders))
        __atomic_store_n(&segment->unsynced_folders, 1, __ATOMIC_RELEASE); /* the next sync tries again */
    return result;
}
