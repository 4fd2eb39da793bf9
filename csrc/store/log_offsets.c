/* log_offsets.c -- which offsets a log gives, and up to where each kind of reader sees it; see log_offsets.h. */
#include "store/log_offsets.h"

#include "base/bytes.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_list.h"
#include "store/producer.h"
#include "store/store.h"
#include "store/wal_records.h"
#include "wal/wal.h"

/* ---- leases ---- */

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

int32_t om_log_bump_epoch(om_log *log) {
    om_store_enter(log->store);
    int32_t epoch = log->leader_epoch + 1;
    om_log_raise_epoch(log, epoch);
    om_store_leave(log->store);
    return epoch;
}

/* A caller that has waited for a sequence reads at once: the tick that notes the lease may come later. */
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
    if (!log->leased)
        return first; /* all of the lease is durable */
    /* A batch is shown whole or not at all: one that reaches past what is durable of the lease waits for the rest. */
    int64_t base = log->open ? log->open_base : first, leased = leased_end(log);
    if (base < leased && leased < log->next_offset)
        log->lease_durable = base;
    return first;
}

/* ---- how far a log can be seen ---- */

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
 * that wants all there is would wait for ever for what lies before the end. */
int64_t om_log_high_watermark(const om_log *log) {
    int64_t end = durable_end(log);
    if (!log->gap_end || end != log->gap_end)
        return end;
    return log->gap_start > log->start_offset ? log->gap_start : log->start_offset;
}

int64_t om_log_written_offset(const om_log *log) {
    return log->hot.count ? om_hot_at(&log->hot, 0)->base_offset : sealed_end(log);
}

int64_t om_log_last_stable(const om_log *log) {
    int64_t high = om_log_high_watermark(log), open = om_producers_first_open(log);
    return open < high ? open : high;
}

int64_t om_log_stable_end(const om_log *log) {
    int64_t end = om_log_readable_end(log), open = om_producers_first_open(log);
    return open < end ? open : end;
}
