/* fanout.c -- one batch for many logs: encoded once, in the WAL once, in memory once.
 *
 *   FANOUT record: | log a, its offset, epoch | log b, ... | the batch |
 *
 *   a's hot tail --.
 *   b's hot tail ---+--> om_buffer        each with the 16 bytes of its own that the CRC leaves out
 *   c's hot tail --'
 *
 * A tick's messages for the same logs gather in one open batch. It takes the place of each log's
 * own: whatever else wants to enter one of them seals it first, so that every log has its messages
 * in the order in which they came. Messages for logs that overlap in another way would seal each
 * other's batch again and again; so a new one is opened only where nothing is open.
 */
#include "store/fanout.h"

#include "base/buffer.h"
#include "base/bytes.h"
#include "cursor/cursor.h"
#include "format/batch.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_offsets.h"
#include "store/store.h"
#include "store/wal_records.h"

#include <stdlib.h>
#include <string.h>

/* One WAL record that names every target that wants logging. Returns its sequence, 0 when
 * nobody does or the WAL refused (*fenced says which). Logs without an offset are left out. */
static uint64_t put_record(om_store *store, om_log *const *logs, const int64_t *bases, int32_t log_count,
                           om_buffer *bytes, int unlogged, int *fenced) {
    uint8_t *table = malloc(8 + (size_t)log_count * OM_FANOUT_ENTRY);
    *fenced = !table;
    if (!table)
        return 0;
    uint32_t named = 0;
    for (int32_t i = 0; i < log_count; i++) {
        if (bases[i] < 0 || !om_log_is_logged(logs[i], unlogged))
            continue;
        uint8_t *entry = table + 8 + (size_t)named++ * OM_FANOUT_ENTRY;
        om_put_le64(entry, logs[i]->id);
        om_put_le64(entry + 8, (uint64_t)bases[i]);
        om_put_le32(entry + 16, (uint32_t)logs[i]->leader_epoch);
        om_put_le32(entry + 20, 0);
    }
    uint64_t seq = 0;
    if (named) {
        om_put_le32(table, named);
        om_put_le32(table + 4, 0);
        struct iovec iov[2] = {{table, 8 + (size_t)named * OM_FANOUT_ENTRY}, {bytes->data, bytes->len}};
        seq = om_batch_log(store, OM_REC_FANOUT, 0, iov, 2, bytes);
        *fenced = !seq;
        store->urgent = 1;
    }
    free(table);
    return seq;
}

/* The offsets are claimed: log it, and into the hot tails. Returns how many were refused. */
static int32_t enter(om_store *store, om_log *const *logs, const int64_t *bases, int32_t log_count, om_buffer *bytes,
                     om_batch_info *info, int unlogged, int64_t weight) {
    int fenced;
    int32_t refused = 0;
    uint64_t seq = put_record(store, logs, bases, log_count, bytes, unlogged, &fenced);
    for (int32_t i = 0; i < log_count; i++) {
        om_log *log = logs[i];
        int logged = om_log_is_logged(log, unlogged);
        if (bases[i] < 0 || (logged && fenced)) {
            if (bases[i] >= 0 && log->cursor)
                om_cursor_skip(log->cursor, bases[i], bases[i] + info->last_offset_delta);
            refused++;
            store->refused |= !log->deleted;
            continue;
        }
        info->base_offset = bases[i];
        info->leader_epoch = log->leader_epoch;
        if (logged)
            log->last_logged_seq = seq;
        om_buffer_ref(bytes);
        om_log_push(log, bytes, info, log->last_logged_seq, !logged, weight);
    }
    return refused;
}

/* ---- the open one ---- */

static om_fanout *open_fanout(om_log *const *logs, int32_t log_count, int unlogged) {
    om_fanout *fanout = calloc(1, sizeof *fanout + (size_t)log_count * sizeof *fanout->logs);
    if (!fanout)
        return NULL;
    fanout->unlogged = (uint8_t)unlogged;
    fanout->log_count = log_count;
    memcpy(fanout->logs, logs, (size_t)log_count * sizeof *fanout->logs);
    for (int32_t i = 0; i < log_count; i++) {
        logs[i]->fanout = fanout;
        om_log_mark_staged(logs[i]);
    }
    return fanout;
}

static int is_for(const om_fanout *fanout, om_log *const *logs, int32_t log_count, int unlogged) {
    return fanout->unlogged == unlogged && fanout->log_count == log_count &&
           memcmp(fanout->logs, logs, (size_t)log_count * sizeof *logs) == 0;
}

static int nothing_is_open(om_log *const *logs, int32_t log_count) {
    for (int32_t i = 0; i < log_count; i++)
        if (logs[i]->open || logs[i]->fanout)
            return 0;
    return 1;
}

int om_fanout_stage_content(om_log *const *logs, int32_t log_count, int64_t now_ms, om_span key, om_span body,
                            om_span tail, int unlogged) {
    om_fanout *fanout = logs[0]->fanout;
    if (fanout && fanout->build.len >= OM_BATCH_TARGET && is_for(fanout, logs, log_count, unlogged)) {
        om_fanout_seal(fanout);
        fanout = NULL;
    }
    if (!fanout && nothing_is_open(logs, log_count))
        fanout = open_fanout(logs, log_count, unlogged);
    if (!fanout || !is_for(fanout, logs, log_count, unlogged))
        return OM_END;
    int result = om_build_add_content(&fanout->build, now_ms, key, body, tail);
    if (result == OM_OK)
        fanout->weight += body.len;
    return result;
}

static void free_fanout(om_fanout *fanout) {
    om_build_free(&fanout->build);
    free(fanout);
}

/* Offsets are claimed now: nothing else has entered one of these logs meanwhile. */
static void claim(om_fanout *fanout, int32_t count, int64_t *bases) {
    for (int32_t i = 0; i < fanout->log_count; i++) {
        om_log *log = fanout->logs[i];
        bases[i] = log->deleted ? -1 : om_log_claim(log, count);
    }
}

void om_fanout_seal(om_fanout *fanout) {
    om_store *store = fanout->logs[0]->store;
    om_batch_info info = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    for (int32_t i = 0; i < fanout->log_count; i++)
        fanout->logs[i]->fanout = NULL;
    int64_t *bases = malloc((size_t)fanout->log_count * sizeof *bases);
    om_buffer *bytes = bases ? om_build_take(&fanout->build, &info) : NULL;
    if (bytes) {
        claim(fanout, info.record_count, bases);
        enter(store, fanout->logs, bases, fanout->log_count, bytes, &info, fanout->unlogged, fanout->weight);
        om_buffer_unref(bytes);
    } else {
        store->refused = 1;
    }
    free(bases);
    free_fanout(fanout);
}

/* ---- records, in one go ---- */

static int append(om_store *store, om_log **logs, int32_t log_count, om_buffer *bytes, om_batch_info *info,
                  int unlogged, int64_t *bases) {
    for (int32_t i = 0; i < log_count; i++) {
        int result = logs[i]->store == store ? om_log_admit(logs[i], OM_ANY_EPOCH) : OM_E_INVALID;
        if (result != OM_OK)
            return result;
    }
    for (int32_t i = 0; i < log_count; i++) {
        om_log_seal(logs[i]);
        bases[i] = om_log_claim(logs[i], info->record_count);
        if (bases[i] < 0)
            return (int)bases[i];
    }
    int32_t refused = enter(store, logs, bases, log_count, bytes, info, unlogged, OM_WEIGHT_UNKNOWN);
    return refused ? OM_E_FENCED : OM_OK;
}

int om_store_fanout(om_store *store, om_log **logs, int32_t log_count, const om_record *records, int32_t count,
                    int flags, om_appended *out) {
    if (log_count < 1 || count < 1)
        return OM_E_INVALID;
    om_batch_info info = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    om_buffer *bytes;
    int result = om_batch_make(&bytes, &info, records, count);
    if (result != OM_OK)
        return result;
    int64_t *bases = calloc((size_t)log_count, sizeof *bases);
    om_store_enter(store);
    result = bases ? append(store, logs, log_count, bytes, &info, flags & OM_APPEND_UNLOGGED, bases) : OM_E_NO_MEMORY;
    uint64_t seq = om_store_leave(store);
    for (int32_t i = 0; i < log_count; i++)
        out[i] = (om_appended){.first_offset = bases ? bases[i] : 0, .seq = seq};
    free(bases);
    om_buffer_unref(bytes);
    return result;
}
