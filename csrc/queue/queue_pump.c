/* queue_pump.c -- gives a queue's messages to its consumers until it is empty or no consumer can take more.
 *
 * A queue is pumped when something may have changed for it: messages came, credit came back, a socket drained, the
 * disk caught up. Consumers take turns; those of a higher priority go first.
 */
#include "queue/queue_pump.h"
#include "base/attributes.h"
#include "net/engine_core.h"
#include "queue/queue_deadlines.h"
#include "queue/queue_head.h"
#include "queue/queue_length.h"
#include "queue/stream.h"
#include "store/log_append.h"
#include "store/log_cursor.h"
#include "store/log_offsets.h"

#define PUMP_MAX 2048 /* messages a queue gives in one go, so that other queues get their turn */

/* ---- the next consumer ---- */

static om_consumer *next_consumer(om_queue *queue) {
    if (queue->options.flags & OM_QUEUE_SINGLE_ACTIVE) {
        if (om_consumer_hand_over(queue) != OM_OK)
            return NULL;
        return queue->active && om_consumer_can_take(queue->active) ? queue->active : NULL;
    }
    for (uint32_t i = 0; i < queue->consumer_count; i++)
        if (om_consumer_can_take(queue->consumers[i]))
            return queue->consumers[i];
    return NULL;
}

/* A served consumer goes behind its equals. */
static void rotate(om_queue *queue, om_consumer *served) {
    uint32_t i = 0;
    if (queue->consumer_count < 2)
        return;
    while (queue->consumers[i] != served)
        i++;
    for (; i + 1 < queue->consumer_count && queue->consumers[i + 1]->priority == served->priority; i++)
        queue->consumers[i] = queue->consumers[i + 1];
    queue->consumers[i] = served;
}

/* ---- giving out ---- */

int om_queue_can_settle(om_queue *queue) {
    if (om_log_admit_settle(queue->lanes[0].log) != OM_E_FULL)
        return 1;
    om_queue_wait(queue);
    return 0;
}

OM_PER_MESSAGE
static void give_out(om_queue *queue) {
    for (int given = 0; given < PUMP_MAX; given++) {
        om_consumer *consumer = next_consumer(queue);
        if (!consumer || (given % 64 == 0 && !om_queue_can_settle(queue)))
            return;
        int32_t lane;
        int64_t offset;
        om_content content;
        /* A message with a TTL of 0 is still given to a consumer that waits for it. */
        if (om_queue_head(queue, queue->engine->wall_ms - 1, &lane, &offset, &content) != OM_OK)
            return;
        int result = consumer->subscriber->ops->deliver(consumer, lane, &content);
        if (result == OM_E_UNREADABLE) { /* a page of it couldn't be had, this very moment */
            om_queue_reader_doubt(queue->lanes[lane].reader, queue->lanes[lane].log);
            om_queue_wait(queue);
            return;
        }
        if (result == OM_DELIVERY_TOO_LONG)
            continue;
        if (result != OM_OK) {
            om_conn_break(consumer->subscriber->conn, "out of memory");
            continue;
        }
        rotate(queue, consumer);
    }
    om_queue_activate(queue);
}

/* Waiting consumers get messages before the limit is applied, as in RabbitMQ, where each message is offered to
 * consumers as it comes: a tick's worth of messages must not be dropped from a short queue that consumers empty. */
void om_queue_keep_short(om_queue *queue) {
    if (queue->consumer_count)
        give_out(queue);
    if (!next_consumer(queue))
        om_queue_trim_length(queue);
}

int64_t om_queue_credit(const om_queue *queue) {
    int64_t sum = 0;
    if (queue->options.flags & OM_QUEUE_SINGLE_ACTIVE)
        return queue->active ? om_consumer_credit(queue->active) : 0;
    for (uint32_t i = 0; i < queue->consumer_count; i++) {
        int64_t more = om_consumer_credit(queue->consumers[i]);
        sum = more > INT64_MAX - sum ? INT64_MAX : sum + more;
    }
    return sum;
}

/* Does the head wait for its lease, as a new queue's does? A moment later it can be had. */
static int is_soon_to_be_had(const om_queue *queue) {
    for (int32_t i = 0; i < queue->lane_count; i++) {
        const om_log *log = queue->lanes[i].log;
        int64_t offset = om_cursor_peek(log->cursor);
        if (offset >= 0 && offset >= om_log_readable_end(log))
            return 1;
    }
    return 0;
}

int64_t om_queue_hand_on(om_queue *queue) {
    if (!queue->consumer_count || !next_consumer(queue))
        return 0;
    for (int32_t i = 0; i < queue->lane_count; i++)
        om_log_seal(queue->lanes[i].log);
    give_out(queue);
    return next_consumer(queue) && is_soon_to_be_had(queue) ? om_queue_credit(queue) : 0;
}

/* Dead letters that are committed behind this round are on their way here. */
static int is_expecting(const om_queue *queue) {
    for (int32_t i = 0; i < queue->lane_count; i++)
        if (queue->lanes[i].log->atomic_count)
            return 1;
    return 0;
}

void om_queue_pump(om_queue *queue) {
    if (queue->removed)
        return;
    if (is_expecting(queue))
        om_queue_activate(queue); /* its turn in this round was waiting when they were sent */
    if (om_queue_is_stream(queue)) {
        om_stream_pump(queue);
        return;
    }
    if (queue->options.flags & OM_QUEUE_DELAY) {
        om_delay_pump(queue);
        return;
    }
    if (queue->dead_letter_count)
        om_dead_letter_pump(queue);
    om_queue_keep_short(queue);
    if (om_queue_length(queue) == 0) {
        om_queue_rest(queue);
        om_deadline_clear(queue);
    } else {
        om_queue_watch_heads(queue);
    }
    if (queue->dead_letter_count)
        om_dead_letter_pump(queue);
}
