/* log_segments.c -- a log's segments, in offset order; see log_segments.h. */
#include "store/log_segments.h"

#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/log.h"
#include "store/segment_delete.h"
#include "store/segment_node.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

om_segment *om_log_active(om_log *log) {
    if (!log->segment_count)
        return NULL;
    om_segment *last = log->segments[log->segment_count - 1];
    return last->sealed ? NULL : last;
}

int om_log_add_segment(om_log *log, om_segment *segment) {
    if (log->segment_count == log->segment_cap) {
        uint32_t cap = log->segment_cap ? log->segment_cap * 2 : 1;
        om_segment **segments = realloc(log->segments, cap * sizeof *segments);
        if (!segments)
            return OM_E_NO_MEMORY;
        log->segments = segments;
        log->segment_cap = cap;
    }
    log->segments[log->segment_count++] = segment;
    log->manifest_stale = 1;
    return OM_OK;
}

uint32_t om_log_segment_for(const om_log *log, int64_t offset) {
    uint32_t low = 0, high = log->segment_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (log->segments[mid]->next_offset <= offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void om_log_retire_segments(om_log *log, uint32_t from, uint32_t count, int at_once, int rule) {
    om_store *store = log->store;
    for (uint32_t i = from; i < from + count; i++) {
        om_segment_node *node = om_segment_node_new(log, log->segments[i]);
        om_segment_seal(log->segments[i]);
        if (!node) {
            om_segment_unref(log->segments[i]); /* its file is an orphan: removed at the next start */
            continue;
        }
        node->at_once = at_once;
        node->rule = (uint8_t)rule;
        om_segment_delete_add(store, node);
    }
    memmove(&log->segments[from], &log->segments[from + count],
            (log->segment_count - from - count) * sizeof *log->segments);
    log->segment_count -= count;
    log->manifest_stale = 1;
    /* The manifest is rewritten by the next checkpoint, which looks at touched logs only. */
    om_log_touch(log);
}

void om_log_limits(const om_log *log, om_segment_limits *out) {
    *out = (om_segment_limits){
        .segment_size = log->options.segment_size,
        .initial_size = 64 * 1024,
        .max_age_ms = log->options.segment_max_age_ms,
        .index_max = 1024 * 1024,
        .pre_allocate = log->options.pre_allocate,
        .write_back = log->options.flush_mode != OM_FLUSH_ASYNC && !(log->options.flags & OM_LOG_SCRATCH),
    };
}
