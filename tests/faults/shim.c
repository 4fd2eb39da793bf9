/* shim.c -- the libc calls a preloaded shim stands in for: bytes, sizes, syncs, free space.
 *
 * Each call keeps to one pattern: not below the root, pass it on; else take the lock, ask for a
 * fault, do it, record it, let go. So the trace's order is the order in which things happened.
 * Syncs are the exception, since nothing else could happen while one runs: they leave a record
 * when they start and one when they end, and what was written in between is not covered.
 *
 * close, dup and fork are not here: descriptors are looked up, not remembered (shim_trace.c).
 * glibc calls itself by hidden names, so stdio, mkstemp and remove need their own stand-ins.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "the 64-bit names are plain aliases here");

/* ---- what can't be followed ---- */

static void note_untraced(enum shim_place place, const char *relative, const char *why) {
    if (place != SHIM_BELOW_ROOT)
        return;
    shim_lock();
    shim_put_untraced(relative, why);
    shim_unlock();
}

FILE *fopen(const char *path, const char *mode) {
    char relative[PATH_MAX];
    if (strpbrk(mode, "wa+"))
        note_untraced(shim_locate(AT_FDCWD, path, relative), relative, "stdio");
    return NEXT(fopen)(path, mode);
}
FILE *fopen64(const char *path, const char *mode) ALIAS(fopen);

void *mmap(void *address, size_t len, int protection, int flags, int fd, off_t offset) {
    char relative[PATH_MAX];
    if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_TYPE) != MAP_PRIVATE)
        note_untraced(shim_locate_fd(fd, relative), relative, "writable mapping");
    return NEXT(mmap)(address, len, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t len, int protection, int flags, int fd, off_t offset) ALIAS(mmap);

/* ---- writing ---- */

static uint64_t inode_of(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static void record_sync(uint8_t event, uint8_t kind, uint64_t id, uint64_t inode, const char *path, int64_t offset,
                        int64_t size, int error) {
    shim_record record = {.event = event,
                          .detail = kind,
                          .sync = id,
                          .inode = inode,
                          .offset = offset,
                          .size = size,
                          .error = (uint16_t)error};
    shim_put(&record, path, "", NULL, 0);
}

/* O_DSYNC and RWF_DSYNC sync what they wrote and nothing else: a sync with a range. */
static void record_written(int fd, const char *path, const struct iovec *iov, int count, int64_t offset, size_t len,
                           int synced, int error) {
    shim_record record = {.event = SHIM_EV_WRITE, .inode = inode_of(fd), .offset = offset, .size = (int64_t)len};
    shim_put_iov(&record, path, iov, count, len);
    if (!synced)
        return;
    uint64_t id = shim.page->next_sync++;
    record_sync(SHIM_EV_SYNC_START, SHIM_KIND_FDATASYNC, id, record.inode, path, offset, (int64_t)len, 0);
    record_sync(SHIM_EV_SYNC_END, SHIM_KIND_FDATASYNC, id, record.inode, path, offset, (int64_t)len, error);
}

static int lost_answer(const shim_fault *fault) {
    return fault->action == SHIM_FAIL && fault->carried_out ? fault->error : 0;
}

static int64_t place_in_file(int fd, int status, int rwf, int64_t offset) {
    if ((status & O_APPEND) || (rwf & RWF_APPEND)) {
        struct stat st;
        return fstat(fd, &st) == 0 ? st.st_size : 0;
    }
    return offset >= 0 ? offset : lseek(fd, 0, SEEK_CUR);
}

static size_t total(const struct iovec *iov, int count) {
    size_t len = 0;
    for (int i = 0; i < count; i++)
        len += iov[i].iov_len;
    return len;
}

/* How much of it may be written: all, or less because of a rule or a full disk. */
static size_t allowed(const shim_fault *fault, int fd, int status, int64_t at, size_t len) {
    size_t limit = len;
    if (fault->action == SHIM_SHORTEN && fault->amount < limit)
        limit = fault->amount;
    limit = shim_spend(fd, at, limit, 0);
    if (limit < len && (status & O_DIRECT))
        limit = limit / 512 * 512; /* a direct write is cut between blocks, never within one */
    return limit;
}

static ssize_t write_part(int fd, const struct iovec *iov, int count, size_t limit, int64_t offset, int rwf) {
    struct iovec cut[IOV_MAX];
    int used = 0;
    for (; used < count && limit > 0; used++) {
        cut[used] = iov[used];
        if (cut[used].iov_len > limit)
            cut[used].iov_len = limit;
        limit -= cut[used].iov_len;
    }
    return offset < 0 && rwf == 0 ? NEXT(writev)(fd, cut, used) : NEXT(pwritev2)(fd, cut, used, offset, rwf);
}

/* offset < 0: at the file's own position. */
static ssize_t write_traced(int fd, const char *relative, const struct iovec *iov, int count, int64_t offset, int rwf) {
    size_t len = total(iov, count);
    int status = fcntl(fd, F_GETFL);
    int synced = (status & O_DSYNC) || (rwf & (RWF_DSYNC | RWF_SYNC));
    shim_fault fault;
    if (shim_enter(&fault, SHIM_WRITE | (synced ? SHIM_FDATASYNC : 0), relative) != 0)
        return -1;
    int64_t at = place_in_file(fd, status, rwf, offset);
    size_t limit = allowed(&fault, fd, status, at, len);
    ssize_t done;
    if (limit == 0 && len > 0) {
        errno = ENOSPC;
        done = fault.action == SHIM_SHORTEN ? 0 : -1;
    } else {
        done = write_part(fd, iov, count, limit, offset, rwf);
    }
    if (done > 0)
        record_written(fd, relative, iov, count, at, (size_t)done, synced, lost_answer(&fault));
    return shim_leave(&fault, done);
}

/* 1: the caller passes it on. Otherwise *result is the answer. */
static int write_elsewhere(int fd, const struct iovec *iov, int count, int64_t offset, int rwf, ssize_t *result) {
    char relative[PATH_MAX];
    enum shim_place place = shim_locate_fd(fd, relative);
    if (place == SHIM_ELSEWHERE || count < 0 || count > IOV_MAX)
        return 1;
    if (place == SHIM_BELOW_ROOT) {
        *result = write_traced(fd, relative, iov, count, offset, rwf);
        return 0;
    }
    size_t len = total(iov, count);
    shim_record record = {.event = SHIM_EV_MARK, .size = (int64_t)len};
    shim_lock();
    shim_put_iov(&record, "", iov, count, len);
    shim_unlock();
    *result = (ssize_t)len;
    return 0;
}

ssize_t write(int fd, const void *data, size_t len) {
    struct iovec one = {(void *)data, len};
    ssize_t result;
    return write_elsewhere(fd, &one, 1, -1, 0, &result) ? NEXT(write)(fd, data, len) : result;
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t offset) {
    struct iovec one = {(void *)data, len};
    ssize_t result;
    if (offset < 0 || write_elsewhere(fd, &one, 1, offset, 0, &result))
        return NEXT(pwrite)(fd, data, len, offset);
    return result;
}
ssize_t pwrite64(int fd, const void *data, size_t len, off_t offset) ALIAS(pwrite);

ssize_t writev(int fd, const struct iovec *iov, int count) {
    ssize_t result;
    return write_elsewhere(fd, iov, count, -1, 0, &result) ? NEXT(writev)(fd, iov, count) : result;
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset) {
    ssize_t result;
    if (offset < 0 || write_elsewhere(fd, iov, count, offset, 0, &result))
        return NEXT(pwritev)(fd, iov, count, offset);
    return result;
}
ssize_t pwritev64(int fd, const struct iovec *iov, int count, off_t offset) ALIAS(pwritev);

ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags) {
    ssize_t result;
    if (offset < -1 || write_elsewhere(fd, iov, count, offset, flags, &result))
        return NEXT(pwritev2)(fd, iov, count, offset, flags);
    return result;
}
ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags) ALIAS(pwritev2);

/* The kernel moved the bytes: read them back, by a descriptor that may read. */
static void record_copied(int fd, const char *relative, int64_t at, size_t len, int synced, int error) {
    char name[48], bytes[16384];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int reader = NEXT(openat)(AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    while (reader >= 0 && len > 0) {
        ssize_t got = pread(reader, bytes, len < sizeof bytes ? len : sizeof bytes, at);
        if (got <= 0)
            break;
        struct iovec one = {bytes, (size_t)got};
        record_written(fd, relative, &one, 1, at, (size_t)got, synced, error);
        at += got;
        len -= (size_t)got;
    }
    if (reader >= 0)
        close(reader);
    if (len > 0)
        shim_put_untraced(relative, "a copy that can't be read back");
}

ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t len, unsigned flags) {
    char relative[PATH_MAX];
    if (shim_locate_fd(out, relative) != SHIM_BELOW_ROOT)
        return NEXT(copy_file_range)(in, in_at, out, out_at, len, flags);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_WRITE, relative) != 0)
        return -1;
    int status = fcntl(out, F_GETFL);
    int64_t at = place_in_file(out, status, 0, out_at ? *out_at : -1);
    size_t limit = allowed(&fault, out, status, at, len);
    errno = ENOSPC;
    ssize_t done = limit == 0 && len > 0 ? -1 : NEXT(copy_file_range)(in, in_at, out, out_at, limit, flags);
    if (done > 0)
        record_copied(out, relative, at, (size_t)done, status & O_DSYNC, lost_answer(&fault));
    return shim_leave(&fault, done);
}

ssize_t sendfile(int out, int in, off_t *in_at, size_t len) {
    char relative[PATH_MAX];
    if (shim_locate_fd(out, relative) != SHIM_BELOW_ROOT)
        return NEXT(sendfile)(out, in, in_at, len);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_WRITE, relative) != 0)
        return -1;
    int status = fcntl(out, F_GETFL);
    int64_t at = place_in_file(out, status, 0, -1);
    size_t limit = allowed(&fault, out, status, at, len);
    errno = ENOSPC;
    ssize_t done = limit == 0 && len > 0 ? -1 : NEXT(sendfile)(out, in, in_at, limit);
    if (done > 0)
        record_copied(out, relative, at, (size_t)done, status & O_DSYNC, lost_answer(&fault));
    return shim_leave(&fault, done);
}
ssize_t sendfile64(int out, int in, off_t *in_at, size_t len) ALIAS(sendfile);

ssize_t splice(int in, off_t *in_at, int out, off_t *out_at, size_t len, unsigned flags) {
    char relative[PATH_MAX];
    note_untraced(shim_locate_fd(out, relative), relative, "splice");
    return NEXT(splice)(in, in_at, out, out_at, len, flags);
}

/* ---- size ---- */

int ftruncate(int fd, off_t size) {
    char relative[PATH_MAX];
    if (shim_locate_fd(fd, relative) != SHIM_BELOW_ROOT)
        return NEXT(ftruncate)(fd, size);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_TRUNCATE, relative) != 0)
        return -1;
    int result = NEXT(ftruncate)(fd, size);
    shim_record record = {.event = SHIM_EV_TRUNCATE, .inode = inode_of(fd), .size = size};
    if (result == 0)
        shim_put(&record, relative, "", NULL, 0);
    return (int)shim_leave(&fault, result);
}
int ftruncate64(int fd, off_t size) ALIAS(ftruncate);

int truncate(const char *path, off_t size) {
    int fd = NEXT(openat)(AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int result = ftruncate(fd, size);
    int kept = errno;
    close(fd);
    errno = kept;
    return result;
}
int truncate64(const char *path, off_t size) ALIAS(truncate);

static void record_allocated(int fd, const char *relative, int mode, off_t offset, off_t len) {
    struct stat st;
    int known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
    if (fstat(fd, &st) != 0 || (mode & ~known)) {
        shim_put_untraced(relative, "a fallocate that moves bytes");
        return;
    }
    shim_record record = {.inode = st.st_ino, .offset = offset};
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        int64_t end = offset + len < st.st_size ? offset + len : st.st_size;
        record.event = SHIM_EV_WRITE;
        record.detail = 1;
        record.size = end - offset;
        if (record.size > 0)
            shim_put(&record, relative, "", NULL, 0);
    } else if (!(mode & FALLOC_FL_KEEP_SIZE)) {
        record.event = SHIM_EV_GROW;
        record.size = offset + len;
        shim_put(&record, relative, "", NULL, 0);
    }
}

/* Both kinds: the error is returned as a number, as posix_fallocate does. */
static int allocate(int fd, const char *relative, int posix, int mode, off_t offset, off_t len) {
    shim_fault fault;
    if (shim_enter(&fault, SHIM_ALLOCATE, relative) != 0)
        return errno;
    int takes_room = !(mode & FALLOC_FL_PUNCH_HOLE) && offset >= 0 && len > 0;
    int error = 0;
    if (takes_room && shim_spend(fd, offset, (size_t)len, 1) < (size_t)len)
        error = ENOSPC;
    else if (posix)
        error = NEXT(posix_fallocate)(fd, offset, len);
    else if (NEXT(fallocate)(fd, mode, offset, len) != 0)
        error = errno;
    if (error == 0)
        record_allocated(fd, relative, mode, offset, len);
    return shim_leave(&fault, 0) == 0 ? error : errno;
}

int fallocate(int fd, int mode, off_t offset, off_t len) {
    char relative[PATH_MAX];
    if (shim_locate_fd(fd, relative) != SHIM_BELOW_ROOT)
        return NEXT(fallocate)(fd, mode, offset, len);
    int error = allocate(fd, relative, 0, mode, offset, len);
    if (error)
        errno = error;
    return error ? -1 : 0;
}
int fallocate64(int fd, int mode, off_t offset, off_t len) ALIAS(fallocate);

int posix_fallocate(int fd, off_t offset, off_t len) {
    char relative[PATH_MAX];
    if (shim_locate_fd(fd, relative) != SHIM_BELOW_ROOT)
        return NEXT(posix_fallocate)(fd, offset, len);
    int kept = errno;
    int error = allocate(fd, relative, 1, 0, offset, len);
    errno = kept;
    return error;
}
int posix_fallocate64(int fd, off_t offset, off_t len) ALIAS(posix_fallocate);

/* ---- syncing ---- */

static int sync_traced(int fd, const char *relative, unsigned op, uint8_t kind, int (*call)(int)) {
    uint64_t inode = kind == SHIM_KIND_SYNCFS ? 0 : inode_of(fd);
    shim_lock();
    shim_fault fault = shim_match(op, relative);
    uint64_t id = shim.page->next_sync++;
    record_sync(SHIM_EV_SYNC_START, kind, id, inode, relative, 0, -1, 0);
    if (fault.action == SHIM_KILL && !fault.carried_out)
        shim_die();
    shim_unlock();
    if (fault.action == SHIM_DELAY)
        shim_wait(&fault);
    int fails = fault.action == SHIM_FAIL;
    int error = 0;
    if (!(fails && !fault.carried_out) && !shim.page->skip_sync && call(fd) != 0)
        error = errno;
    if (fails)
        error = fault.error;
    shim_lock();
    record_sync(SHIM_EV_SYNC_END, kind, id, inode, relative, 0, -1, error);
    if (fault.action == SHIM_KILL)
        shim_die();
    shim_unlock();
    if (error)
        errno = error;
    return error ? -1 : 0;
}

int fsync(int fd) {
    char relative[PATH_MAX];
    if (shim_locate_fd(fd, relative) != SHIM_BELOW_ROOT)
        return NEXT(fsync)(fd);
    return sync_traced(fd, relative, SHIM_FSYNC, SHIM_KIND_FSYNC, NEXT(fsync));
}

int fdatasync(int fd) {
    char relative[PATH_MAX];
    if (shim_locate_fd(fd, relative) != SHIM_BELOW_ROOT)
        return NEXT(fdatasync)(fd);
    return sync_traced(fd, relative, SHIM_FDATASYNC, SHIM_KIND_FDATASYNC, NEXT(fdatasync));
}

/* Any descriptor on the root's filesystem will do; its path may well be outside the root. */
int syncfs(int fd) {
    char relative[PATH_MAX] = "";
    struct stat st;
    if (!__atomic_load_n(&shim.ready, __ATOMIC_ACQUIRE) || fstat(fd, &st) != 0 || st.st_dev != shim.root_device)
        return NEXT(syncfs)(fd);
    shim_locate_fd(fd, relative);
    return sync_traced(fd, relative, SHIM_SYNCFS, SHIM_KIND_SYNCFS, NEXT(syncfs));
}

static int sync_everything(int unused) {
    (void)unused;
    NEXT(sync)();
    return 0;
}

void sync(void) {
    if (__atomic_load_n(&shim.ready, __ATOMIC_ACQUIRE))
        sync_traced(-1, "", SHIM_SYNCFS, SHIM_KIND_SYNCFS, sync_everything);
    else
        NEXT(sync)();
}

/* Promises nothing about durability (no metadata, no disk cache), so the trace leaves it out. */
int sync_file_range(int fd, off_t offset, off_t len, unsigned flags) {
    char relative[PATH_MAX];
    if (shim_locate_fd(fd, relative) != SHIM_BELOW_ROOT)
        return NEXT(sync_file_range)(fd, offset, len, flags);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_SYNC_RANGE, relative) != 0)
        return -1;
    return (int)shim_leave(&fault, NEXT(sync_file_range)(fd, offset, len, flags));
}

/* ---- free space ---- */

/* The least of: the truth, what Python wants reported, what the budget leaves. */
static fsblkcnt_t free_blocks(fsblkcnt_t truth, unsigned long block) {
    int64_t limits[] = {__atomic_load_n(&shim.page->free_bytes, __ATOMIC_ACQUIRE),
                        __atomic_load_n(&shim.page->budget, __ATOMIC_ACQUIRE)};
    for (int i = 0; i < 2; i++)
        if (limits[i] >= 0 && (fsblkcnt_t)limits[i] / block < truth)
            truth = (fsblkcnt_t)limits[i] / block;
    return truth;
}

#define ADJUST_FREE(result, place, room)                                                                               \
    if ((result) == 0 && (place) == SHIM_BELOW_ROOT && (room)->f_frsize) {                                             \
        (room)->f_bfree = free_blocks((room)->f_bfree, (room)->f_frsize);                                              \
        (room)->f_bavail = free_blocks((room)->f_bavail, (room)->f_frsize);                                            \
    }                                                                                                                  \
    return (result)

int statvfs(const char *path, struct statvfs *room) {
    char relative[PATH_MAX];
    int result = NEXT(statvfs)(path, room);
    ADJUST_FREE(result, shim_locate(AT_FDCWD, path, relative), room);
}

int statvfs64(const char *path, struct statvfs64 *room) {
    char relative[PATH_MAX];
    int result = NEXT(statvfs64)(path, room);
    ADJUST_FREE(result, shim_locate(AT_FDCWD, path, relative), room);
}

int fstatvfs(int fd, struct statvfs *room) {
    char relative[PATH_MAX];
    int result = NEXT(fstatvfs)(fd, room);
    ADJUST_FREE(result, shim_locate_fd(fd, relative), room);
}

int fstatvfs64(int fd, struct statvfs64 *room) {
    char relative[PATH_MAX];
    int result = NEXT(fstatvfs64)(fd, room);
    ADJUST_FREE(result, shim_locate_fd(fd, relative), room);
}
