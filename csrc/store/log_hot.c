/* log_hot.c -- batches leave a log's hot tail: written, refused or cut off. */
#include "store/log_hot.h"

#include "base/buffer.h"
#include "cursor/cursor.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_count.h"
#include "store/log_cursor.h"
#include "store/producer.h"
#include "store/store.h"

void om_log_drop_hot(om_log *log, uint32_t count) {
    om_store *store = log->store;
    for (uint32_t i = 0; i < count; i++) {
        om_buffer *bytes = om_hot_at(&log->hot, i)->bytes;
        store->hot_bytes -= bytes->len;
        store->hot_batches--;
        om_buffer_unref(bytes);
    }
    om_hot_drop_head(&log->hot, count);
}

void om_log_refuse_after(om_log *log, uint64_t durable) {
    om_store *store = log->store;
    /* A lease that was refused must be asked for again: once the fence is lifted, later sequences
     * become durable and would speak for it. */
    if (log->leased && log->lease_seq > durable)
        log->lease_end = log->lease_durable;
    if (log->cursor)
        om_log_forget_floors(log, durable);
    uint32_t good = om_hot_durable(&log->hot, durable);
    uint32_t refused = log->hot.count - good;
    for (uint32_t i = good; i < log->hot.count; i++) {
        om_hot *hot = om_hot_at(&log->hot, i);
        if (log->cursor)
            om_cursor_skip(log->cursor, hot->base_offset, hot->last_offset);
        store->hot_bytes -= hot->bytes->len;
        store->hot_batches--;
        om_buffer_unref(hot->bytes);
    }
    if (refused) {
        om_producers_cut(log, om_hot_at(&log->hot, good)->base_offset);
        om_hot_drop_tail(&log->hot, refused);
        om_log_note_missing(log);
    }
}

void om_log_cut_hot(om_log *log, int64_t offset) {
    uint32_t keep = om_hot_find(&log->hot, offset);
    uint32_t drop = log->hot.count - keep;
    for (uint32_t i = keep; i < log->hot.count; i++) {
        om_hot *hot = om_hot_at(&log->hot, i);
        log->store->hot_bytes -= hot->bytes->len;
        log->store->hot_batches--;
        om_buffer_unref(hot->bytes);
    }
    if (drop)
        om_hot_drop_tail(&log->hot, drop);
}
