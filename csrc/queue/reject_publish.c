/* reject_publish.c -- a full queue rejects new messages: reject-publish, reject-publish-dlx.
 *
 * A publish by itself is nacked (publish.c). In an atomic record -- a transaction's or of dead letters -- the
 * rejected message is left out, as in RabbitMQ, and the rest of the record stands. A queue that dead-letters what it
 * rejects takes the message in and dead-letters it at once, so that this death is recorded and routed like any other.
 */
#include "queue/reject_publish.h"
#include "net/engine_core.h"
#include "queue/queue_length.h"
#include "queue/queue_pump.h"
#include "store/atomic.h"

#include <stdlib.h>

int om_reject_publish_refuses(const om_queue *queue, int64_t soon_taken, int64_t more_bytes) {
    const om_queue_options *options = &queue->options;
    if (!(options->flags & (OM_QUEUE_REJECT_PUBLISH | OM_QUEUE_REJECT_DLX)))
        return 0;
    int64_t count = om_queue_length(queue), bytes = om_queue_ready_bytes(queue);
    for (int32_t i = 0; i < queue->lane_count; i++) { /* the record under way brings these */
        count += queue->lanes[i].log->atomic_count;
        bytes += queue->lanes[i].log->atomic_bytes;
    }
    if (options->flags & OM_QUEUE_AT_LEAST_ONCE) { /* dead letters that have no place to go to are here, too */
        count += queue->dead_letter_count - queue->dead_letter_at;
        bytes += (int64_t)queue->dead_letter_bytes;
    }
    bytes = soon_taken >= count ? 0 : bytes;
    count = soon_taken >= count ? 0 : count - soon_taken;
    return (options->max_length >= 0 && count >= options->max_length) ||
           (options->max_length_bytes >= 0 && bytes + more_bytes > options->max_length_bytes);
}

int om_reject_publish_dead_letters(const om_queue *queue) {
    return (queue->options.flags & OM_QUEUE_REJECT_DLX) && queue->options.has_dlx;
}

static int add(om_rejected_list *rejects, om_rejected rejected) {
    if (rejects->count == rejects->cap) {
        uint32_t cap = rejects->cap ? rejects->cap * 2 : 8;
        om_rejected *items = realloc(rejects->items, cap * sizeof *items);
        if (!items)
            return OM_E_NO_MEMORY;
        rejects->items = items;
        rejects->cap = cap;
    }
    rejects->items[rejects->count++] = rejected;
    om_queue_ref(rejected.queue);
    return OM_OK;
}

int om_reject_publish_stage(om_atomic *atomic, om_rejected_list *rejects, om_queue *queue, int priority, om_span key,
                            om_span body, om_span tail) {
    int32_t lane = priority < queue->lane_count ? priority : queue->lane_count - 1;
    om_log *log = queue->lanes[lane].log;
    if (queue->removed || log->deleted)
        return OM_OK;
    int refused = om_reject_publish_refuses(queue, om_queue_credit(queue), body.len),
        dies = refused && om_reject_publish_dead_letters(queue);
    om_rejected rejected = {
        .queue = queue, .place = dies ? log->atomic_count + 1 : 0, .weight = (uint32_t)body.len, .lane = (uint8_t)lane};
    int result = refused ? add(rejects, rejected) : OM_OK;
    if (result != OM_OK || (refused && !dies))
        return result;
    return om_atomic_stage_content(atomic, log, queue->engine->wall_ms, key, body, tail);
}

void om_reject_publish_seal(om_rejected_list *rejects) {
    for (uint32_t i = 0; i < rejects->count; i++) {
        om_rejected *rejected = &rejects->items[i];
        if (rejected->place)
            rejected->place = rejected->queue->lanes[rejected->lane].log->atomic_count - rejected->place + 1;
    }
}

void om_reject_publish_end(om_rejected_list *rejects, int committed) {
    for (uint32_t i = 0; i < rejects->count; i++) {
        const om_rejected *rejected = &rejects->items[i];
        om_queue *queue = rejected->queue;
        queue->published -= committed;
        if (committed && rejected->place && !queue->removed)
            om_dead_letter_add_refused(queue, rejected->lane,
                                       queue->lanes[rejected->lane].log->next_offset - rejected->place,
                                       rejected->weight);
        om_queue_unref(queue);
    }
    rejects->count = 0;
}
