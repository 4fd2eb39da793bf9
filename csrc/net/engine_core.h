/* engine_core.h -- the common part of the engine: store, clock, connections, events, figures.
 *
 *   om_engine -+- queues: queue/queues.h     queues, routes, dead letters
 *              +- amqp:   amqp/amqp.h        publishers that wait for confirms
 *              +- kafka:  kafka/kafka.h      topics, fetches that wait
 *              `- loop:   engine/engine.h    the thread, its listeners
 *
 * One block (engine_api.c). A folder knows its own part and those of the folders below it.
 */
#ifndef OM_ENGINE_CORE_H
#define OM_ENGINE_CORE_H

#include "net/conn.h"
#include "net/event.h"
#include "net/output.h"
#include "net/protocol.h"
#include "net/tick_coalesce.h"
#include "net/unauth.h"
#include "om_engine.h"
#include "store/store.h"

struct om_engine {
    om_store *store;
    om_engine_options options;
    struct om_queues *queues;
    struct om_amqp *amqp;
    struct om_kafka *kafka;
    struct om_loop *loop;

    uint64_t now_ns; /* of this tick: monotonic ... */
    int64_t now_ms;  /* ... and in ms */
    int64_t wall_ms; /* of the store's clock */
    om_coalesce coalesce;
    om_event_queue events;
    om_engine_stat stat;

    const om_protocol *protocols[OM_PROTOCOLS];
    int poll_fd; /* what the thread sleeps on */
    om_conn **conns;
    uint32_t conn_cap, conn_count;
    uint32_t *free_slots;
    uint32_t free_count;
    uint64_t serial;
    om_unauth *unauth;
    om_conn *dirty, *stalled;
    om_spares spares;
    uint64_t permissions; /* their generation: what was allowed under an older one is asked again */
    int retry;            /* stalled connections may go on at once */
    int memory_full;      /* messages in memory are over their limit */

    uint8_t *scratch; /* input of the connection at hand */
    uint8_t *rewrite; /* property parts made on the way */
    size_t rewrite_cap;
    uint8_t nowhere[1u << 12]; /* takes the output of a connection that there is no memory for */
};

/* May a publish be taken now? Fenced ones are, to be refused one by one. */
static inline int om_engine_takes(const om_engine *engine) {
    int takes = om_store_takes(engine->store);
    return (takes == OM_OK || takes == OM_E_FENCED) && !engine->memory_full;
}

#endif
