/* wal_fence.c -- a failed write or sync is final: the fence.
 *
 *   fence      | OTTERFNC | version u32 | epoch u32 | last good seq u64 | zero u32 | crc u32 |
 *   0          8          12            16          24                  28         32
 *
 * After a failed sync nobody knows which blocks are on disk, and the kernel won't try again.
 * Refused records must not come back with the next start, so before the fence shows, the
 * group's first block is overwritten with zeros (the chain ends there), and the fence file says
 * where the epoch ended; either one is enough. The file is needed until the next file's header,
 * whose prev_last_seq says the same, is on disk. */
#define _GNU_SOURCE
#include "base/bytes.h"
#include "wal/wal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FENCE_NAME "fence"
#define FENCE_TEMPORARY "fence.tmp"
#define FENCE_MAGIC "OTTERFNC"
#define FENCE_VERSION 1
#define FENCE_LEN 32

int om_wal_fence_read(int dir_fd, om_wal_fence *fence, char *err, size_t err_len) {
    uint8_t bytes[FENCE_LEN + 1];
    int fd = openat(dir_fd, FENCE_NAME, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return OM_END;
    ssize_t got = fd < 0 ? -1 : pread(fd, bytes, sizeof bytes, 0);
    if (got < 0)
        snprintf(err, err_len, "reading the WAL's fence file: %m");
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return OM_E_IO;
    /* It is replaced atomically, so a damaged one is damage, not a crash. */
    if (got != FENCE_LEN || memcmp(bytes, FENCE_MAGIC, 8) != 0 || om_get_le32(bytes + 28) != om_crc32c(0, bytes, 28) ||
        om_get_le32(bytes + 8) != FENCE_VERSION) {
        snprintf(err, err_len, "the WAL's fence file is damaged: the refused records are unknown");
        return OM_E_CORRUPT;
    }
    fence->epoch = om_get_le32(bytes + 12);
    fence->last_seq = om_get_le64(bytes + 16);
    return OM_OK;
}

int om_wal_fence_write(int dir_fd, const om_wal_fence *fence) {
    uint8_t bytes[FENCE_LEN] = {0};
    memcpy(bytes, FENCE_MAGIC, 8);
    om_put_le32(bytes + 8, FENCE_VERSION);
    om_put_le32(bytes + 12, fence->epoch);
    om_put_le64(bytes + 16, fence->last_seq);
    om_put_le32(bytes + 28, om_crc32c(0, bytes, 28));
    int fd = openat(dir_fd, FENCE_TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        return OM_E_IO;
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    int failed = om_wal_file_write(fd, &iov, 1, 0) != OM_OK || fsync(fd) != 0;
    close(fd);
    if (failed || renameat(dir_fd, FENCE_TEMPORARY, dir_fd, FENCE_NAME) != 0 || fsync(dir_fd) != 0)
        return OM_E_IO;
    return OM_OK;
}

void om_wal_fence_remove(int dir_fd) {
    unlinkat(dir_fd, FENCE_NAME, 0);
}

static int zero_block(int fd, uint64_t position) {
    static const uint8_t zeros[OM_WAL_BLOCK];
    struct iovec iov = {.iov_base = (void *)zeros, .iov_len = sizeof zeros};
    om_wal_direct_set(fd, 0);
    return om_wal_file_write(fd, &iov, 1, position) == OM_OK && fdatasync(fd) == 0;
}

void om_wal_fence_raise(om_wal *wal, const char *why, uint64_t position) {
    int kept = 1;
    if (position != 0) {
        om_wal_fence fence = {.epoch = atomic_load(&wal->epoch), .last_seq = wal->chain_seq};
        int zeroed = zero_block(wal->head_file->fd, position);
        int noted = om_wal_fence_write(wal->dir_fd, &fence) == OM_OK;
        kept = zeroed || noted;
        wal->head_file->suspect = 1;
    }
    pthread_mutex_lock(&wal->lock);
    snprintf(wal->fence_text, sizeof wal->fence_text, "%s; the last good WAL sequence is %" PRIu64, why,
             wal->chain_seq);
    wal->fence_kept = kept;
    atomic_store(&wal->fenced, 1);
    pthread_cond_broadcast(&wal->done);
    pthread_mutex_unlock(&wal->lock);
    om_wal_notify(wal);
}

int om_wal_fenced(const om_wal *wal, int *fence_kept, char *text, size_t text_len) {
    if (!atomic_load(&wal->fenced))
        return 0;
    pthread_mutex_t *lock = (pthread_mutex_t *)&wal->lock;
    pthread_mutex_lock(lock);
    if (fence_kept != NULL)
        *fence_kept = wal->fence_kept;
    if (text != NULL)
        snprintf(text, text_len, "%s", wal->fence_text);
    pthread_mutex_unlock(lock);
    return 1;
}

/* The committer is parked and the appending side is barred: everything is ours until the fence
 * comes down. Sequences go on after the refused ones, so that nobody who still holds one of
 * those can take a later group's sync for theirs. One number is left out between: it becomes
 * last_seq and durable_seq, so that a wait for "all until now" isn't answered by the past. */
int om_wal_unfence(om_wal *wal, char *err, size_t err_len) {
    if (!atomic_load(&wal->fenced))
        return OM_OK;
    pthread_mutex_lock(&wal->lock);
    void *refusals = realloc(wal->refused, (wal->refused_count + 1) * sizeof *wal->refused);
    if (refusals != NULL)
        wal->refused = refusals;
    pthread_mutex_unlock(&wal->lock);
    if (refusals == NULL) {
        snprintf(err, err_len, "out of memory");
        return OM_E_NO_MEMORY;
    }
    om_wal_file *file;
    uint64_t good = wal->chain_seq, refused = atomic_load(&wal->last_seq), blank = refused + 1;
    uint32_t epoch = atomic_load(&wal->epoch) + 1;
    atomic_store(&wal->epoch, epoch); /* even if this fails: its header may have stuck */
    int result = om_wal_take_file(wal, epoch, good, blank + 1, &file, err, err_len);
    if (result == OM_OK)
        result = om_wal_write_header(wal, file, err, err_len);
    if (result != OM_OK)
        return result;
    om_wal_use_file(wal, file, 0);
    om_wal_fence_remove(wal->dir_fd);
    pthread_mutex_lock(&wal->lock);
    wal->refused[wal->refused_count].first = good + 1;
    wal->refused[wal->refused_count++].last = refused;
    om_wal_drop_buffers(wal);
    atomic_store(&wal->last_seq, blank);
    atomic_store(&wal->durable_seq, blank);
    atomic_store(&wal->fenced, 0);
    pthread_cond_signal(&wal->work);
    pthread_mutex_unlock(&wal->lock);
    om_wal_notify(wal);
    return OM_OK;
}
