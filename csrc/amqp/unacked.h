/* unacked.h -- the unsettled deliveries of a channel: tag -> (queue, offset). */
#ifndef OM_UNACKED_H
#define OM_UNACKED_H

#include "queue/consumer.h"

typedef struct om_channel om_channel;

typedef struct om_unacked {
    om_queue *queue;       /* held; NULL: settled, or a hole */
    om_consumer *consumer; /* held; NULL: by basic.get */
    uint64_t tag;
    int64_t offset;
    uint32_t weight;
    uint32_t since_s; /* of the engine's clock, cut to seconds */
    uint8_t lane;
    uint8_t in_tx; /* acked in a transaction that isn't committed */
} om_unacked;

/* By their tags, which count from 1. Settled ones are holes until they reach the head, or there are
 * too many of them. */
typedef struct om_unacked_ring {
    om_unacked *slots;
    uint32_t head, count, cap;
    uint32_t live; /* entries with a queue */
    uint64_t next_tag;
    uint64_t looked_at; /* where the search for overdue ones goes on: a tag */
} om_unacked_ring;

om_unacked *om_unacked_push(om_unacked_ring *ring);               /* zeroed but for its tag; NULL: no memory */
uint64_t om_unacked_skip(om_unacked_ring *ring);                  /* a tag that needs no ack */
om_unacked *om_unacked_at(om_unacked_ring *ring, uint64_t tag);   /* NULL: not there */
om_unacked *om_unacked_from(om_unacked_ring *ring, uint64_t tag); /* the first with that tag or a later one */
int64_t om_unacked_timeout(const om_unacked *entry);              /* ms that it may stay so; below 0: for ever */
/* One that was kept for longer than its queue or consumer allows; `shortest`: that any of them does. A long
 * ring takes more than one call. */
const om_unacked *om_unacked_overdue(om_unacked_ring *ring, int64_t now_ms, int64_t shortest);
void om_unacked_done(om_channel *channel, om_unacked *entry); /* lets go of what it holds; others may move */

#endif
