/* log_time.c -- the first record that isn't older than a time: segments in order, then the hot tail.
 *
 * Promise: no record at or past the log's start is missed, though the writer moves batches from
 * the hot tail into segments meanwhile. What can't be read is passed over, as reads do.
 */
#include "store/log.h"

#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/hot.h"
#include "store/log_damage.h"
#include "store/log_offsets.h"
#include "store/log_segments.h"
#include "store/store.h"

typedef struct search {
    int64_t wanted; /* a timestamp */
    int64_t from;   /* offsets below have been looked at, or lie below the start */
    int64_t offset, timestamp;
} search;

/* The first record of a batch that isn't older; OM_END: it has none. */
static int search_batch(const uint8_t *data, size_t len, int64_t base_offset, search *search) {
    om_record_iter iter;
    om_record record;
    int result = om_record_iter_init(&iter, data, len);
    if (result == OM_E_COMPRESSED) {
        /* It isn't decompressed, and answers with its first offset. */
        search->offset = base_offset > search->from ? base_offset : search->from;
        search->timestamp = iter.batch.max_timestamp;
        return OM_OK;
    }
    while (result == OM_OK && (result = om_record_next(&iter, &record, NULL, 0)) == OM_OK) {
        int64_t offset = record.offset - iter.batch.base_offset + base_offset;
        if (record.timestamp < search->wanted || offset < search->from)
            continue;
        search->offset = offset;
        search->timestamp = record.timestamp;
        return OM_OK;
    }
    return result;
}

static int search_hot(om_log *log, search *search) {
    for (uint32_t i = om_hot_find(&log->hot, search->from); i < log->hot.count; i++) {
        const om_hot *hot = om_hot_at(&log->hot, i);
        if (hot->max_timestamp >= search->wanted &&
            search_batch(hot->bytes->data, hot->bytes->len, hot->base_offset, search) == OM_OK)
            return OM_OK;
    }
    return OM_END;
}

/* Batch by batch from `from` on. */
static int walk_segment(om_segment *segment, search *search) {
    uint64_t position;
    om_batch_info info;
    om_view view;
    int result = om_segment_find(segment, search->from, &position, &info);
    const om_bad *bad = result == OM_E_UNREADABLE ? om_segment_bad_for(segment, search->from) : NULL;
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
        if (info.max_timestamp >= search->wanted)
            result = search_batch(view.data + at, (size_t)info.size, info.base_offset, search);
    }
    if (om_sigbus_end(&view) != OM_OK)
        result = OM_E_UNREADABLE;
    om_view_release(&view);
    return result;
}

/* The index leads to the first of the whole segment; that may lie below what is asked for. */
static int search_good(om_segment *segment, search *search) {
    int result = om_segment_find_time(segment, search->wanted, &search->offset, &search->timestamp);
    return result == OM_OK && search->offset < search->from ? walk_segment(segment, search) : result;
}

static int search_segment(om_log *log, om_segment *segment, search *search) {
    uint32_t seen = om_segment_surveys(segment);
    int result = search_good(segment, search);
    if ((result == OM_E_CORRUPT || result == OM_E_UNREADABLE) &&
        om_log_survey(log, segment, OM_NO_SUSPECT, seen) == OM_SURVEYED)
        result = search_good(segment, search);
    return result;
}

/* The next segment that may hold it, held; NULL: none is left. *past: up to where it is looked
 * through then; what has its place there but isn't written yet is in the hot tail. */
static om_segment *segment_by_time(om_log *log, const search *search, int64_t *past) {
    int64_t hot_base = log->hot.count ? om_hot_at(&log->hot, 0)->base_offset : INT64_MAX;
    for (uint32_t i = om_log_segment_for(log, search->from); i < log->segment_count; i++) {
        om_segment *segment = log->segments[i];
        *past = segment->next_offset < hot_base ? segment->next_offset : hot_base;
        if (*past <= search->from || segment->base_offset >= hot_base)
            break;
        if (segment->max_timestamp < search->wanted)
            continue;
        om_segment_ref(segment);
        return segment;
    }
    return NULL;
}

int om_log_find_time(om_log *log, int64_t timestamp, int64_t *offset, int64_t *found_timestamp) {
    search search = {.wanted = timestamp};
    int result = OM_END;
    for (om_segment *segment = NULL;; om_segment_unref(segment)) {
        int64_t past;
        om_ticket_lock_take(&log->store->lock);
        if (search.from < log->start_offset)
            search.from = log->start_offset;
        segment = log->deleted ? NULL : segment_by_time(log, &search, &past);
        if (!segment)
            result = log->deleted ? OM_E_DELETED : search_hot(log, &search);
        om_ticket_lock_give(&log->store->lock);
        if (!segment)
            break;
        result = search_segment(log, segment, &search);
        if (result == OM_OK) {
            om_segment_unref(segment);
            break;
        }
        search.from = past;
    }
    if (result == OM_OK) {
        om_ticket_lock_take(&log->store->lock);
        if (search.offset >= om_log_readable_end(log))
            result = OM_END; /* it is there, but nobody may be shown it yet */
        om_ticket_lock_give(&log->store->lock);
    }
    *offset = search.offset;
    *found_timestamp = search.timestamp;
    return result;
}
