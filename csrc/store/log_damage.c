/* log_damage.c -- unreadable stretches of a log: found, reported once, skipped.
 *
 * Promise: what can't be read is reported once, counted as lost, and never as settled. A queue's consumers are
 * given what lies behind it; its offsets are given out to nobody, so the floor waits before them and the
 * segment stays until an operator acts (ottermq segment repair). After a restart they are tried again.
 */
#include "store/log_damage.h"

#include "base/ticket_lock.h"
#include "cursor/cursor.h"
#include "cursor/offset_set.h"
#include "segment/segment.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_cursor.h"
#include "store/log_segments.h"
#include "store/store.h"
#include "store/store_report.h"

static int knows(const om_damages *known, const om_bad *bad) {
    for (uint32_t i = 0; known && i < known->count; i++)
        if (known->items[i].position == bad->position && known->items[i].end == bad->end)
            return 1;
    return 0;
}

void om_log_tell_damage(om_log *log, const om_segment *segment, const om_damages *known, const om_survey *survey,
                        int kind) {
    for (uint32_t i = 0; i < survey->count; i++) {
        const om_bad *bad = &survey->items[i];
        if (!knows(known, bad))
            om_store_add_report(log->store, kind, log, bad->first, bad->last,
                                "records %lld to %lld of '%.64s' can't be read: bytes %llu to %llu of segment "
                                "%020lld.log are damaged; the rest serves, the file is kept",
                                (long long)bad->first, (long long)bad->last, log->name,
                                (unsigned long long)bad->position, (unsigned long long)bad->end - 1,
                                (long long)segment->base_offset);
    }
}

void om_log_written_part(const om_log *log, const om_segment *segment, uint64_t *end, int64_t *limit) {
    const om_hot *hot = log->hot.count ? om_hot_at(&log->hot, 0) : NULL;
    *end = __atomic_load_n(&segment->written, __ATOMIC_ACQUIRE);
    *limit = segment->next_offset;
    if (hot && hot->segment == segment && hot->position <= *end) {
        *end = hot->position;
        *limit = hot->base_offset;
    }
}

int om_log_survey(om_log *log, om_segment *segment, uint64_t suspect, uint32_t seen) {
    om_store *store = log->store;
    uint64_t end;
    int64_t limit;
    om_survey survey;
    pthread_mutex_lock(&store->survey_mutex);
    const om_damages *known = __atomic_load_n(&segment->damages, __ATOMIC_ACQUIRE);
    if (om_segment_surveys(segment) != seen) { /* another reader was faster, or this one has asked before */
        pthread_mutex_unlock(&store->survey_mutex);
        return OM_SURVEYED;
    }
    om_ticket_lock_take(&store->lock);
    om_log_written_part(log, segment, &end, &limit);
    log->damaged = 1; /* before anybody is refused something: it would be taken for a gap */
    int gone = log->deleted || __atomic_load_n(&segment->deleted, __ATOMIC_ACQUIRE);
    om_ticket_lock_give(&store->lock);
    int result = gone ? OM_E_DELETED : om_segment_survey(segment, end, limit, suspect, &survey);
    pthread_mutex_unlock(&store->survey_mutex);
    if (result != OM_OK)
        return result;
    om_log_tell_damage(log, segment, known, &survey, OM_REPORT_UNREADABLE);
    om_survey_free(&survey);
    return OM_SURVEYED;
}

const om_bad *om_log_bad_for(const om_log *log, int64_t offset) {
    uint32_t index = log->damaged ? om_log_segment_for(log, offset) : log->segment_count;
    return index < log->segment_count ? om_segment_bad_for(log->segments[index], offset) : NULL;
}

int64_t om_log_lose(om_log *log, int64_t first, int64_t last) {
    om_cursor *cursor = log->cursor;
    int64_t lost = 0;
    for (int64_t offset = first; offset <= last && offset < cursor->end; offset++) {
        int64_t weight = cursor->ready_bytes / (cursor->ready_count > 0 ? cursor->ready_count : 1);
        lost += om_log_acquire_one(log, offset, weight) == OM_OK;
    }
    log->lost += lost;
    return lost;
}

static int64_t ready_in(const om_cursor *cursor, int64_t first, int64_t last) {
    int64_t fresh = first > cursor->next ? first : cursor->next, sum = 0;
    if (fresh <= last)
        sum = last - fresh + 1 - (cursor->settled.len ? om_offset_set_count(&cursor->settled, fresh, last) : 0);
    if (cursor->returned_count)
        sum += om_offset_set_count(&cursor->returned, first, last);
    return sum;
}

int64_t om_log_lost_ahead(const om_log *log) {
    int64_t sum = 0;
    for (uint32_t i = 0; log->damaged && i < log->segment_count; i++) {
        const om_damages *damages = __atomic_load_n(&log->segments[i]->damages, __ATOMIC_ACQUIRE);
        for (uint32_t n = 0; damages && n < damages->count; n++) {
            int64_t last = damages->items[n].last < log->cursor->end ? damages->items[n].last : log->cursor->end - 1;
            if (damages->items[n].first <= last)
                sum += ready_in(log->cursor, damages->items[n].first, last);
        }
    }
    return sum;
}
