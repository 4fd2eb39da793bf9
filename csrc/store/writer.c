/* writer.c -- the writer thread: durable batches leave the hot tail for their segments.
 *
 * It is lazy on purpose. A batch in the WAL is safe, so writing it can wait until memory is
 * wanted or a checkpoint asks; by then the log has gathered more (one write for many batches)
 * or its consumers have settled it (no write at all). Batches that are in no WAL are different:
 * the page cache is all they have, so they go at once.
 *
 * A round: under the lock, take batches off the queue and decide their places; without it,
 * write; under it again, note what is in the file now. A write that failed keeps its place and
 * is tried again: nothing is lost, the WAL still has it.
 */
#define _GNU_SOURCE
#include "store/writer.h"

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ticket_lock.h"
#include "segment/index.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/delivered_mark.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_control.h"
#include "store/log_count.h"
#include "store/log_cursor.h"
#include "store/log_delete.h"
#include "store/log_hot.h"
#include "store/log_list.h"
#include "store/log_segments.h"
#include "store/news.h"
#include "store/producer.h"
#include "store/segment_node.h"
#include "store/store.h"
#include "store/store_report.h"
#include "wal/wal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUND_BATCHES 4096
#define ROUND_BYTES (8u << 20)
#define RETRY_MS 200

/* Asked for by somebody; counted by the writer, between two rounds, and under way. */
enum { FLUSH_WANTED = 1, FLUSH_RUNNING = 2 };

/* Consecutive batches of one log that go to one segment at one position. */
typedef struct run {
    om_log *log;
    om_segment *segment;
    uint64_t position, len;
    uint32_t first, count; /* in the round's batches */
    int result, error;     /* OM_E_IO: the errno that goes with it */
} run;

typedef struct om_round {
    run runs[ROUND_BATCHES];
    struct iovec iov[ROUND_BATCHES * 2];
    uint32_t iov_first[ROUND_BATCHES + 1];
    uint8_t heads[ROUND_BATCHES][OM_BATCH_HEAD];
    uint32_t run_count, batch_count, iov_count;
    uint64_t bytes;
} om_round;

/* ---- under the lock: what to write, and where ---- */

/* A Kafka reader takes all that comes from an aborted transaction's producer for aborted until it
 * meets the marker: that one stays, though nobody is given it. */
static int ends_aborted(const om_hot *hot) {
    int32_t coordinator_epoch;
    int commit;
    return (om_get_be16(hot->bytes->data + 21) & OM_ATTR_CONTROL) &&
           om_marker_parse(hot->bytes->data, hot->bytes->len, &coordinator_epoch, &commit) == OM_OK && !commit;
}

static uint32_t skip_settled(om_log *log, uint32_t ready) {
    if (!log->cursor || (log->options.flags & OM_LOG_KEEP_SETTLED))
        return 0;
    int64_t floor = om_log_durable_floor(log);
    uint32_t skipped = 0;
    while (skipped < ready) {
        const om_hot *hot = om_hot_at(&log->hot, skipped);
        if (hot->segment || hot->last_offset >= floor || ends_aborted(hot))
            break;
        log->store->skipped_bytes += hot->bytes->len;
        skipped++;
    }
    if (skipped)
        om_log_drop_hot(log, skipped);
    return skipped;
}

static void seal_later(om_log *log, om_segment *segment) {
    om_store *store = log->store;
    om_segment_node *node = om_segment_node_new(log, segment);
    om_segment_seal(segment);
    if (!node)
        return; /* its file stays a little long and without an index: the next start mends that */
    om_segment_ref(segment);
    node->next = store->writer.to_seal;
    store->writer.to_seal = node;
}

/* A place in the active segment, or in a new one. */
static int place(om_log *log, om_hot *hot, const om_segment_limits *limits) {
    om_batch_info info;
    om_batch_peek(hot->bytes->data, hot->bytes->len, &info);
    info.base_offset = hot->base_offset;
    om_segment *active = om_log_active(log);
    int behind_gap = log->missing && (!active || active->next_offset < hot->base_offset);
    if (active && (behind_gap || om_segment_must_roll(active, limits, &info, om_clock_ms(&log->store->clock)))) {
        seal_later(log, active);
        active = NULL;
    }
    if (!active) {
        active = om_segment_new(log->store->files, log->folder, hot->base_offset);
        if (!active || om_log_add_segment(log, active) != OM_OK) {
            if (active)
                om_segment_unref(active);
            return OM_E_NO_MEMORY;
        }
    }
    int64_t position = om_segment_place(active, &info);
    if (position < 0)
        return (int)position;
    hot->segment = active;
    hot->position = (uint64_t)position;
    if (behind_gap)
        om_log_note_missing(log);
    return OM_OK;
}

static void add_to_run(om_round *round, om_log *log, om_hot *hot) {
    run *last = round->run_count ? &round->runs[round->run_count - 1] : NULL;
    if (!last || last->log != log || last->segment != hot->segment) {
        last = &round->runs[round->run_count++];
        *last = (run){.log = log, .segment = hot->segment, .position = hot->position, .first = round->batch_count};
        om_log_ref(log);
        om_segment_ref(hot->segment);
        round->iov_first[round->run_count - 1] = round->iov_count;
    }
    om_buffer *bytes = hot->bytes;
    if (hot->shared) {
        om_hot_put_head(hot, round->heads[round->batch_count]);
        round->iov[round->iov_count++] = (struct iovec){round->heads[round->batch_count], OM_BATCH_HEAD};
        round->iov[round->iov_count++] = (struct iovec){bytes->data + OM_BATCH_HEAD, bytes->len - OM_BATCH_HEAD};
    } else {
        round->iov[round->iov_count++] = (struct iovec){bytes->data, bytes->len};
    }
    round->batch_count++;
    last->count++;
    last->len += bytes->len;
    round->bytes += bytes->len;
}

/* Returns 1 when the log has no more to give now. */
static int collect_log(om_round *round, om_log *log, uint64_t durable) {
    uint32_t ready = om_hot_durable(&log->hot, durable);
    if (log->deleted || log->writing)
        return 1;
    ready -= skip_settled(log, ready);
    om_segment_limits limits;
    om_log_limits(log, &limits);
    uint32_t taken = 0;
    while (taken < ready && round->batch_count < ROUND_BATCHES && round->bytes < ROUND_BYTES) {
        om_hot *hot = om_hot_at(&log->hot, taken);
        if (!hot->segment && place(log, hot, &limits) != OM_OK)
            break;
        add_to_run(round, log, hot);
        taken++;
    }
    log->writing = taken;
    return taken == ready;
}

static uint64_t durable_now(const om_store *store) {
    return store->wal ? om_wal_durable_seq(store->wal) : UINT64_MAX;
}

int om_writer_wants(const om_store *store) {
    return store->writer.write_now.head || store->writer.to_seal || store->deleted_logs.with_files ||
           store->writer.flush_left || om_delivered_mark_wants_more(store) ||
           store->hot_bytes > store->options.hot_buffer_size / 2;
}

/* While memory is the reason, stop at a quarter: what stays may yet be settled or joined. Not after
 * a write that failed: whether it would work now is known by trying only. */
static int enough(const om_store *store, const om_round *round) {
    return !store->writer.flush_left && !__atomic_load_n(&store->writer.stuck, __ATOMIC_RELAXED) &&
           store->hot_bytes - round->bytes <= store->options.hot_buffer_size / 4;
}

static int round_is_full(const om_round *round) {
    return round->batch_count == ROUND_BATCHES || round->bytes >= ROUND_BYTES;
}

static void collect_write_now(om_store *store, om_round *round, uint64_t durable) {
    uint64_t once = store->writer.write_now.count;
    while (once-- && !round_is_full(round)) {
        om_log *log = om_list_pop(&store->writer.write_now, OM_LINK(next_write_now));
        if (!collect_log(round, log, durable) || (log->hot.count > log->writing && !log->deleted)) {
            om_list_push(&store->writer.write_now, log, OM_LINK(next_write_now));
            continue;
        }
        log->wants_write_now = 0;
    }
}

static void push_front(om_list *list, om_log *log) {
    log->next_queued = list->head;
    list->head = log;
    if (!list->tail)
        list->tail = log;
    list->count++;
}

static void collect_queued(om_store *store, om_round *round, uint64_t durable) {
    uint64_t once = store->writer.queued.count;
    while (once-- && !round_is_full(round) && !enough(store, round)) {
        om_log *log = om_list_pop(&store->writer.queued, OM_LINK(next_queued));
        if (!collect_log(round, log, durable)) {
            push_front(&store->writer.queued, log); /* it has more: next round */
            break;
        }
        if (store->writer.flush_left)
            store->writer.flush_left--;
        if (log->hot.count > log->writing && !log->deleted)
            om_list_push(&store->writer.queued, log, OM_LINK(next_queued)); /* not durable yet */
        else
            log->queued = 0;
    }
}

/* ---- without the lock: the slow part ---- */

static void write_runs(om_round *round) {
    round->iov_first[round->run_count] = round->iov_count;
    for (uint32_t i = 0; i < round->run_count; i++) {
        run *run = &round->runs[i];
        om_segment_limits limits;
        om_log_limits(run->log, &limits);
        run->result = om_segment_write(run->segment, &limits, &round->iov[round->iov_first[i]],
                                       (int)(round->iov_first[i + 1] - round->iov_first[i]), run->position);
        run->error = run->result == OM_OK ? 0 : errno;
    }
}

/* ---- under the lock again: what is in the files now ---- */

static void requeue(om_store *store, om_log *log) {
    if (log->queued)
        return;
    log->queued = 1;
    om_list_push(&store->writer.queued, log, OM_LINK(next_queued));
}

static int finish_run(om_store *store, run *run) {
    om_log *log = run->log;
    int result = run->result;
    /* Runs of one log complete in order: one that failed holds back the ones behind it. */
    int in_order = log->hot.count && om_hot_at(&log->hot, 0)->segment == run->segment &&
                   om_hot_at(&log->hot, 0)->position == run->position;
    if (result == OM_OK && in_order && !log->deleted) {
        om_log_drop_hot(log, run->count);
        store->written_bytes += run->len;
        om_log_touch(log);
    } else if (!log->deleted) {
        requeue(store, log);
    }
    log->writing = 0;
    /* What was trimmed while it was being written needn't be tried again, and its segment goes now. */
    int left = log->segment_count && log->segments[0]->next_offset <= log->start_offset;
    if ((result != OM_OK || left) && !log->deleted)
        om_log_start_at(log, log->start_offset);
    return result;
}

/* For operators that ask why nothing moves. */
static void note_failure(om_store *store, const run *run) {
    const char *why = run->result == OM_E_IO ? strerror(run->error) : om_result_text(run->result);
    snprintf(store->writer.error, sizeof store->writer.error, "%s/%020lld.log: %s", run->log->folder,
             (long long)run->segment->base_offset, why);
}

static int finish_round(om_store *store, om_round *round) {
    int result = OM_OK;
    om_ticket_lock_take(&store->lock);
    for (uint32_t i = 0; i < round->run_count; i++) {
        int finished = finish_run(store, &round->runs[i]);
        if (result == OM_OK && finished != OM_OK)
            note_failure(store, &round->runs[i]);
        result = result == OM_OK ? finished : result;
    }
    om_ticket_lock_give(&store->lock);
    for (uint32_t i = 0; i < round->run_count; i++) {
        om_segment_unref(round->runs[i].segment);
        om_log_release(round->runs[i].log);
    }
    return result;
}

/* ---- full segments ---- */

static void seal_file(om_segment *segment) {
    om_index unsaved;
    om_segment_trim_file(segment, segment->size);
    if (om_segment_unsaved_index(segment, &unsaved) != OM_OK)
        return;
    om_segment_save_index(segment, unsaved.offsets, unsaved.offset_count, unsaved.times, unsaved.time_count);
    om_index_free(&unsaved);
}

/* It was trimmed, written or not, or the whole log was deleted. */
static int is_gone(const om_segment_node *node) {
    return node->log->deleted || node->segment->next_offset <= node->log->start_offset;
}

static void seal_segments(om_store *store) {
    om_ticket_lock_take(&store->lock);
    om_segment_node *ready = NULL, *gone = NULL, **link = &store->writer.to_seal;
    while (*link) {
        om_segment_node *node = *link;
        int trimmed = is_gone(node);
        if (!trimmed && __atomic_load_n(&node->segment->written, __ATOMIC_ACQUIRE) < node->segment->size) {
            link = &node->next;
            continue;
        }
        *link = node->next;
        node->next = trimmed ? gone : ready;
        *(trimmed ? &gone : &ready) = node;
    }
    om_ticket_lock_give(&store->lock);
    om_segment_nodes_free(gone);
    while (ready) {
        om_segment_node *node = ready;
        ready = node->next;
        seal_file(node->segment); /* a failure costs an index: it is made again when missing */
        om_producers_save(node->log, node->segment);
        om_segment_node_free(node);
    }
}

/* ---- a round, and the thread ---- */

/* Publishers that met a full hot tail wait for this: nothing else may be going on. */
static void tell_room(om_store *store) {
    om_ticket_lock_take(&store->lock);
    int room = store->full_reported && store->hot_bytes <= store->options.hot_buffer_size;
    if (room)
        store->full_reported = 0;
    om_ticket_lock_give(&store->lock);
    if (room) {
        om_store_tell(store);
        om_news_ring(store);
    }
}

int64_t om_writer_round(om_store *store) {
    om_round *round = store->writer.round;
    round->run_count = round->batch_count = round->iov_count = 0;
    round->bytes = 0;
    om_ticket_lock_take(&store->lock);
    uint64_t durable = durable_now(store);
    collect_write_now(store, round, durable);
    collect_queued(store, round, durable);
    om_ticket_lock_give(&store->lock);
    write_runs(round);
    int result = finish_round(store, round);
    seal_segments(store);
    om_log_delete_some(store, durable_now(store));
    om_delivered_mark_grow(store);
    tell_room(store);
    return result == OM_OK ? (int64_t)round->batch_count : result;
}

int om_writer_init(om_store *store, const pthread_condattr_t *clock) {
    om_writer *writer = &store->writer;
    pthread_mutex_init(&writer->mutex, NULL);
    pthread_cond_init(&writer->wake, clock);
    pthread_cond_init(&writer->done, NULL);
    writer->round = malloc(sizeof *writer->round);
    return writer->round ? OM_OK : OM_E_NO_MEMORY;
}

static void note_result(om_store *store, int result) {
    int was = __atomic_exchange_n(&store->writer.stuck, result, __ATOMIC_RELAXED);
    __atomic_store_n(&store->no_space, result == OM_E_NO_SPACE, __ATOMIC_RELAXED);
    if (result == was)
        return;
    om_ticket_lock_take(&store->lock);
    uint64_t *since = &store->trouble.writer_since_ns;
    *since = result == OM_OK || result == OM_E_NO_SPACE ? 0 : *since ? *since : om_now_ns();
    om_ticket_lock_give(&store->lock);
    if (result == OM_E_NO_SPACE) {
        char where[160];
        om_store_tell_disk(store, where, sizeof where);
        om_store_add_report(store, OM_REPORT_NO_SPACE, NULL, 0, 0,
                            "no space left for segments on %s: appends are refused", where);
    } else if (result != OM_OK)
        om_store_add_report(store, OM_REPORT_WRITE_FAILED, NULL, 0, 0,
                            "a segment can't be written: %.200s; trying again", store->writer.error);
    else if (was == OM_E_NO_SPACE)
        om_store_add_report(store, OM_REPORT_SPACE_BACK, NULL, 0, 0, "segments can be written again");
    else
        om_store_add_report(store, OM_REPORT_GOES_ON, NULL, 0, 0, "segments can be written again");
}

static int flush_state(om_store *store) {
    pthread_mutex_lock(&store->writer.mutex);
    int state = store->writer.flushing;
    pthread_mutex_unlock(&store->writer.mutex);
    return state;
}

/* A flush is over when every log that had something to write when it began has been written. The
 * writer counts them itself, between two rounds: what a round has in its hands is on no list. */
static void begin_flush(om_store *store) {
    if (flush_state(store) != FLUSH_WANTED)
        return;
    om_ticket_lock_take(&store->lock);
    store->writer.flush_left = store->writer.queued.count;
    om_ticket_lock_give(&store->lock);
    pthread_mutex_lock(&store->writer.mutex);
    store->writer.flushing = FLUSH_RUNNING;
    pthread_mutex_unlock(&store->writer.mutex);
}

/* Wake the callers that wait for it, once the last of them is written or a write failed. */
static void note_flush(om_store *store, int64_t wrote) {
    if (flush_state(store) != FLUSH_RUNNING)
        return;
    om_ticket_lock_take(&store->lock);
    uint64_t left = store->writer.flush_left;
    if (wrote <= 0)
        store->writer.flush_left = 0;
    om_ticket_lock_give(&store->lock);
    if (left && wrote > 0)
        return;
    pthread_mutex_lock(&store->writer.mutex);
    store->writer.flushing = 0;
    /* Nothing written and something left: there was no memory for a place. */
    store->writer.flush_result = wrote < 0 ? (int)wrote : left ? OM_E_NO_MEMORY : OM_OK;
    pthread_cond_broadcast(&store->writer.done);
    pthread_mutex_unlock(&store->writer.mutex);
}

static struct timespec after_ms(long ms) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += ms % 1000 * 1000000;
    at.tv_sec += ms / 1000 + at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* Sleep until woken; while something couldn't be written, only for a while. */
static void wait_for_work(om_store *store) {
    struct timespec retry = after_ms(RETRY_MS);
    pthread_mutex_lock(&store->writer.mutex);
    while (!store->writer.kick && !__atomic_load_n(&store->stopping, __ATOMIC_RELAXED)) {
        if (!store->writer.stuck)
            pthread_cond_wait(&store->writer.wake, &store->writer.mutex);
        else if (pthread_cond_timedwait(&store->writer.wake, &store->writer.mutex, &retry) == ETIMEDOUT)
            break;
    }
    store->writer.kick = 0;
    pthread_mutex_unlock(&store->writer.mutex);
}

void *om_writer_main(void *arg) {
    om_store *store = arg;
    while (!__atomic_load_n(&store->stopping, __ATOMIC_RELAXED)) {
        wait_for_work(store);
        int64_t wrote;
        do {
            begin_flush(store);
            wrote = om_writer_round(store);
            note_result(store, wrote < 0 ? (int)wrote : OM_OK);
            note_flush(store, wrote);
        } while (wrote > 0);
    }
    return NULL;
}

void om_writer_wake(om_store *store) {
    pthread_mutex_lock(&store->writer.mutex);
    if (!store->writer.kick) {
        store->writer.kick = 1;
        pthread_cond_signal(&store->writer.wake);
    }
    pthread_mutex_unlock(&store->writer.mutex);
}

int om_writer_flush(om_store *store) {
    pthread_mutex_lock(&store->writer.mutex);
    while (store->writer.flushing)
        pthread_cond_wait(&store->writer.done, &store->writer.mutex);
    store->writer.flushing = FLUSH_WANTED;
    pthread_mutex_unlock(&store->writer.mutex);
    om_writer_wake(store);
    pthread_mutex_lock(&store->writer.mutex);
    while (store->writer.flushing)
        pthread_cond_wait(&store->writer.done, &store->writer.mutex);
    int result = store->writer.flush_result;
    pthread_mutex_unlock(&store->writer.mutex);
    return result;
}
