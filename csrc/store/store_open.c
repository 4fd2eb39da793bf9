/* store_open.c -- a store is opened, recovered, started and closed; store.c is what it does in between. */
#define _GNU_SOURCE
#include "store/store.h"

#include "base/clock.h"
#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/checkpoint_file.h"
#include "store/delivered_mark.h"
#include "store/log.h"
#include "store/log_offsets.h"
#include "store/news.h"
#include "store/reader.h"
#include "store/recover.h"
#include "store/removal_journal.h"
#include "store/removal_record.h"
#include "store/segment_node.h"
#include "store/undo.h"
#include "store/unknown_logs.h"
#include "store/wal_records.h"
#include "store/writer.h"
#include "wal/wal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- open ---- */

static int prepare_folder(om_store *store, char *err, size_t err_len) {
    if (mkdir(store->dir, 0750) != 0 && errno != EEXIST) {
        snprintf(err, err_len, "can't create data folder %s: %s", store->dir, strerror(errno));
        return OM_E_IO;
    }
    store->dir_fd = open(store->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->dir_fd < 0) {
        snprintf(err, err_len, "can't open data folder %s: %s", store->dir, strerror(errno));
        return OM_E_IO;
    }
    return OM_OK;
}

static void store_free(om_store *store) {
    om_undo_forget(store, UINT64_MAX);
    om_delivered_mark_close(store);
    om_segment_nodes_free(store->writer.to_seal);
    om_segment_nodes_free(store->deletions.pending);
    om_segment_nodes_free(store->deletions.ready);
    om_removal_notes_free(store->removals.notes);
    om_removal_journal_close(store->removals.journal);
    for (uint32_t i = 0; i < store->table_size; i++) {
        for (om_log *log = store->table[i], *next; log; log = next) {
            next = log->next_in_table;
            om_log_release(log);
        }
    }
    om_report report;
    while (om_store_report(store, &report) == OM_OK)
        continue;
    if (store->files)
        om_file_cache_free(store->files);
    if (store->dir_fd >= 0)
        close(store->dir_fd);
    if (store->event_fd >= 0)
        close(store->event_fd);
    if (store->news_fd >= 0)
        close(store->news_fd);
    om_ticket_lock_destroy(&store->lock);
    om_clock_free(&store->clock);
    free(store->table);
    free(store->writer.round);
    om_saved_free(store);
    om_unknown_logs_free(&store->unknown_logs);
    free(store->dir);
    free(store);
}

/* Sockets and the WAL need descriptors too: a quarter of what the process may open is theirs. */
static uint32_t files_allowed(uint32_t wanted) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || wanted < limit.rlim_cur / 4 * 3)
        return wanted;
    return (uint32_t)(limit.rlim_cur / 4 * 3);
}

om_store *om_store_open(const char *dir, const om_store_options *options, char *err, size_t err_len) {
    om_store *store = calloc(1, sizeof *store);
    if (!store)
        return NULL;
    store->options = *options;
    store->dir = strdup(dir);
    store->dir_fd = -1;
    store->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    store->news_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    store->table_size = 1024;
    store->table = calloc(store->table_size, sizeof *store->table);
    store->files = om_file_cache_new(files_allowed(options->open_files), options->mmap_cache_size);
    om_ticket_lock_init(&store->lock);
    om_clock_init(&store->clock);
    pthread_condattr_t steady; /* a timed wait lasts no longer when the system's time is set back */
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    int has_writer = om_writer_init(store, &steady) == OM_OK;
    om_checkpoint_init(store, &steady);
    pthread_condattr_destroy(&steady);
    om_reader_init(store);
    pthread_mutex_init(&store->survey_mutex, NULL);
    pthread_mutex_init(&store->reports.mutex, NULL);
    snprintf(err, err_len, "out of memory");
    if (!has_writer || !store->dir || !store->table || !store->files || store->event_fd < 0 || store->news_fd < 0 ||
        prepare_folder(store, err, err_len) != OM_OK || om_saved_load(store, err, err_len) != OM_OK) {
        store_free(store);
        return NULL;
    }
    om_sigbus_install();
    return store;
}

/* ---- start ---- */

static int open_wal(om_store *store, const om_wal_tail *tail, char *err, size_t err_len) {
    const om_store_options *options = &store->options;
    om_wal_options wal = {
        .file_size = options->wal_file_size,
        .max_size = options->wal_max_size,
        /* A file at least: how much of the others is used up nobody knows before they are full. */
        .reserve =
            options->wal_max_size / 8 > options->wal_file_size ? options->wal_max_size / 8 : options->wal_file_size,
        .batch_max_size = options->batch_max_size,
        .backlog_max = options->batch_max_size * 4,
        .batch_max_wait_us = options->batch_max_wait_us,
        .lazy_sync_ms = 1000,
        .flush_immediate = options->flush_immediate,
        .direct_io = options->direct_io,
    };
    char path[4096];
    snprintf(path, sizeof path, "%s/wal", store->dir);
    store->wal = om_wal_open(path, &wal, tail, store->checkpoint.seq, err, err_len);
    if (!store->wal)
        return OM_E_IO;
    om_wal_notify_fd(store->wal, store->news_fd);
    /* What the last life gave out and couldn't log is logged now (om_log_pass). Then recovery has
     * returned all that was in flight: whatever is done to the queues from now on stands behind
     * this record, or a replay of both lives would do it to another state. */
    om_store_end_tick(store);
    if (!om_wal_append(store->wal, OM_REC_START, 0, NULL, 0)) {
        snprintf(err, err_len, "out of memory");
        return OM_E_NO_MEMORY;
    }
    return OM_OK;
}

/* The leases that recovery found missing: what they cover is shown once they are on disk, and a
 * store that is open should show what is there. */
#define LEASE_PATIENCE_MS 10000

static void lease_what_came_back(om_store *store) {
    om_store_enter(store);
    int any = store->leases.head != NULL;
    for (om_log *log = store->leases.head; log; log = log->next_lease)
        om_log_extend_lease(log);
    uint64_t seq = om_store_leave(store);
    if (any)
        om_wal_wait(store->wal, seq, LEASE_PATIENCE_MS);
}

int om_store_recover(om_store *store, char *err, size_t err_len) {
    om_saved_reserve(store); /* before recovery and the writer take what space there is */
    om_delivered_mark_open(store);
    store->removals.journal =
        om_removal_journal_open(store->dir, store->options.removals_file_size, &store->fresh, err, err_len);
    if (!store->removals.journal)
        return OM_E_IO;
    int result = om_recover(store, &store->tail, err, err_len);
    store->recovered = result == OM_OK;
    return result;
}

int om_store_start(om_store *store, char *err, size_t err_len) {
    int result = store->recovered ? OM_OK : om_store_recover(store, err, err_len);
    if (result == OM_OK && store->fresh)
        result = om_removal_record_baseline(store);
    if (result == OM_OK)
        result = om_removal_record(store, NULL); /* skipped offsets: before a record stands behind them */
    if (result == OM_E_NO_SPACE)
        result = OM_OK; /* said with the next checkpoint: until there is space, no record comes behind them */
    if (result == OM_OK)
        result = open_wal(store, &store->tail, err, err_len);
    if (result != OM_OK)
        return result;
    /* What was replayed is in segments but not synced: the first checkpoint frees its WAL. */
    store->checkpoint.kick = store->progress.replayed > 0;
    struct {
        pthread_t *thread;
        void *(*main)(void *);
        const char *name;
    } threads[] = {
        {&store->writer.thread, om_writer_main, "otter-writer"},
        {&store->reader.thread, om_reader_main, "otter-reader"},
        {&store->checkpoint.thread, om_checkpoint_main, "otter-check"},
    };
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        if (pthread_create(threads[i].thread, NULL, threads[i].main, store) != 0) {
            snprintf(err, err_len, "can't start a thread");
            return OM_E_NO_MEMORY;
        }
        pthread_setname_np(*threads[i].thread, threads[i].name); /* for top and perf */
        store->threads_running++;
    }
    if (om_news_start(store) != OM_OK) {
        snprintf(err, err_len, "can't start a thread");
        return OM_E_NO_MEMORY;
    }
    lease_what_came_back(store);
    return OM_OK;
}

/* ---- stop ---- */

void om_store_interrupt(om_store *store) {
    __atomic_store_n(&store->called_off, 1, __ATOMIC_RELAXED);
}

static void stop_threads(om_store *store) {
    __atomic_store_n(&store->stopping, 1, __ATOMIC_SEQ_CST);
    om_writer_wake(store);
    om_checkpoint_wake(store);
    om_reader_wake(store);
    pthread_t threads[] = {store->writer.thread, store->reader.thread, store->checkpoint.thread};
    for (int i = 0; i < store->threads_running; i++)
        pthread_join(threads[i], NULL);
    store->threads_running = 0;
    om_news_stop(store);
}

int om_store_close(om_store *store) {
    int result = OM_OK;
    if (store->threads_running == 3) {
        om_store_enter(store);
        store->closing = 1;
        om_store_leave(store);
        result = om_checkpoint_run(store, 1);
        stop_threads(store);
    } else {
        stop_threads(store);
    }
    if (store->wal) {
        int closed = om_wal_close(store->wal);
        store->wal = NULL;
        result = result == OM_OK ? closed : result;
    }
    store_free(store);
    return result;
}
