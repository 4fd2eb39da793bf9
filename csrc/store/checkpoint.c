/* checkpoint.c -- the checkpoint: sync what the writer wrote, then let the WAL go.
 *
 *   1  S = the last sequence given; wait until it is durable
 *   2  the writer puts everything up to S into segments (page cache)
 *   3  the segments written since the last time are synced: one by one, or all by one syncfs
 *   4  every log's recovery point and cursor are gathered, a few logs at a time under the lock
 *   5  ... and when the last sequence any of them knows is durable, the record of what will be
 *      removed (removal_journal.h) and the checkpoint are written: data/checkpoint
 *   6  WAL files up to S are recycled; files that nothing needs any more are removed
 *
 * Step 5 waits because a cursor may already know of a transaction whose record isn't on disk: a
 * checkpoint that came first would keep half of it. Runs without the store's lock but for the
 * moments of gathering, and without the GIL.
 */
#define _GNU_SOURCE
#include "store/checkpoint.h"

#include "base/blob.h"
#include "base/clock.h"
#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/checkpoint_file.h"
#include "store/checkpoint_sync.h"
#include "store/log.h"
#include "store/log_list.h"
#include "store/log_offsets.h"
#include "store/producer.h"
#include "store/removal_record.h"
#include "store/segment_delete.h"
#include "store/segment_node.h"
#include "store/store.h"
#include "store/store_report.h"
#include "store/writer.h"
#include "wal/wal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SLOTS_A_TURN 128

/* ---- the file ---- */

static int worth_saving(const om_log *log) {
    return !(log->options.flags & OM_LOG_SCRATCH) && (log->next_offset || log->lease_end || log->leader_epoch);
}

static int gather_entries(om_store *store, om_blob *entries, uint64_t *count, int closing) {
    int result = OM_OK;
    for (uint32_t slot = 0; slot < store->table_size && result == OM_OK;) {
        om_ticket_lock_take(&store->lock);
        store->snapshotting = 1;
        for (uint32_t end = slot + SLOTS_A_TURN; slot < store->table_size && slot < end; slot++) {
            for (om_log *log = store->table[slot]; log && result == OM_OK; log = log->next_in_table) {
                if (!worth_saving(log))
                    continue;
                if (!closing)
                    om_log_shorten_lease(log);
                om_producers_expire(log, om_clock_ms(&store->clock) - OM_PRODUCER_EXPIRATION_MS);
                result = om_saved_put(entries, log, om_wal_last_seq(store->wal), closing);
                (*count)++;
            }
        }
        om_ticket_lock_give(&store->lock);
    }
    om_ticket_lock_take(&store->lock);
    store->snapshotting = 0;
    om_ticket_lock_give(&store->lock);
    return result;
}

/* The last sequence given so far, durable. Without a file to go on in that may take for ever. */
#define SETTLE_LOOK_MS 500

static int settle_wal(om_store *store, uint64_t *seq) {
    om_store_enter(store);
    store->urgent = 1;
    *seq = om_store_leave(store);
    int result;
    while ((result = om_wal_wait(store->wal, *seq, SETTLE_LOOK_MS)) == OM_E_TIMEOUT)
        if (om_wal_stands_still(store->wal))
            return OM_E_NO_SPACE; /* there is no file to go on in, and the disk has no room for one */
    return result;
}

/* nodes: what it no longer names; empty afterwards if that can't be recorded, so that it stays.
 * Recorded first: a file that no checkpoint names is removed by the next start, whatever happens. */
static int write_checkpoint(om_store *store, uint64_t seq, int closing, om_segment_node **nodes) {
    om_blob entries = {0};
    uint64_t count = 0, last;
    int result = gather_entries(store, &entries, &count, closing);
    if (result == OM_OK)
        result = settle_wal(store, &last);
    if (result == OM_OK && om_removal_record(store, *nodes) != OM_OK) {
        om_segment_delete_put_back(store, *nodes);
        *nodes = NULL;
    }
    if (result == OM_OK)
        result = om_saved_write(store, &entries, count, seq);
    free(entries.data);
    return result;
}

/* ---- a checkpoint ---- */

void om_checkpoint_init(om_store *store, const pthread_condattr_t *clock) {
    pthread_mutex_init(&store->checkpoint.mutex, NULL);
    pthread_mutex_init(&store->checkpoint.timer, NULL);
    pthread_cond_init(&store->checkpoint.wake, clock);
}

void om_log_touch(om_log *log) {
    if (log->touched)
        return;
    log->touched = 1;
    om_list_push(&log->store->checkpoint.touched, log, OM_LINK(next_touched));
}

void om_checkpoint_lock(om_store *store) {
    pthread_mutex_lock(&store->checkpoint.mutex);
}

void om_checkpoint_unlock(om_store *store) {
    pthread_mutex_unlock(&store->checkpoint.mutex);
}

/* There is no space for what should be written, but files wait to be removed. A checkpoint that
 * moves no recovery point and releases nothing is enough for those: it names them no more. (What a
 * truncation cut off stays: that log is to wait for a whole one.) */
static void make_space(om_store *store) {
    om_segment_node *ready = NULL, *rest = NULL, *pending = om_segment_delete_take(store);
    while (pending) {
        om_segment_node *node = pending, **list = node->at_once ? &rest : &ready;
        pending = node->next;
        node->next = *list;
        *list = node;
    }
    if (ready && write_checkpoint(store, store->checkpoint.seq, 0, &ready) == OM_OK)
        om_segment_delete_release(store, ready);
    else
        om_segment_delete_put_back(store, ready);
    om_segment_delete_put_back(store, rest);
}

/* For people: what failed, and why. error: errno, if that is the reason. */
static int note_step(om_store *store, const char *step, int result, int error) {
    if (result == OM_OK)
        return OM_OK;
    const char *why = result == OM_E_IO && error ? strerror(error) : om_result_text(result);
    om_ticket_lock_take(&store->lock);
    if (result == __atomic_load_n(&store->writer.stuck, __ATOMIC_RELAXED))
        snprintf(store->trouble.checkpoint, sizeof store->trouble.checkpoint, "%s", store->writer.error);
    else
        snprintf(store->trouble.checkpoint, sizeof store->trouble.checkpoint, "%s: %s", step, why);
    om_ticket_lock_give(&store->lock);
    return result;
}

static int sync_and_save(om_store *store, int closing) {
    uint64_t seq;
    om_checkpoint_sync work = {0};
    int result = note_step(store, "the WAL", settle_wal(store, &seq), 0);
    if (result == OM_OK)
        result = note_step(store, "segments", om_writer_flush(store), 0);
    if (result != OM_OK)
        return result;
    om_segment_node *pending = om_segment_delete_take(store);
    om_checkpoint_sync_gather(store, &work);
    errno = 0;
    result = om_checkpoint_sync_run(store, &work);
    note_step(store, "segments and manifests", result, errno);
    if (result == OM_OK) {
        om_checkpoint_sync_done(store, &work);
        if (closing)
            om_checkpoint_sync_indexes(store);
        errno = 0;
        result = write_checkpoint(store, seq, closing, &pending);
        note_step(store, "the checkpoint's file", result, errno);
    } else {
        om_checkpoint_sync_give_back(store, &work);
    }
    if (result == OM_OK) {
        __atomic_store_n(&store->checkpoint.seq, seq, __ATOMIC_RELAXED);
        om_wal_release(store->wal, seq);
    }
    if (result == OM_OK)
        om_segment_delete_release(store, pending);
    else
        om_segment_delete_put_back(store, pending);
    if (result == OM_OK && closing)
        om_segment_delete_all(store);
    om_checkpoint_sync_end(store, &work);
    om_file_cache_reap(store->files);
    return result;
}

int om_checkpoint_run_locked(om_store *store, int closing) {
    uint64_t began = om_now_ns();
    int result = sync_and_save(store, closing);
    if (result == OM_E_NO_SPACE)
        make_space(store);
    om_ticket_lock_take(&store->lock);
    store->checkpoint.count += result == OM_OK;
    store->checkpoint.ns += om_now_ns() - began;
    uint64_t *since = &store->trouble.checkpoint_since_ns;
    int said = *since != 0;
    *since = result == OM_OK ? 0 : said ? *since : om_now_ns();
    om_ticket_lock_give(&store->lock);
    if (result != OM_OK && !said)
        om_store_add_report(store, OM_REPORT_CHECKPOINT_FAILED, NULL, 0, 0,
                            "a checkpoint failed (%.200s): the WAL is kept, and it is tried again",
                            store->trouble.checkpoint);
    else if (result == OM_OK && said)
        om_store_add_report(store, OM_REPORT_GOES_ON, NULL, 0, 0, "checkpoints succeed again");
    return result;
}

int om_checkpoint_run(om_store *store, int closing) {
    om_checkpoint_lock(store);
    om_ticket_lock_take(&store->lock);
    int over = store->closing && !closing;
    om_ticket_lock_give(&store->lock);
    /* The closing one is the last: another would find the writer gone, and leases to renew. */
    int result = over ? OM_OK : om_checkpoint_run_locked(store, closing);
    om_checkpoint_unlock(store);
    return result;
}

/* ---- the thread ---- */

static void look_at_space(om_store *store) {
    struct statvfs disk;
    if (!store->options.low_space_limit || statvfs(store->dir, &disk) != 0)
        return;
    uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize;
    int low = __atomic_load_n(&store->low_space, __ATOMIC_RELAXED);
    /* A little more must come back than was missing, or it would flicker. */
    int now = left < store->options.low_space_limit + (low ? store->options.low_space_limit / 16 : 0);
    if (now == low)
        return;
    __atomic_store_n(&store->low_space, now, __ATOMIC_RELAXED);
    char where[160], limit[80] = ": appends are taken again";
    om_store_tell_disk(store, where, sizeof where);
    if (now)
        snprintf(limit, sizeof limit, ", less than wal.low_space_limit (%llu MiB): appends are refused",
                 (unsigned long long)(store->options.low_space_limit >> 20));
    om_store_add_report(store, now ? OM_REPORT_NO_SPACE : OM_REPORT_SPACE_BACK, NULL, 0, 0, "%llu MiB left on %s%s",
                        (unsigned long long)(left >> 20), where, limit);
}

void om_checkpoint_wake(om_store *store) {
    pthread_mutex_lock(&store->checkpoint.timer);
    if (!store->checkpoint.kick) {
        store->checkpoint.kick = 1;
        pthread_cond_signal(&store->checkpoint.wake);
    }
    pthread_mutex_unlock(&store->checkpoint.timer);
}

int om_checkpoint_is_asked_for(om_store *store) {
    pthread_mutex_lock(&store->checkpoint.timer);
    int asked = store->checkpoint.kick || __atomic_load_n(&store->stopping, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&store->checkpoint.timer);
    return asked;
}

/* A checkpoint for the sake of a few files walks all the logs: the more CPU it took, the longer
 * the next such one can wait, so that retention doesn't keep a core busy. */
#define PENDING_SHARE 100
#define RETRY_NS 2000000000u /* after one that failed */
#define PAUSE_NS 100000000u  /* ... and at least, even if files wait for it */

/* Until somebody asks, or a second has passed. */
static int wait_a_second(om_store *store) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&store->checkpoint.timer);
    int waited = 0;
    while (!store->checkpoint.kick && waited != ETIMEDOUT && !__atomic_load_n(&store->stopping, __ATOMIC_RELAXED))
        waited = pthread_cond_timedwait(&store->checkpoint.wake, &store->checkpoint.timer, &until);
    int asked = store->checkpoint.kick;
    store->checkpoint.kick = 0;
    pthread_mutex_unlock(&store->checkpoint.timer);
    return asked;
}

/* Under the lock. */
static int frees_files(const om_store *store) {
    const om_segment_node *node = store->deletions.pending;
    while (node && node->at_once)
        node = node->next;
    return node != NULL;
}

/* Each checkpoint costs a group of the WAL, and the WAL asks for one after each group once it is half full.
 * So asking doesn't hurry one that fails: they would use up what is left for acks. While a full disk holds up
 * the writer, which tries again by itself, only one that frees files is of any use. */
static int is_due(om_store *store, int asked, uint64_t last_ns, uint64_t cpu_ns) {
    om_ticket_lock_take(&store->lock);
    int pending = store->deletions.pending != NULL, frees = frees_files(store);
    uint64_t saved = __atomic_load_n(&store->checkpoint.seq, __ATOMIC_RELAXED);
    int dirty = store->checkpoint.touched.head != NULL || om_wal_last_seq(store->wal) > saved;
    int failed = store->trouble.checkpoint_since_ns != 0;
    om_ticket_lock_give(&store->lock);
    uint64_t interval = (uint64_t)store->options.checkpoint_interval_ms * 1000000u;
    if (failed && (!interval || interval > RETRY_NS))
        interval = RETRY_NS;
    uint64_t since = om_now_ns() - last_ns;
    if (failed && since < PAUSE_NS)
        return 0;
    if (__atomic_load_n(&store->no_space, __ATOMIC_RELAXED))
        return frees;
    return (asked && !failed) || (pending && (since >= cpu_ns * PENDING_SHARE || om_store_short_of_space(store))) ||
           (interval && (dirty || failed) && since >= interval);
}

void *om_checkpoint_main(void *arg) {
    om_store *store = arg;
    uint64_t last = om_now_ns(), cpu = 0;
    while (!__atomic_load_n(&store->stopping, __ATOMIC_RELAXED)) {
        int asked = wait_a_second(store);
        if (__atomic_load_n(&store->stopping, __ATOMIC_RELAXED))
            break;
        look_at_space(store);
        om_segment_delete_some(store);
        if (!is_due(store, asked, last, cpu))
            continue;
        uint64_t began = om_thread_cpu_ns();
        om_checkpoint_run(store, 0);
        cpu = om_thread_cpu_ns() - began;
        last = om_now_ns();
        if (om_store_short_of_space(store))
            om_segment_delete_some(store);
    }
    return NULL;
}
