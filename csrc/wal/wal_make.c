/* wal_make.c -- a new WAL file: zeros under a temporary name, then synced and renamed.
 *
 * Zeros are written, not just allocated: a block that is allocated but unwritten costs a journal
 * commit when it is first written, which is what we want to be rid of.
 *
 * Each step waits until the disk has its bytes, so that commits never queue behind more than one of
 * them. By sync_file_range: a sync of the file would be a journal commit and a flush of the disk's
 * cache every time, and only the one at the end has to be. */
#define _GNU_SOURCE
#include "wal/wal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPARE_NAMES 1000000

/* A temporary file whose number n also reserves the name spare-n.wal: the owner of new-n.tmp
 * may take it, and the preparer and the committer may both be making files. */
static int create_temporary(int dir_fd, char *temporary, char *name, size_t len) {
    for (int n = 1; n < SPARE_NAMES; n++) {
        snprintf(temporary, len, "new-%06d.tmp", n);
        snprintf(name, len, "spare-%06d.wal", n);
        int fd = openat(dir_fd, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return -1;
        if (faccessat(dir_fd, name, F_OK, 0) != 0)
            return fd;
        close(fd);
        unlinkat(dir_fd, temporary, 0);
    }
    errno = EEXIST;
    return -1;
}

/* errno is reported, and the file removed. */
static int give_up(om_wal_making *making, int dir_fd, const char *doing, char *err, size_t err_len) {
    int result = om_wal_io_result();
    snprintf(err, err_len, "%s: %m", doing);
    om_wal_make_drop(making, dir_fd);
    return result;
}

int om_wal_make_begin(om_wal_making *making, int dir_fd, uint64_t size, char *err, size_t err_len) {
    char temporary[32];
    *making = (om_wal_making){.file = om_wal_file_new(""), .zeros = calloc(1, OM_WAL_MAKE_STEP)};
    if (making->file == NULL || making->zeros == NULL) {
        snprintf(err, err_len, "out of memory");
        free(making->file);
        free(making->zeros);
        return OM_E_NO_MEMORY;
    }
    making->file->size = size;
    making->file->fd = create_temporary(dir_fd, temporary, making->spare, sizeof temporary);
    if (making->file->fd < 0) {
        int result = om_wal_io_result();
        snprintf(err, err_len, "creating a WAL file: %m");
        free(making->file);
        free(making->zeros);
        return result;
    }
    memcpy(making->file->name, temporary, sizeof temporary);
    if (fallocate(making->file->fd, 0, 0, (off_t)size) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return give_up(making, dir_fd, "filling a new WAL file", err, err_len);
    return OM_OK;
}

int om_wal_make_step(om_wal_making *making, int dir_fd, uint64_t len, char *err, size_t err_len) {
    const unsigned through = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    uint64_t left = making->file->size - making->filled;
    len = len < left ? len : left;
    struct iovec iov = {.iov_base = making->zeros, .iov_len = len < OM_WAL_MAKE_STEP ? len : OM_WAL_MAKE_STEP};
    len = iov.iov_len;
    if (om_wal_file_write(making->file->fd, &iov, 1, making->filled) != OM_OK)
        return give_up(making, dir_fd, "filling a new WAL file", err, err_len);
    /* Where it can't be had, the sync at the end does it all. An error shows here and only here: the
     * kernel reports each of them once, so that sync would know nothing of it. */
    if (sync_file_range(making->file->fd, (off_t)making->filled, (off_t)len, through) != 0 && errno != ENOSYS &&
        errno != EINVAL && errno != ESPIPE)
        return give_up(making, dir_fd, "filling a new WAL file", err, err_len);
    making->filled += len;
    return OM_OK;
}

int om_wal_make_end(om_wal_making *making, int dir_fd, om_wal_file **file, char *err, size_t err_len) {
    om_wal_file *made = making->file;
    if (fsync(made->fd) != 0 || renameat(dir_fd, made->name, dir_fd, making->spare) != 0)
        return give_up(making, dir_fd, "filling a new WAL file", err, err_len);
    memcpy(made->name, making->spare, sizeof making->spare);
    if (fsync(dir_fd) != 0)
        return give_up(making, dir_fd, "syncing the WAL's folder", err, err_len);
    free(making->zeros);
    *file = made;
    return OM_OK;
}

void om_wal_make_drop(om_wal_making *making, int dir_fd) {
    om_wal_file_remove(dir_fd, making->file);
    free(making->zeros);
}

int om_wal_file_create(int dir_fd, uint64_t size, om_wal_file **file, char *err, size_t err_len) {
    om_wal_making making;
    int result = om_wal_make_begin(&making, dir_fd, size, err, err_len);
    while (result == OM_OK && making.filled < size)
        result = om_wal_make_step(&making, dir_fd, OM_WAL_MAKE_STEP, err, err_len);
    return result == OM_OK ? om_wal_make_end(&making, dir_fd, file, err, err_len) : result;
}
