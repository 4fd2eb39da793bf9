/* kafka.h -- the inside of the Kafka protocol: requests are cut here, Produce and Fetch answered here.
 *
 *   socket -> kafka_conn.c (cut) -+-> kafka_produce.c -> log ... durable -> kafka_delayed_produce.c -> socket
 *                                 |        batches to be decompressed first: kafka_repack.c -> Python -> again
 *                                 +-> kafka_fetch_request.c (what is wanted) -> kafka_fetch_response.c (what there is)
 *                                 |        nothing yet: kafka_delayed_fetch.c and timing_wheel.c wake it up
 *                                 +-> Python: OM_EV_KAFKA_REQUEST -> om_kafka_answer
 *
 * Kafka's responses leave in the order of their requests. Only produces may overlap while they wait for the disk: each
 * leaves its finished response with a WAL sequence. Any other request is begun only when no produce is delayed, and
 * holds the input until it is answered, as Kafka mutes its channels. So one request per connection is under way besides
 * the produces, and memory is bounded.
 */
#ifndef OM_KAFKA_H
#define OM_KAFKA_H

#include "base/timing_wheel.h"
#include "format/batch.h"
#include "net/engine_core.h"
#include "queue/queues.h"
#include "store/log_waiters.h"

#define OM_KAFKA_PRODUCE 0
#define OM_KAFKA_FETCH 1

/* Kafka's error codes, as far as C gives them. (A producer's own: producer.h) */
enum om_kafka_error {
    OM_KAFKA_E_OFFSET_OUT_OF_RANGE = 1,
    OM_KAFKA_E_CORRUPT_MESSAGE = 2,
    OM_KAFKA_E_UNKNOWN_TOPIC_OR_PARTITION = 3,
    OM_KAFKA_E_REQUEST_TIMED_OUT = 7,
    OM_KAFKA_E_MESSAGE_TOO_LARGE = 10,
    OM_KAFKA_E_INVALID_TOPIC = 17,
    OM_KAFKA_E_INVALID_REQUIRED_ACKS = 21,
    OM_KAFKA_E_TOPIC_AUTHORIZATION_FAILED = 29,
    OM_KAFKA_E_INVALID_TIMESTAMP = 32,
    OM_KAFKA_E_UNSUPPORTED_VERSION = 35,
    OM_KAFKA_E_POLICY_VIOLATION = 44,
    OM_KAFKA_E_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53,
    OM_KAFKA_E_STORAGE_ERROR = 56,
    OM_KAFKA_E_FETCH_SESSION_ID_NOT_FOUND = 70,
    OM_KAFKA_E_INVALID_FETCH_SESSION_EPOCH = 71,
    OM_KAFKA_E_FENCED_LEADER_EPOCH = 74,
    OM_KAFKA_E_UNKNOWN_LEADER_EPOCH = 75,
    OM_KAFKA_E_UNSUPPORTED_COMPRESSION = 76,
    OM_KAFKA_E_INVALID_RECORD = 87,
    OM_KAFKA_E_UNKNOWN_TOPIC_ID = 100,
    OM_KAFKA_E_FETCH_SESSION_TOPIC_ID_ERROR = 106,
};

typedef struct om_kafka_topic om_kafka_topic;
typedef struct om_kafka_repacked_batch om_kafka_repacked_batch;

/* ---- topics (kafka_topics.c) ---- */

typedef struct om_kafka_partition_log {
    uint64_t id;     /* of the queue */
    om_queue *queue; /* held, once it was found */
    int32_t lane;
} om_kafka_partition_log;

struct om_kafka_topic {
    uint64_t serial; /* never given twice: the key of its rights */
    uint8_t id[16];
    om_kafka_topic_options options;
    om_kafka_partition_log *partitions;
    int32_t count;
    om_kafka_topic *next_by_name, *next_by_id;
    uint32_t name_len;
    uint8_t name[];
};

/* Kafka's part of the engine. */
struct om_kafka {
    om_kafka_topic **by_name, **by_id;
    uint32_t buckets, count;
    uint64_t serial;
    uint64_t generation; /* moves with every change of the topics */
    uint8_t *reply;      /* a response in the making */
    size_t reply_cap;
    struct om_kafka_plan *plans; /* what a fetch at hand will give */
    uint32_t plan_cap;
    om_wheel wheel;     /* fetches that wait, connections that are muted */
    uint64_t sent_to;   /* responses up to this sequence were sent */
    om_conn *woken;     /* fetches that waited, and are to be looked at in this tick */
    om_conn *cold;      /* ... for pages that aren't in memory */
    om_conn *delayed;   /* produces that wait for the disk */
    uint64_t repacking; /* bytes of batches that Python has, or has given back */
};

int om_kafka_topic_put(om_engine *engine, const uint8_t *name, size_t len, const uint8_t *id,
                       const om_kafka_partition *partitions, int32_t count, const om_kafka_topic_options *options);
int om_kafka_topic_drop(om_engine *engine, const uint8_t *name, size_t len);
int om_kafka_init(om_engine *engine);   /* OM_E_NO_MEMORY: om_kafka_free is due all the same */
void om_kafka_clear(om_engine *engine); /* all topics: the engine ends */
void om_kafka_free(om_engine *engine);
om_kafka_topic *om_kafka_topic_named(om_engine *engine, const uint8_t *name, size_t len);
om_kafka_topic *om_kafka_topic_by_id(om_engine *engine, const uint8_t id[16]);
/* NULL: there is no such partition, or its queue is gone. */
om_log *om_kafka_topic_log(om_engine *engine, om_kafka_topic *topic, int32_t partition, om_queue **queue);

/* A connection's rights, by topic. */
typedef struct om_kafka_rights {
    uint64_t permissions; /* the generation they were given under */
    struct {
        uint64_t serial;
        uint32_t bits;
    } * slots; /* open addressing; serial 0: free */
    uint32_t count, cap;
} om_kafka_rights;
/* The bits; -1: not known. */
int om_kafka_rights_get(const om_engine *engine, const om_kafka_rights *rights, const om_kafka_topic *topic);
int om_kafka_rights_set(const om_engine *engine, om_kafka_rights *rights, const om_kafka_topic *topic, uint32_t bits);
void om_kafka_rights_clear(om_kafka_rights *rights);

/* ---- connections ---- */

/* A produce's response, until this sequence is durable. */
typedef struct om_kafka_delayed_produce {
    uint64_t seq;
    uint32_t len; /* of its response in `held` */
} om_kafka_delayed_produce;

#define OM_KAFKA_DELAYED_MAX 1024         /* produces under way per connection; a power of two */
#define OM_KAFKA_DELAYED_BYTES (1u << 20) /* ... and bytes of their responses */

/* What a paused connection waits for. */
enum om_kafka_wait {
    OM_KAFKA_GOES_ON = 0,
    OM_KAFKA_ASKED = 1,         /* Python has the request */
    OM_KAFKA_ASKED_FIRST = 2,   /* Python has it, and it may be C's after all: it is still in the input */
    OM_KAFKA_ASKED_RIGHTS = 3,  /* Python looks the rights up; the request is still in the input */
    OM_KAFKA_ASKED_FETCH = 4,   /* Python looks the rights up; the fetch is in hand */
    OM_KAFKA_FETCHING = 5,      /* a fetch waits for more */
    OM_KAFKA_MUTED = 6,         /* its throttle time */
    OM_KAFKA_ASKED_BATCHES = 7, /* Python repacks batches; the request is still in the input */
    OM_KAFKA_ASKED_WHO = 8,     /* Python says whether it must log in: its first request is too large before a login */
};

typedef struct om_kafka_conn {
    om_conn conn;
    int64_t slot;     /* of the last request */
    uint8_t wait;     /* enum om_kafka_wait */
    uint8_t drop;     /* the request at the front of the input was answered by Python */
    uint8_t answered; /* Python has said what it knows about rights */
    uint8_t on_delayed;

    om_kafka_delayed_produce *delayed; /* a ring */
    uint32_t delayed_head, delayed_count, delayed_cap;
    uint8_t *held; /* the responses behind them, one behind the other */
    uint32_t held_at, held_len, held_cap;
    om_conn *next_delayed;

    struct om_kafka_fetch *fetch; /* NULL before the first */
    om_kafka_rights rights;
    uint8_t *producer; /* the transactional id it may (or may not) use */
    uint32_t producer_len;
    uint8_t producer_allowed;
    uint64_t producer_permissions;
    uint64_t produced_bytes, fetched_bytes;
    uint32_t throttle_ms;                 /* for the next answer */
    om_wheel_timer mute;                  /* set while muted */
    om_kafka_repacked_batch *repacked;    /* of the request at the front of the input */
    uint32_t repacked_count, repacked_at; /* at: the next to be appended */
    uint64_t repacking;                   /* its share of the engine's */
} om_kafka_conn;

extern const om_protocol om_kafka_protocol;

static inline om_kafka_conn *om_kafka_of(const om_conn *conn) {
    return (om_kafka_conn *)conn;
}

/* ---- requests (kafka_conn.c) ---- */

typedef struct om_kafka_request {
    om_conn *conn;
    int16_t key, version;
    int32_t correlation;
    const uint8_t *data; /* header and body */
    size_t len;
} om_kafka_request;

/* Its input is held from now on; and goes on. */
void om_kafka_hold(om_conn *conn, enum om_kafka_wait why);
void om_kafka_go_on(om_conn *conn);

/* Room for a response in the making, until the next call; NULL: no memory. */
uint8_t *om_kafka_reply_room(om_engine *engine, size_t len);
/* The throttle time of the next response; the connection is muted for that long. */
uint32_t om_kafka_take_throttle(om_conn *conn);

/* ---- produces (kafka_produce.c) ---- */

/* Returns whether it was taken; if not, it stays in the input and comes again. */
int om_kafka_produce(const om_kafka_request *request, const uint8_t *body);

/* ---- fetches (kafka_fetch_request.c): what a client wants ---- */

enum om_kafka_timer { OM_KAFKA_TIMER_FETCH = 0, OM_KAFKA_TIMER_MUTE = 1 };

/* A fetch that waits for a log to grow. */
typedef struct om_kafka_waiter {
    om_log_waiter waiter;
    om_conn *conn;
} om_kafka_waiter;

typedef struct om_kafka_part {
    uint32_t topic; /* its index in the fetch */
    int32_t partition;
    int64_t offset;
    int32_t leader_epoch; /* as the client has it; -1: it doesn't say */
    int32_t max_bytes;
    int64_t told_watermark, told_start; /* in this session; -1: nothing yet */
    uint8_t forgotten;
    om_kafka_waiter waiter;
} om_kafka_part;

typedef struct om_kafka_fetch_topic {
    om_kafka_topic *topic; /* as of the fetch's generation; NULL: unknown */
    uint8_t id[16];
    uint32_t name_at, name_len; /* in `names` */
} om_kafka_fetch_topic;

/* What a connection wants: of one request, or of a session that requests only change (KIP-227). A
 * connection has one of them. */
typedef struct om_kafka_fetch {
    int32_t session; /* 0: none */
    int32_t epoch;   /* the one its next request must have */
    uint8_t by_id;
    uint64_t generation; /* of the topics, when they were looked up */
    om_kafka_fetch_topic *topics;
    om_kafka_part *parts;
    uint8_t *names;
    uint32_t *topic_index, *part_index; /* open addressing: place + 1; sessions only */
    uint32_t topic_count, topic_cap, part_count, part_cap, forgotten;
    uint32_t names_len, names_cap, topic_slots, part_slots;
    uint32_t start; /* where the next answer begins: each partition gets its turn */

    /* the request at hand */
    int16_t version;
    int16_t error; /* for all of it */
    int32_t correlation, min_bytes, max_bytes;
    uint8_t committed;   /* read_committed */
    uint8_t incremental; /* only changes are sent */
    uint8_t is_woken, is_cold;
    int64_t deadline;
    om_wheel_timer timer;
    om_conn *conn, *next_woken, *next_cold;
} om_kafka_fetch;

/* Returns whether it was taken. */
int om_kafka_fetch_take(const om_kafka_request *request, const uint8_t *body);
void om_kafka_fetch_free(om_conn *conn);
/* The topics by their names and ids of now. */
void om_kafka_fetch_resolve(om_kafka_fetch *fetch);

/* ---- what there is (kafka_fetch_response.c) ---- */

/* Answers, asks for rights, or waits. `late`: with whatever there is. */
void om_kafka_fetch_serve(om_conn *conn, int late);

/* ---- waiting (kafka_delayed_fetch.c) ---- */

void om_kafka_wait_for_log(om_conn *conn, om_kafka_part *part, om_log *log);
void om_kafka_wait_for_pages(om_conn *conn);
void om_kafka_wait_over(om_conn *conn);                             /* watches, timer and lists forget it */
void om_kafka_wake_topic(om_engine *engine, om_kafka_topic *topic); /* it changed or goes */
void om_kafka_wake_cold(om_engine *engine);
void om_kafka_set_timer(om_conn *conn, om_wheel_timer *timer, enum om_kafka_timer kind, int64_t at);
void om_kafka_run_timers(om_engine *engine);
int64_t om_kafka_next_timer(const om_engine *engine);
void om_kafka_serve_woken(om_engine *engine); /* the end of a tick */

/* ---- a producer's batch (kafka_batch.c) ---- */

/* The outcome for one partition. */
typedef struct om_kafka_outcome {
    int error;
    om_span text; /* for version 8 and later; null: the code says it all */
    int64_t offset, append_time, log_start;
} om_kafka_outcome;

typedef struct om_kafka_batch {
    om_span data;
    om_batch_info info;
    int64_t first_time, last_time; /* of its records, where they can be read */
    om_buffer *bytes;              /* the same in memory of its own, not held, if it was repacked; else NULL */
    int claims;                    /* some record says that it was an AMQP message: om_content_disown */
} om_kafka_batch;

int om_kafka_refuse(om_kafka_outcome *out, int error, const char *text); /* returns the error */
/* Is it one batch that may be appended as it is, or once it is decompressed? 0, or Kafka's error. */
int om_kafka_batch_check(om_kafka_batch *batch, const om_kafka_topic *topic, int version, int may_be_transactional,
                         om_kafka_outcome *out);
int om_kafka_batch_check_times(const om_kafka_batch *batch, const om_kafka_topic *topic, int64_t now_ms,
                               om_kafka_outcome *out);

/* ---- batches that must be decompressed (kafka_repack.c) ---- */

#define OM_KAFKA_REPACKING (64u << 20) /* bytes under way, before further ones wait */

static inline int om_kafka_topic_opens(const om_kafka_topic *topic) {
    return topic->options.codec != OM_KAFKA_AS_SENT || (topic->options.flags & OM_KAFKA_COMPACTED);
}
#define OM_KAFKA_REPACK_HEAD 14 /* bytes before a batch of the event */
/* Adds a checked batch to the event, if this topic doesn't take it as it is. Returns where the next one goes. */
uint8_t *om_kafka_repack_put(uint8_t *at, const om_kafka_topic *topic, uint32_t place, const om_kafka_batch *batch);
/* The request waits until Python has repacked these; or for its turn. */
void om_kafka_repack_ask(om_conn *conn, const uint8_t *batches, size_t len);
/* Python's batches, copied; without the lock. */
int om_kafka_repack_read(const om_kafka_repacked *batches, uint32_t count, om_kafka_repacked_batch **out,
                         uint64_t *bytes);
void om_kafka_repack_free(om_kafka_repacked_batch *batches, uint32_t count);
/* To the request that waits for it, which goes on. */
void om_kafka_repack_give(om_conn *conn, om_kafka_repacked_batch *batches, uint32_t count, uint64_t bytes);
/* The repacked batch for that place takes its place. 0, or Kafka's error. */
int om_kafka_repack_take(om_conn *conn, uint32_t place, om_kafka_batch *batch, const om_kafka_topic *topic,
                         om_kafka_outcome *out);
void om_kafka_repack_forget(om_conn *conn);

/* ---- delayed produces (kafka_delayed_produce.c) ---- */

/* Room for a response of len bytes that may leave once seq is durable (0: at once), in its turn. */
uint8_t *om_kafka_delayed_produce_put(om_conn *conn, uint64_t seq, size_t len);
int om_kafka_delayed_produce_is_full(const om_conn *conn);
void om_kafka_delayed_produce_send(om_engine *engine); /* the disk has news */

#endif
