/* om_engine.h -- the data plane: sockets, frames, routes, queues, deliveries.
 *
 *   om_engine_new -> om_queue_add, once per queue -> om_engine_start -> om_engine_listen
 *     om_engine_next_event -> om_conn_resume, om_publish_route ...: Python's answer
 *   om_engine_free
 *
 * Called by ottermq/engine/. docs/engine.md.
 */
#ifndef OTTERMQ_ENGINE_H
#define OTTERMQ_ENGINE_H

#include "om_store.h"

/* ---- the engine (engine.h): sockets, frames, routes, queues, deliveries ---------------
 *
 * Work per message is done in the engine's thread. A question that it can't decide becomes an
 * event: the connection's input stands still until Python has answered (om_conn_resume), so
 * nothing overtakes a control method. Calls come in between two ticks.
 *
 * A connection is named by a number that is never given twice; calls that name one that is gone
 * answer OM_E_GONE and do nothing. The same goes for queues, whose numbers Python gives.
 */

typedef struct om_engine om_engine;

typedef struct om_engine_options {
    uint32_t frame_max;            /* offered; a connection's own comes with om_conn_tune */
    uint32_t handshake_timeout_ms; /* from accept to connection.open-ok */
    uint64_t max_message_size;
    uint64_t memory_limit;  /* messages under way above this: publishers are blocked */
    uint32_t zero_copy_min; /* bodies from this size on go by sendfile; 0: none */
    uint32_t route_cache;   /* entries */
    uint32_t max_connections;
    uint32_t consumers_per_channel;       /* 0: any number */
    uint32_t nacks_count;                 /* a nack with requeue counts towards x-delivery-limit */
    uint32_t unauthenticated_per_address; /* connections; above it the oldest is closed. 0: any */
    uint32_t kafka_max_request;           /* bytes; a larger request ends its connection */
    uint32_t kafka_patience_ms;           /* time limit for an incomplete request */
    uint32_t kafka_idle_ms;               /* how long a connection may be silent; 0: for ever */
} om_engine_options;

/* The store must have been started; one engine per store. Starts paused: nothing expires, is dropped or delivered
 * until om_engine_start, which comes after all queues are added. Otherwise a message that expires at once would
 * miss a dead-letter target that is still to be added. */
om_engine *om_engine_new(om_store *store, const om_engine_options *options);
void om_engine_start(om_engine *engine);
/* Closes every socket as it is. Before om_store_close. */
void om_engine_free(om_engine *engine);
#define OM_PROTOCOL_AMQP 0
#define OM_PROTOCOL_KAFKA 1
/* Accept from this listening socket (dup'ed; non-blocking). `protocol`: which protocol is spoken there;
 * it comes back in every event of its connections. */
int om_engine_listen(om_engine *engine, int fd, int protocol);
void om_engine_stop_listening(om_engine *engine);
/* Two of the options, from now on. */
void om_engine_set_limits(om_engine *engine, uint64_t memory_limit, uint64_t max_message_size);

enum om_event_kind {
    OM_EV_CONN_HELLO = 1,        /* a client has sent our protocol header: connection.start is due. text: its
                                  * address. Paused like a method. Kafka: its first request is here, and comes
                                  * as the next event; header: our own address as it sees it, "host:port" */
    OM_EV_METHOD = 2,            /* a method C doesn't handle: payload = class id, method id, arguments */
    OM_EV_ROUTE = 3,             /* a publish whose route or permission isn't known: exchange, key, header
                                  * (= property flags and values). Answer with om_publish_route or close the
                                  * channel. */
    OM_EV_ERROR = 4,             /* a rule was broken that C checks: code = AMQP reply code, text, method =
                                  * class id << 16 | method id. channel 0 or a code that is fatal for the
                                  * connection: close it; else close that channel. */
    OM_EV_CLOSED = 5,            /* the connection is gone: its queues and consumers were let go already. text: how;
                                  * header: its peer, as Python may never have had a HELLO of it */
    OM_EV_DEAD_ROUTE = 6,        /* like ROUTE for messages that die in (or wait their delay in) `queue` */
    OM_EV_OUTPUT = 7,            /* a connection without a socket has output (om_conn_drain) */
    OM_EV_ROOM = 8,              /* ... takes input again (om_conn_feed) */
    OM_EV_QUEUE_IDLE = 9,        /* `queue` lost its last consumer (auto-delete, expires) */
    OM_EV_CONSUMER_TIMEOUT = 10, /* a delivery was not acked in time on that channel: close it (406).
                                  * count: the time it had, in ms */
    OM_EV_ALARM = 11,            /* publishers are held back (text: why), or for another reason than before; no
                                  * text: they aren't any more */
    OM_EV_BAD_HEADER = 12,       /* not our protocol: header sent, socket closed. text: what came, peer */
    OM_EV_REFUSED_CONN = 13,     /* too many connections. text: peer */
    OM_EV_ACTIVE = 14,           /* single active consumer: key = consumer tag became active on `queue` */
    OM_EV_KAFKA_REQUEST = 15,    /* a request C doesn't answer: payload = header and body, code = API key,
                                  * method = API version, count = slot. Paused until om_kafka_answer. */
    OM_EV_KAFKA_TOPICS = 16,     /* a Produce or Fetch wants topics whose rights aren't known: key = their names,
                                  * each behind its length u16 (big-endian); code, method as above. Answer with
                                  * om_kafka_permit for each, then om_kafka_retry. */
    OM_EV_DECOMPRESS = 17,       /* an AMQP reader needs a compressed batch: payload = its records, code = codec,
                                  * queue = log id, count = base offset. Answer with om_batch_decompressed. */
    OM_EV_KAFKA_BATCHES = 18     /* batches of a Produce that can't be appended as they are: payload = each of them
                                  * behind its place u32, the codec it is to have i8 (OM_KAFKA_AS_SENT: its own),
                                  * whether its records need keys u8, the codec's level i32, its length u32
                                  * (big-endian). Answer with om_kafka_batches_repacked. */
};

typedef struct om_event {
    int kind;
    int protocol; /* OM_PROTOCOL_* of its connection */
    int channel;
    int code;
    uint32_t method;
    uint64_t conn;
    uint64_t queue;
    int64_t count;
    om_span payload; /* these point into the event itself: valid until om_event_free */
    om_span exchange, key, header;
    om_span text;
} om_event;

int om_engine_event_fd(om_engine *engine);
/* The oldest one, or NULL. Free each with om_event_free. */
om_event *om_engine_next_event(om_engine *engine);
void om_event_free(om_event *event);

/* -- connections -- */

#define OM_CONN_BLOCKED_CAPABLE 1 /* announced connection.blocked */
#define OM_CONN_CANCEL_CAPABLE 2  /* announced consumer_cancel_notify */
#define OM_CONN_MAY_IMPERSONATE 4 /* user-id isn't checked */

/* A connection without a socket (TLS): starts before the protocol header. 0: no memory. */
uint64_t om_conn_virtual(om_engine *engine, int protocol, const char *peer);
/* Bytes in: how many were taken (0: come back at OM_EV_ROOM). Bytes out. */
int64_t om_conn_feed(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);
int64_t om_conn_drain(om_engine *engine, uint64_t conn, uint8_t *out, size_t cap);

/* Finished frames, sent in order with what C sends. */
int om_conn_send(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);
/* Go on reading after an event. `data` (may be empty) is sent first: an answer and its resume in one. */
int om_conn_resume(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);
int om_conn_tune(om_engine *engine, uint64_t conn, uint32_t frame_max, uint32_t channel_max, uint32_t heartbeat_s);
/* connection.open-ok is due: channels may be opened. */
int om_conn_open(om_engine *engine, uint64_t conn, uint32_t vhost, const char *user, uint32_t flags);
/* connection.close was sent: from now on only connection.close and close-ok come as events, all
 * else is dropped; channels, consumers and unacked messages are let go now. Reading goes on. */
int om_conn_closing(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);
/* Send what is left (and `data`), then close the socket. OM_EV_CLOSED follows. */
int om_conn_close(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);

typedef struct om_conn_stat {
    uint64_t received_bytes, sent_bytes, published, delivered, acked;
    uint64_t output_bytes; /* waiting to be sent */
    uint32_t channels, consumers, unacked;
    int state, blocked;
    uint64_t produced_bytes, fetched_bytes; /* Kafka: of record batches */
} om_conn_stat;
int om_conn_stat_get(om_engine *engine, uint64_t conn, om_conn_stat *out);

/* -- channels -- */

int om_channel_open(om_engine *engine, uint64_t conn, int channel);
/* Consumers go, unacked messages return to their places, an incomplete message is dropped. closing: we
 * sent channel.close: all but channel.close and close-ok is dropped until om_channel_close
 * (.., 0). */
int om_channel_close(om_engine *engine, uint64_t conn, int channel, int closing);
int om_channel_confirm(om_engine *engine, uint64_t conn, int channel);
/* basic.qos global: how many unacked for the whole channel, 0: no limit. */
int om_channel_limit(om_engine *engine, uint64_t conn, int channel, uint32_t prefetch);
/* basic.recover: unacked ones go back to their places, but for those that a transaction has settled. */
int om_channel_recover(om_engine *engine, uint64_t conn, int channel);
int om_channel_tx_select(om_engine *engine, uint64_t conn, int channel);
/* `ok` (the commit-ok frame) is sent when it is on disk. < 0: nothing of it happened. OM_TX_PARTIAL:
 * all of it but what full queues refused, and `ok` isn't sent. */
#define OM_TX_PARTIAL 66 /* beside om_result */
int om_channel_tx_commit(om_engine *engine, uint64_t conn, int channel, const uint8_t *ok, size_t len);
int om_channel_tx_rollback(om_engine *engine, uint64_t conn, int channel);

/* -- publishing -- */

/* This connection may write to this exchange. salt: 0, or the user's number when topic
 * permissions must be asked for each key. Forgotten at the next om_engine_forget_permissions. */
#define OM_EXCHANGE_BY_EVENT 1 /* each message asks for its route: headers, random, ... */
int om_conn_may_publish(om_engine *engine, uint64_t conn, const uint8_t *exchange, size_t len, uint32_t salt,
                        uint32_t flags);
#define OM_ROUTE_CACHE 1 /* good for every message with this exchange and key */
/* Queue ids[0] is a delay log: keep it there for x-delay ms first; those behind it take what has no delay. */
#define OM_ROUTE_DELAY 2
/* The answer to OM_EV_ROUTE: publish the message that waits on that channel to these queues.
 * generation: om_route_generation when the route was worked out; OM_E_STALE: it has
 * changed since. Resumes the connection. */
int om_publish_route(om_engine *engine, uint64_t conn, int channel, const uint64_t *queues, int32_t count,
                     uint32_t flags, uint64_t generation);
/* The answer to OM_EV_DEAD_ROUTE. */
int om_dead_letter_route(om_engine *engine, uint64_t queue, const uint64_t *queues, int32_t count, uint32_t flags,
                         uint64_t generation);
uint64_t om_route_generation(om_engine *engine);
/* Bindings of this exchange (or of one behind it) changed: its routes are forgotten. NULL: of all. */
void om_route_forget(om_engine *engine, uint32_t vhost, const uint8_t *exchange, size_t len);
void om_engine_forget_permissions(om_engine *engine);

/* The answer to OM_EV_DECOMPRESS: the batch's records, plain; len -1: not available. OM_E_CORRUPT: then,
 * or when these can't be its records; the batch is passed over. */
int om_batch_decompressed(om_engine *engine, uint64_t log, int64_t base_offset, const uint8_t *records, int64_t len);

/* -- queues -- */

#define OM_QUEUE_STREAM 1
#define OM_QUEUE_QUORUM 2 /* x-delivery-count; delivery limit counts as quorum queues do */
#define OM_QUEUE_SINGLE_ACTIVE 4
#define OM_QUEUE_REJECT_PUBLISH 8 /* overflow: nack instead of dropping the head */
#define OM_QUEUE_REJECT_DLX 16    /* ... and dead-letter what is refused */
#define OM_QUEUE_DURABLE 32
#define OM_QUEUE_DELAY 64          /* holds messages of a delayed exchange; no consumers */
#define OM_QUEUE_AT_LEAST_ONCE 128 /* a dead letter stays until all its targets take it */

typedef struct om_queue_options {
    uint32_t flags;
    int64_t message_ttl_ms; /* -1: none, for this and all below */
    int64_t max_length, max_length_bytes;
    int64_t delivery_limit;
    int64_t consumer_timeout_ms;
    int has_dlx, has_dlrk;
    om_span dlx, dlrk;
} om_queue_options;

/* logs: one, or one per priority, lowest first. The queue holds them until it is removed. */
int om_queue_add(om_engine *engine, uint64_t queue, uint32_t vhost, const uint8_t *name, size_t len, om_log **logs,
                 int32_t log_count, const om_queue_options *options);
int om_queue_set(om_engine *engine, uint64_t queue, const om_queue_options *options);
/* Consumers are gone (Python has told them), unacked deliveries are forgotten, routes too. */
int om_queue_remove(om_engine *engine, uint64_t queue);
int64_t om_queue_purge(om_engine *engine, uint64_t queue, uint64_t *seq);
typedef struct om_queue_stat {
    int64_t ready, unacked, ready_bytes, unacked_bytes;
    int64_t consumers, active_consumers;
    int64_t published, delivered, acked, redelivered, expired, dead_lettered, dropped;
    int64_t first_offset, next_offset;
    int64_t head_timestamp; /* ms, -1: empty */
    int64_t idle_ms;        /* since its last consumer, get or (re)declaration */
} om_queue_stat;
int om_queue_stat_get(om_engine *engine, uint64_t queue, om_queue_stat *out);
void om_queue_touch(om_engine *engine, uint64_t queue); /* redeclared: it isn't idle */

/* -- consuming -- */

#define OM_CONSUME_NO_ACK 1
#define OM_CONSUME_EXCLUSIVE 2
enum om_stream_start {
    OM_STREAM_NEXT = 0,
    OM_STREAM_FIRST = 1,
    OM_STREAM_LAST = 2,
    OM_STREAM_OFFSET = 3,
    OM_STREAM_TIME = 4
};
typedef struct om_consume {
    uint64_t queue;
    om_span tag;
    uint32_t flags;
    uint32_t prefetch; /* 0: no limit */
    int32_t priority;
    int start;           /* streams: enum om_stream_start */
    int64_t start_value; /* offset, or ms since the epoch */
    om_span filter;      /* streams: x-stream-filter, values each behind its length u8; empty: none */
    int match_unfiltered;
    int64_t timeout_ms; /* x-consumer-timeout; 0: the queue's */
} om_consume;
/* `ok` (consume-ok) is sent before the first delivery. OM_E_EXISTS: the tag is in use;
 * OM_E_LIMIT: the channel has as many consumers as it may; OM_E_LOCKED. */
int om_consumer_add(om_engine *engine, uint64_t conn, int channel, const om_consume *consume, const uint8_t *ok,
                    size_t len);
/* `ok` (cancel-ok) is sent behind the last delivery. */
int om_consumer_cancel(om_engine *engine, uint64_t conn, int channel, const uint8_t *tag, size_t tag_len,
                       const uint8_t *ok, size_t len);
/* Its consumers: fills at most cap, returns how many there are. */
typedef struct om_consumer_info {
    uint64_t conn;
    int channel;
    uint32_t flags, prefetch;
    int32_t priority;
    uint32_t unacked;
    int active;
    uint8_t tag_len;
    uint8_t tag[255];
} om_consumer_info;
int64_t om_queue_consumers(om_engine *engine, uint64_t queue, om_consumer_info *out, int64_t cap);
/* basic.get of a queue this connection may read: answers get-ok or get-empty by itself. From now
 * on C answers gets of this queue on this connection without asking. Resumes it. */
int om_basic_get(om_engine *engine, uint64_t conn, int channel, uint64_t queue, int no_ack);
/* Direct reply-to: deliveries for this channel's pseudo queue. The reply address is
 * "amq.rabbitmq.reply-to." + what C makes; C rewrites it in publishes and delivers replies. */
int om_consumer_add_reply_to(om_engine *engine, uint64_t conn, int channel, const uint8_t *tag, size_t tag_len,
                             const uint8_t *ok, size_t len);

/* Does a consumer wait for replies at this address? */
int om_reply_to_exists(om_engine *engine, const uint8_t *address, size_t len);

/* -- Kafka (kafka.h): C cuts requests and answers Produce and Fetch; the rest are events -- */

/* The answer to a Kafka client's OM_EV_CONN_HELLO. trusted: no login needed; the full request size limit
 * applies from the start. */
int om_kafka_trust(om_engine *engine, uint64_t conn, int trusted);
/* The client may be served: from now on Produce and Fetch are C's. Before that every request is an
 * event; one of those two waits for om_kafka_retry (serve it now) or om_kafka_answer. */
int om_kafka_open(om_engine *engine, uint64_t conn, const char *user);
/* The answer to OM_EV_KAFKA_REQUEST: a whole response, size and header included; len 0: none is due.
 * Reading goes on. OM_E_GONE: not the slot that waits. */
int om_kafka_answer(om_engine *engine, uint64_t conn, int64_t slot, const uint8_t *data, size_t len);

#define OM_KAFKA_READ 1
#define OM_KAFKA_WRITE 2
/* This connection's rights on a topic; 0: none, and it won't be asked again. Holds until the
 * next om_engine_forget_permissions. Unknown names are forgotten at once. */
int om_kafka_permit(om_engine *engine, uint64_t conn, const uint8_t *name, size_t len, uint32_t rights);
/* This connection may produce under this transactional id; the same promises. */
int om_kafka_permit_producer(om_engine *engine, uint64_t conn, const uint8_t *id, size_t len, int allowed);
/* Go on with the request that asked (OM_EV_KAFKA_TOPICS): what is still unknown gets its error. */
int om_kafka_retry(om_engine *engine, uint64_t conn);
/* The result for a batch of OM_EV_KAFKA_BATCHES. */
typedef struct om_kafka_repacked {
    uint32_t place;      /* as the event had it */
    int error;           /* Kafka's code: it is refused */
    const uint8_t *data; /* the batch as it is to be kept; NULL: as it was sent */
    size_t len;
    int64_t first_time, last_time; /* of its records */
} om_kafka_repacked;
/* All results, in order; the request continues. */
int om_kafka_batches_repacked(om_engine *engine, uint64_t conn, const om_kafka_repacked *batches, uint32_t count);
/* Sets throttle_time_ms of the next Produce or Fetch response and delays requests as long. */
int om_kafka_throttle(om_engine *engine, uint64_t conn, uint32_t ms);

#define OM_KAFKA_COMPACTED 1       /* records without a key are refused */
#define OM_KAFKA_LOG_APPEND_TIME 2 /* records get the time of their arrival */
#define OM_KAFKA_ASYNC 4           /* acks=all doesn't wait for the disk */
#define OM_KAFKA_INTERNAL 8        /* clients don't write to it */
typedef struct om_kafka_partition {
    uint64_t queue;
    int32_t lane;
} om_kafka_partition;
#define OM_KAFKA_AS_SENT -1
typedef struct om_kafka_topic_options {
    uint32_t flags;
    int32_t codec;             /* that batches are kept in; OM_KAFKA_AS_SENT: their producer's */
    int32_t level;             /* of the compression */
    int64_t max_message_bytes; /* of a batch */
    int64_t timestamp_before_max_ms, timestamp_after_max_ms; /* INT64_MAX: any */
} om_kafka_topic_options;
/* Make a topic known, or change it. A partition whose queue isn't there (yet) is unknown to clients. */
int om_kafka_topic_set(om_engine *engine, const uint8_t *name, size_t len, const uint8_t *id,
                       const om_kafka_partition *partitions, int32_t count, const om_kafka_topic_options *options);
int om_kafka_topic_remove(om_engine *engine, const uint8_t *name, size_t len);

typedef struct om_engine_stat {
    uint64_t connections, channels, consumers, queues, routes;
    uint64_t ticks, published, confirmed, delivered, acked, returned, route_misses;
    uint64_t received_bytes, sent_bytes, output_bytes, message_bytes;
    int blocked;
} om_engine_stat;
void om_engine_stat_get(om_engine *engine, om_engine_stat *out);

#endif
