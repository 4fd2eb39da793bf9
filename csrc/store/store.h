/* store.h -- the storage engine: the struct that holds it together, its lock, its tick.
 *
 *   append -> open batch -> seal: hot tail + WAL buffer -> committer: durable
 *                                     |                        |
 *   read <---- hot tail <-------------+        writer: place, pwritev, drop from the hot tail
 *   read <---- mapped segment <----------------------+
 *                                        checkpoint: sync, checkpoint file, recycle the WAL
 *
 * One lock (om_ticket_lock) guards everything of the store and of its logs (log.h) unless a line says otherwise.
 * Its holder never touches a file: the writer, the reader and the checkpoint take what they need under it, let
 * go, do the slow thing, and come back for a moment to note the result. Each part has a header of its own, which
 * says which thread may touch what of it.
 */
#ifndef OM_STORE_H
#define OM_STORE_H

#include "base/clock.h"
#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/log_delete.h"
#include "store/log_list.h"
#include "store/reader.h"
#include "store/removal_record.h"
#include "store/segment_delete.h"
#include "store/store_report.h"
#include "store/trouble.h"
#include "store/undo.h"
#include "store/unknown_logs.h"
#include "store/writer.h"
#include "wal/wal.h"

struct om_delivered_mark;
struct om_saved;

struct om_store {
    om_ticket_lock lock;
    om_clock clock; /* its own lock */
    /* written before the threads start, and then no more */
    char *dir;
    int dir_fd;
    om_store_options options;
    om_file_cache *files; /* its own lock */
    om_wal *wal;          /* its own; NULL until recovery is over */
    int event_fd;         /* Python's */
    int news_fd;          /* the thread that serves the store sleeps on it (news.h) */

    om_log **table; /* by id: a chained hash */
    uint32_t table_size;
    uint64_t log_count;
    int snapshotting; /* the table must keep its shape while a checkpoint walks it */

    /* this tick */
    om_list staged; /* logs with an open batch or cursor ops */
    int urgent;     /* it appended something that wants a sync now */
    int refused;    /* ... or couldn't append what it had taken: the fence, no memory */

    om_list leases;  /* logs whose lease isn't durable yet */
    om_list to_wake; /* logs (held) that got something while readers wait for it */
    uint64_t hot_bytes, hot_batches;
    int full_reported; /* somebody met a full hot tail: the writer reports when there is room */
    uint64_t written_bytes, skipped_bytes, segments_rewritten;
    int fence_handled;
    int starved_reported; /* the last that was reported of the WAL */
    int closing;          /* no more appends */
    om_undo_list undos;
    struct om_delivered_mark *delivered_mark; /* NULL: its file can't be had */

    /* the parts; their headers say what guards them */
    om_writer writer;
    om_checkpointer checkpoint;
    om_reader reader;
    om_segment_deletions deletions;
    om_log_deletions deleted_logs;
    om_removal_records removals;
    om_reports reports;
    om_trouble trouble;
    pthread_mutex_t survey_mutex; /* one survey at a time; taken before the lock, never under it */

    int low_space, no_space; /* atomic: less than the limit is left; a write met a full disk */
    int called_off;          /* atomic: recovery is to end where it is */
    int stopping;            /* atomic */
    int threads_running;
    pthread_t news;
    int news_running, news_stopping; /* stopping: atomic */

    /* recovery */
    om_progress progress;         /* atomics, relaxed */
    struct om_saved *saved;       /* the checkpoint file as read at open, until recovery has used it */
    om_unknown_logs unknown_logs; /* what recovery read of logs that nobody added */
    om_wal_tail tail;             /* where recovery found the WAL's end */
    int recovered, fresh;         /* fresh: there was no record of what is gone */
};

/* A session under the lock; leaving it ends the tick: open batches are sealed, cursor changes
 * logged, the committer told. Returns the last sequence the store has given. */
void om_store_enter(om_store *store);
uint64_t om_store_leave(om_store *store);
/* The same in two halves, for a caller that has more to do once the tick is logged. */
uint64_t om_store_end_tick(om_store *store);
void om_store_let_go(om_store *store);

/* ---- under the lock ---- */
int om_store_takes(om_store *store); /* om_store_admits */
om_log *om_store_find(om_store *store, uint64_t id);
void om_store_forget(om_store *store, om_log *log);
int om_store_hot_is_full(om_store *store); /* a caller that was told so will be told of room */

/* ---- any thread ---- */
void om_store_tell(om_store *store); /* write the event fd */
/* A recovery that stops half-way is a crash like any other: what it changed so far is what the
 * next one would do too. */
static inline int om_store_called_off(const om_store *store) {
    return __atomic_load_n(&store->called_off, __ATOMIC_RELAXED);
}
static inline int om_store_is_low_on_disk(const om_store *store) {
    return __atomic_load_n(&store->low_space, __ATOMIC_RELAXED) || __atomic_load_n(&store->no_space, __ATOMIC_RELAXED);
}
static inline int om_store_short_of_space(const om_store *store) {
    return om_store_is_low_on_disk(store) || om_wal_starved(store->wal);
}

#endif
