/* shim_names.c -- the libc calls a preloaded shim stands in for: opening, renaming, removing.
 *
 * The same pattern as in shim.c. Whether an open creates is found out by looking first, under
 * the lock: within the traced processes nothing can slip in between.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */

static int exists(int dirfd, const char *path, int64_t *size) {
    struct stat st;
    int kept = errno;
    int there = fstatat(dirfd, path, &st, 0) == 0;
    *size = there ? st.st_size : 0;
    errno = kept;
    return there;
}

static void record_opened(int fd, int flags, int existed, int64_t old_size) {
    char relative[PATH_MAX];
    struct stat st;
    if (shim_locate_fd(fd, relative) != SHIM_BELOW_ROOT || fstat(fd, &st) != 0)
        return;
    shim_record record = {.inode = st.st_ino};
    if ((flags & O_TMPFILE) == O_TMPFILE)
        record.event = SHIM_EV_TMPFILE;
    else if ((flags & O_CREAT) && !existed)
        record.event = SHIM_EV_CREATE;
    else if ((flags & O_TRUNC) && old_size > 0)
        record.event = SHIM_EV_TRUNCATE;
    else
        return;
    shim_put(&record, relative, "", NULL, 0);
}

static int open_at(int dirfd, const char *path, int flags, mode_t mode) {
    char relative[PATH_MAX];
    int changes = (flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE;
    if ((!changes && !shim_watches(SHIM_OPEN)) || shim_locate(dirfd, path, relative) != SHIM_BELOW_ROOT)
        return NEXT(openat)(dirfd, path, flags, mode);
    int64_t size;
    int creates = (flags & O_CREAT) && !exists(dirfd, path, &size);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_OPEN | (creates ? SHIM_CREATE : 0), relative) != 0)
        return -1;
    int existed = exists(dirfd, path, &size);
    int fd = NEXT(openat)(dirfd, path, flags, mode);
    if (fd >= 0)
        record_opened(fd, flags, existed, size);
    int result = (int)shim_leave(&fault, fd);
    if (result < 0 && fd >= 0) {
        int kept = errno;
        close(fd);
        errno = kept;
    }
    return result;
}

#define MODE_OF(flags, mode)                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) {                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    return open_at(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) ALIAS(open);

int openat(int dirfd, const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    return open_at(dirfd, path, flags, mode);
}
int openat64(int dirfd, const char *path, int flags, ...) ALIAS(openat);

/* What the fortified headers call when the flags aren't known at compile time. */
int __open_2(const char *path, int flags) {
    return open_at(AT_FDCWD, path, flags, 0);
}
int __open64_2(const char *path, int flags) ALIAS(__open_2);

int __openat_2(int dirfd, const char *path, int flags) {
    return open_at(dirfd, path, flags, 0);
}
int __openat64_2(int dirfd, const char *path, int flags) ALIAS(__openat_2);

int creat(const char *path, mode_t mode) {
    return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *path, mode_t mode) ALIAS(creat);

int mkostemp(char *template, int flags) {
    char relative[PATH_MAX];
    if (shim_locate(AT_FDCWD, template, relative) != SHIM_BELOW_ROOT)
        return NEXT(mkostemp)(template, flags);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_OPEN | SHIM_CREATE, relative) != 0)
        return -1;
    int fd = NEXT(mkostemp)(template, flags);
    if (fd >= 0)
        record_opened(fd, O_CREAT, 0, 0);
    return (int)shim_leave(&fault, fd);
}
int mkostemp64(char *template, int flags) ALIAS(mkostemp);

int mkstemp(char *template) {
    return mkostemp(template, 0);
}
int mkstemp64(char *template) ALIAS(mkstemp);

/* ---- names ---- */

static uint64_t inode_at(int dirfd, const char *path) {
    struct stat st;
    return fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

int renameat2(int old_dir, const char *old, int new_dir, const char *new, unsigned flags) {
    char from[PATH_MAX], to[PATH_MAX];
    int from_inside = shim_locate(old_dir, old, from) == SHIM_BELOW_ROOT;
    int to_inside = shim_locate(new_dir, new, to) == SHIM_BELOW_ROOT;
    if (!from_inside && !to_inside)
        return NEXT(renameat2)(old_dir, old, new_dir, new, flags);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_RENAME, to_inside ? to : from) != 0)
        return -1;
    int result = NEXT(renameat2)(old_dir, old, new_dir, new, flags);
    if (result == 0 && from_inside && to_inside) {
        shim_record record = {.event = SHIM_EV_RENAME, .detail = (flags & RENAME_EXCHANGE) != 0};
        shim_put(&record, from, to, NULL, 0);
    } else if (result == 0 && to_inside) {
        shim_put_untraced(to, "moved in from outside");
    } else if (result == 0) {
        shim_record record = {.event = SHIM_EV_UNLINK};
        shim_put(&record, from, "", NULL, 0);
    }
    return (int)shim_leave(&fault, result);
}

int renameat(int old_dir, const char *old, int new_dir, const char *new) {
    return renameat2(old_dir, old, new_dir, new, 0);
}

int rename(const char *old, const char *new) {
    return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0);
}

int unlinkat(int dirfd, const char *path, int flags) {
    char relative[PATH_MAX];
    if (shim_locate(dirfd, path, relative) != SHIM_BELOW_ROOT)
        return NEXT(unlinkat)(dirfd, path, flags);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_UNLINK, relative) != 0)
        return -1;
    int result = NEXT(unlinkat)(dirfd, path, flags);
    shim_record record = {.event = SHIM_EV_UNLINK};
    if (result == 0)
        shim_put(&record, relative, "", NULL, 0);
    return (int)shim_leave(&fault, result);
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char *path) {
    struct stat st;
    int folder = lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return unlinkat(AT_FDCWD, path, folder ? AT_REMOVEDIR : 0);
}

int mkdirat(int dirfd, const char *path, mode_t mode) {
    char relative[PATH_MAX];
    if (shim_locate(dirfd, path, relative) != SHIM_BELOW_ROOT)
        return NEXT(mkdirat)(dirfd, path, mode);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_MKDIR, relative) != 0)
        return -1;
    int result = NEXT(mkdirat)(dirfd, path, mode);
    shim_record record = {.event = SHIM_EV_MKDIR, .inode = inode_at(dirfd, path)};
    if (result == 0)
        shim_put(&record, relative, "", NULL, 0);
    return (int)shim_leave(&fault, result);
}

int mkdir(const char *path, mode_t mode) {
    return mkdirat(AT_FDCWD, path, mode);
}

int linkat(int old_dir, const char *old, int new_dir, const char *new, int flags) {
    char relative[PATH_MAX];
    if (shim_locate(new_dir, new, relative) != SHIM_BELOW_ROOT)
        return NEXT(linkat)(old_dir, old, new_dir, new, flags);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_LINK, relative) != 0)
        return -1;
    int result = NEXT(linkat)(old_dir, old, new_dir, new, flags);
    shim_record record = {.event = SHIM_EV_LINK, .inode = inode_at(new_dir, new)};
    if (result == 0)
        shim_put(&record, relative, "", NULL, 0);
    return (int)shim_leave(&fault, result);
}

int link(const char *old, const char *new) {
    return linkat(AT_FDCWD, old, AT_FDCWD, new, 0);
}

int symlinkat(const char *target, int dirfd, const char *path) {
    char relative[PATH_MAX];
    if (shim_locate(dirfd, path, relative) != SHIM_BELOW_ROOT)
        return NEXT(symlinkat)(target, dirfd, path);
    shim_fault fault;
    if (shim_enter(&fault, SHIM_LINK, relative) != 0)
        return -1;
    int result = NEXT(symlinkat)(target, dirfd, path);
    shim_record record = {.event = SHIM_EV_SYMLINK, .inode = inode_at(dirfd, path)};
    if (result == 0)
        shim_put(&record, relative, "", target, strlen(target));
    return (int)shim_leave(&fault, result);
}

int symlink(const char *target, const char *path) {
    return symlinkat(target, AT_FDCWD, path);
}
