/* engine.h -- the data plane's inside: what is done with connections (conn.h), channels and queues.
 *
 *   socket -> frame.c -> publish.c -> route.c -> log (batch.c, log.c, wal.c)
 *                     -> ack.c (acks)           |
 *   socket <- output.c <- deliver.c <- queue_reader.c <----+        confirm.c <- committer
 *
 * A tick (engine.c): drain the ready sockets, seal the batches they made, pump the queues that
 * have something to give, log the cursors' changes, note which confirms wait for which sequence,
 * flush. All of it under the store's lock (om_ticket_lock), as are Python's calls (*_api.c), which
 * end with the same steps: begin (om_engine_enter), do, end (om_engine_leave).
 *
 * Nothing here blocks: what isn't in memory is asked for (reader.c), what doesn't fit stands still
 * (a connection stalls, its client is slowed by TCP), what C can't decide is an event.
 */
#ifndef OM_ENGINE_H
#define OM_ENGINE_H

#include "amqp/amqp_conn.h"
#include "amqp/channel.h"
#include "amqp/deliver.h"
#include "amqp/frame.h"
#include "amqp/get.h"
#include "format/content.h"
#include "net/conn.h"
#include "net/output.h"
#include "net/socket.h"
#include "net/tick_coalesce.h"
#include "queue/consumer.h"
#include "queue/queue.h"
#include "queue/queue_head.h"
#include "queue/queue_length.h"
#include "queue/queue_pump.h"
#include "store/atomic.h"
#include "store/fanout.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_cursor.h"
#include "store/log_damage.h"
#include "store/log_offsets.h"
#include "store/news.h"
#include "store/store.h"
#include "store/trouble.h"

#include <string.h>

typedef struct om_exchange om_exchange;

/* ---- publishing (publish.c) -------------------------------------------------------------------- */

enum om_verdict om_publish_method(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_publish_header(om_channel *channel, const uint8_t *payload, size_t len);
enum om_verdict om_publish_body(om_channel *channel, const uint8_t *payload, size_t len);
/* The parked message goes to this route (held by the caller). */
void om_publish_parked(om_channel *channel, om_route *route);
void om_publish_reset(om_channel *channel);
void om_publish_return(om_channel *channel, om_span exchange, om_span key, om_span properties, om_span body);

/* ---- bodies that come in pieces (body_assembly.c) ---------------------------------------------------- */

int om_assembly_put(om_channel *channel, om_span part);            /* the next piece of the body; OM_E_NO_MEMORY */
om_span om_assembly_body(const om_channel *channel);               /* all of it, once it is there */
int om_assembly_holds(const om_channel *channel, om_span body);    /* is it that? */
int om_assembly_can_stay(const om_channel *channel, om_span body); /* ... and may a log take it over as it is? */
uint64_t om_assembly_weight(const om_channel *channel);
void om_assembly_drop(om_channel *channel);

/* ---- full queues that refuse (reject_publish.c) ----------------------------------------------------- */

/* What a record under way doesn't bring to its queue, or brings only to be dead-lettered. */
typedef struct om_refusal {
    om_queue *queue; /* held */
    int64_t place;   /* which of the record's messages in that log it is, from 1; once sealed,
                              * from the end. 0: it isn't in there */
    uint32_t weight;
    uint8_t lane;
} om_refusal;

typedef struct om_refusals {
    om_refusal *list;
    uint32_t count, cap;
} om_refusals;

/* soon_taken: of those in it, what consumers have as good as taken (om_queue_hand_on). */
int om_reject_publish_refuses(const om_queue *queue, int64_t soon_taken, int64_t more_bytes);
int om_reject_publish_dies(const om_queue *queue); /* and dead-letters what it refuses */
/* Into that record, unless the queue is gone or refuses it. */
int om_reject_publish_stage(om_atomic *atomic, om_refusals *refusals, om_queue *queue, int priority, om_span key,
                            om_span body, om_span tail);
void om_refusals_seal(om_refusals *refusals);               /* just before the commit ... */
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
    om_exchange *exchange; /* held; NULL: made for one message */
    uint64_t generation;
    uint32_t refs;
    uint32_t salt;
    uint32_t flags; /* OM_ROUTE_* */
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
void om_routes_forget(om_engine *engine, uint32_t vhost, om_span exchange); /* a binding changed */
void om_routes_forget_all(om_engine *engine);
void om_routes_clear(om_engine *engine);
void om_routes_sweep(om_engine *engine); /* some of them, a sweep */

/* ---- delivering (queue_reader.c) ------------------------------------------------------------ */

om_queue_reader *om_queue_reader_new(void);
void om_queue_reader_free(om_queue_reader *feed);
void om_queue_reader_rest(om_queue_reader *feed); /* lets go of the batch at hand */
/* The message at that offset. OM_OK; OM_END: not there yet; OM_E_NOT_RESIDENT: asked for;
 * OM_E_UNREADABLE or OM_E_RANGE: `skip_to` tells where reading may go on. Valid until the next call. */
int om_queue_reader_get(om_engine *engine, om_queue_reader *feed, om_log *log, int64_t offset, om_content *out,
                        int64_t *skip_to);
/* Memory that holds the last message and may be lent; NULL: it lies in a mapping. */
om_buffer *om_queue_reader_bytes(const om_queue_reader *feed);
/* Guard the mapping under the last message while its bytes are copied. */
void om_queue_reader_guard(om_queue_reader *feed);
int om_queue_reader_unguard(om_queue_reader *feed);
/* What it gave couldn't be had after all: the segment is surveyed, and the reader comes back. */
void om_queue_reader_doubt(om_queue_reader *feed, om_log *log);
/* Where these bytes of the last message lie in a segment's file, to be sent from there (not held);
 * NULL: they are in memory only, or the file can't be opened. */
om_backing *om_queue_reader_backing(om_queue_reader *feed, const uint8_t *data, uint64_t *position);

/* ---- streams (stream.c): each consumer has its own place ------------------------------------- */

void om_stream_start_at(om_consumer *consumer, const om_consume *consume);
int om_stream_wants(const om_consumer *consumer, const om_properties *properties); /* its filter */
void om_stream_pump(om_queue *queue);

/* ---- settling (ack.c) ------------------------------------------------------------------------ */

enum om_verdict om_basic_ack(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_basic_nack(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_basic_reject(om_channel *channel, const uint8_t *args, size_t len);
/* What becomes of a delivery. As RabbitMQ 4.3 has it, basic.nack with requeue says that this consumer
 * couldn't, basic.reject with requeue (and a channel that closes) that the delivery failed: only that
 * counts against the delivery limit. */
enum om_fate { OM_ACKED, OM_RETURNED, OM_FAILED, OM_REJECTED };
/* Back to its place; `counted`: against the delivery limit. */
void om_settle_return(om_channel *channel, om_unacked *entry, int counted);
void om_settle_return_all(om_channel *channel);
void om_basic_recover(om_channel *channel); /* basic.recover */

/* ---- leaving another way (dead_letter.c) ------------------------------------------------------------- */

/* Acquired or in flight: it leaves for the dead-letter exchange, or for nowhere. */
void om_dead_letter_add(om_queue *queue, int lane, int64_t offset, uint32_t weight, int reason);
/* It was never ready: nobody may be given it meanwhile (reject-publish-dlx). */
void om_dead_letter_add_refused(om_queue *queue, int lane, int64_t offset, uint32_t weight);
void om_dead_letter_pump(om_queue *queue);
int om_dead_letter_answer(om_queue *queue, const uint64_t *queues, int32_t count,
                          uint32_t flags);     /* Python knows the route */
int64_t om_dead_letter_purge(om_queue *queue); /* forget those that wait; how many they were */
void om_dead_letter_commit(om_engine *engine); /* what gathered in this tick */
int om_dead_letter_is_expired(const om_queue *queue, const om_content *content, int64_t now_ms, int64_t *deadline);
void om_delay_pump(om_queue *queue); /* what is due goes on its way */

/* ---- transactions (tx.c) ------------------------------------------------------------------------- */

int om_tx_publish(om_channel *channel, om_route *route, om_span body);
int om_tx_settle(om_channel *channel, om_unacked *entry, int fate); /* enum om_fate */
int om_tx_select(om_channel *channel);
int om_tx_commit(om_channel *channel, const uint8_t *ok, size_t len); /* as om_channel_tx_commit */
void om_tx_rollback(om_channel *channel);
void om_tx_free(om_channel *channel);

/* ---- direct reply-to (direct_reply_to.c) -------------------------------------------------------------------- */

#define OM_REPLY_TO "amq.rabbitmq.reply-to"
int om_reply_is_address(om_span key);
/* As om_consumer_add_reply_to. */
int om_reply_start(om_channel *channel, om_span tag, const uint8_t *ok, size_t len);
om_channel *om_reply_find(om_engine *engine, om_span address); /* NULL: nobody waits there */
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

/* ---- the engine itself (engine.c) --------------------------------------------------------------- */

#define OM_READ_BUDGET (256u << 10) /* bytes a connection may bring a tick */
#define OM_LISTENERS 16

struct om_engine {
    om_store *store;
    om_engine_options options;
    const om_protocol *protocols[OM_PROTOCOLS];
    pthread_t thread;
    int running, stopping; /* stopping: atomic */
    int poll_fd;           /* what it sleeps on */
    int event_fd;
    pthread_mutex_t event_mutex;
    om_event_node *events, *events_tail;

    om_conn **conns;
    uint32_t conn_cap, conn_count;
    uint32_t *free_slots;
    uint32_t free_count;
    uint64_t serial;
    om_unauth *unauth;
    struct {
        int fd, protocol;
        char usual[OM_CONGESTION_NAME];
    } listeners[OM_LISTENERS];
    int listener_count;
    int listening; /* they are watched */

    om_queue **by_id, **by_name;
    uint32_t queue_buckets, queue_count;
    om_queue *active, *active_tail, *waiting;
    om_queue **timers; /* a heap; slot 0 unused */
    uint32_t timer_count, timer_cap;

    om_exchange **exchanges;
    uint32_t exchange_buckets;
    om_route **routes;
    uint32_t route_buckets, route_count;
    uint32_t route_swept; /* the bucket to be swept next */
    om_route *newest, *oldest;
    uint64_t generation, permissions;

    om_spares spares;
    om_conn *dirty, *stalled;
    struct om_kafka *kafka; /* topics, waiting fetches */
    om_conn *kafka_gated;   /* produces that wait for the disk */
    om_channel *published, *confirming;
    uint64_t confirmed_seq; /* what was durable when the confirming ones were last looked at */
    int confirm_due;        /* ... and one of them has something that waits for nothing */
    om_atomic *leaving;     /* dead letters of this tick */
    uint64_t leaving_bytes;
    struct om_leaver *leavers; /* what to give back if that is refused */
    uint32_t leaver_count, leaver_cap;
    om_refusals refusals; /* of those dead letters */

    uint8_t *scratch; /* input of the connection at hand */
    uint8_t *rewrite; /* property parts made on the way */
    size_t rewrite_cap;
    uint8_t *foreign;               /* properties of Kafka records */
    struct om_decompressed *opened; /* compressed batches, opened; NULL before the first */
    om_coalesce crowd;
    uint64_t now_ns;             /* of this tick: monotonic ... */
    int64_t now_ms;              /* ... and in ms */
    int64_t wall_ms;             /* of the store's clock */
    int64_t swept_ms;            /* when the last sweep over the connections was */
    int64_t sleeps_until;        /* ms, or until something comes */
    int64_t shortest_timeout_ms; /* that any queue or consumer has had for acks */
    int alarm;                   /* publishers are held back, and were told so */
    int retry;                   /* connections that stand still may go on at once */
    int memory_full;             /* ... for the messages that connections hold */
    uint64_t tx_bytes;           /* of publishes that wait for their commit */
    int paused;                  /* no queue acts: see om_engine_start */
    om_engine_stat stat;
};

#define OM_NEWS_EVENT UINT64_MAX /* what epoll tells: the store has news, a listener, or a connection's id */
#define OM_LISTENER_EVENT (UINT64_MAX - 1 - OM_LISTENERS)

void *om_engine_main(void *engine);
/* One round of it: sleeps (-1: as long as it may), ticks. OM_E_IO */
int om_engine_turn(om_engine *engine, int most_ms);
void om_engine_read_clocks(om_engine *engine);
int om_listener_add(om_engine *engine, int fd, int protocol);
void om_listener_accept(om_engine *engine, int index); /* some of those who wait there */
/* Without a free file number accept fails and the listener stays ready: watched, it would spin. */
void om_listeners_watch(om_engine *engine, int on);
void om_listeners_close(om_engine *engine);
void om_engine_enter(om_engine *engine);
/* The rest of a tick, and the lock is free again. */
void om_engine_leave(om_engine *engine);
void om_engine_note_timeout(om_engine *engine, int64_t timeout_ms); /* of a queue or consumer; below 0: none */
int om_engine_takes(om_engine *engine);                             /* may a publish be taken now? */
#define OM_FOREIGN (128u << 10)
#endif
