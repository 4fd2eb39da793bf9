/* channel.h -- a channel: its consumers, what they have not acked, which confirms its publisher waits for. */
#ifndef OM_CHANNEL_H
#define OM_CHANNEL_H

#include "format/content.h"
#include "format/batch.h"
#include "queue/consumer.h"

typedef struct om_channel om_channel;

/* ---- unacked deliveries (unacked.c): tag -> (queue, offset) ------------------------------- */

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

/* ---- confirms (confirm.c) ------------------------------------------------------------------ */

typedef struct om_pending {
    uint64_t seq;   /* when this is durable ... */
    uint64_t tag;   /* ... all up to this tag are confirmed */
    uint8_t *frame; /* or this (tx.commit-ok) is sent; owned */
    uint32_t frame_len;
} om_pending;

void om_confirm_published(om_channel *channel, int logged); /* one publish done */
void om_confirm_nack(om_channel *channel);                  /* the last publish was refused */
void om_confirm_note(om_engine *engine, uint64_t seq);      /* end of the tick */
void om_confirm_send(om_engine *engine);                    /* the disk has news */
int om_confirm_push(om_channel *channel, uint64_t seq, uint64_t tag, uint8_t *frame, uint32_t len);
void om_confirm_clear(om_channel *channel);

/* ---- channels (channel.c) ------------------------------------------------------------------ */

enum om_content_stage { OM_STAGE_IDLE = 0, OM_STAGE_HEADER = 1, OM_STAGE_BODY = 2 };

/* Where the last publish went: the same method bytes go there again. */
typedef struct om_publish_target {
    uint8_t *method; /* the arguments of basic.publish, as they came */
    uint32_t method_len, method_cap;
    om_span exchange, key; /* in there */
    uint8_t bits;          /* 1 mandatory, 2 immediate */
    om_route *route;       /* held; NULL: not known yet */
    uint64_t permissions;  /* the generation it was allowed under */
    uint32_t salt;
    uint8_t allowed, by_event;
} om_publish_target;

/* The last property part, and what follows from it. */
typedef struct om_props_cache {
    uint8_t *data; /* the property part */
    uint32_t len, cap;
    uint8_t *tail; /* the record headers, made with `exchange` */
    uint32_t tail_len, tail_cap;
    uint8_t exchange_len;
    uint8_t exchange[255];
    uint8_t known, persistent, priority, by_event, direct_reply, user_ok;
    int64_t delay_ms; /* x-delay; -1: none */
} om_props_cache;

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

    om_publish_target address;
    om_props_cache stamp;
    uint64_t body_size, body_len;
    om_build landing;  /* where a body comes together, or waits while parked (body_assembly.c) ... */
    size_t landing_at; /* ... and where in it */

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
/* Credit came back, or will in this tick: whose consumers may take first changes from one call to the next. */
void om_channel_wake_queues(om_channel *channel);
void om_channel_check_overdue(om_channel *channel); /* a delivery that was not acked in time: OM_EV_CONSUMER_TIMEOUT */

#endif
