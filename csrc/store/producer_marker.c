/* producer_marker.c -- what the transaction coordinator does to a log: who may write in a
 * transaction, and the marker that ends it.
 *
 * A marker is a batch of its own with one control record: key = version i16, type i16 (0 abort,
 * 1 commit); value = version i16, coordinator epoch i32. It goes through the WAL like any batch, so
 * whatever reads the log again finds the transaction ended.
 */
#include "store/producer.h"

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "format/batch.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/news.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_LEN = 4, VALUE_LEN = 6 };

static om_buffer *make_marker(om_batch_info *info, int64_t now_ms, int32_t coordinator_epoch, int commit) {
    uint8_t key[KEY_LEN] = {0}, value[VALUE_LEN] = {0};
    om_put_be16(key + 2, commit ? 1 : 0);
    om_put_be32(value + 2, (uint32_t)coordinator_epoch);
    om_record record = {.timestamp = now_ms, .key = {key, KEY_LEN}, .value = {value, VALUE_LEN}};
    om_buffer *bytes;
    return om_batch_make(&bytes, info, &record, 1) == OM_OK ? bytes : NULL;
}

int om_marker_parse(const uint8_t *batch, size_t len, int32_t *coordinator_epoch, int *commit) {
    om_record_iter iter;
    om_record record;
    if (om_record_iter_init(&iter, batch, len) != OM_OK || om_record_next(&iter, &record, NULL, 0) != OM_OK ||
        record.key.len < KEY_LEN || record.value.len < VALUE_LEN)
        return OM_E_INVALID;
    int type = om_get_be16(record.key.data + 2);
    *coordinator_epoch = (int32_t)om_get_be32(record.value.data + 2);
    *commit = type == 1;
    return type == 0 || type == 1 ? OM_OK : OM_E_INVALID;
}

static int admit_marker(om_log *log, int64_t id, int16_t epoch, int32_t coordinator_epoch, int *error) {
    int result = om_log_admit(log, OM_ANY_EPOCH);
    om_producer *producer = result == OM_OK ? om_producer_need(log, id) : NULL;
    if (!producer)
        return result == OM_OK ? OM_E_NO_MEMORY : result;
    *error = epoch < producer->epoch                           ? OM_KAFKA_INVALID_PRODUCER_EPOCH
             : coordinator_epoch < producer->coordinator_epoch ? OM_KAFKA_COORDINATOR_FENCED
                                                               : 0;
    return *error ? OM_E_REFUSED : OM_OK;
}

int om_log_marker(om_log *log, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int commit,
                  om_appended *out) {
    *out = (om_appended){.first_offset = -1};
    om_batch_info info = {
        .attributes = OM_ATTR_TRANSACTIONAL | OM_ATTR_CONTROL,
        .producer_id = producer_id,
        .producer_epoch = epoch,
        .base_sequence = -1,
    };
    if (producer_id < 0 || epoch < 0)
        return OM_E_INVALID;
    om_buffer *bytes = make_marker(&info, om_clock_ms(&log->store->clock), coordinator_epoch, commit);
    if (!bytes)
        return OM_E_NO_MEMORY;
    om_store_enter(log->store);
    int result = admit_marker(log, producer_id, epoch, coordinator_epoch, &out->error);
    if (result == OM_OK)
        result = om_log_append_bytes(log, bytes, &info, 0);
    else
        om_buffer_unref(bytes);
    if (result == OM_OK)
        result = om_producer_marked(log, &info, coordinator_epoch, commit);
    out->first_offset = info.base_offset;
    out->seq = om_store_leave(log->store);
    om_news_ring(log->store); /* readers that waited for the end of it go on */
    return result;
}

int om_log_enlist(om_log *log, int64_t producer_id, int16_t epoch) {
    om_store_enter(log->store);
    om_producer *producer = log->deleted ? NULL : om_producer_need(log, producer_id);
    int result = producer ? OM_OK : log->deleted ? OM_E_DELETED : OM_E_NO_MEMORY;
    if (producer && epoch < producer->epoch)
        result = OM_E_STALE_EPOCH;
    else if (producer)
        producer->enlisted = epoch;
    om_store_leave(log->store);
    return result;
}

int64_t om_log_producers(om_log *log, om_producer_stat *out, int64_t cap) {
    om_store_enter(log->store);
    const om_producers *producers = log->producers;
    int64_t count = 0;
    for (uint32_t i = 0; producers && i < producers->cap; i++) {
        const om_producer *producer = producers->table[i];
        if (!producer || (producer->epoch < 0 && producer->enlisted < 0))
            continue;
        const om_producer_batch *last = producer->count ? &producer->batches[producer->count - 1] : NULL;
        if (count < cap)
            out[count] = (om_producer_stat){
                .producer_id = producer->id,
                .epoch = producer->epoch,
                .last_sequence = last ? last->last_sequence : -1,
                .last_timestamp = last ? last->timestamp : -1,
                .coordinator_epoch = producer->coordinator_epoch,
                .first_open = producer->first_open,
                .enlisted = producer->enlisted >= 0,
            };
        count++;
    }
    om_store_leave(log->store);
    return count;
}

int64_t om_log_aborted_in(om_log *log, int64_t from, int64_t to, om_aborted *out, int64_t cap) {
    om_store_enter(log->store);
    int count = om_log_aborted(log, from, to, out, cap > INT32_MAX ? INT32_MAX : (int)cap);
    om_store_leave(log->store);
    return count;
}
