/* clock.c -- a preloaded library that shifts the system's time by what a file says, in ms. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_ms;

__attribute__((constructor)) static void find_shift(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift_ms, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED)
        shift_ms = page;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(id, now);
    if (result == 0 && shift_ms && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        now->tv_sec += *shift_ms / 1000;
        now->tv_nsec += *shift_ms % 1000 * 1000000;
        if (now->tv_nsec < 0 || now->tv_nsec >= 1000000000) {
            int64_t carry = now->tv_nsec < 0 ? -1 : 1;
            now->tv_sec += carry;
            now->tv_nsec -= carry * 1000000000;
        }
    }
    return result;
}
