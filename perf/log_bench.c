/* log_bench.c -- the log measured, compared with raw C loops that move the same bytes.
 *
 *   touch DIR BYTES                have the host give us that much memory, then let go of it
 *   ceiling DIR SECONDS            64 KiB per write + fdatasync on a recycled file
 *   durable DIR SECONDS LOGS       1 KiB records into LOGS logs, all of them synced at the end
 *   pagecache DIR SECONDS          64 KiB per write into growing files, no sync
 *   async DIR SECONDS              1 KiB records into one log with flush_mode async
 *   fill DIR COUNT SIZE            COUNT records of SIZE bytes into one log, then a clean stop
 *   crash DIR COUNT SIZE           the same, ended by SIGKILL once all are durable
 *   open DIR                       recover, and how long it took
 *   read DIR                       open, then read log 1 from its start to its end
 *   look DIR COUNT                 random look-ups by offset in log 1
 *
 * One line of `key value` pairs each. Built from csrc/ by bench.py, so that nothing of Python is
 * in the numbers.
 */
#define _GNU_SOURCE
#include "store/store.h"

#include "store/log.h"
#include "store/log_append.h"
#include "store/log_read.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD 1024
#define TICK 256 /* records a tick: what a busy engine takes from its sockets */
#define RAW_WRITE (64 * 1024)
#define RAW_FILE (64u << 20)

static double seconds(void) {
    return (double)om_now_ns() / 1e9;
}

static void die(const char *what) {
    fprintf(stderr, "log_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static long rss_anon_kib(void) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %ld kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

/* ---- raw loops ---- */

static uint8_t *noise(size_t len) {
    uint8_t *bytes = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < len; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        bytes[i] = (uint8_t)state;
    }
    return bytes;
}

static void ceiling(const char *dir, double limit) {
    char path[4096];
    snprintf(path, sizeof path, "%s/ceiling", dir);
    uint8_t *bytes = noise(RAW_WRITE);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0)
        die(path);
    for (uint64_t at = 0; at < RAW_FILE; at += RAW_WRITE)
        if (pwrite(fd, bytes, RAW_WRITE, (off_t)at) != RAW_WRITE)
            die("fill");
    fsync(fd);
    uint64_t total = 0;
    double began = seconds(), took;
    while ((took = seconds() - began) < limit) {
        if (pwrite(fd, bytes, RAW_WRITE, (off_t)(total % RAW_FILE)) != RAW_WRITE || fdatasync(fd) != 0)
            die("write");
        total += RAW_WRITE;
    }
    printf("bytes %llu seconds %.4f rate %.0f\n", (unsigned long long)total, took, (double)total / took);
    unlink(path);
}

/* A virtual machine's memory comes from its host at the first touch, at a tenth of the speed: page
 * cache that nobody used before would make whoever comes first look slow. */
static void touch(uint64_t bytes) {
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    double began = seconds();
    for (uint64_t at = 0; at < bytes; at += 4096)
        memory[at] = 1;
    printf("bytes %llu seconds %.4f\n", (unsigned long long)bytes, seconds() - began);
    munmap(memory, bytes);
}

static void pagecache(const char *dir, uint64_t total) {
    char path[4096];
    uint8_t *bytes = noise(RAW_WRITE);
    double began = seconds();
    int fd = -1;
    for (uint64_t at = 0; at < total; at += RAW_WRITE) {
        if (at % RAW_FILE == 0) {
            if (fd >= 0)
                close(fd);
            snprintf(path, sizeof path, "%s/raw.%llu", dir, (unsigned long long)(at / RAW_FILE));
            fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
        }
        if (write(fd, bytes, RAW_WRITE) != RAW_WRITE)
            die("write");
    }
    double took = seconds() - began;
    printf("bytes %llu seconds %.4f rate %.0f\n", (unsigned long long)total, took, (double)total / took);
}

/* ---- the store ---- */

static const om_store_options defaults = {
    .wal_file_size = 64u << 20,
    .wal_max_size = 512u << 20,
    .batch_max_size = 4u << 20,
    .direct_io = 2,
    .hot_buffer_size = 32u << 20,
    .mmap_cache_size = 1u << 30,
    .open_files = 16384,
    .checkpoint_interval_ms = 30000,
};

static om_store *open_store(const char *dir, om_log **logs, uint32_t count, int flush_mode, int has_files) {
    char err[256];
    om_store_options options = defaults;
    /* Like the broker, which takes all the descriptors it is allowed to. */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    om_store *store = om_store_open(dir, &options, err, sizeof err);
    if (!store) {
        fprintf(stderr, "log_bench: %s\n", err);
        exit(1);
    }
    om_log_options log_options = {.flush_mode = flush_mode, .segment_size = 64u << 20, .pre_allocate = 1};
    for (uint32_t i = 0; i < count; i++) {
        char name[64], folder[96];
        snprintf(name, sizeof name, "bench-%u", i + 1);
        snprintf(folder, sizeof folder, "vhosts/%%2F/queues/%s.%u", name, i + 1);
        logs[i] = om_store_add(store, i + 1, folder, name, has_files, &log_options);
    }
    if (om_store_start(store, err, sizeof err) != OM_OK) {
        fprintf(stderr, "log_bench: %s\n", err);
        exit(1);
    }
    return store;
}

static void wait_for_room(om_store *store) {
    struct pollfd poll_fd = {.fd = om_store_event_fd(store), .events = POLLIN};
    uint64_t news;
    poll(&poll_fd, 1, 100);
    if (read(poll_fd.fd, &news, sizeof news) < 0 && errno != EAGAIN)
        die("event");
}

/* One tick: so many records, one after the other over the logs. Returns how many were taken. */
static int tick(om_store *store, om_log **logs, uint32_t count, uint32_t *next, const om_record *record, int most) {
    int taken = 0;
    om_store_enter(store);
    for (; taken < most; taken++) {
        om_log *log = logs[*next];
        int64_t first;
        if (om_log_admit(log, OM_ANY_EPOCH) != OM_OK || om_log_stage(log, record, 1, 0, &first) != OM_OK)
            break;
        *next = *next + 1 == count ? 0 : *next + 1;
    }
    om_store_leave(store);
    return taken;
}

static uint64_t feed(om_store *store, om_log **logs, uint32_t count, const om_record *record, uint64_t records,
                     double limit) {
    uint64_t sent = 0;
    uint32_t next = 0;
    double began = seconds();
    while (sent < records && (!limit || seconds() - began < limit)) {
        int most = records - sent < TICK ? (int)(records - sent) : TICK;
        int taken = tick(store, logs, count, &next, record, most);
        sent += (uint64_t)taken;
        if (taken < most)
            wait_for_room(store);
    }
    uint64_t last = om_wal_last_seq(store->wal);
    if (om_store_wait(store, last, -1) != OM_OK)
        die("wait");
    return sent;
}

static void stop(om_store *store, om_log **logs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        om_log_release(logs[i]);
    om_store_close(store);
}

static void appends(const char *dir, double limit, uint32_t count, int flush_mode, uint64_t records) {
    om_log **logs = calloc(count, sizeof *logs);
    om_store *store = open_store(dir, logs, count, flush_mode, 0);
    om_record record = {.timestamp = om_now_ms(), .key = {NULL, -1}, .value = {noise(RECORD), RECORD}};
    /* Into the steady state first: files made, WAL zero-filled, one checkpoint behind us. */
    if (flush_mode != OM_FLUSH_ASYNC) {
        feed(store, logs, count, &record, 300u << 10, 0);
        om_store_checkpoint(store);
    }
    om_store_stat before, after;
    om_store_stat_get(store, &before);
    double began = seconds(), cpu = cpu_seconds();
    uint64_t sent = feed(store, logs, count, &record, records, limit);
    if (flush_mode == OM_FLUSH_ASYNC) {
        om_log_stat stat;
        do {
            om_log_stat_get(logs[0], &stat);
        } while (stat.written_offset < stat.next_offset);
    }
    double took = seconds() - began;
    cpu = cpu_seconds() - cpu;
    om_store_stat_get(store, &after);
    printf("bytes %llu seconds %.4f rate %.0f checkpoints %llu groups %llu wal_bytes %llu cpu %.3f rss_anon_kib %ld "
           "direct_io %d\n",
           (unsigned long long)sent * RECORD, took, (double)sent * RECORD / took,
           (unsigned long long)(after.checkpoints - before.checkpoints),
           (unsigned long long)(after.wal_groups - before.wal_groups),
           (unsigned long long)(after.wal_bytes - before.wal_bytes), cpu, rss_anon_kib(), after.wal_direct_io);
    stop(store, logs, count);
}

static void fill(const char *dir, uint64_t count, int32_t size, int crash) {
    om_log *log;
    om_store *store = open_store(dir, &log, 1, OM_FLUSH_BATCH, 0);
    om_record record = {.timestamp = om_now_ms(), .key = {NULL, -1}, .value = {noise((size_t)size), size}};
    double began = seconds();
    feed(store, &log, 1, &record, count, 0);
    printf("records %llu seconds %.4f rss_anon_kib %ld\n", (unsigned long long)count, seconds() - began,
           rss_anon_kib());
    fflush(stdout);
    if (crash)
        kill(getpid(), SIGKILL);
    stop(store, &log, 1);
}

static void reopen(const char *dir) {
    om_log *log;
    double began = seconds();
    om_store *store = open_store(dir, &log, 1, OM_FLUSH_BATCH, 1);
    double took = seconds() - began;
    om_cursor_stat cursor;
    om_progress progress;
    om_log_cursor_stat(log, &cursor);
    om_store_progress(store, &progress);
    printf("seconds %.4f ready %lld replayed %llu rss_anon_kib %ld\n", took, (long long)cursor.ready_count,
           (unsigned long long)progress.replayed, rss_anon_kib());
    stop(store, &log, 1);
}

static void read_all(const char *dir) {
    om_log *log;
    double began = seconds();
    om_store *store = open_store(dir, &log, 1, OM_FLUSH_BATCH, 1);
    om_log_stat stat;
    om_log_stat_get(log, &stat);
    uint64_t bytes = 0;
    double first = seconds();
    for (int64_t at = stat.start_offset; at < stat.readable_end;) {
        om_read read;
        int result = om_log_read(log, at, -1, 1u << 20, 0, &read);
        if (result == OM_END)
            break;
        if (result == OM_OK)
            result = om_read_check(&read);
        if (result != OM_OK) {
            fprintf(stderr, "log_bench: read: %s\n", om_result_text(result));
            exit(1);
        }
        bytes += read.bytes;
        at = read.next_offset;
        om_read_free(&read);
    }
    double took = seconds() - first;
    printf("bytes %llu seconds %.4f rate %.0f open %.4f\n", (unsigned long long)bytes, took, (double)bytes / took,
           first - began);
    stop(store, &log, 1);
}

static void look_ups(const char *dir, uint64_t count) {
    om_log *log;
    om_store *store = open_store(dir, &log, 1, OM_FLUSH_BATCH, 1);
    om_log_stat stat;
    om_log_stat_get(log, &stat);
    uint64_t state = 42, found = 0;
    double began = 0;
    /* A first round brings pages and indexes into memory. */
    for (uint64_t i = 0; i < count + 100000; i++) {
        if (i == 100000)
            began = seconds();
        state = state * 6364136223846793005u + 1442695040888963407u;
        int64_t offset =
            stat.start_offset + (int64_t)((state >> 20) % (uint64_t)(stat.readable_end - stat.start_offset));
        om_read read;
        if (om_log_read(log, offset, -1, 1, 0, &read) == OM_OK) {
            found += read.first_offset <= offset && offset < read.next_offset;
            om_read_free(&read);
        }
    }
    double took = seconds() - began;
    printf("look_ups %llu found %llu seconds %.4f rate %.0f\n", (unsigned long long)count, (unsigned long long)found,
           took, (double)count / took);
    stop(store, &log, 1);
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[1] : "";
    const char *dir = argc > 2 ? argv[2] : "";
    double third = argc > 3 ? atof(argv[3]) : 0;
    long fourth = argc > 4 ? atol(argv[4]) : 0;
    if (!strcmp(mode, "touch"))
        touch((uint64_t)third);
    else if (!strcmp(mode, "ceiling"))
        ceiling(dir, third);
    else if (!strcmp(mode, "durable"))
        appends(dir, third, (uint32_t)fourth, OM_FLUSH_BATCH, UINT64_MAX);
    else if (!strcmp(mode, "pagecache"))
        pagecache(dir, (uint64_t)third);
    else if (!strcmp(mode, "async"))
        appends(dir, 0, 1, OM_FLUSH_ASYNC, (uint64_t)third / RECORD);
    else if (!strcmp(mode, "fill"))
        fill(dir, (uint64_t)third, (int32_t)fourth, 0);
    else if (!strcmp(mode, "crash"))
        fill(dir, (uint64_t)third, (int32_t)fourth, 1);
    else if (!strcmp(mode, "open"))
        reopen(dir);
    else if (!strcmp(mode, "read"))
        read_all(dir);
    else if (!strcmp(mode, "look"))
        look_ups(dir, (uint64_t)third);
    else
        die("usage: log_bench MODE DIR [ARGUMENTS]");
    return 0;
}
