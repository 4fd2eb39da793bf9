/* log_append.c -- the ways into a log: records, a stranger's batch. (For many logs: fanout.c.) */
#include "store/store.h"

#include "base/bytes.h"
#include "store/producer.h"

#include <stdlib.h>
#include <string.h>

uint64_t om_batch_log(om_store *store, uint8_t type, uint64_t log_id, const struct iovec *iov, int iovcnt,
                      om_buffer *batch) {
    batch->crc = om_get_be32(batch->data + OM_BATCH_CRC);
    batch->crc_from = OM_BATCH_CRC_FROM;
    return om_wal_append_lent(store->wal, type, log_id, iov, iovcnt, batch);
}

int om_log_append(om_log *log, const om_record *records, int32_t count, int flags, int32_t epoch, om_appended *out) {
    om_store_enter(log->store);
    int result = om_log_admit(log, epoch);
    if (result == OM_OK)
        result = om_log_stage(log, records, count, flags & OM_APPEND_UNLOGGED, &out->first_offset);
    out->seq = om_store_leave(log->store);
    return result;
}

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
