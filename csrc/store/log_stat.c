/* log_stat.c -- a log's figures: offsets, sizes, segments. */
#include "store/log.h"

#include "base/ticket_lock.h"
#include "cursor/cursor.h"
#include "segment/index.h"
#include "segment/segment.h"
#include "store/hot.h"
#include "store/log_offsets.h"
#include "store/producer.h"
#include "store/store.h"

#include <string.h>

void om_log_stat_get(om_log *log, om_log_stat *out) {
    om_store_enter(log->store);
    memset(out, 0, sizeof *out);
    out->id = log->id;
    out->start_offset = log->start_offset;
    out->next_offset = log->next_offset;
    out->high_watermark = om_log_high_watermark(log);
    out->readable_end = om_log_readable_end(log);
    out->last_stable = om_log_last_stable(log);
    out->oldest_open = log->producers && log->producers->oldest ? log->producers->oldest->id : -1;
    out->written_offset = om_log_written_offset(log);
    out->recovery_point = log->recovery_point;
    out->lease_end = log->lease_end;
    out->segments = log->segment_count;
    out->hot_batches = log->hot.count;
    out->leader_epoch = log->leader_epoch;
    out->segment_size = log->options.segment_size;
    out->memory = (int64_t)(sizeof *log + strlen(log->folder) + strlen(log->name) + 2 + log->hot.cap * sizeof(om_hot) +
                            log->op_cap * sizeof(om_cursor_op) + log->segment_cap * sizeof(om_segment *) +
                            log->segment_count * sizeof(om_segment));
    out->memory += om_producers_memory(log);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        om_segment *segment = log->segments[i];
        out->size_bytes += __atomic_load_n(&segment->written, __ATOMIC_ACQUIRE);
        out->memory += segment->index.offset_cap * OM_OFFSET_ENTRY + segment->index.time_cap * OM_TIME_ENTRY;
    }
    for (uint32_t i = 0; i < log->hot.count; i++) {
        uint32_t len = om_hot_at(&log->hot, i)->bytes->len;
        out->size_bytes += len;
        out->memory += len;
    }
    if (log->cursor) {
        om_cursor_stat cursor;
        om_cursor_stat_get(log->cursor, &cursor);
        out->memory += cursor.memory;
    }
    om_store_leave(log->store);
}

int64_t om_log_segments(om_log *log, om_segment_stat *out, int64_t cap) {
    om_store_enter(log->store);
    int64_t count = log->segment_count;
    for (int64_t i = 0; i < count && i < cap; i++) {
        const om_segment *segment = log->segments[i];
        out[i] = (om_segment_stat){
            .base_offset = segment->base_offset,
            .next_offset = segment->next_offset,
            .size = segment->size,
            .first_timestamp = segment->first_timestamp,
            .max_timestamp = segment->max_timestamp,
            .sealed = segment->sealed,
            .fenced = segment->fenced || om_segment_is_damaged(segment),
        };
    }
    om_store_leave(log->store);
    return count;
}

void om_store_used(om_store *store, om_log *const *logs, uint8_t *used, size_t count) {
    om_ticket_lock_take(&store->lock);
    for (size_t i = 0; i < count; i++)
        used[i] = logs[i]->segment_count > 0 || (logs[i]->cursor && logs[i]->cursor->floor > 0);
    om_ticket_lock_give(&store->lock);
}
