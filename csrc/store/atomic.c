/* atomic.c -- transactions: appends and settles over any number of logs, all or nothing.
 *
 * They gather outside the lock and become one ATOMIC record of the WAL, which cuts it into parts
 * when it is long and believes it only when the last part is there.
 */
#include "store/atomic.h"

#include "base/buffer.h"
#include "base/bytes.h"
#include "cursor/cursor.h"
#include "format/batch.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_cursor.h"
#include "store/log_offsets.h"
#include "store/store.h"
#include "store/undo.h"
#include "store/wal_records.h"
#include "wal/wal.h"

#include <stdlib.h>
#include <string.h>

typedef struct part {
    om_log *log;      /* held */
    om_buffer *bytes; /* an append; NULL: a settle */
    om_build build;   /* an append whose messages still gather */
    int64_t weight;   /* of their bodies; -1: not known */
    int64_t staged;   /* so many of them the log was told to expect */
    om_batch_info info;
    om_cursor_op settle;
    uint8_t header[OM_ATOMIC_HEADER];
} part;

struct om_atomic {
    om_store *store;
    part *parts;
    size_t count, cap;
};

om_atomic *om_atomic_new(om_store *store) {
    om_atomic *atomic = calloc(1, sizeof *atomic);
    if (atomic)
        atomic->store = store;
    return atomic;
}

void om_atomic_abandon(om_atomic *atomic) {
    for (size_t i = 0; i < atomic->count; i++) {
        part *part = &atomic->parts[i];
        if (part->staged) {
            part->log->atomic_count -= part->staged;
            part->log->atomic_bytes -= part->weight;
        }
        if (part->bytes)
            om_buffer_unref(part->bytes);
        om_build_free(&part->build);
        om_log_release(part->log);
    }
    free(atomic->parts);
    free(atomic);
}

static part *add_part(om_atomic *atomic, om_log *log) {
    if (atomic->count == atomic->cap) {
        size_t cap = atomic->cap ? atomic->cap * 2 : 8;
        part *parts = realloc(atomic->parts, cap * sizeof *parts);
        if (!parts)
            return NULL;
        atomic->parts = parts;
        atomic->cap = cap;
    }
    part *added = &atomic->parts[atomic->count++];
    memset(added, 0, sizeof *added);
    added->log = log;
    om_log_ref(log);
    return added;
}

int om_atomic_append(om_atomic *atomic, om_log *log, const om_record *records, int32_t count) {
    if (count < 1 || log->store != atomic->store)
        return OM_E_INVALID;
    om_batch_info info = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    om_buffer *bytes;
    int result = om_batch_make(&bytes, &info, records, count);
    if (result != OM_OK)
        return result;
    part *added = add_part(atomic, log);
    if (!added) {
        om_buffer_unref(bytes);
        return OM_E_NO_MEMORY;
    }
    added->bytes = bytes;
    added->info = info;
    added->weight = OM_WEIGHT_UNKNOWN;
    return OM_OK;
}

/* Looking further back would make a transaction over many queues quadratic. */
#define LOOK_BACK 8

/* A settle of this log that ends just before `first`. */
static part *find_settle(om_atomic *atomic, const om_log *log, int64_t first) {
    size_t from = atomic->count > LOOK_BACK ? atomic->count - LOOK_BACK : 0;
    for (size_t i = atomic->count; i-- > from;) {
        part *part = &atomic->parts[i];
        if (part->log == log && !part->bytes && !part->build.count)
            return part->settle.last + 1 == first ? part : NULL;
    }
    return NULL;
}

int om_atomic_settle(om_atomic *atomic, om_log *log, int64_t first, int64_t last, int64_t bytes) {
    if (first < 0 || last < first || bytes < 0 || log->store != atomic->store || !log->cursor)
        return OM_E_INVALID;
    part *before = find_settle(atomic, log, first);
    if (before) {
        before->settle.last = last;
        before->settle.bytes += bytes;
        return OM_OK;
    }
    part *added = add_part(atomic, log);
    if (!added)
        return OM_E_NO_MEMORY;
    added->settle = (om_cursor_op){OM_OP_SETTLE, first, last, bytes};
    return OM_OK;
}

#define BUILD_TARGET (256 * 1024)

static part *find_build(om_atomic *atomic, const om_log *log) {
    size_t from = atomic->count > LOOK_BACK ? atomic->count - LOOK_BACK : 0;
    for (size_t i = atomic->count; i-- > from;) {
        part *part = &atomic->parts[i];
        if (part->log == log && part->build.count)
            return part->build.len < BUILD_TARGET ? part : NULL;
        if (part->log == log && part->bytes)
            return NULL; /* order matters: what comes later goes behind it */
    }
    return NULL;
}

int om_atomic_stage_content(om_atomic *atomic, om_log *log, int64_t now_ms, om_span key, om_span body, om_span tail) {
    part *part = find_build(atomic, log);
    if (!part)
        part = add_part(atomic, log);
    if (!part)
        return OM_E_NO_MEMORY;
    int result = om_build_add_content(&part->build, now_ms, key, body, tail);
    if (result != OM_OK && !part->staged) { /* without a message it would pass for a settle */
        om_build_free(&part->build);
        om_log_release(part->log);
        atomic->count--;
    }
    if (result != OM_OK)
        return result;
    part->staged++;
    part->weight += body.len;
    log->atomic_count++;
    log->atomic_bytes += body.len;
    return OM_OK;
}

/* Batches that gathered message by message are complete now. */
static int finish_builds(om_atomic *atomic) {
    for (size_t i = 0; i < atomic->count; i++) {
        part *part = &atomic->parts[i];
        if (!part->build.count)
            continue;
        part->info = (om_batch_info){.producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
        part->bytes = om_build_take(&part->build, &part->info);
        if (!part->bytes)
            return OM_E_INVALID;
    }
    return OM_OK;
}

/* ---- the commit: under the lock ---- */

static int admit(om_atomic *atomic) {
    for (size_t i = 0; i < atomic->count; i++) {
        part *part = &atomic->parts[i];
        int result = part->bytes ? om_log_admit(part->log, OM_ANY_EPOCH) : part->log->deleted ? OM_E_DELETED : OM_OK;
        if (result != OM_OK)
            return result;
    }
    return OM_OK;
}

static int claim_offsets(om_atomic *atomic) {
    for (size_t i = 0; i < atomic->count; i++) {
        part *part = &atomic->parts[i];
        /* In the WAL, what the log did before in this tick must stand before. */
        om_log_seal(part->log);
        om_log_log_ops(part->log);
        if (!part->bytes) {
            /* Only what is there now, as om_log_settle has it. */
            if (part->settle.last >= part->log->cursor->end)
                part->settle.last = part->log->cursor->end - 1;
            continue;
        }
        part->info.base_offset = om_log_claim(part->log, part->info.record_count);
        if (part->info.base_offset < 0)
            return (int)part->info.base_offset;
        part->info.leader_epoch = part->log->leader_epoch;
        om_batch_patch(part->bytes->data, part->info.base_offset, part->info.leader_epoch);
    }
    return OM_OK;
}

/* A settle of what was never there. */
static int is_void(const part *part) {
    return !part->bytes && part->settle.last < part->settle.first;
}

/* Header, payload, padding: three pieces a part. Scratch logs have nothing to log. */
static int put_part(part *part, struct iovec *iov) {
    static const uint8_t padding[8];
    if (!om_log_uses_wal(part->log) || is_void(part))
        return 0;
    const void *payload = part->bytes ? (const void *)part->bytes->data : &part->settle;
    size_t len = part->bytes ? part->bytes->len : sizeof part->settle;
    om_put_le32(part->header, (uint32_t)len);
    part->header[4] = part->bytes ? OM_REC_BATCH : OM_REC_CURSOR;
    om_put_le64(part->header + 8, part->log->id);
    iov[0] = (struct iovec){part->header, sizeof part->header};
    iov[1] = (struct iovec){(void *)payload, len};
    iov[2] = (struct iovec){(void *)padding, (8 - len % 8) % 8};
    return 3;
}

static uint64_t write_record(om_atomic *atomic) {
    struct iovec *iov = malloc((atomic->count * 3 + 1) * sizeof *iov);
    if (!iov)
        return 0;
    int pieces = 0;
    for (size_t i = 0; i < atomic->count; i++)
        pieces += put_part(&atomic->parts[i], iov + pieces);
    uint64_t seq = om_wal_append(atomic->store->wal, OM_REC_ATOMIC, 0, iov, pieces);
    free(iov);
    return seq;
}

/* ---- the effects ---- */

static void apply(om_atomic *atomic, uint64_t seq) {
    for (size_t i = 0; i < atomic->count; i++) {
        part *part = &atomic->parts[i];
        om_log *log = part->log;
        if (part->bytes) {
            if (om_log_uses_wal(log))
                log->last_logged_seq = seq;
            om_log_push(log, part->bytes, &part->info, log->last_logged_seq, !om_log_uses_wal(log), part->weight);
            part->bytes = NULL;
        } else if (om_log_uses_wal(log)) {
            om_undo_note(log, seq, &part->settle);
            om_log_apply_op(log, &part->settle);
            om_log_note_floor(log, seq);
        } else if (!is_void(part)) {
            om_log_apply_op(log, &part->settle);
        }
    }
}

int om_atomic_commit_held(om_atomic *atomic, uint64_t *seq) {
    int result = finish_builds(atomic);
    if (result == OM_OK)
        result = admit(atomic);
    if (result == OM_OK)
        result = claim_offsets(atomic);
    if (result == OM_OK) {
        *seq = write_record(atomic);
        if (*seq)
            apply(atomic, *seq);
        else
            result = OM_E_FENCED;
        atomic->store->urgent = 1;
    }
    om_atomic_abandon(atomic);
    return result;
}

int om_atomic_commit(om_atomic *atomic, uint64_t *seq) {
    om_store *store = atomic->store;
    om_store_enter(store);
    int result = om_atomic_commit_held(atomic, seq);
    *seq = om_store_leave(store);
    return result;
}
