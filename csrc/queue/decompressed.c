/* decompressed.c -- the cache of decompressed batches for AMQP readers: Python is asked once for each. */
#include "queue/decompressed.h"
#include "base/bytes.h"
#include "queue/queues.h"

#include <stdlib.h>
#include <string.h>

typedef struct om_decompressed_slot slot;

enum { LENGTH = 8, CRC = 17, ATTRIBUTES = 21 }; /* where they are in a batch's head: batch.h */

static slot *find(om_decompressed *cache, uint64_t log, int64_t base_offset) {
    for (int i = 0; i < OM_DECOMPRESSED_SLOTS; i++) {
        slot *it = &cache->slots[i];
        if (it->used && it->log == log && it->base_offset == base_offset)
            return it;
    }
    return NULL;
}

static void let_go(om_decompressed *cache, slot *it) {
    if (it->bytes) {
        cache->bytes -= it->bytes->len;
        om_buffer_unref(it->bytes);
    }
    *it = (slot){0};
}

/* A free one, or the one that was used least lately; NULL: Python is busy with all of them. */
static slot *make_room(om_decompressed *cache) {
    slot *oldest = NULL;
    for (int i = 0; i < OM_DECOMPRESSED_SLOTS; i++) {
        slot *it = &cache->slots[i];
        if (!it->asked && (!oldest || it->used < oldest->used))
            oldest = it;
    }
    if (oldest)
        let_go(cache, oldest);
    return oldest;
}

static void shrink(om_decompressed *cache, const slot *but) {
    while (cache->bytes > OM_DECOMPRESSED_BYTES) {
        slot *oldest = NULL;
        for (int i = 0; i < OM_DECOMPRESSED_SLOTS; i++) {
            slot *it = &cache->slots[i];
            if (it->bytes && it != but && (!oldest || it->used < oldest->used))
                oldest = it;
        }
        if (!oldest)
            return;
        let_go(cache, oldest);
    }
}

static int ask(om_engine *engine, uint64_t log, int64_t base_offset, const uint8_t *batch, size_t len) {
    om_decompressed *cache = engine->queues->decompressed;
    slot *it = make_room(cache);
    if (!it)
        return OM_E_NOT_RESIDENT; /* an answer wakes all who wait: then there is room */
    *it = (slot){.log = log, .base_offset = base_offset, .used = ++cache->uses, .asked = 1};
    memcpy(it->head, batch, OM_BATCH_OVERHEAD);
    om_event event = {
        .kind = OM_EV_DECOMPRESS,
        .queue = log,
        .count = base_offset,
        .code = om_get_be16(batch + ATTRIBUTES) & OM_ATTR_CODEC_MASK,
        .payload = {batch + OM_BATCH_OVERHEAD, (int32_t)(len - OM_BATCH_OVERHEAD)},
    };
    om_event_push(engine, &event);
    return OM_E_NOT_RESIDENT;
}

int om_decompressed_get(om_engine *engine, uint64_t log, int64_t base_offset, const uint8_t *batch, size_t len,
                        om_buffer **out) {
    if (len < OM_BATCH_OVERHEAD)
        return OM_E_UNREADABLE;
    om_decompressed *cache = engine->queues->decompressed;
    if (!cache && !(cache = engine->queues->decompressed = calloc(1, sizeof *cache)))
        return OM_E_NOT_RESIDENT;
    slot *it = find(cache, log, base_offset);
    if (it && !it->asked && memcmp(it->head, batch, OM_BATCH_OVERHEAD) != 0) {
        let_go(cache, it); /* compacted, or cut and written again: another batch has its place */
        it = NULL;
    }
    if (!it)
        return ask(engine, log, base_offset, batch, len);
    it->used = ++cache->uses;
    if (it->asked)
        return OM_E_NOT_RESIDENT;
    if (!it->bytes)
        return OM_E_UNREADABLE;
    *out = it->bytes;
    return OM_OK;
}

/* The same batch without its codec. NULL: these can't be its records. */
static om_buffer *plain_batch(const slot *it, const uint8_t *records, size_t len) {
    if (len > (size_t)INT32_MAX - OM_BATCH_OVERHEAD)
        return NULL;
    size_t size = OM_BATCH_OVERHEAD + len;
    om_buffer *bytes = om_buffer_new((uint32_t)size);
    if (!bytes)
        return NULL;
    uint8_t *data = bytes->data;
    memcpy(data, it->head, OM_BATCH_OVERHEAD);
    memcpy(data + OM_BATCH_OVERHEAD, records, len);
    uint16_t attributes = om_get_be16(data + ATTRIBUTES);
    om_put_be64(data, (uint64_t)it->base_offset);
    om_put_be32(data + LENGTH, (uint32_t)(size - 12));
    om_put_be16(data + ATTRIBUTES, (uint16_t)((attributes & ~OM_ATTR_CODEC_MASK) | OM_ATTR_DECOMPRESSED));
    om_put_be32(data + CRC, om_crc32c(0, data + ATTRIBUTES, size - ATTRIBUTES));
    om_batch_info info;
    if (om_batch_validate(data, size, 1, &info) == OM_OK)
        return bytes;
    om_buffer_unref(bytes);
    return NULL;
}

int om_decompressed_put(om_engine *engine, uint64_t log, int64_t base_offset, const uint8_t *records, int64_t len) {
    om_decompressed *cache = engine->queues->decompressed;
    slot *it = cache ? find(cache, log, base_offset) : NULL;
    if (!it || !it->asked)
        return OM_E_GONE;
    it->asked = 0;
    it->bytes = len >= 0 ? plain_batch(it, records, (size_t)len) : NULL;
    if (it->bytes)
        cache->bytes += it->bytes->len;
    shrink(cache, it);
    return it->bytes ? OM_OK : OM_E_CORRUPT;
}

void om_decompressed_free(om_engine *engine) {
    om_decompressed *cache = engine->queues->decompressed;
    for (int i = 0; cache && i < OM_DECOMPRESSED_SLOTS; i++)
        let_go(cache, &cache->slots[i]);
    free(cache);
    engine->queues->decompressed = NULL;
}
