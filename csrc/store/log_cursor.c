/* log_cursor.c -- a log's cursor and its records in the WAL.
 *
 * Changes gather while a tick lasts, runs of the same kind joined, and become one record at its
 * end: before the deliveries they describe leave. Nobody waits for their sync; a crash before
 * it means a redelivery, never a loss. That a redelivery says so after a kill is delivered_mark.c's part.
 */
#include "store/log_cursor.h"

#include "cursor/cursor.h"
#include "store/delivered_mark.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_offsets.h"
#include "store/producer.h"
#include "store/removal_record.h"
#include "store/store.h"
#include "store/wal_records.h"
#include "wal/wal.h"

#include <stdlib.h>

static int add_op(om_log *log, uint64_t kind, int64_t first, int64_t last, int64_t bytes) {
    if (!om_log_uses_wal(log))
        return OM_OK;
    log->delivered |= kind == OM_OP_ACQUIRE;
    if (log->op_count) {
        om_cursor_op *before = &log->ops[log->op_count - 1];
        /* What is known to weigh so much doesn't join what isn't (-1). */
        if (before->kind == kind && kind != OM_OP_PURGE && before->last + 1 == first &&
            (before->bytes < 0) == (bytes < 0)) {
            before->last = last;
            before->bytes = bytes < 0 ? -1 : before->bytes + bytes;
            return OM_OK;
        }
    }
    if (log->op_count == log->op_cap) {
        uint32_t cap = log->op_cap ? log->op_cap * 2 : 4;
        om_cursor_op *ops = realloc(log->ops, cap * sizeof *ops);
        if (!ops)
            return OM_E_NO_MEMORY;
        log->ops = ops;
        log->op_cap = cap;
    }
    log->ops[log->op_count++] = (om_cursor_op){kind, first, last, bytes};
    om_log_mark_staged(log);
    return OM_OK;
}

static void promote_floor(om_log *log, uint64_t durable) {
    if (log->floor_latest.seq <= durable)
        log->durable_floor = log->floor_latest.floor;
    else if (log->floor_pending.seq <= durable) {
        log->durable_floor = log->floor_pending.floor;
        log->floor_pending = log->floor_latest;
    }
}

void om_log_note_floor(om_log *log, uint64_t seq) {
    promote_floor(log, om_wal_durable_seq(log->store->wal));
    log->floor_latest.seq = seq;
    log->floor_latest.floor = log->cursor->floor;
    if (log->floor_pending.floor <= log->durable_floor)
        log->floor_pending = log->floor_latest;
}

void om_log_forget_floors(om_log *log, uint64_t durable) {
    promote_floor(log, durable);
    log->floor_latest.seq = durable;
    log->floor_latest.floor = log->durable_floor;
    log->floor_pending = log->floor_latest;
}

static void lower(int64_t *floor, int64_t offset) {
    if (*floor > offset)
        *floor = offset;
}

void om_log_lower_floors(om_log *log, int64_t offset) {
    lower(&log->durable_floor, offset);
    lower(&log->floor_pending.floor, offset);
    lower(&log->floor_latest.floor, offset);
}

int64_t om_log_durable_floor(om_log *log) {
    if (!om_log_uses_wal(log))
        return log->cursor->floor;
    promote_floor(log, log->store->wal ? om_wal_durable_seq(log->store->wal) : 0);
    return log->durable_floor;
}

void om_log_log_ops(om_log *log) {
    if (!log->op_count)
        return;
    struct iovec iov = {log->ops, log->op_count * sizeof *log->ops};
    uint64_t seq = om_wal_append(log->store->wal, OM_REC_CURSOR, log->id, &iov, 1);
    if (seq)
        om_log_note_floor(log, seq);
    if (log->delivered)
        om_delivered_mark_note(log);
    log->delivered = 0;
    log->op_count = 0;
    if (log->op_cap > 64) {
        free(log->ops);
        log->ops = NULL;
        log->op_cap = 0;
    }
}

int om_log_apply_op(om_log *log, const om_cursor_op *op) {
    if (!log->cursor)
        return OM_OK;
    int64_t floor = log->cursor->floor, ready = log->cursor->ready_count;
    int64_t last = op->last < log->cursor->end ? op->last : log->cursor->end - 1;
    int result = om_cursor_apply(log->cursor, op);
    if (op->kind == OM_OP_PURGE && log->cursor->ready_count < ready)
        om_removal_note_range(log, OM_RULE_PURGE, floor, last + 1);
    return result;
}

int om_log_acquire_one(om_log *log, int64_t offset, int64_t bytes) {
    int result = om_cursor_acquire(log->cursor, offset, bytes);
    if (result == OM_OK)
        add_op(log, OM_OP_ACQUIRE, offset, offset, bytes);
    return result;
}

void om_log_pass(om_log *log, int64_t next) {
    int64_t first = log->cursor->next, unacked = log->cursor->unacked_bytes;
    if (om_cursor_pass(log->cursor, next, -1) > 0)
        add_op(log, OM_OP_PASS, first, log->cursor->next - 1, log->cursor->unacked_bytes - unacked);
}

int64_t om_log_acquire(om_log *log, int64_t *offsets, int64_t max, int64_t bytes_each) {
    int64_t count = 0;
    om_store_enter(log->store);
    int64_t end = om_log_stable_end(log);
    while (log->cursor && !log->deleted && count < max) {
        int64_t offset = om_cursor_peek(log->cursor);
        if (offset < 0 || offset >= end || om_log_acquire_one(log, offset, bytes_each) != OM_OK)
            break;
        offsets[count++] = offset;
    }
    om_store_leave(log->store);
    return count;
}

int om_log_counts(om_log *log, int64_t offset, int32_t *acquired, int32_t *delivered) {
    om_store_enter(log->store);
    int result = log->cursor ? om_cursor_counts(log->cursor, offset, acquired, delivered) : OM_E_INVALID;
    om_store_leave(log->store);
    return result;
}

int om_log_admit_settle(om_log *log) {
    if (log->deleted)
        return OM_E_DELETED;
    if (!log->cursor)
        return OM_E_INVALID;
    if (!om_log_uses_wal(log))
        return OM_OK;
    /* A fence stops what must be durable; settling goes on in memory. */
    return om_wal_admit(log->store->wal, OM_WAL_SETTLE) == OM_E_FULL ? OM_E_FULL : OM_OK;
}

int64_t om_log_settle_run(om_log *log, int64_t first, int64_t last, int64_t bytes) {
    /* Only what is there: in a replay the cursor may know records that came after. */
    if (last >= log->cursor->end)
        last = log->cursor->end - 1;
    int64_t result = first > last ? 0 : om_cursor_settle(log->cursor, first, last, bytes);
    if (result > 0)
        add_op(log, OM_OP_SETTLE, first, last, bytes);
    return result;
}

int64_t om_log_settle(om_log *log, int64_t first, int64_t last, int64_t bytes, uint64_t *seq) {
    om_store_enter(log->store);
    int64_t result = om_log_admit_settle(log);
    if (result == OM_OK)
        result = om_log_settle_run(log, first, last, bytes);
    *seq = om_store_leave(log->store);
    return result;
}

int om_log_return_one(om_log *log, int64_t offset, int64_t bytes, int counted) {
    int result = om_cursor_return(log->cursor, offset, bytes, counted);
    if (result == OM_OK)
        add_op(log, counted ? OM_OP_RETURN_COUNTED : OM_OP_RETURN, offset, offset, bytes);
    return result;
}

int om_log_return(om_log *log, int64_t offset, int64_t bytes, int counted) {
    om_store_enter(log->store);
    int result = om_log_admit_settle(log);
    if (result == OM_OK)
        result = om_log_return_one(log, offset, bytes, counted);
    om_store_leave(log->store);
    return result;
}

int64_t om_log_purge_ready(om_log *log) {
    /* Seal first: in the WAL the purge must stand after all that it purges, and before what
     * comes later in this very tick. */
    om_log_seal(log);
    int64_t floor = log->cursor->floor, end = log->cursor->end;
    int64_t hidden = log->producers ? log->producers->hidden : 0;
    int64_t purged = om_cursor_purge(log->cursor, end);
    if (hidden) {
        om_hidden_prune(log);
        purged = purged > hidden ? purged - hidden : purged < 0 ? purged : 0; /* a client saw so many */
    }
    if (purged > 0)
        om_removal_note_range(log, OM_RULE_PURGE, floor, end);
    add_op(log, OM_OP_PURGE, 0, end - 1, 0);
    om_log_log_ops(log);
    log->store->urgent = 1;
    return purged;
}

int64_t om_log_purge(om_log *log, uint64_t *seq) {
    om_store_enter(log->store);
    int64_t result = om_log_admit_settle(log);
    if (result == OM_OK)
        result = om_log_purge_ready(log);
    *seq = om_store_leave(log->store);
    return result;
}

int om_log_cursor_stat(om_log *log, om_cursor_stat *out) {
    om_store_enter(log->store);
    int result = log->cursor ? OM_OK : OM_E_INVALID;
    if (result == OM_OK)
        om_cursor_stat_get(log->cursor, out);
    om_store_leave(log->store);
    return result;
}
