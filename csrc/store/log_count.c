/* log_count.c -- how many records a log holds, without reading it.
 *
 *   segment 0..99 | segment 100..149 | ... skipped ... | segment 65536.. | hot tail
 *
 * Offsets never repeat, so an unclean stop skips some, and a count by offsets would be wrong for
 * ever. Work queues have their cursor, which knows. A log without one begins a new segment behind
 * each gap (writer.c): inside a segment every offset is a record, and what is missing past the last
 * segment is counted when it comes about.
 */
#include "store/log_count.h"

#include "segment/segment.h"
#include "store/hot.h"
#include "store/log.h"

/* Up to here the segments know. */
static int64_t placed_end(const om_log *log) {
    int64_t end = log->start_offset;
    if (log->segment_count && log->segments[log->segment_count - 1]->next_offset > end)
        end = log->segments[log->segment_count - 1]->next_offset;
    return end;
}

void om_log_note_missing(om_log *log) {
    int64_t from = placed_end(log), held = 0;
    int64_t end = log->open ? log->open_base : log->next_offset;
    if (log->cursor)
        return;
    for (uint32_t i = om_hot_find(&log->hot, from); i < log->hot.count; i++) {
        const om_hot *hot = om_hot_at(&log->hot, i);
        held += hot->last_offset - (hot->base_offset > from ? hot->base_offset : from) + 1;
    }
    log->missing = end - from > held ? end - from - held : 0;
}

int64_t om_log_record_end(const om_log *log) {
    int64_t placed = placed_end(log);
    int64_t hot = log->hot.count ? om_hot_at(&log->hot, log->hot.count - 1)->last_offset + 1 : 0;
    return hot > placed ? hot : placed;
}

int64_t om_log_record_count(const om_log *log) {
    int64_t count = log->next_offset - placed_end(log) - log->missing;
    for (uint32_t i = 0; i < log->segment_count; i++) {
        const om_segment *segment = log->segments[i];
        int64_t first = segment->base_offset > log->start_offset ? segment->base_offset : log->start_offset;
        if (segment->next_offset > first)
            count += segment->next_offset - first - om_segment_lost_records(segment, first);
    }
    return count > 0 ? count : 0;
}
