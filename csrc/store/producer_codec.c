/* producer_codec.c -- a log's producers as bytes in the checkpoint, and read back.
 *
 *   producers u32 | aborted u32
 *   a producer   id i64 | first open i64 | ended first, at i64 x 2 | heard ms i64 | coordinator epoch i32
 *                | epoch i16 | batches u16, then each: first, last sequence i32 x 2 | offset i64 | timestamp i64
 *   an aborted   producer id i64 | first, last offset i64 x 2 | last stable i64
 *   if a work queue has open transactions: runs u32, then each: producer id i64 | first, last offset i64 x 2
 *
 * Little-endian. It may know of batches past the recovery point, which recovery meets again.
 */
#include "store/producer.h"

#include "base/bytes.h"
#include "cursor/offset_set.h"
#include "store/log.h"

#include <stdlib.h>

enum { HEAD = 8, PRODUCER = 48, BATCH = 24, ABORTED = 32, RUNS = 4, RUN = 24 };

static int is_worth_keeping(const om_producer *producer) {
    return producer && producer->epoch >= 0;
}

/* Of records of open transactions; put where there is room for them, if told where. */
static uint32_t put_runs(const om_producers *producers, uint8_t *at) {
    uint32_t count = 0;
    for (const om_producer *producer = producers->oldest; producer; producer = producer->newer) {
        int64_t first, last, from = 0;
        while (om_offset_set_next_run(&producer->hidden, from, &first, &last)) {
            if (at) {
                om_put_le64(at, (uint64_t)producer->id);
                om_put_le64(at + 8, (uint64_t)first);
                om_put_le64(at + 16, (uint64_t)last);
                at += RUN;
            }
            count++;
            from = last + 1;
        }
    }
    return count;
}

size_t om_producers_size(const om_log *log) {
    const om_producers *producers = log->producers;
    size_t size = HEAD, kept = 0;
    for (uint32_t i = 0; producers && i < producers->cap; i++) {
        if (!is_worth_keeping(producers->table[i]))
            continue;
        size += PRODUCER + (size_t)producers->table[i]->count * BATCH;
        kept++;
    }
    if (!producers || (!kept && !producers->aborted_count))
        return 0;
    uint32_t runs = put_runs(producers, NULL);
    return size + (size_t)producers->aborted_count * ABORTED + (runs ? RUNS + (size_t)runs * RUN : 0);
}

static uint8_t *put_producer(uint8_t *at, const om_producer *producer) {
    om_put_le64(at, (uint64_t)producer->id);
    om_put_le64(at + 8, (uint64_t)producer->first_open);
    om_put_le64(at + 16, (uint64_t)producer->ended_first);
    om_put_le64(at + 24, (uint64_t)producer->ended_at);
    om_put_le64(at + 32, (uint64_t)producer->heard_ms);
    om_put_le32(at + 40, (uint32_t)producer->coordinator_epoch);
    om_put_le32(at + 44, (uint16_t)producer->epoch | (uint32_t)producer->count << 16);
    at += PRODUCER;
    for (int i = 0; i < producer->count; i++, at += BATCH) {
        const om_producer_batch *batch = &producer->batches[i];
        om_put_le32(at, (uint32_t)batch->first_sequence);
        om_put_le32(at + 4, (uint32_t)batch->last_sequence);
        om_put_le64(at + 8, (uint64_t)batch->first_offset);
        om_put_le64(at + 16, (uint64_t)batch->timestamp);
    }
    return at;
}

void om_producers_encode(const om_log *log, uint8_t *out) {
    const om_producers *producers = log->producers;
    uint8_t *at = out + HEAD;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < producers->cap; i++) {
        if (!is_worth_keeping(producers->table[i]))
            continue;
        at = put_producer(at, producers->table[i]);
        kept++;
    }
    om_put_le32(out, kept);
    om_put_le32(out + 4, producers->aborted_count);
    for (uint32_t i = 0; i < producers->aborted_count; i++, at += ABORTED) {
        const om_aborted *aborted = &producers->aborted[i];
        om_put_le64(at, (uint64_t)aborted->producer_id);
        om_put_le64(at + 8, (uint64_t)aborted->first_offset);
        om_put_le64(at + 16, (uint64_t)aborted->last_offset);
        om_put_le64(at + 24, (uint64_t)aborted->last_stable);
    }
    uint32_t runs = put_runs(producers, NULL);
    if (runs) {
        om_put_le32(at, runs);
        put_runs(producers, at + RUNS);
    }
}

/* The bytes one takes, or OM_E_*. */
static int64_t read_producer(om_log *log, const uint8_t *at, size_t left) {
    if (left < PRODUCER)
        return OM_E_CORRUPT;
    int64_t id = (int64_t)om_get_le64(at), open = (int64_t)om_get_le64(at + 8);
    uint32_t packed = om_get_le32(at + 44), count = packed >> 16;
    if (id < 0 || count > OM_PRODUCER_BATCHES || left - PRODUCER < (size_t)count * BATCH || om_producer_find(log, id))
        return OM_E_CORRUPT;
    om_producer *producer = om_producer_need(log, id);
    if (!producer)
        return OM_E_NO_MEMORY;
    producer->ended_first = (int64_t)om_get_le64(at + 16);
    producer->ended_at = (int64_t)om_get_le64(at + 24);
    producer->heard_ms = (int64_t)om_get_le64(at + 32);
    producer->coordinator_epoch = (int32_t)om_get_le32(at + 40);
    producer->epoch = (int16_t)(uint16_t)packed;
    producer->count = (uint8_t)count;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *from = at + PRODUCER + (size_t)i * BATCH;
        producer->batches[i] = (om_producer_batch){
            .first_sequence = (int32_t)om_get_le32(from),
            .last_sequence = (int32_t)om_get_le32(from + 4),
            .first_offset = (int64_t)om_get_le64(from + 8),
            .timestamp = (int64_t)om_get_le64(from + 16),
        };
    }
    if (open >= 0)
        om_producer_open(log, producer, open);
    return (int64_t)(PRODUCER + (size_t)count * BATCH);
}

static int read_runs(om_log *log, const uint8_t *at, size_t left) {
    if (!left)
        return OM_OK;
    uint32_t count = left >= RUNS ? om_get_le32(at) : UINT32_MAX;
    if (left < RUNS || count > (left - RUNS) / RUN)
        return OM_E_CORRUPT;
    at += RUNS;
    for (uint32_t i = 0; i < count; i++, at += RUN) {
        om_producer *producer = om_producer_find(log, (int64_t)om_get_le64(at));
        int64_t first = (int64_t)om_get_le64(at + 8), last = (int64_t)om_get_le64(at + 16);
        if (!producer || producer->first_open == OM_NO_TRANSACTION || first < 0 || first > last || last > OM_OFFSET_MAX)
            return OM_E_CORRUPT;
        om_hidden_add(log, producer, first, last);
    }
    return OM_OK;
}

int om_producers_decode(om_log *log, const uint8_t *data, size_t len) {
    if (len < HEAD)
        return OM_E_CORRUPT;
    uint32_t count = om_get_le32(data), aborted_count = om_get_le32(data + 4);
    size_t at = HEAD;
    for (uint32_t i = 0; i < count; i++) {
        int64_t size = read_producer(log, data + at, len - at);
        if (size < 0)
            return (int)size;
        at += (size_t)size;
    }
    if (aborted_count > (len - at) / ABORTED)
        return OM_E_CORRUPT;
    for (uint32_t i = 0; i < aborted_count; i++, at += ABORTED) {
        om_aborted aborted = {(int64_t)om_get_le64(data + at), (int64_t)om_get_le64(data + at + 8),
                              (int64_t)om_get_le64(data + at + 16), (int64_t)om_get_le64(data + at + 24)};
        if (om_producer_note_aborted(log, &aborted) != OM_OK)
            return OM_E_NO_MEMORY;
    }
    return read_runs(log, data + at, len - at);
}
