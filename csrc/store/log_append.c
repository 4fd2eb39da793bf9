/* log_append.c -- every way into a log: staged messages, whole batches; see log_append.h.
 *
 * Nothing here touches a file. What must survive goes into the WAL's buffer; what must be read
 * later goes into the hot tail.
 */
#include "store/log_append.h"

#include "base/buffer.h"
#include "base/bytes.h"
#include "cursor/cursor.h"
#include "format/batch.h"
#include "store/fanout.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_list.h"
#include "store/log_offsets.h"
#include "store/log_waiters.h"
#include "store/producer.h"
#include "store/store.h"
#include "store/wal_records.h"
#include "wal/wal.h"

#include <stdlib.h>
#include <string.h>

/* The format's lengths are 32 bits; a message may have 128 MiB. */
#define BATCH_MAX (1 << 30)

/* ---- into the hot tail ---- */

/* Staged and then not taken: publishers of this tick must not get a confirm. */
static void skip_refused(om_log *log, int64_t first, int64_t last) {
    log->store->refused = 1;
    if (log->cursor)
        om_cursor_skip(log->cursor, first, last);
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
        om_list_push(&store->writer.queued, log, OM_LINK(next_queued));
    }
    if (!log->wants_write_now && (unlogged || is_backlog(log))) {
        log->wants_write_now = 1;
        om_list_push(&store->writer.write_now, log, OM_LINK(next_write_now));
    }
    return OM_OK;
}

/* ---- sealing ---- */

uint64_t om_batch_log(om_store *store, uint8_t type, uint64_t log_id, const struct iovec *iov, int iovcnt,
                      om_buffer *batch) {
    batch->crc = om_get_be32(batch->data + OM_BATCH_CRC);
    batch->crc_from = OM_BATCH_CRC_FROM;
    return om_wal_append_lent(store->wal, type, log_id, iov, iovcnt, batch);
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

/* ---- staging: messages of this tick ---- */

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
    int is_large = body.len >= OM_BUFFER_LARGE;
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

int om_log_stage_built(om_log *log, int64_t now_ms, om_build *built, int64_t weight, int unlogged) {
    om_log_seal(log);
    if (need_batch(log, unlogged) != OM_OK)
        return OM_E_NO_MEMORY;
    int64_t offset = om_log_claim(log, 1);
    if (offset < 0)
        return (int)offset;
    om_build_fill(built, now_ms);
    *log->open = *built;
    om_build_init(built);
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

/* ---- whole batches ---- */

int om_log_append_bytes(om_log *log, om_buffer *bytes, om_batch_info *info, int flags) {
    om_log_seal(log);
    info->base_offset = om_log_claim(log, (int64_t)info->last_offset_delta + 1);
    if (info->base_offset < 0) {
        om_buffer_unref(bytes);
        return (int)info->base_offset;
    }
    info->leader_epoch = log->leader_epoch;
    om_batch_patch(bytes->data, info->base_offset, info->leader_epoch);
    uint64_t seq = log->last_logged_seq;
    /* That a batch is here once is a promise: it can't rest on the page cache. Even less can the end of
     * a transaction: the coordinator says it once, and a log that forgot it would wait for ever. */
    int is_marker = (info->attributes & OM_ATTR_CONTROL) && info->producer_id >= 0 && om_log_uses_wal(log);
    int logged = is_marker || om_log_is_logged(log, (flags & OM_APPEND_UNLOGGED) && info->producer_id < 0);
    if (logged) {
        struct iovec iov = {bytes->data, bytes->len};
        seq = om_batch_log(log->store, OM_REC_BATCH, log->id, &iov, 1, bytes);
        if (!seq) {
            om_buffer_unref(bytes);
            return OM_E_FENCED;
        }
        log->last_logged_seq = seq;
        log->store->urgent = 1;
    }
    int result = om_log_push(log, bytes, info, seq, !logged, OM_WEIGHT_UNKNOWN);
    if (result == OM_OK)
        om_producer_appended(log, info);
    return result;
}

/* ---- Python's calls ---- */

int om_log_append(om_log *log, const om_record *records, int32_t count, int flags, int32_t epoch, om_appended *out) {
    om_store_enter(log->store);
    int result = om_log_admit(log, epoch);
    if (result == OM_OK)
        result = om_log_stage(log, records, count, flags & OM_APPEND_UNLOGGED, &out->first_offset);
    out->seq = om_store_leave(log->store);
    return result;
}

int om_log_append_raw(om_log *log, const uint8_t *batch, size_t len, int flags, int32_t epoch, om_appended *out) {
    om_batch_info info;
    int result = om_batch_validate(batch, len, 0, &info);
    if (result != OM_OK)
        return result == OM_E_SHORT ? OM_E_CORRUPT : result;
    if ((size_t)info.size != len)
        return OM_E_INVALID;
    om_buffer *bytes = om_buffer_copy(batch, (uint32_t)len);
    if (!bytes)
        return OM_E_NO_MEMORY;
    om_store_enter(log->store);
    result = om_log_admit(log, epoch);
    om_producer_verdict verdict = {0};
    if (result == OM_OK)
        result = om_producer_admit(log, &info, &verdict);
    if (result == OM_OK)
        result = om_log_append_bytes(log, bytes, &info, flags);
    else
        om_buffer_unref(bytes);
    out->first_offset = result == OM_DUPLICATE ? verdict.first_offset : info.base_offset;
    out->error = verdict.error;
    out->seq = om_store_leave(log->store);
    return result;
}
