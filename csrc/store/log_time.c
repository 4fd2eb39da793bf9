/* log_time.c -- the first record that isn't older than a time: segments in order, then the hot tail.
 *
 * Promise: no record at or past the log's start is missed, though the writer moves batches from
 * the hot tail into segments meanwhile. What can't be read is passed over, as reads do.
 */
#include "base/ticket_lock.h"

#include "segment/segment.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_damage.h"
#include "store/log_offsets.h"
#include "store/log_segments.h"
#include "store/store.h"

typedef struct moment {
    int64_t wanted; /* a timestamp */
    int64_t from;   /* offsets below have been looked at, or lie below the start */
    int64_t offset, timestamp;
} moment;

/* The first record of a batch that isn't older; OM_END: it has none. */
static int search_batch(const uint8_t *data, size_t len, int64_t base_offset, moment *moment) {
    om_record_iter iter;
    om_record record;
    int result = om_record_iter_init(&iter, data, len);
    if (result == OM_E_COMPRESSED) {
        /* It isn't opened, and answers with its first offset. */
        moment->offset = base_offset > moment->from ? base_offset : moment->from;
        moment->timestamp = iter.batch.max_timestamp;
        return OM_OK;
    }
    while (result == OM_OK && (result = om_record_next(&iter, &record, NULL, 0)) == OM_OK) {
        int64_t offset = record.offset - iter.batch.base_offset + base_offset;
        if (record.timestamp < moment->wanted || offset < moment->from)
            continue;
        moment->offset = offset;
        moment->timestamp = record.timestamp;
        return OM_OK;
    }
    return result;
}

static int search_hot(om_log *log, moment *moment) {
    for (uint32_t i = om_hot_find(&log->hot, moment->from); i < log->hot.count; i++) {
        const om_hot *hot = om_hot_at(&log->hot, i);
        if (hot->max_timestamp >= moment->wanted &&
            search_batch(hot->bytes->data, hot->bytes->len, hot->base_offset, moment) == OM_OK)
            return OM_OK;
    }
    return OM_END;
}

/* Batch by batch from `from` on. */
static int walk_segment(om_segment *segment, moment *moment) {
    uint64_t position;
    om_batch_info info;
    om_view view;
    int result = om_segment_find(segment, moment->from, &position, &info);
    const om_bad *bad = result == OM_E_UNREADABLE ? om_segment_bad_for(segment, moment->from) : NULL;
    if (bad) {
        position = bad->end;
        result = OM_OK;
    }
    if (result == OM_OK)
        result = om_view_open(segment, position, SIZE_MAX, &view);
    if (result != OM_OK)
        return result;
    result = OM_END;
    om_sigbus_begin(&view);
    for (size_t at = 0; result == OM_END && at < view.len; at += (size_t)info.size) {
        while ((bad = om_segment_bad_at(segment, position + at)))
            at = (size_t)(bad->end - position);
        if (at >= view.len || om_batch_peek(view.data + at, view.len - at, &info) != OM_OK)
            break;
        if (info.max_timestamp >= moment->wanted)
            result = search_batch(view.data + at, (size_t)info.size, info.base_offset, moment);
    }
    if (om_sigbus_end(&view) != OM_OK)
        result = OM_E_UNREADABLE;
    om_view_release(&view);
    return result;
}

/* The index leads to the first of the whole segment; that may lie below what is asked for. */
static int search_good(om_segment *segment, moment *moment) {
    int result = om_segment_find_time(segment, moment->wanted, &moment->offset, &moment->timestamp);
    return result == OM_OK && moment->offset < moment->from ? walk_segment(segment, moment) : result;
}

static int search_segment(om_log *log, om_segment *segment, moment *moment) {
    int result = search_good(segment, moment);
    if ((result == OM_E_CORRUPT || result == OM_E_UNREADABLE) &&
        om_log_survey(log, segment, OM_NO_SUSPECT) == OM_SURVEYED)
        result = search_good(segment, moment);
    return result;
}

/* The next segment that may hold it, held; NULL: none is left. *past: up to where it is looked
 * through then; what has its place there but isn't written yet is in the hot tail. */
static om_segment *segment_by_time(om_log *log, const moment *moment, int64_t *past) {
    int64_t hot_base = log->hot.count ? om_hot_at(&log->hot, 0)->base_offset : INT64_MAX;
    for (uint32_t i = om_log_segment_for(log, moment->from); i < log->segment_count; i++) {
        om_segment *segment = log->segments[i];
        *past = segment->next_offset < hot_base ? segment->next_offset : hot_base;
        if (*past <= moment->from || segment->base_offset >= hot_base)
            break;
        if (segment->max_timestamp < moment->wanted)
            continue;
        om_segment_ref(segment);
        return segment;
    }
    return NULL;
}

int om_log_find_time(om_log *log, int64_t timestamp, int64_t *offset, int64_t *found_timestamp) {
    moment moment = {.wanted = timestamp};
    int result = OM_END;
    for (om_segment *segment = NULL;; om_segment_unref(segment)) {
        int64_t past;
        om_ticket_lock_take(&log->store->turn);
        if (moment.from < log->start_offset)
            moment.from = log->start_offset;
        segment = log->deleted ? NULL : segment_by_time(log, &moment, &past);
        if (!segment)
            result = log->deleted ? OM_E_DELETED : search_hot(log, &moment);
        om_ticket_lock_give(&log->store->turn);
        if (!segment)
            break;
        result = search_segment(log, segment, &moment);
        if (result == OM_OK) {
            om_segment_unref(segment);
            break;
        }
        moment.from = past;
    }
    if (result == OM_OK) {
        om_ticket_lock_take(&log->store->turn);
        if (moment.offset >= om_log_readable_end(log))
            result = OM_END; /* it is there, but nobody may be shown it yet */
        om_ticket_lock_give(&log->store->turn);
    }
    *offset = moment.offset;
    *found_timestamp = moment.timestamp;
    return result;
}
