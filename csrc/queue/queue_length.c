/* queue_length.c -- how long a queue is, and drop-head when it is over its limit.
 *
 * A message counts from when it is published, even while its batch is open. (Queues that reject publishes instead:
 * reject_publish.c.)
 */
#include "queue/queue_length.h"
#include "net/engine_core.h"
#include "queue/queue_head.h"
#include "store/fanout.h"
#include "store/log_cursor.h"
#include "store/log_damage.h"
#include "store/producer.h"

#define TRIM_MAX 1024 /* messages in one go, so that other queues get their turn */

int64_t om_queue_length(const om_queue *queue) {
    int64_t length = 0;
    for (int32_t i = 0; i < queue->lane_count; i++) {
        const om_log *log = queue->lanes[i].log;
        if (log->cursor)
            length += log->cursor->ready_count + (log->open ? log->open->count : 0) +
                      (log->fanout ? log->fanout->build.count : 0);
    }
    return length;
}

int64_t om_queue_ready(const om_queue *queue) {
    int64_t hidden = 0;
    for (int32_t i = 0; i < queue->lane_count; i++) {
        const om_log *log = queue->lanes[i].log;
        if (log->cursor && log->producers)
            hidden += log->producers->hidden;
        if (log->cursor && log->damaged)
            hidden += om_log_lost_ahead(log);
    }
    int64_t length = om_queue_length(queue);
    return length > hidden ? length - hidden : 0;
}

int64_t om_queue_ready_bytes(const om_queue *queue) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < queue->lane_count; i++) {
        const om_log *log = queue->lanes[i].log;
        if (log->cursor)
            bytes +=
                log->cursor->ready_bytes + (log->open ? log->open_weight : 0) + (log->fanout ? log->fanout->weight : 0);
    }
    return bytes;
}

/* ---- limits ---- */

static int is_over(const om_queue *queue) {
    const om_queue_options *options = &queue->options;
    return (options->max_length >= 0 && om_queue_length(queue) > options->max_length) ||
           (options->max_length_bytes >= 0 && om_queue_ready_bytes(queue) > options->max_length_bytes);
}

void om_queue_trim_length(om_queue *queue) {
    if (queue->options.flags & (OM_QUEUE_REJECT_PUBLISH | OM_QUEUE_REJECT_DLX))
        return;
    for (int dropped = 0; is_over(queue); dropped++) {
        int32_t lane;
        int64_t offset;
        om_content content;
        if (dropped == TRIM_MAX) {
            om_queue_activate(queue);
            return;
        }
        if (om_log_admit_settle(queue->lanes[0].log) != OM_OK) {
            om_queue_wait(queue);
            return;
        }
        if (om_queue_head(queue, queue->engine->wall_ms, &lane, &offset, &content) != OM_OK ||
            om_log_acquire_one(queue->lanes[lane].log, offset, content.body.len) != OM_OK)
            return;
        om_dead_letter_add(queue, lane, offset, (uint32_t)content.body.len, OM_DEATH_MAXLEN);
    }
}
