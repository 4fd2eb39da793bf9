/* compact.c -- key compaction, batch by batch: first learn where each key stands last, then filter.
 *
 *   learn    key -> its last offset         a table of 24 bytes per key; the keys themselves are not kept:
 *                                           64 bits of XXH3, CRC32C and length stand for them, and no two
 *                                           keys have met in those yet
 *   filter   what is older than that goes   offsets stay: a batch keeps its base and its end
 *
 * A record without a value is a tombstone: it takes the older ones of its key with it, and must be
 * seen by consumers that read along; so it stays for a while. The batch says for how long from the first
 * time that it is filtered (Kafka's delete horizon, in place of the base timestamp).
 *
 * The caller decompresses batches.
 */
#include "base/bytes.h"
#include "base/checksum.h"
#include "format/batch.h"

#include <stdlib.h>
#include <string.h>

typedef struct place {
    uint64_t hash;
    uint32_t crc, len;
    int64_t offset; /* -1: free */
} place;

struct om_cleaner {
    place *places;
    size_t cap, count, most; /* cap: a power of two */
};

#define FIRST_CAP 1024

static place *make_places(size_t cap) {
    place *places = malloc(cap * sizeof *places);
    for (size_t i = 0; places && i < cap; i++)
        places[i].offset = -1;
    return places;
}

om_cleaner *om_cleaner_new(size_t most) {
    om_cleaner *keys = calloc(1, sizeof *keys);
    if (keys)
        *keys = (om_cleaner){.places = make_places(FIRST_CAP), .cap = FIRST_CAP, .most = most};
    if (keys && !keys->places) {
        free(keys);
        return NULL;
    }
    return keys;
}

void om_cleaner_free(om_cleaner *keys) {
    if (keys)
        free(keys->places);
    free(keys);
}

/* Where it is, or would be. */
static place *look_up(place *places, size_t cap, const place *wanted) {
    for (size_t i = wanted->hash & (cap - 1);; i = (i + 1) & (cap - 1)) {
        place *here = &places[i];
        if (here->offset < 0 || (here->hash == wanted->hash && here->crc == wanted->crc && here->len == wanted->len))
            return here;
    }
}

static int grow(om_cleaner *keys) {
    if (keys->count >= keys->most)
        return OM_E_FULL;
    if (keys->count < keys->cap / 4 * 3)
        return OM_OK;
    place *wider = make_places(keys->cap * 2);
    if (!wider)
        return OM_E_NO_MEMORY;
    for (size_t i = 0; i < keys->cap; i++)
        if (keys->places[i].offset >= 0)
            *look_up(wider, keys->cap * 2, &keys->places[i]) = keys->places[i];
    free(keys->places);
    keys->places = wider;
    keys->cap *= 2;
    return OM_OK;
}

static place stand_in(om_span key, int64_t offset) {
    size_t len = (size_t)key.len;
    return (place){om_xxh3(key.data, len), om_crc32c(0, key.data, len), (uint32_t)len, offset};
}

int om_cleaner_learn(om_cleaner *keys, const uint8_t *batch, size_t len) {
    om_record_iter iter;
    om_record record;
    int result = om_record_iter_init(&iter, batch, len);
    while (result == OM_OK && (result = om_record_next(&iter, &record, NULL, 0)) == OM_OK) {
        if (record.key.len < 0)
            continue;
        result = grow(keys);
        if (result != OM_OK)
            return result;
        place learned = stand_in(record.key, record.offset);
        place *here = look_up(keys->places, keys->cap, &learned);
        keys->count += here->offset < 0;
        if (here->offset < learned.offset)
            *here = learned;
    }
    return result == OM_END ? OM_OK : result;
}

/* ---- filter ---- */

typedef struct filter {
    const om_cleaner *keys;
    om_cleaner_stats *stats;
    om_batch_info batch;    /* as it is */
    int64_t base_timestamp; /* as it will be */
    int64_t max_timestamp;
    uint8_t *at;
} filter;

static int stays(filter *filter, const om_record *record) {
    const om_cleaner_stats *stats = filter->stats;
    if (record->key.len < 0)
        return 0; /* nothing could ever take its place */
    place wanted = stand_in(record->key, 0);
    if (look_up(filter->keys->places, filter->keys->cap, &wanted)->offset > record->offset)
        return 0;
    if (record->value.len >= 0)
        return 1;
    int has_horizon = (filter->batch.attributes & OM_ATTR_DELETE_HORIZON) != 0;
    return !has_horizon || stats->now_ms < filter->batch.base_timestamp;
}

/* The record as it lies there, but for its time when the batch counts from another one now. */
static void copy_record(filter *filter, const uint8_t *from, const uint8_t *end) {
    if (filter->base_timestamp == filter->batch.base_timestamp) {
        memcpy(filter->at, from, (size_t)(end - from));
        filter->at += end - from;
        return;
    }
    int32_t length = 0;
    int64_t delta = 0;
    const uint8_t *body = om_get_varint(from, end, &length);
    const uint8_t *rest = om_get_varlong(body + 1, end, &delta);
    /* Wraps as the reader's sum does: the horizon and the times of clients may be anything. */
    int64_t moved =
        (int64_t)((uint64_t)delta + (uint64_t)filter->batch.base_timestamp - (uint64_t)filter->base_timestamp);
    size_t left = (size_t)(end - rest);
    filter->at = om_put_varint(filter->at, (int32_t)(1 + om_varlong_size(moved) + left));
    *filter->at++ = body[0];
    filter->at = om_put_varlong(filter->at, moved);
    memcpy(filter->at, rest, left);
    filter->at += left;
}

/* Which ones stay is asked twice: whether a tombstone is among them decides how all are written. */
static int count_staying(filter *filter, const uint8_t *batch, size_t len) {
    om_record_iter iter;
    om_record record;
    int result = om_record_iter_init(&iter, batch, len);
    while (result == OM_OK && (result = om_record_next(&iter, &record, NULL, 0)) == OM_OK) {
        if (!stays(filter, &record)) {
            filter->stats->dropped++;
            continue;
        }
        filter->stats->kept++;
        filter->stats->tombstones += record.value.len < 0;
        if (record.timestamp > filter->max_timestamp)
            filter->max_timestamp = record.timestamp;
    }
    return result == OM_END ? OM_OK : result;
}

static int copy_staying(filter *filter, const uint8_t *batch, size_t len) {
    om_record_iter iter;
    om_record record;
    int result = om_record_iter_init(&iter, batch, len);
    const uint8_t *from = iter.at;
    while (result == OM_OK && (result = om_record_next(&iter, &record, NULL, 0)) == OM_OK) {
        if (stays(filter, &record))
            copy_record(filter, from, iter.at);
        from = iter.at;
    }
    return result == OM_END ? OM_OK : result;
}

static int64_t finish(const filter *filter, uint8_t *out, uint16_t attributes) {
    size_t size = (size_t)(filter->at - out);
    om_put_be32(out + 8, (uint32_t)(size - 12));
    om_put_be16(out + 21, attributes);
    om_put_be64(out + 27, (uint64_t)filter->base_timestamp);
    om_put_be64(out + 35, (uint64_t)filter->max_timestamp);
    om_put_be32(out + 57, (uint32_t)filter->stats->kept);
    om_put_be32(out + 17, om_crc32c(0, out + 21, size - 21));
    return (int64_t)size;
}

int64_t om_cleaner_filter(const om_cleaner *keys, const uint8_t *batch, size_t len, om_cleaner_stats *stats,
                          uint8_t *out, size_t cap) {
    filter filter = {.keys = keys, .stats = stats, .max_timestamp = -1};
    stats->kept = stats->dropped = stats->tombstones = 0;
    int result = om_batch_peek(batch, len, &filter.batch);
    if (result == OM_OK)
        result = count_staying(&filter, batch, len);
    if (result != OM_OK)
        return result;
    uint16_t attributes = (uint16_t)filter.batch.attributes;
    int new_horizon = stats->tombstones && !(attributes & OM_ATTR_DELETE_HORIZON);
    if (!stats->dropped && !new_horizon)
        return 0;
    size_t most = len + (size_t)stats->kept * (OM_VARLONG_MAX + 1);
    if (cap < most)
        return OM_E_SHORT;
    memcpy(out, batch, OM_BATCH_OVERHEAD);
    filter.at = out + OM_BATCH_OVERHEAD;
    if (!stats->kept) {
        filter.base_timestamp = -1;
        return finish(&filter, out, attributes & ~OM_ATTR_DELETE_HORIZON);
    }
    filter.base_timestamp = filter.batch.base_timestamp;
    if (new_horizon) {
        filter.base_timestamp = stats->now_ms + stats->delete_retention_ms;
        attributes |= OM_ATTR_DELETE_HORIZON;
    }
    result = copy_staying(&filter, batch, len);
    return result == OM_OK ? finish(&filter, out, attributes) : result;
}
