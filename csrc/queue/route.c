/* route.c -- the route cache: (vhost, exchange, key) -> queues.
 *
 * Python works routes out and puts them in; here they are only looked up. Each exchange has a
 * generation, and so has each of its routes: a changed binding raises the exchange's, and what was
 * worked out before is stale at once, wherever it is held. Bounded: the least used one goes.
 */
#include "engine/engine.h"

#include <stdlib.h>

#define ROUTE_SWEEPS 16 /* in so many sweeps all routes are looked at: buckets are a power of two */

static uint32_t hash_of(uint32_t vhost, uint32_t salt, om_span exchange, om_span key) {
    uint32_t hash = om_crc32c(vhost * 2654435761u + salt, exchange.data, (size_t)exchange.len);
    return om_crc32c(hash ^ (uint32_t)exchange.len << 24, key.data, (size_t)key.len);
}

static int equals(const uint8_t *data, size_t len, om_span span) {
    return len == (size_t)span.len && memcmp(data, span.data, len) == 0;
}

/* ---- exchanges: only their names and generations ---- */

static om_exchange **exchange_slot(om_engine *engine, uint32_t vhost, om_span name) {
    uint32_t hash = om_crc32c(vhost, name.data, (size_t)name.len);
    om_exchange **slot = &engine->exchanges[hash & (engine->exchange_buckets - 1)];
    while (*slot && !((*slot)->vhost == vhost && equals((*slot)->name, (*slot)->name_len, name)))
        slot = &(*slot)->next;
    return slot;
}

/* Python reads it without the lock. */
static uint64_t next_generation(om_engine *engine) {
    uint64_t generation = engine->generation + 1;
    __atomic_store_n(&engine->generation, generation, __ATOMIC_RELEASE);
    return generation;
}

static om_exchange *need_exchange(om_engine *engine, uint32_t vhost, om_span name) {
    om_exchange **slot = exchange_slot(engine, vhost, name);
    if (*slot) {
        (*slot)->refs++;
        return *slot;
    }
    om_exchange *exchange = malloc(sizeof *exchange + (size_t)name.len);
    if (!exchange)
        return NULL;
    *exchange =
        (om_exchange){.vhost = vhost, .refs = 1, .generation = next_generation(engine), .name_len = (uint8_t)name.len};
    memcpy(exchange->name, name.data, (size_t)name.len);
    *slot = exchange;
    return exchange;
}

static void let_exchange_go(om_engine *engine, om_exchange *exchange) {
    if (--exchange->refs)
        return;
    *exchange_slot(engine, exchange->vhost, (om_span){exchange->name, exchange->name_len}) = exchange->next;
    free(exchange);
}

/* ---- routes ---- */

int om_route_is_fresh(const om_route *route) {
    return route->exchange && route->generation == route->exchange->generation;
}

static void unlink_route(om_engine *engine, om_route *route) {
    om_route **slot = &engine->routes[route->hash & (engine->route_buckets - 1)];
    while (*slot != route)
        slot = &(*slot)->next;
    *slot = route->next;
    *(route->newer ? &route->newer->older : &engine->newest) = route->older;
    *(route->older ? &route->older->newer : &engine->oldest) = route->newer;
    engine->route_count--;
    om_route_unref(route);
}

void om_route_unref(om_route *route) {
    if (--route->refs)
        return;
    for (int32_t i = 0; i < route->count; i++)
        om_queue_unref(route->queues[i]);
    if (route->exchange)
        let_exchange_go(route->engine, route->exchange);
    free(route->key);
    free(route);
}

static void move_to_front(om_engine *engine, om_route *route) {
    if (engine->newest == route)
        return;
    route->newer->older = route->older;
    *(route->older ? &route->older->newer : &engine->oldest) = route->newer;
    route->newer = NULL;
    route->older = engine->newest;
    engine->newest->newer = route;
    engine->newest = route;
}

om_route *om_route_find(om_engine *engine, uint32_t vhost, uint32_t salt, om_span exchange, om_span key) {
    uint32_t hash = hash_of(vhost, salt, exchange, key);
    om_route *route = engine->routes[hash & (engine->route_buckets - 1)];
    while (route && !(route->hash == hash && route->exchange->vhost == vhost && route->salt == salt &&
                      equals(route->key, route->key_len, key) &&
                      equals(route->exchange->name, route->exchange->name_len, exchange)))
        route = route->next;
    if (!route)
        return NULL;
    if (!om_route_is_fresh(route)) {
        unlink_route(engine, route);
        return NULL;
    }
    move_to_front(engine, route);
    return route;
}

static int cache(om_engine *engine, om_route *route, uint32_t vhost, uint32_t salt, om_span exchange, om_span key) {
    om_exchange *kept = need_exchange(engine, vhost, exchange);
    route->key = malloc(key.len ? (size_t)key.len : 1);
    if (!kept || !route->key) {
        if (kept)
            let_exchange_go(engine, kept);
        return OM_E_NO_MEMORY;
    }
    /* Each connection's first publish asks Python, whether the route is known or not. */
    om_route *known = om_route_find(engine, vhost, salt, exchange, key);
    if (known)
        unlink_route(engine, known);
    while (engine->route_count >= engine->options.route_cache && engine->oldest)
        unlink_route(engine, engine->oldest);
    memcpy(route->key, key.data, (size_t)key.len);
    route->key_len = (uint8_t)key.len;
    route->exchange = kept;
    route->generation = kept->generation;
    route->salt = salt;
    route->hash = hash_of(vhost, salt, exchange, key);
    om_route **slot = &engine->routes[route->hash & (engine->route_buckets - 1)];
    route->next = *slot;
    *slot = route;
    route->older = engine->newest;
    *(engine->newest ? &engine->newest->newer : &engine->oldest) = route;
    engine->newest = route;
    engine->route_count++;
    route->refs++;
    return OM_OK;
}

om_route *om_route_make(om_engine *engine, uint32_t vhost, uint32_t salt, om_span exchange, om_span key,
                        const uint64_t *queues, int32_t count, uint32_t flags) {
    om_route *route = calloc(1, sizeof *route + (size_t)count * sizeof *route->queues);
    if (!route)
        return NULL;
    route->engine = engine;
    route->refs = 1;
    route->flags = flags;
    for (int32_t i = 0; i < count; i++) {
        om_queue *queue = om_queue_find(engine, queues[i]);
        if (!queue) {
            if (i == 0)
                route->flags &= ~(uint32_t)OM_ROUTE_DELAY; /* the first was to be the delay log */
            continue;
        }
        om_queue_ref(queue);
        route->queues[route->count++] = queue;
    }
    if (!count)
        route->flags &= ~(uint32_t)OM_ROUTE_DELAY;
    if (flags & OM_ROUTE_CACHE)
        cache(engine, route, vhost, salt, exchange, key); /* without memory it serves this once */
    return route;
}

/* A stale route that nobody asks for again would keep its queues, which may be gone, in memory. */
void om_routes_sweep(om_engine *engine) {
    uint32_t share = engine->route_buckets / ROUTE_SWEEPS;
    for (uint32_t end = engine->route_swept + share; engine->route_swept < end; engine->route_swept++) {
        om_route *route = engine->routes[engine->route_swept];
        while (route) {
            om_route *next = route->next;
            if (!om_route_is_fresh(route))
                unlink_route(engine, route);
            route = next;
        }
    }
    if (engine->route_swept >= engine->route_buckets)
        engine->route_swept = 0;
}

void om_routes_clear(om_engine *engine) {
    while (engine->oldest)
        unlink_route(engine, engine->oldest);
}

void om_routes_forget(om_engine *engine, uint32_t vhost, om_span exchange) {
    uint64_t generation = next_generation(engine);
    om_exchange *known = *exchange_slot(engine, vhost, exchange);
    if (known)
        known->generation = generation;
}

void om_routes_forget_all(om_engine *engine) {
    uint64_t generation = next_generation(engine);
    for (uint32_t i = 0; i < engine->exchange_buckets; i++)
        for (om_exchange *known = engine->exchanges[i]; known; known = known->next)
            known->generation = generation;
}
