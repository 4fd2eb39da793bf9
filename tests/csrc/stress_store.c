/* stress_store.c -- every thread of the store at once, for ThreadSanitizer to watch.
 *
 *   stress_store DIR SECONDS
 *
 * Appenders, consumers, readers and a checkpoint that never rests, over few small files so that
 * everything rolls, recycles and evicts all the time. Ends with an error when a call answers what
 * it never may; what it must not lose is other tests' business.
 */
#define _GNU_SOURCE
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOGS 20
#define VALUE_MAX 3000

typedef struct stress {
    om_store *store;
    om_log *logs[LOGS];
    int stop; /* atomic */
} stress;

typedef struct worker {
    stress *stress;
    unsigned seed;
    pthread_t thread;
} worker;

static int draw(worker *worker, int below) {
    return rand_r(&worker->seed) % below;
}

static om_log *some_log(worker *worker) {
    return worker->stress->logs[draw(worker, LOGS)];
}

static int is_running(const worker *worker) {
    return !__atomic_load_n(&worker->stress->stop, __ATOMIC_RELAXED);
}

static void demand(int right, const char *what, int64_t result) {
    if (right)
        return;
    fprintf(stderr, "stress_store: %s answered %lld\n", what, (long long)result);
    exit(1);
}

static int append_once(worker *worker, const om_record *records) {
    stress *stress = worker->stress;
    om_appended out[3];
    uint64_t seq;
    switch (draw(worker, 10)) {
    case 0: {
        om_log *targets[3] = {stress->logs[0], stress->logs[5], stress->logs[9]};
        return om_store_fanout(stress->store, targets, 3, records, 2, 0, out);
    }
    case 1: {
        om_atomic *atomic = om_atomic_new(stress->store);
        om_atomic_append(atomic, some_log(worker), records, 3);
        om_atomic_append(atomic, stress->logs[3], records, 1);
        return om_atomic_commit(atomic, &seq);
    }
    case 2:
        return om_log_append(some_log(worker), records, 5, OM_APPEND_UNLOGGED, OM_ANY_EPOCH, out);
    default:
        return om_log_append(some_log(worker), records, 5, 0, OM_ANY_EPOCH, out);
    }
}

static void *appender(void *arg) {
    static const uint8_t value[VALUE_MAX];
    worker *worker = arg;
    while (is_running(worker)) {
        om_record records[5] = {0};
        for (int i = 0; i < 5; i++)
            records[i] =
                (om_record){.timestamp = om_now_ms(), .key = {NULL, -1}, .value = {value, draw(worker, VALUE_MAX)}};
        int result = append_once(worker, records);
        demand(result == OM_OK || result == OM_E_FULL, "append", result);
        if (result == OM_E_FULL)
            usleep(1000);
    }
    return NULL;
}

static void *consumer(void *arg) {
    worker *worker = arg;
    while (is_running(worker)) {
        om_log *log = some_log(worker);
        int64_t offsets[50];
        uint64_t seq;
        int64_t count = om_log_acquire(log, offsets, 50, 10);
        for (int64_t i = 0; i < count; i++) {
            if (draw(worker, 10) == 0)
                om_log_return(log, offsets[i], 10, 1);
            else
                om_log_settle(log, offsets[i], offsets[i], 10, &seq);
        }
        om_cursor_stat cursor;
        om_log_cursor_stat(log, &cursor);
        if (draw(worker, 50) == 0)
            om_log_trim(log, cursor.floor, OM_RULE_SETTLED, &seq);
        if (draw(worker, 500) == 0)
            om_log_purge(log, &seq);
    }
    return NULL;
}

static void read_some(worker *worker, om_log *log, uint8_t *buffer, size_t cap) {
    om_log_stat stat;
    om_log_stat_get(log, &stat);
    int64_t at = stat.start_offset;
    for (int i = 0; i < 20 && at < stat.readable_end; i++) {
        om_read read;
        int result = om_log_read(log, at, -1, 100000, draw(worker, 2) ? OM_READ_NOWAIT : 0, &read);
        if (result == OM_OK) {
            int64_t copied = om_read_copy(&read, buffer, cap);
            demand(copied > 0, "copy", copied);
            at = read.next_offset;
            om_read_free(&read);
            continue;
        }
        /* Trimmed meanwhile, at the end, or not in memory. */
        demand(result == OM_E_RANGE || result == OM_END || result == OM_E_NOT_RESIDENT, "read", result);
        return;
    }
}

static void *reader(void *arg) {
    worker *worker = arg;
    size_t cap = 8u << 20;
    uint8_t *buffer = malloc(cap);
    while (is_running(worker)) {
        om_log *log = some_log(worker);
        read_some(worker, log, buffer, cap);
        int64_t offset, timestamp;
        om_log_find_time(log, om_now_ms() - 500, &offset, &timestamp);
        om_range range;
        om_log_stat stat;
        om_log_stat_get(log, &stat);
        if (om_log_range(log, stat.start_offset, -1, 1000, &range) == OM_OK)
            om_range_free(&range);
    }
    free(buffer);
    return NULL;
}

static void *checkpointer(void *arg) {
    worker *worker = arg;
    while (is_running(worker)) {
        int result = om_store_checkpoint(worker->stress->store);
        demand(result == OM_OK, "checkpoint", result);
        usleep(20000);
    }
    return NULL;
}

static om_store *start(const char *dir, om_log **logs) {
    char err[256];
    om_store_options options = {
        .wal_file_size = 1u << 20,
        .wal_max_size = 8u << 20,
        .batch_max_size = 1u << 20,
        .hot_buffer_size = 2u << 20,
        .mmap_cache_size = 1u << 20,
        .open_files = 8,
        .checkpoint_interval_ms = 1000,
    };
    om_log_options log_options = {.segment_size = 128u << 10, .pre_allocate = 1};
    om_store *store = om_store_open(dir, &options, err, sizeof err);
    demand(store != NULL, err, 0);
    for (int i = 0; i < LOGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "queues/%d", i);
        logs[i] = om_store_add(store, (uint64_t)i + 1, name, name, 1, &log_options);
    }
    demand(om_store_start(store, err, sizeof err) == OM_OK, err, 0);
    return store;
}

int main(int argc, char **argv) {
    demand(argc == 3, "usage: stress_store DIR SECONDS", argc);
    stress stress = {0};
    stress.store = start(argv[1], stress.logs);
    void *(*const jobs[])(void *) = {appender, appender, consumer, consumer, reader, reader, checkpointer};
    enum { WORKERS = sizeof jobs / sizeof *jobs };
    worker workers[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.stress = &stress, .seed = i + 1};
        pthread_create(&workers[i].thread, NULL, jobs[i], &workers[i]);
    }
    sleep((unsigned)atoi(argv[2]));
    __atomic_store_n(&stress.stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    om_store_stat stat;
    om_store_stat_get(stress.store, &stat);
    om_report report;
    while (om_store_report(stress.store, &report) == OM_OK)
        printf("report: %s\n", report.text);
    for (int i = 0; i < LOGS; i++)
        om_log_release(stress.logs[i]);
    int closed = om_store_close(stress.store);
    printf("checkpoints %llu written %llu closed %d\n", (unsigned long long)stat.checkpoints,
           (unsigned long long)stat.written_bytes, closed);
    return closed != OM_OK;
}
