/* channel.h -- a channel: its consumers, what they have not acked, which confirms its publisher waits for. */
#ifndef OM_CHANNEL_H
#define OM_CHANNEL_H

#include "amqp/confirm.h"
#include "amqp/publish.h"
#include "amqp/unacked.h"
#include "format/batch.h"
#include "queue/consumer.h"

typedef struct om_channel om_channel;

struct om_tx;

struct om_channel {
    om_subscriber subscriber; /* its consumers; has conn and number, too, as queues know nothing else of a channel */
    om_conn *conn;
    uint16_t number;
    uint8_t stage, confirms;
    uint8_t on_published, on_confirming;
    uint8_t parked;      /* a whole message waits for its route */
    uint8_t tick_logged; /* this tick's publishes wait for the disk */
    uint8_t overdue_told;

    om_publish_target target;
    om_props_cache props;
    uint64_t body_size, body_len;
    om_build assembly;  /* where a body comes together, or waits while parked (body_assembly.c) ... */
    size_t assembly_at; /* ... and where in it */

    uint64_t publish_tag; /* of the last publish in confirm mode */
    uint64_t good_tag;    /* of the last one that wasn't refused */
    uint64_t noted_tag;   /* up to here an entry in `pending` speaks for it */
    om_pending *pending;
    uint32_t pending_head, pending_count, pending_cap;

    om_unacked_ring unacked;
    om_consumer *reply_to; /* direct reply-to: its consumer, without a queue */
    uint64_t reply_secret;
    struct om_tx *tx;
    uint64_t tx_bytes; /* that its publishes hold until the commit */
    om_channel *next_published, *next_confirming;
};

static inline om_channel *om_channel_of(om_subscriber *subscriber) {
    return (om_channel *)subscriber;
}

int om_channel_new(om_conn *conn, int number);
om_channel *om_channel_find(const om_conn *conn, int number);
void om_channel_free(om_channel *channel);
void om_channel_drop_consumer(om_channel *channel, om_consumer *consumer);
void om_channel_let_go(om_channel *channel); /* consumers, unacked, half messages, tx */
/* Credit came back, or will in this tick: another consumer may take first with each call. */
void om_channel_wake_queues(om_channel *channel);
void om_channel_check_overdue(om_channel *channel); /* a delivery that was not acked in time: OM_EV_CONSUMER_TIMEOUT */

#endif
