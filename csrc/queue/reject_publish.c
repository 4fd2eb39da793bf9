/* reject_publish.c -- a full queue that refuses what comes: reject-publish, reject-publish-dlx.
 *
 * A publish by itself is nacked (publish.c). What comes with an atomic record -- in a transaction,
 * or as a dead letter -- is left out, as in RabbitMQ, and the record stands without it. A queue that
 * dead-letters what it refuses takes it in and hands it on at once: so its second death is told and
 * routed as any other.
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
        count += queue->dying_count - queue->dying_at;
        bytes += (int64_t)queue->dying_bytes;
    }
    bytes = soon_taken >= count ? 0 : bytes;
    count = soon_taken >= count ? 0 : count - soon_taken;
    return (options->max_length >= 0 && count >= options->max_length) ||
           (options->max_length_bytes >= 0 && bytes + more_bytes > options->max_length_bytes);
}

int om_reject_publish_dies(const om_queue *queue) {
    return (queue->options.flags & OM_QUEUE_REJECT_DLX) && queue->options.has_dlx;
}

static int add(om_refusals *refusals, om_refusal refusal) {
    if (refusals->count == refusals->cap) {
        uint32_t cap = refusals->cap ? refusals->cap * 2 : 8;
        om_refusal *list = realloc(refusals->list, cap * sizeof *list);
        if (!list)
            return OM_E_NO_MEMORY;
        refusals->list = list;
        refusals->cap = cap;
    }
    refusals->list[refusals->count++] = refusal;
    om_queue_ref(refusal.queue);
    return OM_OK;
}

int om_reject_publish_stage(om_atomic *atomic, om_refusals *refusals, om_queue *queue, int priority, om_span key,
                            om_span body, om_span tail) {
    int32_t lane = priority < queue->lane_count ? priority : queue->lane_count - 1;
    om_log *log = queue->lanes[lane].log;
    if (queue->removed || log->deleted)
        return OM_OK;
    int refused = om_reject_publish_refuses(queue, om_queue_credit(queue), body.len),
        dies = refused && om_reject_publish_dies(queue);
    om_refusal refusal = {
        .queue = queue, .place = dies ? log->atomic_count + 1 : 0, .weight = (uint32_t)body.len, .lane = (uint8_t)lane};
    int result = refused ? add(refusals, refusal) : OM_OK;
    if (result != OM_OK || (refused && !dies))
        return result;
    return om_atomic_stage_content(atomic, log, queue->engine->wall_ms, key, body, tail);
}

void om_refusals_seal(om_refusals *refusals) {
    for (uint32_t i = 0; i < refusals->count; i++) {
        om_refusal *refusal = &refusals->list[i];
        if (refusal->place)
            refusal->place = refusal->queue->lanes[refusal->lane].log->atomic_count - refusal->place + 1;
    }
}

void om_refusals_end(om_refusals *refusals, int committed) {
    for (uint32_t i = 0; i < refusals->count; i++) {
        const om_refusal *refusal = &refusals->list[i];
        om_queue *queue = refusal->queue;
        queue->published -= committed;
        if (committed && refusal->place && !queue->removed)
            om_dead_letter_add_refused(queue, refusal->lane,
                                       queue->lanes[refusal->lane].log->next_offset - refusal->place, refusal->weight);
        om_queue_unref(queue);
    }
    refusals->count = 0;
}
