/* route_api.c -- Python's calls about routes: where a message goes, and which routes are stale. */
#include "amqp/amqp_conn.h"
#include "amqp/channel.h"
#include "engine/engine.h"
#include "queue/queues.h"

#include <stdlib.h>

int om_publish_route(om_engine *engine, uint64_t id, int number, const uint64_t *queues, int32_t count, uint32_t flags,
                     uint64_t generation) {
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    om_channel *channel = amqp ? om_channel_find(&amqp->conn, number) : NULL;
    int result = channel && channel->parked ? OM_OK : OM_E_GONE;
    if (result == OM_OK && generation != engine->queues->routes.generation)
        result = OM_E_STALE;
    om_route *route = NULL;
    if (result == OM_OK) {
        const om_publish_target *target = &channel->target;
        route = om_route_make(engine, amqp->vhost, target->salt, target->exchange, target->key, queues, count, flags);
        result = route ? OM_OK : OM_E_NO_MEMORY;
    }
    if (route) {
        amqp->conn.paused = 0;
        om_publish_parked(channel, route); /* which may pause it again: an error */
        om_route_unref(route);
        om_conn_continue(&amqp->conn);
    } else if (amqp && result == OM_E_GONE) {
        /* The channel was closed meanwhile; what comes behind that publish is still to be read. */
        amqp->conn.paused = 0;
        om_conn_continue(&amqp->conn);
    }
    om_engine_leave(engine);
    return result;
}

int om_dead_letter_route(om_engine *engine, uint64_t id, const uint64_t *queues, int32_t count, uint32_t flags,
                         uint64_t generation) {
    om_engine_enter(engine);
    om_queue *queue = om_queue_find(engine, id);
    int result = queue && queue->asked_route ? OM_OK : OM_E_GONE; /* else it was not asked for */
    if (result == OM_OK && generation != engine->queues->routes.generation)
        result = OM_E_STALE;
    if (result == OM_OK) {
        queue->asked_route = 0;
        result = om_dead_letter_answer(queue, queues, count, flags);
        om_queue_activate(queue);
    }
    om_engine_leave(engine);
    return result;
}

uint64_t om_route_generation(om_engine *engine) {
    return __atomic_load_n(&engine->queues->routes.generation, __ATOMIC_ACQUIRE);
}

/* It takes the lock only: no tick is due for it. */
void om_route_forget(om_engine *engine, uint32_t vhost, const uint8_t *exchange, size_t len) {
    om_ticket_lock_take(&engine->store->lock);
    if (exchange)
        om_routes_forget(engine, vhost, (om_span){exchange, (int32_t)len});
    else
        om_routes_forget_all(engine);
    om_ticket_lock_give(&engine->store->lock);
}
