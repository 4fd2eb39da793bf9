/* ack.c -- acks, rejections, returns.
 *
 * Consumers ack in the order of delivery, so neighbours are settled as one run: one step of the cursor and one record
 * in the WAL for any number of messages.
 */
#include "amqp/ack.h"
#include "amqp/amqp_conn.h"
#include "amqp/tx.h"
#include "base/bytes.h"
#include "net/engine_core.h"
#include "store/log_cursor.h"

typedef struct run {
    om_queue *queue;
    int64_t first, last, bytes;
    uint8_t lane;
} run;

static void end_run(run *run) {
    om_queue *queue = run->queue;
    if (!queue)
        return;
    om_log_settle_run(queue->lanes[run->lane].log, run->first, run->last, run->bytes);
    queue->acked += run->last - run->first + 1;
    om_queue_activate(queue);
    run->queue = NULL;
}

static void settle(run *run, const om_unacked *entry) {
    if (run->queue == entry->queue && run->lane == entry->lane && run->last + 1 == entry->offset) {
        run->last++;
        run->bytes += entry->weight;
        return;
    }
    end_run(run);
    *run = (struct run){entry->queue, entry->offset, entry->offset, entry->weight, entry->lane};
}

static int is_there(const om_queue *queue, int lane) {
    return !queue->removed && !queue->lanes[lane].log->deleted;
}

void om_ack_return(om_channel *channel, om_unacked *entry, int counted) {
    om_queue *queue = entry->queue;
    if (is_there(queue, entry->lane) && !om_queue_is_stream(queue)) {
        om_log *log = queue->lanes[entry->lane].log;
        int32_t acquired, delivered = 0;
        om_cursor_counts(log->cursor, entry->offset, &acquired, &delivered);
        /* A return that isn't counted still meets a limit that was lowered meanwhile. */
        if (queue->options.delivery_limit >= 0 && delivered + (counted != 0) > queue->options.delivery_limit)
            om_dead_letter_add(queue, entry->lane, entry->offset, entry->weight, OM_DEATH_DELIVERY_LIMIT);
        else
            om_log_return_one(log, entry->offset, entry->weight, counted);
        queue->lanes[entry->lane].seen = -1;
    }
    om_queue_activate(queue); /* a stream's reader has its credit back, too */
    om_unacked_done(channel, entry);
}

void om_ack_return_all(om_channel *channel) {
    om_unacked_ring *ring = &channel->unacked;
    om_unacked *entry;
    while ((entry = om_unacked_from(ring, 0)))
        om_ack_return(channel, entry, 1);
}

/* A delivery that a transaction has settled is no longer the client's to return: the commit decides. */
void om_basic_recover(om_channel *channel) {
    om_unacked_ring *ring = &channel->unacked;
    om_unacked *entry = om_unacked_from(ring, 0);
    while (entry) {
        uint64_t next = entry->tag + 1;
        if (!entry->in_tx)
            om_ack_return(channel, entry, 0);
        entry = om_unacked_from(ring, next);
    }
}

static void reject(om_unacked *entry) {
    om_queue *queue = entry->queue;
    if (is_there(queue, entry->lane))
        om_dead_letter_add(queue, entry->lane, entry->offset, entry->weight, OM_DEATH_REJECTED);
}

static void settle_entry(om_channel *channel, om_unacked *entry, enum om_fate fate, run *run) {
    om_queue *queue = entry->queue;
    if (channel->tx) {
        om_tx_settle(channel, entry, fate);
        return;
    }
    if (fate == OM_RETURNED || fate == OM_FAILED) {
        om_ack_return(channel, entry, fate == OM_FAILED);
        return;
    }
    if (om_queue_is_stream(queue)) {
        om_queue_activate(queue);
    } else if (fate == OM_REJECTED) {
        reject(entry);
    } else if (is_there(queue, entry->lane)) {
        settle(run, entry);
    }
    channel->conn->acked++;
    channel->conn->engine->stat.acked++;
    om_unacked_done(channel, entry);
}

/* As RabbitMQ has it, a multiple ack must name one that waits, too; what a transaction has settled
 * doesn't any more. */
static int is_known(om_unacked_ring *ring, uint64_t tag) {
    const om_unacked *entry = om_unacked_at(ring, tag);
    return entry && !entry->in_tx;
}

/* Under a multiple ack with requeue the order stays: each goes back to its own place. */
static enum om_verdict settle_tags(om_channel *channel, uint32_t method, uint64_t tag, int multiple,
                                   enum om_fate fate) {
    om_unacked_ring *ring = &channel->unacked;
    run run = {0};
    if (om_wal_admit(channel->conn->engine->store->wal, OM_WAL_SETTLE) == OM_E_FULL)
        return OM_STALL;
    if (multiple && tag == 0)
        tag = ring->next_tag - 1;
    else if (!is_known(ring, tag))
        return om_amqp_error(channel->conn, channel->number, 406, method,
                             "PRECONDITION_FAILED - unknown delivery tag %llu", (unsigned long long)tag);
    if (channel->subscriber.limit)
        om_channel_wake_queues(channel); /* before its own queue is, else that would have all of the limit */
    om_unacked *entry = om_unacked_from(ring, multiple ? 0 : tag);
    while (entry && entry->tag <= tag) {
        uint64_t next = entry->tag + 1;
        if (!entry->in_tx)
            settle_entry(channel, entry, fate, &run);
        entry = om_unacked_from(ring, next);
    }
    end_run(&run);
    return OM_GO_ON;
}

enum om_verdict om_basic_ack(om_channel *channel, const uint8_t *args, size_t len) {
    if (len != 9)
        return om_frame_undecodable(channel->conn, OM_BASIC_ACK, args, len);
    return settle_tags(channel, OM_BASIC_ACK, om_get_be64(args), args[8] & 1, OM_ACKED);
}

enum om_verdict om_basic_nack(om_channel *channel, const uint8_t *args, size_t len) {
    if (len != 9)
        return om_frame_undecodable(channel->conn, OM_BASIC_NACK, args, len);
    enum om_fate back = channel->conn->engine->options.nacks_count ? OM_FAILED : OM_RETURNED;
    return settle_tags(channel, OM_BASIC_NACK, om_get_be64(args), args[8] & 1, args[8] & 2 ? back : OM_REJECTED);
}

enum om_verdict om_basic_reject(om_channel *channel, const uint8_t *args, size_t len) {
    if (len != 9)
        return om_frame_undecodable(channel->conn, OM_BASIC_REJECT, args, len);
    return settle_tags(channel, OM_BASIC_REJECT, om_get_be64(args), 0, args[8] & 1 ? OM_FAILED : OM_REJECTED);
}
