/* log_append.c -- the ways into a log: records, a stranger's batch, one batch for many logs. */
#include "store.h"

#include "bytes.h"

#include <stdlib.h>
#include <string.h>

int om_log_append(om_log *log, const om_record *records, int32_t count, int flags, int32_t epoch,
                  om_appended *out) {
    om_store_enter(log->store);
    int result = om_log_admit(log, epoch);
    if (result == OM_OK)
        result = om_log_stage(log, records, count, flags & OM_APPEND_UNLOGGED, &out->first_offset);
    out->seq = om_store_leave(log->store);
    return result;
}

/* Give a batch its place in the log, log it, put it into the hot tail. Takes over bytes. */
static int append_bytes(om_log *log, om_bytes *bytes, om_batch_info *info, int flags) {
    om_log_seal(log);
    info->base_offset = om_log_claim(log, (int64_t)info->last_offset_delta + 1);
    if (info->base_offset < 0) {
        om_bytes_unref(bytes);
        return (int)info->base_offset;
    }
    info->leader_epoch = log->leader_epoch;
    om_batch_patch(bytes->data, info->base_offset, info->leader_epoch);
    uint64_t seq = log->last_logged_seq;
    int logged = om_log_is_logged(log, flags & OM_APPEND_UNLOGGED);
    if (logged) {
        struct iovec iov = {bytes->data, bytes->len};
        seq = om_wal_append(log->store->wal, OM_REC_BATCH, log->id, &iov, 1);
        if (!seq) {
            om_bytes_unref(bytes);
            return OM_E_FENCED;
        }
        log->last_logged_seq = seq;
        log->store->urgent = 1;
    }
    return om_log_push(log, bytes, info, seq, !logged, OM_WEIGHT_UNKNOWN);
}

int om_log_append_raw(om_log *log, const uint8_t *batch, size_t len, int flags, int32_t epoch,
                      om_appended *out) {
    om_batch_info info;
    int result = om_batch_validate(batch, len, 0, &info);
    if (result != OM_OK)
        return result == OM_E_SHORT ? OM_E_CORRUPT : result;
    if ((size_t)info.size != len)
        return OM_E_INVALID;
    uint8_t *copy = malloc(len);
    om_bytes *bytes = copy ? om_bytes_new(copy, (uint32_t)len) : NULL;
    if (!bytes) {
        free(copy);
        return OM_E_NO_MEMORY;
    }
    memcpy(copy, batch, len);
    om_store_enter(log->store);
    result = om_log_admit(log, epoch);
    if (result == OM_OK)
        result = append_bytes(log, bytes, &info, flags);
    else
        om_bytes_unref(bytes);
    out->first_offset = info.base_offset;
    out->seq = om_store_leave(log->store);
    return result;
}

/* ---- fan-out ---- */

static om_bytes *encode(const om_record *records, int32_t count, om_batch_info *info) {
    int64_t bound = om_batch_size_bound(records, count);
    uint8_t *data = bound > 0 && bound <= INT32_MAX ? malloc((size_t)bound) : NULL;
    int64_t size = data ? om_batch_encode(info, records, count, data, (size_t)bound) : -1;
    om_bytes *bytes = size > 0 ? om_bytes_new(data, (uint32_t)size) : NULL;
    if (!bytes)
        free(data);
    return bytes;
}

/* One WAL record that names every target that wants logging. Returns its sequence, 0 when
 * nobody does or the WAL refused (*fenced tells). */
static uint64_t log_fanout(om_store *store, om_log **logs, const om_appended *out, int32_t log_count,
                           const om_bytes *bytes, int flags, int *fenced) {
    uint8_t *table = malloc(8 + (size_t)log_count * OM_FANOUT_ENTRY);
    *fenced = !table;
    if (!table)
        return 0;
    uint32_t named = 0;
    for (int32_t i = 0; i < log_count; i++) {
        if (!om_log_is_logged(logs[i], flags & OM_APPEND_UNLOGGED))
            continue;
        uint8_t *entry = table + 8 + (size_t)named++ * OM_FANOUT_ENTRY;
        om_put_le64(entry, logs[i]->id);
        om_put_le64(entry + 8, (uint64_t)out[i].first_offset);
        om_put_le32(entry + 16, (uint32_t)logs[i]->leader_epoch);
        om_put_le32(entry + 20, 0);
    }
    uint64_t seq = 0;
    if (named) {
        om_put_le32(table, named);
        om_put_le32(table + 4, 0);
        struct iovec iov[2] = {{table, 8 + (size_t)named * OM_FANOUT_ENTRY}, {bytes->data, bytes->len}};
        seq = om_wal_append(store->wal, OM_REC_FANOUT, 0, iov, 2);
        *fenced = !seq;
        store->urgent = 1;
    }
    free(table);
    return seq;
}

static int fanout(om_store *store, om_log **logs, int32_t log_count, om_bytes *bytes, om_batch_info *info,
                  int flags, om_appended *out) {
    for (int32_t i = 0; i < log_count; i++) {
        int result = logs[i]->store == store ? om_log_admit(logs[i], OM_ANY_EPOCH) : OM_E_INVALID;
        if (result != OM_OK)
            return result;
    }
    for (int32_t i = 0; i < log_count; i++) {
        om_log_seal(logs[i]);
        out[i].first_offset = om_log_claim(logs[i], info->record_count);
        if (out[i].first_offset < 0)
            return (int)out[i].first_offset;
    }
    int fenced;
    uint64_t seq = log_fanout(store, logs, out, log_count, bytes, flags, &fenced);
    if (fenced)
        return OM_E_FENCED;
    for (int32_t i = 0; i < log_count; i++) {
        om_log *log = logs[i];
        info->base_offset = out[i].first_offset;
        info->leader_epoch = log->leader_epoch;
        int logged = om_log_is_logged(log, flags & OM_APPEND_UNLOGGED);
        if (logged)
            log->last_logged_seq = seq;
        om_bytes_ref(bytes);
        om_log_push(log, bytes, info, log->last_logged_seq, !logged, OM_WEIGHT_UNKNOWN);
    }
    return OM_OK;
}

int om_store_fanout(om_store *store, om_log **logs, int32_t log_count, const om_record *records,
                    int32_t count, int flags, om_appended *out) {
    if (log_count < 1 || count < 1)
        return OM_E_INVALID;
    om_batch_info info = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    om_bytes *bytes = encode(records, count, &info);
    if (!bytes)
        return OM_E_INVALID;
    om_store_enter(store);
    int result = fanout(store, logs, log_count, bytes, &info, flags, out);
    uint64_t seq = om_store_leave(store);
    for (int32_t i = 0; i < log_count; i++)
        out[i].seq = seq;
    om_bytes_unref(bytes);
    return result;
}
