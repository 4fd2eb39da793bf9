/* shim_trace.c -- where a path lies, the lock around each operation, and the trace itself.
 *
 * A descriptor is looked up through /proc/self/fd each time instead of being remembered: dup,
 * fork, exec and renames then need no bookkeeping, and the trace can't drift from the truth.
 * The trace is opened for each record for the same reason: no descriptor of ours for a child
 * to close or to inherit. It is written at trace_end, which moves when the record is whole: a
 * process killed half way leaves nothing behind.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

shim_state shim;

static _Noreturn void broken(const char *what) {
    char text[256];
    int len = snprintf(text, sizeof text, "ottermq shim: %s: %s\n", what, strerror(errno));
    syscall(SYS_write, 2, text, (size_t)len);
    abort();
}

static void make_lock(shim_page *page) {
    uint32_t untouched = 0;
    if (__atomic_compare_exchange_n(&page->lock_state, &untouched, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE); /* for what exit() still does */
        pthread_mutex_init(&page->lock, &attr);
        pthread_mutexattr_destroy(&attr);
        __atomic_store_n(&page->lock_state, 2, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&page->lock_state, __ATOMIC_ACQUIRE) != 2)
        sched_yield();
}

__attribute__((constructor)) static void start(void) {
    const char *root = getenv("OTTERMQ_SHIM_ROOT");
    const char *trace = getenv("OTTERMQ_SHIM_TRACE");
    const char *mark = getenv("OTTERMQ_SHIM_MARK");
    const char *faults = getenv("OTTERMQ_SHIM_FAULTS");
    struct stat st;
    if (!root || !trace || !mark || !faults)
        return;
    if (!realpath(root, shim.root) || !realpath(mark, shim.mark) || !realpath(trace, shim.trace) ||
        stat(shim.root, &st) != 0)
        broken("root, mark or trace");
    shim.root_len = strlen(shim.root);
    shim.root_device = st.st_dev;
    long fd = syscall(SYS_openat, AT_FDCWD, faults, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        broken("control page");
    shim_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    syscall(SYS_close, fd);
    if (page == MAP_FAILED || page->magic != SHIM_MAGIC)
        broken("control page");
    make_lock(page);
    shim.page = page;
    __atomic_store_n(&shim.ready, 1, __ATOMIC_RELEASE);
}

/* An exit ends the other threads wherever they are, like a kill. */
__attribute__((destructor)) static void end(void) {
    if (!shim.ready)
        return;
    shim_lock();
    shim_last_call();
}

_Noreturn void _exit(int status) {
    end();
    for (;;)
        syscall(SYS_exit_group, status);
}
_Noreturn void _Exit(int status) ALIAS(_exit);

/* ---- where ---- */

static enum shim_place place_of(const char *absolute, char relative[PATH_MAX]) {
    if (strcmp(absolute, shim.mark) == 0) {
        strcpy(relative, "");
        return SHIM_MARK;
    }
    if (strncmp(absolute, shim.root, shim.root_len) != 0)
        return SHIM_ELSEWHERE;
    const char *rest = absolute + shim.root_len;
    if (*rest != '\0' && *rest != '/')
        return SHIM_ELSEWHERE;
    snprintf(relative, PATH_MAX, "%s", *rest == '/' ? rest + 1 : rest);
    return SHIM_BELOW_ROOT;
}

static int link_of_fd(int fd, char target[PATH_MAX]) {
    char name[48];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(name, target, PATH_MAX - 1);
    if (len < 0)
        return -1;
    target[len] = '\0';
    return 0;
}

enum shim_place shim_locate_fd(int fd, char relative[PATH_MAX]) {
    char absolute[PATH_MAX];
    int kept = errno;
    enum shim_place place = SHIM_ELSEWHERE;
    if (__atomic_load_n(&shim.ready, __ATOMIC_ACQUIRE) && fd >= 0 && link_of_fd(fd, absolute) == 0 &&
        absolute[0] == '/') {
        static const char deleted[] = " (deleted)";
        size_t len = strlen(absolute);
        if (len > sizeof deleted && strcmp(absolute + len - sizeof deleted + 1, deleted) == 0)
            absolute[len - sizeof deleted + 1] = '\0';
        place = place_of(absolute, relative);
    }
    errno = kept;
    return place;
}

/* The folder part is resolved, the last part is taken as it stands: it may not exist yet. */
static int absolute_path(int dirfd, const char *path, char absolute[PATH_MAX]) {
    char whole[PATH_MAX], folder[PATH_MAX];
    int len;
    if (path[0] == '/') {
        len = snprintf(whole, sizeof whole, "%s", path);
    } else {
        char base[PATH_MAX];
        if (dirfd == AT_FDCWD ? getcwd(base, sizeof base) == NULL : link_of_fd(dirfd, base) != 0)
            return -1;
        len = snprintf(whole, sizeof whole, "%s/%s", base, path);
    }
    if (len <= 0 || len >= PATH_MAX)
        return -1;
    while (len > 1 && whole[len - 1] == '/')
        whole[--len] = '\0';
    char *slash = strrchr(whole, '/');
    const char *last = slash + 1;
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return realpath(whole, absolute) ? 0 : -1;
    if (slash == whole) {
        strcpy(absolute, whole);
        return 0;
    }
    *slash = '\0';
    if (!realpath(whole, folder))
        return -1;
    len = snprintf(absolute, PATH_MAX, "%s/%s", strcmp(folder, "/") ? folder : "", last);
    return len < PATH_MAX ? 0 : -1;
}

enum shim_place shim_locate(int dirfd, const char *path, char relative[PATH_MAX]) {
    char absolute[PATH_MAX];
    int kept = errno;
    enum shim_place place = SHIM_ELSEWHERE;
    if (__atomic_load_n(&shim.ready, __ATOMIC_ACQUIRE) && path && *path && absolute_path(dirfd, path, absolute) == 0)
        place = place_of(absolute, relative);
    errno = kept;
    return place;
}

/* ---- the lock ---- */

void shim_lock(void) {
    int kept = errno;
    int died = pthread_mutex_lock(&shim.page->lock) == EOWNERDEAD;
    long dying = __atomic_load_n(&shim.dying, __ATOMIC_ACQUIRE);
    while (dying && dying != syscall(SYS_gettid))
        syscall(SYS_pause); /* the end is on its way to this thread too */
    if (died) {
        pthread_mutex_consistent(&shim.page->lock);
        /* The records are whole, since trace_end moves last. But a holder killed from outside may
         * have made a change and not come to record it. */
        if (!shim.page->dying)
            shim_put_untraced("", "a call cut off by a signal from outside");
        shim.page->dying = 0;
    }
    errno = kept;
}

void shim_unlock(void) {
    pthread_mutex_unlock(&shim.page->lock);
}

/* ---- the trace ---- */

static void write_all(int fd, const void *data, size_t len, uint64_t at) {
    const char *bytes = data;
    while (len > 0) {
        long done = syscall(SYS_pwrite64, fd, bytes, len, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            broken("trace");
        bytes += done;
        len -= (size_t)done;
        at += (uint64_t)done;
    }
}

static int all_zero(const struct iovec *iov, int count, size_t len) {
    for (int i = 0; i < count && len > 0; i++) {
        const char *bytes = iov[i].iov_base;
        size_t part = iov[i].iov_len < len ? iov[i].iov_len : len;
        if (part > 0 && (bytes[0] != 0 || memcmp(bytes, bytes + 1, part - 1) != 0))
            return 0;
        len -= part;
    }
    return 1;
}

static void put(shim_record *record, const char *path, const char *other, const struct iovec *iov, int count,
                size_t len) {
    int kept = errno;
    char head[sizeof *record + 2 * PATH_MAX];
    size_t path_len = strlen(path), other_len = strlen(other);
    record->path_len = (uint16_t)path_len;
    record->other_len = (uint16_t)other_len;
    record->thread = (uint32_t)syscall(SYS_gettid);
    record->length = (uint32_t)(sizeof *record + path_len + other_len + len);
    memcpy(head, record, sizeof *record);
    memcpy(head + sizeof *record, path, path_len);
    memcpy(head + sizeof *record + path_len, other, other_len);

    int fd = (int)syscall(SYS_openat, AT_FDCWD, shim.trace, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        broken("trace");
    uint64_t at = shim.page->trace_end;
    write_all(fd, head, record->length - len, at);
    at += record->length - len;
    for (int i = 0; i < count && len > 0; i++) {
        size_t part = iov[i].iov_len < len ? iov[i].iov_len : len;
        write_all(fd, iov[i].iov_base, part, at);
        at += part;
        len -= part;
    }
    syscall(SYS_close, fd);
    __atomic_store_n(&shim.page->trace_end, at, __ATOMIC_RELEASE);
    errno = kept;
}

void shim_put(shim_record *record, const char *path, const char *other, const void *data, size_t len) {
    struct iovec one = {.iov_base = (void *)data, .iov_len = len};
    put(record, path, other, &one, 1, len);
}

void shim_put_iov(shim_record *record, const char *path, const struct iovec *iov, int count, size_t len) {
    if (all_zero(iov, count, len)) {
        record->detail = 1;
        put(record, path, "", NULL, 0, 0);
    } else {
        put(record, path, "", iov, count, len);
    }
}

void shim_put_untraced(const char *path, const char *why) {
    shim_record record = {.event = SHIM_EV_UNTRACED};
    shim_put(&record, path, "", why, strlen(why));
}
