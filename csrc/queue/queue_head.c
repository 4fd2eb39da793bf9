/* queue_head.c -- the head of a queue: which message is next, and when it expires.
 *
 * The highest priority with a message goes first. Messages found to be expired leave as dead letters; gaps and
 * unreadable messages are skipped.
 */
#include "queue/queue_head.h"
#include "base/attributes.h"
#include "net/engine_core.h"
#include "queue/queue_deadlines.h"
#include "store/log_cursor.h"
#include "store/log_damage.h"
#include "store/log_offsets.h"
#include "store/producer.h"

#define EXPIRE_MAX 4096 /* messages found to be expired in one go, so that other queues get their turn */

/* A gap counts as settled, and so does a record that can't be parsed. What the disk has lost doesn't: it was reported,
 * and it must not block what comes behind it, but it is not done. */
static int pass_over(om_queue *queue, om_log *log, int64_t offset, int64_t skip_to) {
    int64_t last = skip_to > offset ? skip_to - 1 : offset;
    const om_bad *bad = om_log_bad_for(log, offset);
    if (bad)
        return om_log_lose(log, offset, bad->last) > 0 ? OM_OK : OM_E_NO_MEMORY;
    int64_t passed = om_log_settle_run(log, offset, last, -1);
    if (passed <= 0)
        return OM_E_NO_MEMORY;
    queue->dropped += passed;
    return OM_OK;
}

static int come_back(om_queue *queue, int result) {
    om_queue_wait(queue);
    return result;
}

OM_PER_MESSAGE
static int look_at_lane(om_queue *queue, int32_t index, int64_t as_of, int64_t *offset, om_content *content) {
    om_engine *engine = queue->engine;
    om_lane *lane = &queue->lanes[index];
    om_log *log = lane->log;
    for (int expired = 0;; expired++) {
        if (expired == EXPIRE_MAX) {
            om_queue_activate(queue);
            engine->retry = 1; /* a basic.get waits for what comes behind them */
            return OM_E_NOT_RESIDENT;
        }
        *offset = om_cursor_peek(log->cursor);
        if (*offset < 0)
            return OM_END;
        if (lane->refused && *offset >= lane->refused_from)
            return OM_END;
        if (*offset >= om_log_readable_end(log))
            return come_back(queue, OM_E_NOT_RESIDENT); /* its lease isn't durable yet */
        if (*offset >= om_log_stable_end(log))
            return come_back(queue, OM_END); /* a transaction is open there: it must not be seen yet */
        if (!lane->reader && !(lane->reader = om_queue_reader_new()))
            return come_back(queue, OM_E_NO_MEMORY);
        int64_t skip_to = *offset + 1;
        int result = om_queue_reader_get(engine, lane->reader, log, *offset, content, &skip_to);
        if (om_queue_reader_goes_on(result)) {
            result = pass_over(queue, log, *offset, skip_to);
            if (result == OM_OK)
                continue;
        }
        if (result != OM_OK)
            return come_back(queue, result == OM_END ? OM_E_NOT_RESIDENT : result);
        /* A returned message has been given to somebody: it has no more than its time. */
        int64_t deadline, now = *offset < log->cursor->next ? engine->wall_ms : as_of;
        if (!om_dead_letter_is_expired(queue, content, now, &deadline))
            return OM_OK;
        if (om_log_acquire_one(log, *offset, content->body.len) != OM_OK)
            return come_back(queue, OM_E_NO_MEMORY);
        queue->expired++;
        om_dead_letter_add(queue, index, *offset, (uint32_t)content->body.len, OM_DEATH_EXPIRED);
    }
}

int om_queue_head(om_queue *queue, int64_t as_of, int32_t *lane, int64_t *offset, om_content *content) {
    for (int32_t i = queue->lane_count; i-- > 0;) {
        om_log *log = queue->lanes[i].log;
        if (log->deleted)
            return OM_E_DELETED;
        if (!log->cursor->ready_count)
            continue;
        int result = look_at_lane(queue, i, as_of, offset, content);
        if (result == OM_END)
            continue;
        *lane = i;
        return result;
    }
    return OM_END;
}

/* ---- when it expires ---- */

/* When the head of a lane ends; INT64_MAX: never, or there is none. */
static int64_t head_deadline(om_queue *queue, int32_t index) {
    om_lane *lane = &queue->lanes[index];
    int64_t offset, now = queue->engine->wall_ms;
    om_content content;
    if (lane->log->deleted || !lane->log->cursor->ready_count)
        return INT64_MAX;
    if (lane->seen >= 0 && om_cursor_peek(lane->log->cursor) == lane->seen)
        return lane->seen_deadline;
    lane->seen = -1;
    if (look_at_lane(queue, index, now, &offset, &content) != OM_OK)
        return INT64_MAX;
    lane->seen = offset;
    om_dead_letter_is_expired(queue, &content, now, &lane->seen_deadline);
    return lane->seen_deadline;
}

/* With priorities each lane has a head, and each of them expires in its place. */
void om_queue_watch_heads(om_queue *queue) {
    om_engine *engine = queue->engine;
    int64_t soonest = INT64_MAX;
    for (int32_t i = 0; i < queue->lane_count; i++) {
        int64_t deadline = head_deadline(queue, i);
        soonest = deadline < soonest ? deadline : soonest;
    }
    if (soonest == INT64_MAX)
        om_deadline_clear(queue);
    else
        om_deadline_set(queue, engine->now_ms + (soonest - engine->wall_ms));
}
