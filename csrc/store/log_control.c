/* log_control.c -- a log is trimmed or truncated.
 *
 * One rule keeps every crash harmless: a file is removed or cut only after a checkpoint that no
 * longer needs it. Until then the segment is pending (segment_delete.h).
 */
#include "store/log_control.h"

#include "base/bytes.h"
#include "cursor/cursor.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_count.h"
#include "store/log_cursor.h"
#include "store/log_hot.h"
#include "store/log_segments.h"
#include "store/producer.h"
#include "store/removal_record.h"
#include "store/store.h"
#include "store/wal_records.h"
#include "store/writer.h"
#include "wal/wal.h"

#include <stdlib.h>
#include <string.h>

uint64_t om_log_put_control(om_log *log, uint8_t type, int64_t offset, int32_t epoch, int urgent) {
    uint8_t payload[16] = {0};
    om_put_le64(payload, (uint64_t)offset);
    om_put_le32(payload + 8, (uint32_t)epoch);
    struct iovec iov = {payload, sizeof payload};
    if (!om_log_uses_wal(log))
        return UINT64_MAX;
    uint64_t seq = om_wal_append(log->store->wal, type, log->id, &iov, 1);
    log->store->urgent |= urgent;
    return seq;
}

/* ---- trim ---- */

/* Of the first `gone` segments, how many can go. What of them wasn't written yet need never be: nobody
 * is given it any more. But what the writer writes at the moment goes where it was placed: such a segment
 * stays until that is done. A batch never keeps a place in a segment that is gone. */
static uint32_t give_up_places(om_log *log, uint32_t gone) {
    const om_hot *first = log->hot.count ? om_hot_at(&log->hot, 0) : NULL;
    if (log->writing)
        for (uint32_t i = 0; i < gone; i++)
            if (log->segments[i] == first->segment)
                gone = i;
    uint32_t given_up = 0;
    while (gone && given_up < log->hot.count && om_hot_at(&log->hot, given_up)->segment &&
           om_hot_at(&log->hot, given_up)->last_offset < log->segments[gone - 1]->next_offset)
        given_up++;
    if (given_up)
        om_log_drop_hot(log, given_up);
    return gone;
}

void om_log_start_at(om_log *log, int64_t offset) {
    if (offset > log->next_offset)
        offset = log->next_offset;
    if (offset > log->start_offset) {
        log->start_offset = offset;
        if (log->cursor)
            om_cursor_settle(log->cursor, 0, offset - 1, -1);
        om_producers_trim(log, offset);
    }
    /* One that an earlier trim had to leave goes now. */
    uint32_t gone = give_up_places(log, om_log_segment_for(log, log->start_offset));
    if (gone)
        om_log_retire_segments(log, 0, gone, 0, log->trim_rule);
    if (log->missing)
        om_log_note_missing(log);
}

/* Not urgent: if the catalogue is lost in the second after a declaration, the queue is empty. */
void om_store_named(om_store *store, om_log *const *logs, size_t count) {
    om_store_enter(store);
    for (size_t i = 0; i < count; i++) {
        if (logs[i]->unnamed && !logs[i]->deleted && om_log_uses_wal(logs[i]))
            om_wal_append(store->wal, OM_REC_NAMED, logs[i]->id, NULL, 0);
        logs[i]->unnamed = 0;
    }
    om_store_leave(store);
}

int om_log_trim(om_log *log, int64_t offset, int rule, uint64_t *seq) {
    om_store_enter(log->store);
    int result = log->deleted ? OM_E_DELETED : offset < 0 || offset > log->next_offset ? OM_E_RANGE : OM_OK;
    if (result == OM_OK && offset > log->start_offset) {
        om_log_seal(log);
        om_log_log_ops(log);
        /* Of what is settled nobody waits for it but the checkpoint that lets the files go. */
        if (!om_log_put_control(log, OM_REC_TRIM, offset, rule, rule != OM_RULE_SETTLED))
            result = OM_E_FENCED;
    }
    if (result == OM_OK) {
        if (offset > log->start_offset || !log->trim_rule)
            log->trim_rule = (uint8_t)rule;
        om_log_start_at(log, offset);
    }
    *seq = om_store_leave(log->store);
    return result;
}

/* ---- truncate ---- */

/* Where in its segment the first batch that reaches past offset starts. */
static int cut_segment(om_log *log, int64_t offset) {
    uint32_t keep = om_log_segment_for(log, offset);
    if (keep == log->segment_count)
        return OM_OK;
    om_segment *segment = log->segments[keep];
    om_batch_info info;
    uint64_t position = 0;
    int found = segment->base_offset < offset ? om_segment_find(segment, offset, &position, &info) : OM_OK;
    if (found < 0)
        return found;
    if (found == OM_OK && position == 0) {
        om_log_retire_segments(log, keep, log->segment_count - keep, 1, OM_RULE_TRUNCATE);
        return OM_OK;
    }
    om_log_retire_segments(log, keep + 1, log->segment_count - keep - 1, 1, OM_RULE_TRUNCATE);
    if (found == OM_OK) {
        om_removal_note_range(log, OM_RULE_TRUNCATE, offset, segment->next_offset);
        om_segment_cut(segment, position, offset);
    }
    om_segment_seal(segment);
    return OM_OK;
}

void om_log_cut(om_log *log, int64_t offset, int32_t epoch) {
    if (offset < log->next_offset) {
        om_log_cut_hot(log, offset);
        cut_segment(log, offset);
        log->next_offset = offset;
        om_log_note_missing(log);
        if (log->cursor)
            om_cursor_truncate(log->cursor, offset);
        om_producers_cut(log, offset);
        om_log_lower_floors(log, offset);
        if (log->recovery_point > offset) {
            log->recovery_point = offset;
            om_segment *last = log->segment_count ? log->segments[log->segment_count - 1] : NULL;
            log->recovery_base = last ? last->base_offset : -1;
            log->recovery_position = last ? last->size : 0;
        }
    }
    if (epoch > log->leader_epoch)
        log->leader_epoch = epoch;
}

/* Cut the files to what memory says, once the checkpoint has forgotten the rest. */
static int cut_file(om_log *log) {
    om_store_enter(log->store);
    om_segment *last = log->segment_count ? log->segments[log->segment_count - 1] : NULL;
    if (last)
        om_segment_ref(last);
    om_store_leave(log->store);
    int result = last && last->exists ? om_segment_trim_file(last, last->size) : OM_OK;
    if (last)
        om_segment_unref(last);
    return result;
}

/* Only whole batches can be taken away: each has one checksum. */
static int check_border(om_log *log, int64_t offset) {
    om_store_enter(log->store);
    uint32_t hot = om_hot_find(&log->hot, offset), index = om_log_segment_for(log, offset);
    int cuts = hot < log->hot.count && om_hot_at(&log->hot, hot)->base_offset < offset;
    om_segment *segment = !cuts && index < log->segment_count ? log->segments[index] : NULL;
    if (segment)
        om_segment_ref(segment);
    om_store_leave(log->store);
    if (!segment)
        return cuts ? OM_E_INVALID : OM_OK;
    uint64_t position;
    om_batch_info info;
    int found = om_segment_find(segment, offset, &position, &info);
    om_segment_unref(segment);
    return found < 0 ? found : found == OM_OK && info.base_offset < offset ? OM_E_INVALID : OM_OK;
}

/* One at a time, under the checkpoint's lock. When it fails half-way the log stays frozen: what
 * was cut must not be appended over until its file is cut too. Calling again goes on with it. */
static int truncate_locked(om_log *log, int64_t offset) {
    om_store *store = log->store;
    om_store_enter(store);
    int result = log->deleted                                              ? OM_E_DELETED
                 : offset < log->start_offset || offset > log->next_offset ? OM_E_RANGE
                                                                           : OM_OK;
    if (result != OM_OK) {
        om_store_leave(store);
        return result;
    }
    log->frozen = 1;
    uint64_t before = om_store_leave(store);
    /* Everything goes to its segment first: then there is one place to cut. */
    result = om_log_uses_wal(log) ? om_store_wait(store, before, -1) : OM_OK;
    if (result == OM_OK)
        result = om_writer_flush(store);
    om_store_enter(store);
    if (result == OM_OK && !om_log_put_control(log, OM_REC_TRUNCATE, offset, log->leader_epoch + 1, 1))
        result = OM_E_FENCED;
    if (result == OM_OK) {
        om_log_cut(log, offset, log->leader_epoch + 1);
        om_log_touch(log);
    }
    om_store_leave(store);
    /* The checkpoint makes the record durable, then forgets what was cut; only then the file. */
    if (result == OM_OK)
        result = om_checkpoint_run_locked(store, 0);
    if (result == OM_OK)
        result = cut_file(log);
    om_store_enter(store);
    log->frozen = result != OM_OK;
    om_store_leave(store);
    return result;
}

int om_log_truncate(om_log *log, int64_t offset) {
    om_checkpoint_lock(log->store);
    int result = check_border(log, offset);
    if (result == OM_OK)
        result = truncate_locked(log, offset);
    om_checkpoint_unlock(log->store);
    return result;
}
