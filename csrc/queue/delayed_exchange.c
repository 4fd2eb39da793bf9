/* delayed_exchange.c -- messages of a delayed exchange: kept in a log until they are due.
 *
 * The log holds them in the order they came. A heap in memory knows when each is due; a restart builds it again from
 * the log. A message that is due leaves like a dead letter: its way on and its settling here are one record.
 */
#include "queue/delayed_exchange.h"
#include "net/engine_core.h"
#include "queue/queue.h"
#include "queue/queue_deadlines.h"
#include "store/log_offsets.h"

#include <stdlib.h>

#define SCAN_MAX 4096

/* Those of one millisecond in the order they came. */
static int is_before(om_due one, om_due other) {
    return one.at_ms != other.at_ms ? one.at_ms < other.at_ms : one.offset < other.offset;
}

static int push(om_queue *queue, om_due due) {
    if (queue->due_count == queue->due_cap) {
        uint32_t cap = queue->due_cap ? queue->due_cap * 2 : 64;
        om_due *dues = realloc(queue->dues, cap * sizeof *dues);
        if (!dues)
            return OM_E_NO_MEMORY;
        queue->dues = dues;
        queue->due_cap = cap;
    }
    uint32_t at = queue->due_count++;
    for (; at && is_before(due, queue->dues[(at - 1) / 2]); at = (at - 1) / 2)
        queue->dues[at] = queue->dues[(at - 1) / 2];
    queue->dues[at] = due;
    return OM_OK;
}

static om_due pop(om_queue *queue) {
    om_due first = queue->dues[0], last = queue->dues[--queue->due_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child >= queue->due_count)
            break;
        if (child + 1 < queue->due_count && is_before(queue->dues[child + 1], queue->dues[child]))
            child++;
        if (!is_before(queue->dues[child], last))
            break;
        queue->dues[at] = queue->dues[child];
        at = child;
    }
    if (queue->due_count)
        queue->dues[at] = last;
    return first;
}

static int64_t due_at(const om_content *content) {
    om_properties properties;
    int64_t delay;
    if (om_properties_parse(content->properties.data, (size_t)content->properties.len, &properties) != OM_OK ||
        om_delay_ms(&properties, &delay) != OM_OK || delay < 0)
        return content->timestamp;
    return __builtin_add_overflow(content->timestamp, delay, &delay) ? INT64_MAX : delay;
}

/* Adds the log's messages that the heap doesn't know yet. Returns 0 when it must come back. */
static int scan(om_queue *queue) {
    om_lane *lane = &queue->lanes[0];
    om_log *log = lane->log;
    const om_cursor *cursor = log->cursor;
    if (queue->due_scanned < cursor->floor)
        queue->due_scanned = cursor->floor;
    for (int looked = 0; queue->due_scanned < cursor->end; looked++) {
        int64_t offset = queue->due_scanned, skip_to = offset + 1;
        om_content content;
        if (looked == SCAN_MAX) {
            om_queue_activate(queue);
            return 0;
        }
        if (om_cursor_is_settled(cursor, offset)) {
            queue->due_scanned++;
            continue;
        }
        if (offset >= om_log_readable_end(log) || (!lane->reader && !(lane->reader = om_queue_reader_new()))) {
            om_queue_wait(queue);
            return 0;
        }
        int result = om_queue_reader_get(queue->engine, lane->reader, log, offset, &content, &skip_to);
        if (result == OM_E_NOT_RESIDENT || result == OM_END) {
            om_queue_wait(queue);
            return 0;
        }
        if (result == OM_OK && push(queue, (om_due){due_at(&content), offset}) != OM_OK)
            return 0;
        queue->due_scanned = result == OM_OK ? offset + 1 : skip_to;
    }
    return 1;
}

void om_delay_pump(om_queue *queue) {
    om_engine *engine = queue->engine;
    if (queue->lanes[0].log->deleted)
        return;
    scan(queue);
    while (queue->due_count && queue->dues[0].at_ms <= engine->wall_ms) {
        int64_t offset = pop(queue).offset;
        if (!om_cursor_is_settled(queue->lanes[0].log->cursor, offset)) /* purged */
            om_dead_letter_add(queue, 0, offset, 0, OM_DEAD_LETTER_DELAYED);
    }
    if (queue->dead_letter_count)
        om_dead_letter_pump(queue);
    if (queue->due_count)
        om_deadline_set(queue, engine->now_ms + (queue->dues[0].at_ms - engine->wall_ms));
    else
        om_deadline_clear(queue);
}
