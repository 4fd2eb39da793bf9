/* inspect.c -- for tools that look at files: batches one after the other, and the WAL as a whole.
 *
 * Nothing here opens a store or changes a byte; whatever the bytes are, a call returns a result.
 */
#include "base/bytes.h"
#include "format/batch.h"
#include "segment/index.h"
#include "wal/wal.h"

#include <stdio.h>

/* ---- batches and their indexes ---- */

static int64_t absolute(const om_walk *walk, const uint8_t *relative) {
    return walk->base_offset + (int32_t)om_get_be32(relative);
}

static void note_wrong(int64_t *wrong, uint32_t entry) {
    if (*wrong < 0)
        *wrong = entry;
}

/* Entries up to this batch: the one that names its place must name its last offset too; one that
 * names a place before it named no batch, and a batch is named once. */
static void look_at_offsets(om_walk *walk, int64_t last) {
    int named = 0;
    while (walk->offset_at < walk->offset_count) {
        const uint8_t *entry = walk->offsets + (size_t)walk->offset_at * OM_OFFSET_ENTRY;
        int64_t position = (int32_t)om_get_be32(entry + 4);
        if (position >= 0 && (uint64_t)position > walk->position)
            return;
        if (named++ || position < 0 || (uint64_t)position < walk->position || absolute(walk, entry) != last)
            note_wrong(&walk->wrong_offset, walk->offset_at);
        walk->offset_at++;
    }
}

/* A time entry names the largest timestamp so far and the batch that brought it. */
static void look_at_times(om_walk *walk, int64_t last) {
    int named = 0;
    while (walk->time_at < walk->time_count) {
        const uint8_t *entry = walk->times + (size_t)walk->time_at * OM_TIME_ENTRY;
        int64_t offset = absolute(walk, entry + 8);
        if (offset > last)
            return;
        if (named++ || offset < last || walk->max_timestamp_offset != last ||
            (int64_t)om_get_be64(entry) != walk->max_timestamp)
            note_wrong(&walk->wrong_time, walk->time_at);
        walk->time_at++;
    }
}

/* 0: no room for it. */
static int note_gap(om_walk *walk, const om_batch_info *batch) {
    if (!walk->gaps || batch->base_offset == walk->next_offset)
        return 1;
    if (walk->gap_count == walk->gap_room)
        return 0;
    int32_t before = walk->batches ? walk->epoch : batch->leader_epoch;
    walk->gaps[walk->gap_count++] = (om_gap){walk->next_offset, batch->base_offset, before, batch->leader_epoch};
    return 1;
}

/* Behind a gap, or where the epoch goes up, the next header shows whether that is right. */
static int look_behind(const om_walk *walk, const om_batch_info *batch, const uint8_t *data, size_t len) {
    om_batch_info behind;
    if (batch->base_offset == walk->next_offset && batch->leader_epoch == walk->epoch)
        return OM_OK;
    int result = om_batch_peek_behind(batch, data, len, walk->size - walk->position, &behind);
    if (result != OM_OK)
        return result == OM_END ? OM_OK : result;
    /* The last one of all that doesn't end where it should is the wrong one itself. */
    int is_last = walk->position + (uint64_t)batch->size + (uint64_t)behind.size >= walk->size;
    int is_short = is_last && behind.base_offset + behind.last_offset_delta + 1 < walk->limit &&
                   behind.base_offset > walk->next_offset + batch->last_offset_delta + 1;
    if (!is_short && om_batch_is_astray(batch, walk->next_offset, &behind))
        return OM_E_RANGE;
    return behind.leader_epoch < batch->leader_epoch && behind.leader_epoch >= walk->epoch ? OM_E_STALE_EPOCH : OM_OK;
}

int om_walk_batches(om_walk *walk, const uint8_t *data, size_t len, uint64_t stop) {
    size_t at = 0;
    while (walk->position < stop) {
        om_batch_info batch;
        int result = om_batch_check(data + at, len - at, &batch);
        if (result == OM_OK &&
            (batch.base_offset < walk->next_offset || batch.base_offset + batch.last_offset_delta >= walk->limit))
            result = OM_E_RANGE;
        if (result == OM_OK && batch.leader_epoch < walk->epoch)
            result = OM_E_STALE_EPOCH;
        if (result == OM_OK)
            result = look_behind(walk, &batch, data + at, len - at);
        if (result != OM_OK)
            return result;
        if (!note_gap(walk, &batch))
            return OM_E_FULL;
        int64_t last = batch.base_offset + batch.last_offset_delta;
        if (!walk->batches) {
            walk->first_epoch = batch.leader_epoch;
            walk->first_timestamp =
                batch.attributes & OM_ATTR_DELETE_HORIZON ? batch.max_timestamp : batch.base_timestamp;
        }
        if (batch.max_timestamp > walk->max_timestamp) {
            walk->max_timestamp = batch.max_timestamp;
            walk->max_timestamp_offset = last;
        }
        look_at_offsets(walk, last);
        look_at_times(walk, last);
        walk->epoch = batch.leader_epoch;
        walk->next_offset = last + 1;
        walk->batches++;
        walk->records += (uint64_t)batch.record_count;
        walk->left_out += (uint64_t)(batch.last_offset_delta + INT64_C(1) - batch.record_count);
        walk->position += (uint64_t)batch.size;
        at += (size_t)batch.size;
    }
    return OM_OK;
}

/* ---- the WAL ---- */

int om_wal_survey(const char *dir, uint64_t after_seq, om_wal_summary *out) {
    *out = (om_wal_summary){0};
    om_wal_reader *reader = om_wal_reader_open(dir, after_seq, out->error, sizeof out->error);
    if (!reader)
        return OM_E_IO;
    om_wal_record record;
    int result;
    while ((result = om_wal_reader_next(reader, &record)) == OM_OK) {
        if (!out->records)
            out->first_seq = record.seq;
        out->last_seq = record.seq;
        out->epoch = record.epoch;
        out->records++;
        out->bytes += record.len;
    }
    snprintf(out->error, sizeof out->error, "%s", om_wal_reader_error(reader));
    om_wal_reader_close(reader);
    return result == OM_END ? OM_OK : result;
}
