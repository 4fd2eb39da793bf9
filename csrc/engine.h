/* engine.h -- the data plane's inside: connections, channels, routes, queues, consumers.
 *
 *   socket -> frame.c -> publish.c -> route.c -> log (batch.c, log.c, wal.c)
 *                     -> settle.c (acks)           |
 *   socket <- output.c <- deliver.c <- feed.c <----+        confirm.c <- committer
 *
 * A tick (engine.c): drain the ready sockets, seal the batches they made, pump the queues that
 * have something to give, log the cursors' changes, note which confirms wait for which sequence,
 * flush. All of it under the store's lock (om_turn), as are Python's calls (engine_api.c), which
 * end with the same steps: begin (om_engine_enter), do, end (om_engine_leave).
 *
 * Nothing here blocks: what isn't in memory is asked for (reader.c), what doesn't fit stands still
 * (a connection stalls, its client is slowed by TCP), what C can't decide is an event.
 */
#ifndef OM_ENGINE_H
#define OM_ENGINE_H

#include "content.h"
#include "crowd.h"
#include "socket.h"
#include "store.h"

#include <string.h>

typedef struct om_conn om_conn;
typedef struct om_channel om_channel;
typedef struct om_queue om_queue;
typedef struct om_consumer om_consumer;
typedef struct om_route om_route;
typedef struct om_exchange om_exchange;
typedef struct om_kafka_conn om_kafka_conn;

/* ---- output: what waits to be sent (output.c) ----------------------------------------- */

enum om_piece_kind { OM_PIECE_OWN, OM_PIECE_BYTES, OM_PIECE_FILE };

/* A segment's file, open while somebody may send from it. Counted under the lock. */
typedef struct om_backing {
    uint32_t refs;
    om_segment *segment;     /* held */
    int fd;
} om_backing;

/* A piece of output: bytes of its own, a part of a batch in memory, or a part of a segment. */
typedef struct om_piece {
    struct om_piece *next;
    uint32_t kind;
    uint32_t cap;            /* own */
    uint64_t sent, len;
    union {
        struct { om_bytes *bytes; const uint8_t *data; } ref;
        struct { om_backing *backing; uint64_t position; } file;
    } from;
    uint8_t own[];
} om_piece;

/* Small chunks that were sent, for whoever has something to say next: shared by all connections. */
typedef struct om_spares {
    om_piece *first;
    uint32_t count;
} om_spares;

typedef struct om_output {
    om_piece *head, *tail;
    uint64_t bytes;
    uint32_t files;          /* pieces that are parts of a segment */
    om_spares *spares;
} om_output;

#define OM_OUTPUT_LIMIT (1u << 20)   /* a consumer whose connection has more waiting gets nothing new */
#define OM_OUTPUT_CLOGGED (4 * OM_OUTPUT_LIMIT) /* ... and what asks for an answer is not taken */

/* Room for len bytes in one piece, to be filled at once; NULL: no memory. */
uint8_t *om_output_put(om_output *output, size_t len);
/* The last `len` bytes put were not needed. */
void om_output_unput(om_output *output, size_t len);
int om_output_bytes(om_output *output, om_bytes *bytes, const uint8_t *data, size_t len);
int om_output_file(om_output *output, om_backing *backing, uint64_t position, size_t len);
om_backing *om_backing_open(om_segment *segment); /* NULL: it can't be had now */
void om_backing_unref(om_backing *backing);
/* OM_OK: all gone; OM_E_FULL: the socket takes no more now; OM_E_IO: it is broken. */
int om_output_flush(om_output *output, int fd, uint64_t *sent);
/* The bytes taken; OM_E_IO: a segment's part can't be read. */
int64_t om_output_drain(om_output *output, uint8_t *out, size_t cap);
void om_output_clear(om_output *output);
void om_spares_clear(om_spares *spares);

/* ---- queues (queue.c) ------------------------------------------------------------------- */

/* Where a queue's reader stands: a batch in memory or a stretch of a mapped segment (feed.c). */
typedef struct om_feed {
    om_content_iter iter;
    om_bytes *bytes;         /* hot: held */
    om_bytes *opened;        /* the batch at hand, opened: held; NULL: it wasn't compressed */
    om_read read;            /* mapped: held while pins isn't NULL */
    om_backing *backing;     /* ... its file, once a large message was sent from it */
    size_t read_at;          /* ... the batch under iter starts here */
    int64_t next;            /* the offset iter gives next, if it has one; -1: no batch */
    int64_t last;            /* the batch's last offset */
    uint32_t batch_size;
    uint64_t batch_position; /* mapped: of the batch in its segment's file */
} om_feed;

typedef struct om_lane {     /* one priority: a log and the place in it */
    om_log *log;
    om_feed *feed;           /* NULL while nobody reads */
    int64_t seen;            /* the head that was looked at last; -1: look again */
    int64_t seen_deadline;   /* ... and when it expires */
    uint32_t refused;        /* so many in it were refused and leave again (reject-publish-dlx): ... */
    int64_t refused_from;    /* ... from here on, none is given out until they are gone */
} om_lane;

/* When a delayed message is due (delay.c). */
typedef struct om_due {
    int64_t at_ms;           /* wall clock */
    int64_t offset;
} om_due;

/* A message that is to leave its queue another way than to a consumer (dead.c). */
typedef struct om_dying {
    int64_t offset;
    uint32_t weight;
    uint8_t lane;
    uint8_t reason;          /* enum om_death_reason, or OM_DYING_DELAYED */
    uint8_t refused;         /* it was never anybody's: see om_lane */
} om_dying;
#define OM_DYING_DELAYED 255

struct om_queue {
    om_engine *engine;
    uint64_t id;
    uint32_t vhost;
    uint32_t refs;           /* the tables', routes, unacked entries, consumers */
    uint8_t removed;
    uint8_t on_active, on_waiting;
    uint8_t asked_route;     /* an OM_EV_DEAD_ROUTE is under way for this exchange and key: */
    uint8_t asked_exchange_len, asked_key_len, asked_lane;
    int64_t asked_offset;    /* for this message */
    uint8_t *asked;          /* both, one behind the other; NULL before the first question */
    uint8_t *name;
    uint8_t name_len;
    uint8_t *dlx, *dlrk;     /* owned copies behind options */
    om_queue_options options;

    om_lane *lanes;          /* by priority */
    int32_t lane_count;
    om_consumer **consumers; /* highest priority first; who was served goes behind its equals */
    uint32_t consumer_count, consumer_cap;
    om_consumer *active;     /* single active consumer */
    om_consumer *exclusive;

    om_dying *dying;         /* waits for a route or for room */
    uint32_t dying_count, dying_cap, dying_at;
    uint64_t dying_bytes;
    uint32_t put_off;        /* at-least-once: so many found no place to go to, one after the other, */
    int64_t held_until;      /* and none of them is tried again before this */
    om_route *dead_route;    /* held: Python's answer for the first of them */
    om_due *dues;            /* a heap: delayed messages, soonest first */
    uint32_t due_count, due_cap;
    int64_t due_scanned;     /* below this offset they are all in it, or settled */

    int64_t timer_at;        /* ms; INT64_MAX: none */
    uint32_t timer_index;    /* in the engine's heap; 0: not there */

    int64_t published, delivered, acked, redelivered, expired, dead_lettered, dropped;
    int64_t touched_ms;      /* last sign of interest */
    om_queue *next_active, *next_waiting;
    om_queue *next_by_id, *next_by_name;
};

void om_queue_ref(om_queue *queue);
void om_queue_unref(om_queue *queue);
om_queue *om_queue_find(om_engine *engine, uint64_t id);
om_queue *om_queue_named(om_engine *engine, uint32_t vhost, const uint8_t *name, size_t len);
void om_queue_activate(om_queue *queue);         /* has or may have something to do this tick */
void om_queue_wait(om_queue *queue);             /* look again when the disk has news */
void om_queues_wake(om_engine *engine);          /* all that wait */
int om_queue_is_stream(const om_queue *queue);
int64_t om_queue_length(const om_queue *queue);  /* records, those of the open batches and transactions included */
int64_t om_queue_ready(const om_queue *queue);   /* without those of open transactions */
int64_t om_queue_ready_bytes(const om_queue *queue);
void om_queue_free_feeds(om_queue *queue);
void om_queue_look_again(om_queue *queue);       /* at its heads: they or their time may have changed */
void om_queue_rest(om_queue *queue);             /* empty: lets go of batches, keeps its readers */

/* ---- consumers (consumer.c) --------------------------------------------------------------- */

struct om_consumer {
    om_queue *queue;         /* held */
    om_channel *channel;     /* NULL once cancelled */
    uint32_t refs;           /* its queue's list, its channel's, unacked entries */
    uint32_t flags, prefetch, unacked;
    int32_t priority;
    uint8_t tag_len;
    uint8_t *tag;
    int64_t timeout_ms;      /* 0: the queue's */
    om_consumer *next;       /* in the channel */
    /* streams */
    int64_t offset;          /* the next one to give */
    om_feed *feed;
    uint8_t *filter;         /* each behind its length */
    uint32_t filter_len;
    uint8_t match_unfiltered;
};

void om_consumer_unref(om_consumer *consumer);
/* Off its queue and its channel; unacked ones stay with the channel. */
void om_consumer_drop(om_consumer *consumer);
int om_consumer_can_take(const om_consumer *consumer);
/* Quorum: to a higher priority, once nothing is in flight; OM_E_FULL: until then nobody gets anything. */
int om_consumer_hand_over(om_queue *queue);

/* ---- unacked deliveries (unacked.c): tag -> (queue, offset) ------------------------------- */

typedef struct om_unacked {
    om_queue *queue;         /* held; NULL: settled, or a hole */
    om_consumer *consumer;   /* held; NULL: by basic.get */
    uint64_t tag;
    int64_t offset;
    uint32_t weight;
    uint32_t since_s;        /* of the engine's clock, cut to seconds */
    uint8_t lane;
    uint8_t in_tx;           /* acked in a transaction that isn't committed */
} om_unacked;

/* By their tags, which count from 1. Settled ones are holes until they reach the head, or there are
 * too many of them. */
typedef struct om_unacked_ring {
    om_unacked *slots;
    uint32_t head, count, cap;
    uint32_t live;           /* entries with a queue */
    uint32_t consumed;       /* of those, what a consumer was given, and not basic.get: counts towards a limit */
    uint64_t next_tag;
    uint64_t looked_at;      /* where the search for overdue ones goes on: a tag */
} om_unacked_ring;

om_unacked *om_unacked_push(om_unacked_ring *ring); /* zeroed but for its tag; NULL: no memory */
uint64_t om_unacked_skip(om_unacked_ring *ring); /* a tag that needs no ack */
om_unacked *om_unacked_at(om_unacked_ring *ring, uint64_t tag); /* NULL: not there */
om_unacked *om_unacked_from(om_unacked_ring *ring, uint64_t tag); /* the first with that tag or a later one */
int64_t om_unacked_timeout(const om_unacked *entry); /* ms that it may stay so; below 0: for ever */
/* One that was kept for longer than its queue or consumer allows; `shortest`: that any of them does. A long
 * ring takes more than one call. */
const om_unacked *om_unacked_overdue(om_unacked_ring *ring, int64_t now_ms, int64_t shortest);
void om_unacked_done(om_unacked_ring *ring, om_unacked *entry); /* lets go of what it holds; others may move */

/* ---- confirms (confirm.c) ------------------------------------------------------------------ */

typedef struct om_pending {
    uint64_t seq;            /* when this is durable ... */
    uint64_t tag;            /* ... all up to this tag are confirmed */
    uint8_t *frame;          /* or this (tx.commit-ok) is sent; owned */
    uint32_t frame_len;
} om_pending;

/* ---- channels (channel.c) ------------------------------------------------------------------ */

enum om_channel_state { OM_CH_OPEN = 1, OM_CH_CLOSING = 2 };
enum om_content_stage { OM_STAGE_IDLE = 0, OM_STAGE_HEADER = 1, OM_STAGE_BODY = 2 };

/* Where the last publish went: the same method bytes go there again. */
typedef struct om_address {
    uint8_t *method;         /* the arguments of basic.publish, as they came */
    uint32_t method_len, method_cap;
    om_span exchange, key;   /* in there */
    uint8_t bits;            /* 1 mandatory, 2 immediate */
    om_route *route;         /* held; NULL: not known yet */
    uint64_t permissions;    /* the generation it was allowed under */
    uint32_t salt;
    uint8_t allowed, by_event;
} om_address;

/* The last property part, and what follows from it. */
typedef struct om_stamp {
    uint8_t *data;           /* the property part */
    uint32_t len, cap;
    uint8_t *tail;           /* the record headers, made with `exchange` */
    uint32_t tail_len, tail_cap;
    uint8_t exchange_len;
    uint8_t exchange[255];
    uint8_t known, persistent, priority, by_event, direct_reply, user_ok;
    int64_t delay_ms;        /* x-delay; -1: none */
} om_stamp;

struct om_tx;

struct om_channel {
    om_conn *conn;
    uint16_t number;
    uint8_t state, stage, confirms;
    uint8_t on_published, on_confirming;
    uint8_t parked;          /* a whole message waits for its route */
    uint8_t tick_logged;     /* this tick's publishes wait for the disk */
    uint8_t overdue_told;

    om_address address;
    om_stamp stamp;
    uint64_t body_size, body_len;
    om_build landing;        /* where a body comes together, or waits while parked (landing.c) ... */
    size_t landing_at;       /* ... and where in it */

    uint64_t publish_tag;    /* of the last publish in confirm mode */
    uint64_t good_tag;       /* of the last one that wasn't refused */
    uint64_t noted_tag;      /* up to here an entry in `pending` speaks for it */
    om_pending *pending;
    uint32_t pending_head, pending_count, pending_cap;

    om_unacked_ring unacked;
    uint32_t limit;          /* basic.qos global; 0: none */
    om_consumer *consumers;
    om_consumer *reply_to;   /* direct reply-to: its consumer, without a queue */
    uint64_t reply_secret;
    struct om_tx *tx;
    uint64_t tx_bytes;       /* that its publishes hold until the commit */
    om_channel *next_published, *next_confirming;
};

om_channel *om_channel_find(om_conn *conn, int number);
void om_channel_free(om_channel *channel);
void om_channel_let_go(om_channel *channel);     /* consumers, unacked, half messages, tx */
/* Credit came back, or will in this tick: whose consumers may take first changes from one call to the next. */
void om_channel_wake_queues(om_channel *channel);

/* ---- connections (conn.c) ------------------------------------------------------------------- */

enum om_conn_state {
    OM_CONN_GREETING = 1,    /* waits for the protocol header */
    OM_CONN_HANDSHAKE = 2,
    OM_CONN_OPEN = 3,
    OM_CONN_CLOSING = 4,     /* close was sent: all but close and close-ok is dropped */
    OM_CONN_FLUSHING = 5,    /* nothing is read any more; ends when its output is out */
    OM_CONN_PARTING = 6,     /* our last word is out; what still comes is read and dropped */
};

/* Exchanges this connection may write to. */
typedef struct om_allowed {
    uint8_t len;
    uint8_t by_event;
    uint32_t salt;
    uint64_t permissions;
    uint8_t name[255];
} om_allowed;

#define OM_ALLOWED_MAX 64

struct om_conn {
    om_engine *engine;
    uint64_t id;
    int fd;                  /* -1: without a socket */
    int door;
    uint8_t state, paused, stalled, reading, writing, flushed, blocked, told_output, wants_room, throttled, clogged;
    uint8_t broken;          /* to be closed at the end of the tick */
    uint8_t has_last_word;   /* something was said with the close: see part() in conn.c */
    const char *why;         /* ... and how it came to that */
    uint32_t flags, vhost;
    char peer[64];
    uint8_t user_len;
    char user[256];
    uint32_t frame_max, channel_max;
    uint32_t heartbeat_ms;
    int64_t last_in, last_out; /* ms */
    int64_t opened_ms;

    uint8_t *in;             /* what isn't cut into frames yet */
    uint32_t in_len, in_cap;
    om_output out;
    om_channel **channels;
    uint32_t channel_cap, channel_count;
    om_allowed *allowed;
    uint32_t allowed_count, allowed_next;
    uint64_t *gets;          /* queues it may basic.get from */
    uint32_t gets_count;
    uint64_t gets_permissions;
    uint64_t get_queue;      /* a basic.get that waits for the disk; 0: none */
    uint16_t get_channel;
    uint8_t get_no_ack;

    uint64_t received_bytes, sent_bytes, published, delivered, acked;
    om_conn *next_dirty, *next_stalled;
    uint8_t on_dirty, on_stalled;
    om_kafka_conn *kafka;    /* NULL: it speaks AMQP */
};

om_conn *om_conn_find(om_engine *engine, uint64_t id);
void om_conn_dirty(om_conn *conn);               /* has output to be flushed this tick */
uint8_t *om_conn_put(om_conn *conn, size_t len); /* om_output_put, and dirty; breaks the connection when out of memory */
void om_conn_put_bytes(om_conn *conn, const void *data, size_t len);
void om_conn_break(om_conn *conn, const char *why); /* closed without a word at the end of the tick */
void om_conn_bury(om_conn *conn);                /* that end: OM_EV_CLOSED, and it is gone */
void om_conn_drop_contents(om_conn *conn);
void om_conn_read(om_conn *conn);
void om_conn_heard(om_conn *conn, size_t len);   /* it has brought that much */
void om_conn_continue(om_conn *conn);            /* frames that are there already */
void om_conn_flush(om_conn *conn);
void om_conn_watch(om_conn *conn);               /* epoll: as paused, stalled and output say */
void om_conn_free(om_conn *conn);
om_conn *om_conn_new(om_engine *engine, int fd, int door, const char *peer);
void om_conn_stall(om_conn *conn);
void om_conn_take(om_conn *conn, const uint8_t *data, size_t len); /* bytes that didn't come by a socket */
void om_conn_drained(om_conn *conn, uint64_t len);                 /* ... and that left without one */
void om_conn_check_time(om_conn *conn, int64_t now_ms);

/* ---- frames (frame.c) ------------------------------------------------------------------------ */

#define OM_FRAME_METHOD 1
#define OM_FRAME_HEADER 2
#define OM_FRAME_BODY 3
#define OM_FRAME_HEARTBEAT 8
#define OM_FRAME_END 0xCE
#define OM_FRAME_OVERHEAD 8
#define OM_FRAME_MIN 4096
#define OM_FRAME_STRANGER 8192       /* before tune-ok; as RabbitMQ 4.x */
#define OM_CONTENT_HEADER_MIN 14     /* class, weight, size, property flags */

/* What became of a frame. */
enum om_verdict {
    OM_GO_ON = 0,
    OM_PAUSE = 1,            /* taken; nothing more until Python resumes */
    OM_STALL = 2,            /* not taken: the same frame again later */
};
/* Cut and act on as many frames as there are; returns the bytes used. */
size_t om_frames(om_conn *conn, const uint8_t *data, size_t len);

/* What is wrong with a frame (frame_error.c): why, or NULL; on a channel it has no business on; with
 * arguments that are none. */
enum om_verdict om_frame_error(om_conn *conn, int type, const uint8_t *payload, size_t len, const char *why);
enum om_verdict om_frame_unexpected(om_conn *conn, int type, const uint8_t *payload, size_t len);
enum om_verdict om_frame_undecodable(om_conn *conn, uint32_t method, const uint8_t *args, size_t len);

enum om_method_id {          /* class << 16 | method */
    OM_CONNECTION_CLOSE = 10 << 16 | 50,
    OM_CONNECTION_CLOSE_OK = 10 << 16 | 51,
    OM_CONNECTION_BLOCKED = 10 << 16 | 60,
    OM_CONNECTION_UNBLOCKED = 10 << 16 | 61,
    OM_CHANNEL_OPEN = 20 << 16 | 10,
    OM_CHANNEL_CLOSE = 20 << 16 | 40,
    OM_CHANNEL_CLOSE_OK = 20 << 16 | 41,
    OM_BASIC_PUBLISH = 60 << 16 | 40,
    OM_BASIC_RETURN = 60 << 16 | 50,
    OM_BASIC_DELIVER = 60 << 16 | 60,
    OM_BASIC_GET = 60 << 16 | 70,
    OM_BASIC_GET_OK = 60 << 16 | 71,
    OM_BASIC_GET_EMPTY = 60 << 16 | 72,
    OM_BASIC_ACK = 60 << 16 | 80,
    OM_BASIC_REJECT = 60 << 16 | 90,
    OM_BASIC_NACK = 60 << 16 | 120,
};

/* ---- publishing (publish.c) -------------------------------------------------------------------- */

enum om_verdict om_publish_method(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_publish_header(om_channel *channel, const uint8_t *payload, size_t len);
enum om_verdict om_publish_body(om_channel *channel, const uint8_t *payload, size_t len);
/* The parked message goes to this route (held by the caller). */
void om_publish_parked(om_channel *channel, om_route *route);
void om_publish_reset(om_channel *channel);
/* BCC is for the broker only: what is stored or told doesn't have it. May use engine->rewrite. */
int om_publish_without_bcc(om_engine *engine, om_properties *properties);
void om_publish_return(om_channel *channel, om_span exchange, om_span key, om_span properties, om_span body);

/* ---- bodies that come in pieces (landing.c) ---------------------------------------------------- */

int om_landing_put(om_channel *channel, om_span part); /* the next piece of the body; OM_E_NO_MEMORY */
om_span om_landing_body(const om_channel *channel);    /* all of it, once it is there */
int om_landing_holds(const om_channel *channel, om_span body); /* is it that? */
int om_landing_can_stay(const om_channel *channel, om_span body); /* ... and may a log take it over as it is? */
uint64_t om_landing_weight(const om_channel *channel);
void om_landing_drop(om_channel *channel);

/* ---- full queues that refuse (overflow.c) ----------------------------------------------------- */

/* What a record under way doesn't bring to its queue, or brings only to be dead-lettered. */
typedef struct om_refusal {
    om_queue *queue;         /* held */
    int64_t place;           /* which of the record's messages in that log it is, from 1; once sealed,
                              * from the end. 0: it isn't in there */
    uint32_t weight;
    uint8_t lane;
} om_refusal;

typedef struct om_refusals {
    om_refusal *list;
    uint32_t count, cap;
} om_refusals;

/* soon_taken: of those in it, what consumers have as good as taken (om_queue_hand_on). */
int om_overflow_refuses(const om_queue *queue, int64_t soon_taken, int64_t more_bytes);
int om_overflow_dies(const om_queue *queue);     /* and dead-letters what it refuses */
/* Into that record, unless the queue is gone or refuses it. */
int om_overflow_stage(om_atomic *atomic, om_refusals *refusals, om_queue *queue, int priority, om_span key, om_span body,
                      om_span tail);
void om_refusals_seal(om_refusals *refusals);    /* just before the commit ... */
void om_refusals_end(om_refusals *refusals, int committed); /* ... and right after it */

/* ---- routes (route.c) ------------------------------------------------------------------------ */

struct om_exchange {
    uint32_t vhost;
    uint32_t refs;
    uint64_t generation;
    uint8_t name_len;
    om_exchange *next;
    uint8_t name[];
};

struct om_route {
    om_engine *engine;
    om_exchange *exchange;   /* held; NULL: made for one message */
    uint64_t generation;
    uint32_t refs;
    uint32_t salt;
    uint32_t flags;          /* OM_ROUTE_* */
    int32_t count;
    uint32_t hash;
    uint8_t key_len;
    uint8_t *key;
    om_route *next;          /* in its bucket */
    om_route *newer, *older; /* by use */
    om_queue *queues[];      /* held */
};

int om_route_is_fresh(const om_route *route);
om_route *om_route_find(om_engine *engine, uint32_t vhost, uint32_t salt, om_span exchange, om_span key);
/* A route of these queues (those that are gone are left out); cached when the flags say so. */
om_route *om_route_make(om_engine *engine, uint32_t vhost, uint32_t salt, om_span exchange, om_span key,
                        const uint64_t *queues, int32_t count, uint32_t flags);
void om_route_unref(om_route *route);
void om_routes_clear(om_engine *engine);
void om_routes_sweep(om_engine *engine);         /* some of them, a sweep */

/* ---- delivering (deliver.c, feed.c) ------------------------------------------------------------ */

om_feed *om_feed_new(void);
void om_feed_free(om_feed *feed);
void om_feed_rest(om_feed *feed);                /* lets go of the batch at hand */
/* The message at that offset. OM_OK; OM_END: not there yet; OM_E_NOT_RESIDENT: asked for;
 * OM_E_UNREADABLE or OM_E_RANGE: `skip_to` tells where reading may go on. Valid until the next call. */
int om_feed_get(om_engine *engine, om_feed *feed, om_log *log, int64_t offset, om_content *out, int64_t *skip_to);
/* Memory that holds the last message and may be lent; NULL: it lies in a mapping. */
om_bytes *om_feed_bytes(const om_feed *feed);
/* Guard the mapping under the last message while its bytes are copied. */
void om_feed_guard(om_feed *feed);
int om_feed_unguard(om_feed *feed);
/* Where these bytes of the last message lie in a segment's file, to be sent from there (not held);
 * NULL: they are in memory only, or the file can't be opened. */
om_backing *om_feed_backing(om_feed *feed, const uint8_t *data, uint64_t *position);

void om_queue_pump(om_queue *queue);
/* To consumers that wait, before the tick is over: a queue that refuses what is too much isn't full while
 * they empty it. How many of those that can't be had yet, but soon, they will take. */
int64_t om_queue_hand_on(om_queue *queue);
int64_t om_queue_credit(const om_queue *queue);  /* how many more its consumers may be given; INT64_MAX: any number */
/* The head of the queue: its lane and offset, those expired by then taken out. OM_OK; OM_END: empty;
 * OM_E_NOT_RESIDENT: there is one, to be had later; OM_E_*. */
int om_queue_head(om_queue *queue, int64_t as_of, int32_t *lane, int64_t *offset, om_content *content);
/* The arguments of basic.deliver; without a consumer, the start of get-ok's. Returns their end. */
#define OM_DELIVER_ARGS (1 + 255 + 8 + 1 + 1 + 255 + 1 + 255)
uint8_t *om_deliver_args(uint8_t *at, const om_consumer *consumer, uint64_t tag, int again, om_span exchange, om_span key);
/* The channel has it, until it settles it. */
int om_deliver_take(om_channel *channel, om_consumer *consumer, om_queue *queue, int32_t lane, const om_content *content);
/* Frames of one message for that channel; kind: deliver, get-ok or return. */
int om_deliver_frames(om_conn *conn, om_channel *channel, uint32_t method, const uint8_t *args, size_t args_len,
                      const om_content *content, om_span properties, om_feed *feed);
/* OM_E_NOT_RESIDENT: nothing was answered, as it can't be told yet whether there is a message. */
int om_get(om_channel *channel, om_queue *queue, int no_ack);
/* The same, and the connection stands still until it can be told. queue NULL: it is gone. */
void om_get_later(om_channel *channel, om_queue *queue, int no_ack);

/* ---- streams (stream.c): each consumer has its own place ------------------------------------- */

void om_stream_start_at(om_consumer *consumer, const om_consume *consume);
void om_stream_pump(om_queue *queue);

/* ---- settling (settle.c) ------------------------------------------------------------------------ */

enum om_verdict om_settle_ack(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_settle_nack(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_settle_reject(om_channel *channel, const uint8_t *args, size_t len);
/* What becomes of a delivery. As RabbitMQ 4.3 has it, basic.nack with requeue says that this consumer
 * couldn't, basic.reject with requeue (and a channel that closes) that the delivery failed: only that
 * counts against the delivery limit. */
enum om_fate { OM_ACKED, OM_RETURNED, OM_FAILED, OM_REJECTED };
/* Back to its place; `counted`: against the delivery limit. */
void om_settle_return(om_channel *channel, om_unacked *entry, int counted);
void om_settle_return_all(om_channel *channel);
void om_settle_recover(om_channel *channel);     /* basic.recover */

/* ---- confirms (confirm.c) ------------------------------------------------------------------------ */

void om_confirm_published(om_channel *channel, int logged); /* one publish done */
void om_confirm_nack(om_channel *channel);                  /* the last publish was refused */
void om_confirm_note(om_engine *engine, uint64_t seq);      /* end of the tick */
void om_confirm_send(om_engine *engine);                    /* the disk has news */
int om_confirm_push(om_channel *channel, uint64_t seq, uint64_t tag, uint8_t *frame, uint32_t len);
void om_confirm_clear(om_channel *channel);

/* ---- leaving another way (dead.c) ------------------------------------------------------------- */

/* Acquired or in flight: it leaves for the dead-letter exchange, or for nowhere. */
void om_dead_add(om_queue *queue, int lane, int64_t offset, uint32_t weight, int reason);
/* It was never ready: nobody may be given it meanwhile (reject-publish-dlx). */
void om_dead_add_refused(om_queue *queue, int lane, int64_t offset, uint32_t weight);
void om_dead_pump(om_queue *queue);
int om_dead_answer(om_queue *queue, const uint64_t *queues, int32_t count, uint32_t flags); /* Python knows the route */
int64_t om_dead_purge(om_queue *queue);          /* forget those that wait; how many they were */
void om_dead_commit(om_engine *engine);          /* what gathered in this tick */
int om_dead_is_expired(const om_queue *queue, const om_content *content, int64_t now_ms, int64_t *deadline);
void om_queue_trim_length(om_queue *queue);      /* drop-head */
void om_delay_pump(om_queue *queue);             /* what is due goes on its way */

/* ---- transactions (tx.c) ------------------------------------------------------------------------- */

int om_tx_publish(om_channel *channel, om_route *route, om_span body);
int om_tx_settle(om_channel *channel, om_unacked *entry, int fate); /* enum om_fate */
void om_tx_free(om_channel *channel);

/* ---- timers (timer.c): queues by the time of their head's end ------------------------------------ */

void om_timer_set(om_queue *queue, int64_t at_ms);
void om_timer_clear(om_queue *queue);
void om_timers_run(om_engine *engine);
int64_t om_timer_next(const om_engine *engine);

/* ---- direct reply-to (reply.c) -------------------------------------------------------------------- */

#define OM_REPLY_TO "amq.rabbitmq.reply-to"
int om_reply_is_address(om_span key);
/* A publish to the default exchange: to the channels that its key, CC and BCC name. How many are there. */
int om_reply_answer(om_channel *from, om_span exchange, om_span key, om_span properties, om_span body);
int64_t om_reply_rewrite(om_channel *channel, const om_properties *in, uint8_t *out, size_t cap);

/* ---- events (event.c) ----------------------------------------------------------------------------- */

typedef struct om_event_node {
    om_event event;
    struct om_event_node *next;
    uint8_t bytes[];
} om_event_node;

/* Spans in `event` are copied. */
void om_event_push(om_engine *engine, const om_event *event);
/* A rule was broken: the connection stands still until Python has closed it, or the channel. */
enum om_verdict om_event_error(om_conn *conn, int channel, int code, uint32_t method, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- the engine itself (engine.c) --------------------------------------------------------------- */

#define OM_READ_BUDGET (256u << 10)  /* bytes a connection may bring a tick */
#define OM_LISTENERS 16

struct om_engine {
    om_store *store;
    om_engine_options options;
    int event_fd;
    pthread_mutex_t event_mutex;
    om_event_node *events, *events_tail;

    om_conn **conns;
    uint32_t conn_cap, conn_count;
    uint32_t *free_slots;
    uint32_t free_count;
    uint64_t serial;
    struct { int fd, door; char usual[OM_CONGESTION_NAME]; } listeners[OM_LISTENERS];
    int listener_count;
    int listening;           /* they are watched */

    om_queue **by_id, **by_name;
    uint32_t queue_buckets, queue_count;
    om_queue *active, *active_tail, *waiting;
    om_queue **timers;       /* a heap; slot 0 unused */
    uint32_t timer_count, timer_cap;

    om_exchange **exchanges;
    uint32_t exchange_buckets;
    om_route **routes;
    uint32_t route_buckets, route_count;
    uint32_t route_swept;    /* the bucket to be swept next */
    om_route *newest, *oldest;
    uint64_t generation, permissions;

    om_spares spares;
    om_conn *dirty, *stalled;
    struct om_kafka *kafka;  /* topics, waiting fetches */
    om_conn *kafka_gated;    /* produces that wait for the disk */
    om_channel *published, *confirming;
    uint64_t confirmed_seq;  /* what was durable when the confirming ones were last looked at */
    int confirm_due;         /* ... and one of them has something that waits for nothing */
    om_atomic *leaving;      /* dead letters of this tick */
    uint64_t leaving_bytes;
    struct om_leaver *leavers; /* what to give back if that is refused */
    uint32_t leaver_count, leaver_cap;
    om_refusals refusals;    /* of those dead letters */

    uint8_t *scratch;        /* input of the connection at hand */
    uint8_t *rewrite;        /* property parts made on the way */
    size_t rewrite_cap;
    uint8_t *foreign;        /* properties of Kafka records */
    struct om_opened *opened; /* compressed batches, opened; NULL before the first */
    om_crowd crowd;
    uint64_t now_ns;         /* of this tick: monotonic ... */
    int64_t now_ms;          /* ... and in ms */
    int64_t wall_ms;
    int64_t swept_ms;        /* when the last sweep over the connections was */
    int64_t shortest_timeout_ms; /* that any queue or consumer has had for acks */
    int alarm;               /* publishers are held back, and were told so */
    int retry;               /* connections that stand still may go on at once */
    int memory_full;         /* ... for the messages that connections hold */
    uint64_t tx_bytes;       /* of publishes that wait for their commit */
    om_engine_stat stat;
};

void om_engine_enter(om_engine *engine);
/* The rest of a tick, and the lock is free again. */
void om_engine_leave(om_engine *engine);
void om_engine_note_timeout(om_engine *engine, int64_t timeout_ms); /* of a queue or consumer; below 0: none */
int om_engine_takes(om_engine *engine);          /* may a publish be taken now? */
#define OM_FOREIGN (128u << 10)
#endif
