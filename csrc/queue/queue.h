/* queue.h -- a queue: its logs by priority, its consumers, its dead letters. */
#ifndef OM_QUEUE_H
#define OM_QUEUE_H

#include "om_engine.h"
#include "queue/dead_letter.h"
#include "queue/delayed_exchange.h"
#include "queue/queue_reader.h"
#include "store/log.h"
#include "store/store.h"

typedef struct om_consumer om_consumer;
typedef struct om_queue om_queue;
typedef struct om_route om_route;

typedef struct om_lane { /* one priority: a log and the place in it */
    om_log *log;
    om_queue_reader *reader; /* NULL while unused */
    int64_t seen;            /* the head that was looked at last; -1: look again */
    int64_t seen_deadline;   /* ... and when it expires */
    uint32_t refused;        /* so many in it were refused and leave again (reject-publish-dlx): ... */
    int64_t refused_from;    /* ... from here on, none is given out until they are gone */
} om_lane;

struct om_queue {
    om_engine *engine;
    uint64_t id;
    uint32_t vhost;
    uint32_t refs; /* the tables', routes, unacked entries, consumers */
    uint8_t removed;
    uint8_t on_active, on_waiting;
    uint8_t asked_route; /* an OM_EV_DEAD_ROUTE is under way for this exchange and key: */
    uint8_t asked_exchange_len, asked_key_len, asked_lane;
    int64_t asked_offset; /* for this message */
    uint8_t *asked;       /* both, one behind the other; NULL before the first question */
    uint8_t *name;
    uint8_t name_len;
    uint8_t *dlx, *dlrk; /* owned copies behind options */
    om_queue_options options;

    om_lane *lanes; /* by priority */
    int32_t lane_count;
    om_consumer **consumers; /* highest priority first; a served one goes behind its equals */
    uint32_t consumer_count, consumer_cap;
    om_consumer *active; /* single active consumer */
    om_consumer *exclusive;

    om_dead_letter *dead_letters; /* waits for a route or for room */
    uint32_t dead_letter_count, dead_letter_cap, dead_letter_at;
    uint64_t dead_letter_bytes;
    uint32_t put_off;     /* at-least-once: so many found no place to go to, one after the other, */
    int64_t held_until;   /* and none of them is tried again before this */
    om_route *dead_route; /* held: Python's answer for the first of them */
    om_due *dues;         /* a heap: delayed messages, soonest first */
    uint32_t due_count, due_cap;
    int64_t due_scanned; /* below this offset they are all in it, or settled */

    int64_t timer_at;     /* ms; INT64_MAX: none */
    uint32_t timer_index; /* in the engine's heap; 0: not there */

    int64_t published, delivered, acked, redelivered, expired, dead_lettered, dropped;
    int64_t touched_ms; /* last sign of interest */
    om_queue *next_active, *next_waiting;
    om_queue *next_by_id, *next_by_name;
};

/* As om_queue_add; name and count of logs are checked. */
int om_queue_new(om_engine *engine, uint64_t id, uint32_t vhost, const uint8_t *name, size_t len, om_log **logs,
                 int32_t log_count, const om_queue_options *options);
int om_queue_set_options(om_queue *queue, const om_queue_options *options);
void om_queue_drop(om_queue *queue); /* off the tables; its consumers are gone already */
void om_queue_ref(om_queue *queue);
void om_queue_unref(om_queue *queue);
om_queue *om_queue_find(om_engine *engine, uint64_t id);
om_queue *om_queue_named(om_engine *engine, uint32_t vhost, const uint8_t *name, size_t len);
void om_queue_activate(om_queue *queue); /* has or may have something to do this tick */
void om_queue_wait(om_queue *queue);     /* look again when the disk has news */
int om_queue_is_stream(const om_queue *queue);
void om_queue_look_again(om_queue *queue); /* at its heads: they or their time may have changed */
void om_queue_rest(om_queue *queue);       /* empty: lets go of batches, keeps its readers */

#endif
