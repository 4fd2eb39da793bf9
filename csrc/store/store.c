/* store.c -- the store: opening, the table of logs, the tick, stopping. */
#define _GNU_SOURCE
#include "store/store.h"

#include "store/producer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* ---- lists of logs, each threaded through a link of its own ---- */

static om_log **link_of(om_log *log, size_t link) {
    return (om_log **)((char *)log + link);
}

void om_list_push(om_list *list, om_log *log, size_t link) {
    *link_of(log, link) = NULL;
    if (list->tail)
        *link_of(list->tail, link) = log;
    else
        list->head = log;
    list->tail = log;
    list->count++;
}

om_log *om_list_pop(om_list *list, size_t link) {
    om_log *log = list->head;
    if (!log)
        return NULL;
    list->head = *link_of(log, link);
    if (!list->head)
        list->tail = NULL;
    list->count--;
    return log;
}

/* ---- the tick ---- */

void om_store_enter(om_store *store) {
    om_ticket_lock_take(&store->turn);
}

/* Leases that have become durable let their offsets be seen. The list is in sequence order
 * but for renewals, which only make a log wait a little longer. */
static void settle_leases(om_store *store) {
    uint64_t durable = om_wal_durable_seq(store->wal);
    while (store->leases.head && store->leases.head->lease_seq <= durable) {
        om_log *log = om_list_pop(&store->leases, OM_LINK(next_lease));
        log->leased = 0;
        log->lease_durable = log->lease_end;
    }
}

uint64_t om_store_end_tick(om_store *store) {
    om_log *log;
    while ((log = om_list_pop(&store->staged, OM_LINK(next_staged)))) {
        log->staged = 0;
        om_log_seal(log);
        om_log_log_ops(log);
    }
    uint64_t seq = 0;
    if (store->wal) {
        seq = om_wal_last_seq(store->wal);
        om_wal_submit(store->wal, !store->urgent);
        store->urgent = 0;
        settle_leases(store);
        if (store->undos)
            om_undo_forget(store, om_wal_durable_seq(store->wal));
    }
    return seq;
}

void om_store_let_go(om_store *store) {
    int wants = om_writer_wants(store);
    om_ticket_lock_give(&store->turn);
    if (wants)
        om_writer_wake(store);
}

uint64_t om_store_leave(om_store *store) {
    uint64_t seq = om_store_end_tick(store);
    store->refused = 0; /* no publisher was in this one */
    om_store_let_go(store);
    return seq;
}

void om_store_tell(om_store *store) {
    uint64_t one = 1;
    while (write(store->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

int om_store_hot_is_full(om_store *store) {
    int full = store->hot_bytes > store->options.hot_buffer_size;
    store->told_full |= full;
    return full;
}

/* ---- reports ---- */

void om_store_add_report(om_store *store, int kind, const om_log *log, int64_t first, int64_t last, const char *format,
                         ...) {
    om_report_node *node = calloc(1, sizeof *node);
    if (!node)
        return;
    node->report.kind = kind;
    node->report.log_id = log ? log->id : 0;
    node->report.first_offset = first;
    node->report.last_offset = last;
    va_list args;
    va_start(args, format);
    vsnprintf(node->report.text, sizeof node->report.text, format, args);
    va_end(args);
    pthread_mutex_lock(&store->reader_mutex);
    if (store->reports_tail)
        store->reports_tail->next = node;
    else
        store->reports = node;
    store->reports_tail = node;
    pthread_mutex_unlock(&store->reader_mutex);
    om_store_tell(store);
}

/* Which disk it is that an alarm speaks of, and how full. */
void om_store_tell_disk(const om_store *store, char *text, size_t text_len) {
    struct statvfs disk;
    if (statvfs(store->dir, &disk) != 0)
        disk = (struct statvfs){0};
    unsigned long long all = (unsigned long long)disk.f_blocks * disk.f_frsize;
    unsigned long long unused = (unsigned long long)disk.f_bfree * disk.f_frsize;
    snprintf(text, text_len, "the disk of %.100s (%llu of %llu MiB used)", store->dir, (all - unused) >> 20, all >> 20);
}

int om_store_report(om_store *store, om_report *out) {
    pthread_mutex_lock(&store->reader_mutex);
    om_report_node *node = store->reports;
    if (node) {
        store->reports = node->next;
        if (!store->reports)
            store->reports_tail = NULL;
    }
    pthread_mutex_unlock(&store->reader_mutex);
    if (!node)
        return OM_END;
    *out = node->report;
    free(node);
    return OM_OK;
}

/* ---- the table of logs ---- */

static om_log **slot_of(om_store *store, uint64_t id) {
    return &store->table[(id * 0x9E3779B97F4A7C15u >> 32) & (store->table_size - 1)];
}

om_log *om_store_find(om_store *store, uint64_t id) {
    om_log *log = *slot_of(store, id);
    while (log && log->id != id)
        log = log->next_in_table;
    return log;
}

static int grow_table(om_store *store) {
    uint32_t old_size = store->table_size;
    om_log **old = store->table;
    om_log **table = calloc((size_t)old_size * 2, sizeof *table);
    if (!table)
        return OM_E_NO_MEMORY;
    store->table = table;
    store->table_size = old_size * 2;
    for (uint32_t i = 0; i < old_size; i++) {
        for (om_log *log = old[i], *next; log; log = next) {
            next = log->next_in_table;
            om_log **slot = slot_of(store, log->id);
            log->next_in_table = *slot;
            *slot = log;
        }
    }
    free(old);
    return OM_OK;
}

void om_store_forget(om_store *store, om_log *log) {
    om_log **slot = slot_of(store, log->id);
    while (*slot && *slot != log)
        slot = &(*slot)->next_in_table;
    if (!*slot)
        return;
    *slot = log->next_in_table;
    store->log_count--;
}

static void free_log(om_log *log) {
    om_producers_free(log);
    for (uint32_t i = 0; i < log->hot.count; i++)
        om_buffer_unref(om_hot_at(&log->hot, i)->bytes);
    free(log->hot.slots);
    for (uint32_t i = 0; i < log->segment_count; i++)
        om_segment_unref(log->segments[i]);
    free(log->segments);
    if (log->open) {
        om_build_free(log->open);
        free(log->open);
    }
    if (log->cursor)
        om_cursor_free(log->cursor);
    free(log->ops);
    free(log->name);
    free(log->folder);
    free(log);
}

static om_log *log_new(om_store *store, uint64_t id, const char *folder, const char *name,
                       const om_log_options *options) {
    om_log *log = calloc(1, sizeof *log);
    if (!log)
        return NULL;
    log->store = store;
    log->id = id;
    log->refs = 2; /* the table's and the caller's */
    log->options = *options;
    log->recovery_base = -1;
    log->name = strdup(name);
    log->folder = malloc(strlen(store->dir) + strlen(folder) + 2);
    if (!(options->flags & OM_LOG_NO_CURSOR))
        log->cursor = om_cursor_new(0);
    if (!log->name || !log->folder || (!log->cursor && !(options->flags & OM_LOG_NO_CURSOR))) {
        free_log(log);
        return NULL;
    }
    sprintf(log->folder, "%s/%s", store->dir, folder);
    return log;
}

om_log *om_store_add(om_store *store, uint64_t id, const char *folder, const char *name, int has_files,
                     const om_log_options *options) {
    om_log *log = log_new(store, id, folder, name, options);
    if (!log)
        return NULL;
    log->has_files = has_files != 0;
    om_store_enter(store);
    log->unnamed = store->wal && !(options->flags & OM_LOG_SCRATCH);
    int known = om_store_find(store, id) != NULL;
    if (!known && (store->log_count < store->table_size || store->snapshotting || grow_table(store) == OM_OK)) {
        om_log **slot = slot_of(store, id);
        log->next_in_table = *slot;
        *slot = log;
        store->log_count++;
    } else {
        known = 1;
    }
    om_store_leave(store);
    if (known) {
        free_log(log);
        return NULL;
    }
    return log;
}

void om_log_ref(om_log *log) {
    __atomic_add_fetch(&log->refs, 1, __ATOMIC_RELAXED);
}

om_log *om_log_hold(om_log *log) {
    om_log_ref(log);
    return log;
}

void om_log_release(om_log *log) {
    if (__atomic_sub_fetch(&log->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free_log(log);
}

/* ---- life ---- */

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

int64_t om_store_now_ms(om_store *store) {
    return om_clock_ms(&store->clock);
}

static void store_free(om_store *store) {
    om_undo_forget(store, UINT64_MAX);
    om_delivered_mark_close(store);
    om_segment_nodes_free(store->seals);
    om_segment_nodes_free(store->doomed);
    om_segment_nodes_free(store->leaving);
    om_removal_notes_free(store->notes);
    om_removal_journal_close(store->removed);
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
    om_ticket_lock_destroy(&store->turn);
    om_clock_free(&store->clock);
    free(store->table);
    free(store->round);
    om_saved_free(store);
    om_unknown_logs_free(&store->strangers);
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
    om_ticket_lock_init(&store->turn);
    om_clock_init(&store->clock);
    pthread_mutex_init(&store->writer_mutex, NULL);
    pthread_condattr_t steady; /* who waits for a while waits no longer when the system's time is set back */
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&store->writer_wake, &steady);
    pthread_cond_init(&store->writer_done, NULL);
    pthread_mutex_init(&store->checkpoint_mutex, NULL);
    pthread_mutex_init(&store->checkpoint_timer, NULL);
    pthread_cond_init(&store->checkpoint_wake, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&store->survey_mutex, NULL);
    pthread_mutex_init(&store->reader_mutex, NULL);
    pthread_cond_init(&store->reader_wake, NULL);
    snprintf(err, err_len, "out of memory");
    if (!store->dir || !store->table || !store->files || store->event_fd < 0 || store->news_fd < 0 ||
        prepare_folder(store, err, err_len) != OM_OK || om_writer_init(store) != OM_OK ||
        om_saved_load(store, err, err_len) != OM_OK) {
        store_free(store);
        return NULL;
    }
    om_sigbus_install();
    return store;
}

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
    store->wal = om_wal_open(path, &wal, tail, store->checkpoint_seq, err, err_len);
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

/* The leases that recovery found missing: what they cover is shown once they are on disk, and who
 * opens a store may expect to see what is there. */
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
    store->removed =
        om_removal_journal_open(store->dir, store->options.removals_file_size, &store->fresh, err, err_len);
    if (!store->removed)
        return OM_E_IO;
    int result = om_recover(store, &store->tail, err, err_len);
    store->recovered = result == OM_OK;
    return result;
}

int om_store_start(om_store *store, char *err, size_t err_len) {
    int result = store->recovered ? OM_OK : om_store_recover(store, err, err_len);
    if (result == OM_OK && store->fresh)
        result = om_removal_baseline(store);
    if (result == OM_OK)
        result = om_removal_record(store, NULL); /* skipped offsets: before a record stands behind them */
    if (result == OM_E_NO_SPACE)
        result = OM_OK; /* said with the next checkpoint: until there is space, no record comes behind them */
    if (result == OM_OK)
        result = open_wal(store, &store->tail, err, err_len);
    if (result != OM_OK)
        return result;
    /* What was replayed is in segments but not synced: the first checkpoint frees its WAL. */
    store->checkpoint_kick = store->progress.replayed > 0;
    struct {
        pthread_t *thread;
        void *(*main)(void *);
        const char *name;
    } threads[] = {
        {&store->writer, om_writer_main, "otter-writer"},
        {&store->reader, om_reader_main, "otter-reader"},
        {&store->checkpointer, om_checkpoint_main, "otter-check"},
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

void om_store_interrupt(om_store *store) {
    __atomic_store_n(&store->called_off, 1, __ATOMIC_RELAXED);
}

static void stop_threads(om_store *store) {
    __atomic_store_n(&store->stopping, 1, __ATOMIC_SEQ_CST);
    om_writer_wake(store);
    om_checkpoint_wake(store);
    pthread_mutex_lock(&store->reader_mutex);
    pthread_cond_broadcast(&store->reader_wake);
    pthread_mutex_unlock(&store->reader_mutex);
    pthread_t threads[] = {store->writer, store->reader, store->checkpointer};
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

/* ---- the outside's questions ---- */

int om_store_event_fd(om_store *store) {
    return store->event_fd;
}

uint64_t om_store_durable_seq(om_store *store) {
    return om_wal_durable_seq(store->wal);
}

int om_store_wait(om_store *store, uint64_t seq, int timeout_ms) {
    return om_wal_wait(store->wal, seq, timeout_ms);
}

int om_store_takes(om_store *store) {
    if (om_store_short_of_space(store) || om_trouble_is_alarm(store))
        return OM_E_NO_SPACE;
    if (store->closing || om_store_hot_is_full(store))
        return OM_E_FULL;
    return om_wal_admit(store->wal, OM_WAL_APPEND);
}

int om_store_admits(om_store *store) {
    om_store_enter(store);
    int result = om_store_takes(store);
    om_store_leave(store);
    return result;
}

int om_store_unfence(om_store *store, char *err, size_t err_len) {
    om_store_enter(store);
    int handled = store->fence_handled;
    om_store_leave(store);
    if (!handled) {
        snprintf(err, err_len, "the WAL isn't fenced");
        return OM_E_INVALID;
    }
    int result = om_wal_unfence(store->wal, err, err_len);
    if (result != OM_OK)
        return result;
    om_store_enter(store);
    store->fence_handled = 0;
    om_store_leave(store);
    /* What was refused has left gaps that only memory can explain: a checkpoint makes them history. */
    om_checkpoint_wake(store);
    return OM_OK;
}

int om_store_checkpoint(om_store *store) {
    return om_checkpoint_run(store, 0);
}

void om_store_progress(om_store *store, om_progress *out) {
    out->done = __atomic_load_n(&store->progress.done, __ATOMIC_RELAXED);
    out->total = __atomic_load_n(&store->progress.total, __ATOMIC_RELAXED);
    out->logs_done = __atomic_load_n(&store->progress.logs_done, __ATOMIC_RELAXED);
    out->logs_total = __atomic_load_n(&store->progress.logs_total, __ATOMIC_RELAXED);
    out->replayed = __atomic_load_n(&store->progress.replayed, __ATOMIC_RELAXED);
}

void om_store_stat_get(om_store *store, om_store_stat *out) {
    om_wal_stat wal;
    om_file_cache_stat files;
    om_wal_stat_get(store->wal, &wal);
    om_file_cache_stat_get(store->files, &files);
    int fence_kept = 0;
    int fenced = om_wal_fenced(store->wal, &fence_kept, NULL, 0);
    om_store_enter(store);
    om_trouble_look(store);
    *out = (om_store_stat){
        .logs = store->log_count,
        .hot_bytes = store->hot_bytes,
        .hot_batches = store->hot_batches,
        .wal_used = om_wal_used(store->wal),
        .wal_groups = wal.groups,
        .wal_bytes = wal.bytes,
        .wal_sync_ns = wal.sync_ns,
        .wal_files = wal.files,
        .checkpoints = store->checkpoints,
        .checkpoint_ns = store->checkpoint_ns,
        .segments_rewritten = store->segments_rewritten,
        .open_files = files.open_files,
        .mappings = files.mappings,
        .mapped_bytes = files.mapped_bytes,
        .written_bytes = store->written_bytes,
        .skipped_bytes = store->skipped_bytes,
        .fenced = fenced,
        .fence_kept = fence_kept,
        .no_space = om_store_short_of_space(store),
        .wal_direct_io = wal.direct_io,
        .writer_stuck = store->trouble.writer_since_ns != 0,
        .checkpoint_failing = store->trouble.checkpoint_since_ns != 0,
        .stalled = om_trouble_is_alarm(store),
    };
    om_store_leave(store);
}
