/* relay_commit.c -- the durable half: one group gathers while the other is written.
 *
 *   gathering: | message | message | ...      busy: | ... | -> pwrite, fdatasync -> event
 *
 * The file was written once before, so that a later write changes no metadata.
 */
#define _GNU_SOURCE
#include "relay.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STAGE_SIZE (16u << 20)
#define LOG_SIZE (64u << 20)
#define BLOCK 4096u

static struct {
    int fd, event;
    uint8_t *stages[2];
    size_t len[2];
    int gathering; /* the stage that takes new messages */
    uint64_t at;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int go;   /* the other stage is the committer's */
    int busy; /* until its event was seen here: only then may confirms follow */
} commit = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void *committer(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&commit.lock);
        while (!commit.go)
            pthread_cond_wait(&commit.wake, &commit.lock);
        commit.go = 0;
        int mine = !commit.gathering;
        pthread_mutex_unlock(&commit.lock);
        size_t len = (commit.len[mine] + BLOCK - 1) / BLOCK * BLOCK;
        if (commit.at + len > LOG_SIZE)
            commit.at = 0;
        if (pwrite(commit.fd, commit.stages[mine], len, (off_t)commit.at) != (ssize_t)len || fdatasync(commit.fd) != 0)
            die("write");
        commit.at += len;
        commit.len[mine] = 0;
        uint64_t one = 1;
        if (write(commit.event, &one, sizeof one) != sizeof one)
            die("eventfd");
    }
    return NULL;
}

int commit_open(const char *path, int direct) {
    commit.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | (direct ? O_DIRECT : 0), 0644);
    if (commit.fd < 0 && direct)
        commit.fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (commit.fd < 0)
        die(path);
    for (int i = 0; i < 2; i++) {
        commit.stages[i] = aligned_alloc(BLOCK, STAGE_SIZE);
        if (!commit.stages[i])
            die("malloc");
        memset(commit.stages[i], 'x', STAGE_SIZE);
    }
    for (uint64_t at = 0; at < LOG_SIZE; at += STAGE_SIZE)
        if (pwrite(commit.fd, commit.stages[0], STAGE_SIZE, (off_t)at) != STAGE_SIZE)
            die("fill");
    if (fsync(commit.fd) != 0)
        die("fsync");
    commit.event = eventfd(0, EFD_NONBLOCK);
    pthread_t thread;
    if (commit.event < 0 || pthread_create(&thread, NULL, committer, NULL) != 0)
        die("committer");
    return commit.event;
}

int commit_full(size_t more) {
    return commit.len[commit.gathering] + more > STAGE_SIZE;
}

void commit_add(const uint8_t *bytes, size_t len) {
    memcpy(commit.stages[commit.gathering] + commit.len[commit.gathering], bytes, len);
    commit.len[commit.gathering] += len;
}

int commit_begin(void) {
    if (commit.busy || !commit.len[commit.gathering])
        return 0;
    pthread_mutex_lock(&commit.lock);
    commit.gathering = !commit.gathering;
    commit.busy = commit.go = 1;
    pthread_cond_signal(&commit.wake);
    pthread_mutex_unlock(&commit.lock);
    return 1;
}

int commit_done(void) {
    uint64_t count;
    if (read(commit.event, &count, sizeof count) != sizeof count)
        return 0;
    commit.busy = 0;
    return 1;
}
