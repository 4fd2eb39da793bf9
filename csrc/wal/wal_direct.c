/* wal_direct.c -- whether a WAL file is written past the page cache. O_DIRECT saves a copy and
 * the walk over dirty pages; for small records it costs a copy into an aligned buffer. Which side the disk
 * is on is measured on the file that is about to be used, never assumed; but what it saves is CPU, which a
 * measured commit doesn't show, so it is chosen unless the disk is clearly slower. */
#define _GNU_SOURCE
#include "wal/wal_file.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 5
#define SMALL (64u << 10)
#define LARGE (256u << 10)
#define BUDGET_NS 100000000u /* a slow disk has shown enough by then */
#define CLEARLY 1.25

int om_wal_direct_set(int fd, int on) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) != 0)
        return OM_E_UNSUPPORTED;
    return OM_OK;
}

/* One write and one sync; OM_E_UNSUPPORTED: this way of writing can't be had here. */
static int time_commit(int fd, int direct, const uint8_t *zeros, size_t len, uint64_t at, uint64_t *ns) {
    if (om_wal_direct_set(fd, direct) != OM_OK)
        return OM_E_UNSUPPORTED;
    uint64_t start = om_now_ns();
    if (pwrite(fd, zeros, len, (off_t)at) != (ssize_t)len)
        return direct && errno == EINVAL ? OM_E_UNSUPPORTED : OM_E_IO;
    if (fdatasync(fd) != 0)
        return OM_E_IO;
    *ns = om_now_ns() - start;
    return OM_OK;
}

static int by_time(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static uint64_t median(uint64_t *times, int count) {
    qsort(times, (size_t)count, sizeof *times, by_time);
    return times[count / 2];
}

/* Takes turns, so that a busy moment hits both; each way has blocks of its own, since a direct
 * write throws the cached pages away. Returns 0 when direct is clearly slower, 1, or OM_E_*. */
static int measure(int fd, const uint8_t *zeros) {
    uint64_t buffered[2][ROUNDS], direct[2][ROUNDS];
    uint64_t start = om_now_ns();
    int rounds = 0;
    while (rounds < ROUNDS && (rounds < 2 || om_now_ns() - start < BUDGET_NS)) {
        for (int size = 0; size < 2; size++) {
            size_t len = size == 0 ? SMALL : LARGE;
            int result = time_commit(fd, 0, zeros, len, OM_WAL_BLOCK, &buffered[size][rounds]);
            if (result == OM_OK)
                result = time_commit(fd, 1, zeros, len, OM_WAL_BLOCK + 2 * LARGE, &direct[size][rounds]);
            if (result != OM_OK)
                return result;
        }
        rounds++;
    }
    double cached = 0, past = 0;
    for (int size = 0; size < 2; size++) {
        cached += (double)median(buffered[size], rounds);
        past += (double)median(direct[size], rounds);
    }
    return past < CLEARLY * cached;
}

int om_wal_direct_choose(int fd, int wish) {
    uint8_t *zeros;
    uint64_t ns;
    if (wish == 0)
        return 0;
    if (posix_memalign((void **)&zeros, OM_WAL_BLOCK, LARGE) != 0)
        return OM_E_NO_MEMORY;
    memset(zeros, 0, LARGE);
    int chosen;
    if (wish == 1) {
        chosen = time_commit(fd, 1, zeros, OM_WAL_BLOCK, OM_WAL_BLOCK, &ns);
        chosen = chosen == OM_OK ? 1 : chosen;
    } else {
        chosen = measure(fd, zeros);
    }
    free(zeros);
    om_wal_direct_set(fd, 0);
    return chosen == OM_E_UNSUPPORTED ? 0 : chosen;
}
