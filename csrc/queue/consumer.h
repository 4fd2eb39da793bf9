/* consumer.h -- a queue's consumers, and how a message gets to them.
 *
 *   om_queue -> om_consumer -> om_subscriber (a channel begins with it) -> om_delivery_ops of its protocol
 *
 * A queue decides who gets which message; the protocol sends it. Whether a consumer can take one more is
 * known here, without asking the protocol.
 */
#ifndef OM_CONSUMER_H
#define OM_CONSUMER_H

#include "format/content.h"
#include "net/conn.h"
#include "queue/queue.h"

typedef struct om_subscriber om_subscriber;

/* Beside om_result: a message's properties don't fit into this client's frames. */
#define OM_DELIVERY_TOO_LONG 65

/* Both are called once per message. OM_DELIVERY_TOO_LONG: that was dealt with; OM_E_UNREADABLE: a page of it
 * couldn't be read; else below 0: no memory. Then nothing was sent. */
typedef struct om_delivery_ops {
    /* The head of a queue's lane: acquired or, without acks, settled. */
    int (*deliver)(om_consumer *consumer, int32_t lane, const om_content *content);
    /* Of a stream: it stays there. One that the consumer's filter doesn't want is OM_OK. */
    int (*deliver_copy)(om_consumer *consumer, const om_content *content);
} om_delivery_ops;

/* The common part of a channel's consumers: the connection and a limit. */
struct om_subscriber {
    om_conn *conn;
    const om_delivery_ops *ops;
    uint16_t number;  /* of the channel */
    uint8_t closing;  /* nothing is delivered any more */
    uint32_t limit;   /* unacked deliveries of all of them (basic.qos global); 0: any number */
    uint32_t unacked; /* of those that count towards it */
    om_consumer *consumers;
    uint32_t consumer_count;
};

struct om_consumer {
    om_queue *queue;           /* held; NULL: direct reply-to */
    om_subscriber *subscriber; /* NULL once cancelled */
    uint32_t refs;             /* its queue's list, its subscriber's, unacked entries */
    uint32_t flags, prefetch, unacked;
    int32_t priority;
    uint8_t tag_len;
    uint8_t *tag;
    int64_t timeout_ms; /* 0: the queue's */
    om_consumer *next;  /* of the subscriber */
    /* streams */
    int64_t offset; /* the next one to give */
    om_queue_reader *reader;
    uint8_t *filter; /* each behind its length */
    uint32_t filter_len;
    uint8_t match_unfiltered;
};

/* As om_consumer_add. */
int om_consumer_start(om_subscriber *subscriber, const om_consume *consume, const uint8_t *ok, size_t len);
/* Without a queue: what it gets is sent to it directly. */
int om_consumer_start_unqueued(om_subscriber *subscriber, om_span tag, om_consumer **out);
om_consumer *om_consumer_find(om_subscriber *subscriber, om_span tag);
void om_consumer_unref(om_consumer *consumer);
/* Off its queue and its subscriber; unacked ones stay with the channel. */
void om_consumer_drop(om_consumer *consumer);
int om_consumer_can_take(const om_consumer *consumer);
int64_t om_consumer_credit(const om_consumer *consumer); /* how many more it may be given; INT64_MAX: any number */
/* Quorum: to a higher priority, once nothing is in flight; OM_E_FULL: until then no consumer gets anything. */
int om_consumer_hand_over(om_queue *queue);

#endif
