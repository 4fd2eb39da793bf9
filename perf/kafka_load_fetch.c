/* kafka_load_fetch.c -- a consumer: one fetch under way, as clients have it, offsets checked.
 *
 * What comes is received in earnest and walked batch by batch; a batch that doesn't hold the offset
 * that was asked for ends the run. At the end of a topic that nobody writes to, it begins anew.
 */
#define _GNU_SOURCE
#include "kafka_load.h"

#include "om_base.h"

#include <stdlib.h>

#define PARTITION_MAX (1 << 20)
#define RESPONSE_MAX (50 << 20)
#define MAX_WAIT 500 /* ms */

void put_fetch(buffer *out, const int64_t *offsets, int first, int step, int max_wait) {
    size_t start = request_begin(out, FETCH, 11);
    put_number(out, -1, 4);
    put_number(out, max_wait, 4);
    put_number(out, 1, 4); /* min bytes */
    put_number(out, RESPONSE_MAX, 4);
    put_number(out, 0, 1); /* read uncommitted */
    put_number(out, 0, 4); /* no session */
    put_number(out, -1, 4);
    put_number(out, 1, 4);
    put_string(out, options.topic);
    put_number(out, (options.partitions - first + step - 1) / step, 4);
    for (int i = first; i < options.partitions; i += step) {
        put_number(out, i, 4);
        put_number(out, -1, 4);
        put_number(out, offsets[i], 8);
        put_number(out, -1, 8);
        put_number(out, PARTITION_MAX, 4);
    }
    put_number(out, 0, 4); /* forgotten */
    put_string(out, "");   /* rack */
    request_end(out, start);
}

/* ---- records that carry the time they were sent ---- */

static int64_t varint(const uint8_t **at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        value |= (uint64_t)(**at & 0x7f) << shift;
        if (!(*(*at)++ & 0x80))
            return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    }
}

static void take_times(const uint8_t *batch, int32_t count) {
    const uint8_t *at = batch + OM_BATCH_OVERHEAD;
    uint64_t now = now_ns(), sent;
    while (count--) {
        int64_t size = varint(&at);
        const uint8_t *end = at + size;
        at++;
        varint(&at), varint(&at), varint(&at); /* time, offset, no key */
        if (varint(&at) >= 8 && atomic_load_explicit(&measuring, memory_order_relaxed)) {
            memcpy(&sent, at, 8);
            latency_add(now - sent);
        }
        at = end;
    }
}

/* ---- answers ---- */

/* The whole batches of one partition; the offset that comes next. */
static int64_t take_batches(const uint8_t *at, size_t len, int64_t wanted) {
    uint64_t records = 0, bytes = 0;
    while (len >= OM_BATCH_OVERHEAD) {
        int64_t base = number(at, 8), size = 12 + number(at + 8, 4);
        if (size < OM_BATCH_OVERHEAD || (size_t)size > len)
            break; /* cut off: it comes again */
        int64_t last = base + number(at + 23, 4);
        if (last < wanted)
            fail("a batch up to %ld, and %ld was asked for", (long)last, (long)wanted);
        int32_t count = (int32_t)number(at + 57, 4);
        if (options.rate > 0)
            take_times(at, count);
        wanted = last + 1;
        records += (uint64_t)count;
        bytes += (uint64_t)size;
        at += size, len -= (size_t)size;
    }
    atomic_fetch_add_explicit(&fetched, records, memory_order_relaxed);
    atomic_fetch_add_explicit(&fetched_bytes, bytes, memory_order_relaxed);
    return wanted;
}

static void take_answer(const uint8_t *answer, size_t len, int64_t *offsets) {
    if (number(answer + 8, 2))
        fail("fetch: error %ld", (long)number(answer + 8, 2));
    size_t at = 4 + 4 + 2 + 4;
    int64_t topics = number(answer + at, 4);
    at += 4;
    if (!topics)
        return;
    at += 2 + strlen(options.topic);
    int64_t count = number(answer + at, 4);
    at += 4;
    while (count-- && at + 38 <= len) {
        int64_t partition = number(answer + at, 4), error = number(answer + at + 4, 2);
        int64_t end = number(answer + at + 6, 8), start = number(answer + at + 22, 8);
        int64_t aborted = number(answer + at + 30, 4);
        if (error || partition < 0 || partition >= options.partitions)
            fail("partition %ld: error %ld", (long)partition, (long)error);
        at += 34 + (aborted > 0 ? (size_t)aborted * 16 : 0) + 4;
        int64_t bytes = number(answer + at, 4);
        at += 4;
        if (bytes > 0 && at + (size_t)bytes <= len) {
            offsets[partition] = take_batches(answer + at, (size_t)bytes, offsets[partition]);
            at += (size_t)bytes;
        }
        if (!options.producers && offsets[partition] >= end)
            offsets[partition] = start;
    }
}

void *fetch(void *which) {
    int fd = link_open();
    int64_t *offsets = need(calloc((size_t)options.partitions, sizeof *offsets));
    buffer out = {0}, in = {0};
    while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
        size_t len;
        out.len = 0;
        put_fetch(&out, offsets, (int)(intptr_t)which, options.consumers, MAX_WAIT);
        link_send(fd, out.bytes, out.len);
        const uint8_t *answer = link_answer(fd, &in, &len);
        take_answer(answer, len, offsets);
    }
    return NULL;
}
