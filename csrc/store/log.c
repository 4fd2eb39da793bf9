/* log.c -- a log's life under the lock: offsets, leases, open batch, hot tail, segments list.
 *
 * Nothing here touches a file. What must survive goes into the WAL's buffer; what must be read
 * later goes into the hot tail.
 */
#include "store/store.h"

#include "base/bytes.h"
#include "cursor/cursor.h"
#include "store/producer.h"

#include <stdlib.h>
#include <string.h>

/* The format's lengths are 32 bits; a message may have 128 MiB. */
#define BATCH_MAX (1 << 30)

int om_log_is_logged(const om_log *log, int unlogged) {
    return !unlogged && !(log->options.flags & OM_LOG_SCRATCH) && log->options.flush_mode != OM_FLUSH_ASYNC;
}

int om_log_uses_wal(const om_log *log) {
    return !(log->options.flags & OM_LOG_SCRATCH);
}

int om_log_admit(om_log *log, int32_t epoch) {
    om_store *store = log->store;
    if (log->deleted)
        return OM_E_DELETED;
    if (log->frozen || store->closing)
        return OM_E_FULL;
    if (epoch != OM_ANY_EPOCH && epoch < log->leader_epoch)
        return OM_E_STALE_EPOCH;
    if (__atomic_load_n(&store->low_space, __ATOMIC_RELAXED) || __atomic_load_n(&store->no_space, __ATOMIC_RELAXED))
        return OM_E_NO_SPACE;
    if (om_store_hot_is_full(store))
        return OM_E_FULL;
    if (om_log_uses_wal(log)) {
        int admitted = om_wal_admit(store->wal, OM_WAL_APPEND);
        if (admitted != OM_OK)
            return admitted;
    }
    if (epoch > log->leader_epoch)
        om_log_raise_epoch(log, epoch);
    return OM_OK;
}

/* ---- offsets ---- */

static uint64_t put_lease(om_log *log, int64_t end) {
    uint8_t payload[12];
    om_put_le64(payload, (uint64_t)end);
    om_put_le32(payload + 8, (uint32_t)log->leader_epoch);
    struct iovec iov = {payload, sizeof payload};
    log->store->urgent = 1;
    return om_wal_append(log->store->wal, OM_REC_LEASE, log->id, &iov, 1);
}

/* A leader that is fenced now must be fenced after a crash: the epoch is logged before it is used. */
void om_log_raise_epoch(om_log *log, int32_t epoch) {
    om_log_seal(log);
    log->leader_epoch = epoch;
    if (om_log_uses_wal(log))
        put_lease(log, log->lease_end);
}

/* Who has waited for a sequence reads at once: the tick that notes the lease may come later. */
static int64_t leased_end(const om_log *log) {
    int seen = !log->leased || log->lease_seq <= om_wal_durable_seq(log->store->wal);
    return seen ? log->lease_end : log->lease_durable;
}

/* A crash skips what is left of the lease, so it is as long as what was given lately: a topic that is
 * hardly used jumps by little, and a busy one seldom needs another. */
static int64_t lease_step(const om_log *log) {
    int64_t given = log->next_offset - log->lease_from;
    return given < OM_LEASE_LEAST ? OM_LEASE_LEAST : given > OM_LEASE_MOST ? OM_LEASE_MOST : given;
}

/* What isn't used is given back, with the checkpoint that is being written. Until it stands the next start
 * goes by the longer lease; what is leased afterwards is in the WAL behind it. */
void om_log_shorten_lease(om_log *log) {
    if (log->leased || log->touched || log->open || log->hot.count)
        return; /* it is in use */
    log->lease_from = log->next_offset;
    if (log->lease_end > log->next_offset + OM_LEASE_LEAST)
        log->lease_end = log->lease_durable = log->next_offset + OM_LEASE_LEAST;
}

int om_log_extend_lease(om_log *log) {
    om_store *store = log->store;
    int64_t end = log->next_offset + lease_step(log);
    uint64_t seq = put_lease(log, end);
    if (!seq)
        return OM_E_FENCED;
    log->lease_durable = leased_end(log); /* of the one before: its sequence is forgotten now */
    log->lease_end = end;
    log->lease_seq = seq;
    if (!log->leased) {
        log->leased = 1;
        om_list_push(&store->leases, log, OM_LINK(next_lease));
    }
    return OM_OK;
}

int64_t om_log_claim(om_log *log, int64_t count) {
    int64_t first = log->next_offset;
    log->next_offset += count;
    if (!om_log_uses_wal(log))
        return first;
    if (log->next_offset > log->lease_end - lease_step(log) / 2) {
        int result = om_log_extend_lease(log);
        /* Past the lease nothing may be used; within it the renewal can be tried again. */
        if (result != OM_OK && log->next_offset > log->lease_end) {
            log->next_offset = first;
            return result;
        }
    }
    /* A batch is shown whole or not at all: one that reaches past the lease waits for the next. */
    int64_t base = log->open ? log->open_base : first, leased = leased_end(log);
    if (base < leased && leased < log->next_offset)
        log->lease_durable = base;
    return first;
}

static int64_t sealed_end(const om_log *log) {
    return log->open ? log->open_base : log->next_offset;
}

int64_t om_log_readable_end(const om_log *log) {
    int64_t end = sealed_end(log);
    if (!om_log_uses_wal(log))
        return end;
    int64_t leased = leased_end(log);
    return leased < end ? leased : end;
}

static int64_t durable_end(const om_log *log) {
    int64_t readable = om_log_readable_end(log);
    if (!om_log_uses_wal(log))
        return readable;
    uint32_t durable = om_hot_durable(&log->hot, om_wal_durable_seq(log->store->wal));
    if (durable == log->hot.count)
        return readable;
    int64_t pending = om_hot_at(&log->hot, durable)->base_offset;
    return pending < readable ? pending : readable;
}

/* Offsets that a start skipped come into sight with the first record behind them: until then a reader
 * that wants all there is would wait in vain for what lies before the end. */
int64_t om_log_high_watermark(const om_log *log) {
    int64_t end = durable_end(log);
    if (!log->gap_end || end != log->gap_end)
        return end;
    return log->gap_start > log->start_offset ? log->gap_start : log->start_offset;
}

int64_t om_log_written_offset(const om_log *log) {
    return log->hot.count ? om_hot_at(&log->hot, 0)->base_offset : sealed_end(log);
}

/* ---- batches ---- */

void om_log_mark_staged(om_log *log) {
    if (log->staged)
        return;
    log->staged = 1;
    om_list_push(&log->store->staged, log, OM_LINK(next_staged));
}

static int open_batch(om_log *log, int unlogged) {
    log->open = malloc(sizeof *log->open);
    if (!log->open)
        return OM_E_NO_MEMORY;
    om_build_init(log->open);
    log->open_unlogged = (uint8_t)unlogged;
    log->open_base = log->next_offset;
    log->open_weight = 0;
    om_log_mark_staged(log);
    return OM_OK;
}

/* The open batch that takes one more of this kind. */
static int need_batch(om_log *log, int unlogged) {
    unlogged = !om_log_is_logged(log, unlogged);
    if (log->fanout || (log->open && (log->open_unlogged != unlogged || log->open->len >= OM_BATCH_TARGET)))
        om_log_seal(log);
    return log->open ? OM_OK : open_batch(log, unlogged);
}

int om_log_stage_content(om_log *log, int64_t now_ms, om_span key, om_span body, om_span tail, int unlogged) {
    /* A large one is a batch of its own: to grow, a batch would have to move. */
    int is_large = body.len >= OM_BYTES_LARGE;
    if (is_large)
        om_log_seal(log);
    if (need_batch(log, unlogged) != OM_OK)
        return OM_E_NO_MEMORY;
    int64_t offset = om_log_claim(log, 1);
    if (offset < 0)
        return (int)offset;
    int result = om_build_add_content(log->open, now_ms, key, body, tail);
    if (result == OM_OK)
        log->open_weight += body.len;
    if (result != OM_OK || is_large)
        om_log_seal(log); /* without its record the offset is a gap */
    return result;
}

int om_log_stage_landed(om_log *log, int64_t now_ms, om_build *landed, int64_t weight, int unlogged) {
    om_log_seal(log);
    if (need_batch(log, unlogged) != OM_OK)
        return OM_E_NO_MEMORY;
    int64_t offset = om_log_claim(log, 1);
    if (offset < 0)
        return (int)offset;
    om_build_fill(landed, now_ms);
    *log->open = *landed;
    om_build_init(landed);
    log->open_weight = weight;
    om_log_seal(log);
    return OM_OK;
}

int om_log_stage(om_log *log, const om_record *records, int32_t count, int unlogged, int64_t *first) {
    int64_t bound = om_batch_size_bound(records, count);
    if (bound < 0 || count < 1 || bound > BATCH_MAX)
        return OM_E_INVALID;
    if (need_batch(log, unlogged) != OM_OK)
        return OM_E_NO_MEMORY;
    *first = om_log_claim(log, count);
    if (*first < 0)
        return (int)*first;
    for (int32_t i = 0; i < count; i++) {
        int result = om_build_add(log->open, &records[i]);
        if (result != OM_OK) {
            /* Out of memory: what did fit is sealed, the offsets left over become a gap. */
            om_log_seal(log);
            return result;
        }
        log->open_weight += records[i].value.len > 0 ? records[i].value.len : 0;
    }
    return OM_OK;
}

/* Staged and then not taken: whoever published in this tick must not be told that it was. */
static void skip_refused(om_log *log, int64_t first, int64_t last) {
    log->store->refused = 1;
    if (log->cursor)
        om_cursor_skip(log->cursor, first, last);
}

void om_log_seal(om_log *log) {
    if (log->fanout)
        om_fanout_seal(log->fanout);
    om_build *build = log->open;
    if (!build)
        return;
    om_batch_info info = {
        .base_offset = log->open_base,
        .leader_epoch = log->leader_epoch,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
    };
    int64_t last = log->next_offset - 1;
    log->open = NULL;
    om_buffer *bytes = om_build_take(build, &info);
    om_build_free(build);
    free(build);
    if (!bytes) {
        skip_refused(log, info.base_offset, last);
        return;
    }
    uint64_t seq = log->last_logged_seq;
    if (!log->open_unlogged) {
        struct iovec iov = {bytes->data, bytes->len};
        seq = om_batch_log(log->store, OM_REC_BATCH, log->id, &iov, 1, bytes);
        if (!seq) {
            om_buffer_unref(bytes);
            skip_refused(log, info.base_offset, last);
            return;
        }
        log->last_logged_seq = seq;
        log->store->urgent = 1;
    }
    om_log_push(log, bytes, &info, seq, log->open_unlogged, log->open_weight);
}

int64_t om_batch_weight(const uint8_t *data, size_t len) {
    om_record_iter iter;
    om_record record;
    int64_t weight = 0;
    if (om_record_iter_init(&iter, data, len) != OM_OK)
        return (int64_t)len; /* compressed: what it holds is not known here */
    while (om_record_next(&iter, &record, NULL, 0) == OM_OK)
        weight += record.value.len > 0 ? record.value.len : 0;
    return weight;
}

/* So much of it lies in memory with nobody to take it: it will have to be written anyway, and a
 * queue that only grows must not cost more than others leave over. What consumers are at work on may
 * be settled before it ever needs a segment, and stays. */
#define BACKLOG (8u << 20)

static int is_backlog(const om_log *log) {
    const om_cursor *cursor = log->cursor;
    if (!cursor || cursor->ready_bytes < BACKLOG)
        return 0;
    int64_t waiting = log->next_offset - om_log_written_offset(log);
    return cursor->ready_bytes / cursor->ready_count * waiting > BACKLOG;
}

int om_log_push(om_log *log, om_buffer *bytes, const om_batch_info *info, uint64_t seq, int unlogged, int64_t weight) {
    om_store *store = log->store;
    om_hot hot = {
        .bytes = bytes,
        .base_offset = info->base_offset,
        .last_offset = info->base_offset + info->last_offset_delta,
        .max_timestamp = info->max_timestamp,
        .seq = seq,
        .leader_epoch = info->leader_epoch,
        .shared = om_get_be64(bytes->data) != (uint64_t)info->base_offset ||
                  om_get_be32(bytes->data + 12) != (uint32_t)info->leader_epoch,
    };
    int result = om_hot_push(&log->hot, &hot);
    if (result != OM_OK) {
        om_buffer_unref(bytes);
        skip_refused(log, hot.base_offset, hot.last_offset);
        return result;
    }
    store->hot_bytes += bytes->len;
    store->hot_batches++;
    if (log->cursor && weight != OM_WEIGHT_COUNTED) {
        if (info->attributes & OM_ATTR_CONTROL)
            om_cursor_skip(log->cursor, hot.base_offset, hot.last_offset);
        else
            om_cursor_appended(log->cursor, hot.base_offset, info->last_offset_delta + 1,
                               weight >= 0 ? weight : om_batch_weight(bytes->data, bytes->len));
    }
    if (log->waiters)
        om_log_wake_waiters(log);
    if (!log->queued) {
        log->queued = 1;
        om_list_push(&store->queued, log, OM_LINK(next_queued));
    }
    if (!log->prompted && (unlogged || is_backlog(log))) {
        log->prompted = 1;
        om_list_push(&store->prompted, log, OM_LINK(next_prompted));
    }
    return OM_OK;
}

void om_log_drop_hot(om_log *log, uint32_t count) {
    om_store *store = log->store;
    for (uint32_t i = 0; i < count; i++) {
        om_buffer *bytes = om_hot_at(&log->hot, i)->bytes;
        store->hot_bytes -= bytes->len;
        store->hot_batches--;
        om_buffer_unref(bytes);
    }
    om_hot_drop_head(&log->hot, count);
}

void om_log_refuse_after(om_log *log, uint64_t durable) {
    om_store *store = log->store;
    /* A lease that was refused must be asked for again: once the fence is lifted, later sequences
     * become durable and would speak for it. */
    if (log->leased && log->lease_seq > durable)
        log->lease_end = log->lease_durable;
    if (log->cursor)
        om_log_forget_floors(log, durable);
    uint32_t good = om_hot_durable(&log->hot, durable);
    uint32_t refused = log->hot.count - good;
    for (uint32_t i = good; i < log->hot.count; i++) {
        om_hot *hot = om_hot_at(&log->hot, i);
        if (log->cursor)
            om_cursor_skip(log->cursor, hot->base_offset, hot->last_offset);
        store->hot_bytes -= hot->bytes->len;
        store->hot_batches--;
        om_buffer_unref(hot->bytes);
    }
    if (refused) {
        om_producers_cut(log, om_hot_at(&log->hot, good)->base_offset);
        om_hot_drop_tail(&log->hot, refused);
        om_log_note_missing(log);
    }
}
