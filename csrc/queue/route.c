/* route.c -- the route cache: (vhost, exchange, key) -> queues.
 *
 * Python works routes out; here they are only looked up. Each exchange has a generation, and each route has that of
 * its exchange: a changed binding raises the exchange's generation, and its routes are stale at once, wherever they
 * are held. The cache is bounded: the least recently used route is dropped.
 */
#include "queue/route.h"
#include "queue/queues.h"

#include <stdlib.h>
#include <string.h>

#define ROUTE_SWEEPS 16 /* in so many sweeps all routes are looked at: buckets are a power of two */

static uint32_t hash_of(uint32_t vhost, uint32_t salt, om_span exchange, om_span key) {
    uint32_t hash = om_crc32c(vhost * 2654435761u + salt, exchange.data, (size_t)exchange.len);
    return om_crc32c(hash ^ (uint32_t)exchange.len << 24, key.data, (size_t)key.len);
}

static int equals(const uint8_t *data, size_t len, om_span span) {
    return len == (size_t)span.len && memcmp(data, span.data, len) == 0;
}

/* ---- life ---- */

int om_routes_init(om_engine *engine) {
    om_routes *routes = &engine->queues->routes;
    routes->exchange_buckets = 256;
    routes->buckets = 1024;
    while (routes->buckets < engine->options.route_cache)
        routes->buckets *= 2;
    routes->exchanges = calloc(routes->exchange_buckets, sizeof *routes->exchanges);
    routes->by_hash = calloc(routes->buckets, sizeof *routes->by_hash);
    return routes->exchanges && routes->by_hash ? OM_OK : OM_E_NO_MEMORY;
}

void om_routes_free(om_engine *engine) {
    free(engine->queues->routes.exchanges);
    free(engine->queues->routes.by_hash);
}

/* ---- exchanges: only their names and generations ---- */

static om_exchange **exchange_slot(const om_routes *routes, uint32_t vhost, om_span name) {
    uint32_t hash = om_crc32c(vhost, name.data, (size_t)name.len);
    om_exchange **slot = &routes->exchanges[hash & (routes->exchange_buckets - 1)];
    while (*slot && !((*slot)->vhost == vhost && equals((*slot)->name, (*slot)->name_len, name)))
        slot = &(*slot)->next;
    return slot;
}

/* Python reads it without the lock. */
static uint64_t next_generation(om_routes *routes) {
    uint64_t generation = routes->generation + 1;
    __atomic_store_n(&routes->generation, generation, __ATOMIC_RELEASE);
    return generation;
}

static om_exchange *need_exchange(om_routes *routes, uint32_t vhost, om_span name) {
    om_exchange **slot = exchange_slot(routes, vhost, name);
    if (*slot) {
        (*slot)->refs++;
        return *slot;
    }
    om_exchange *exchange = malloc(sizeof *exchange + (size_t)name.len);
    if (!exchange)
        return NULL;
    *exchange =
        (om_exchange){.vhost = vhost, .refs = 1, .generation = next_generation(routes), .name_len = (uint8_t)name.len};
    memcpy(exchange->name, name.data, (size_t)name.len);
    *slot = exchange;
    return exchange;
}

static void let_exchange_go(om_routes *routes, om_exchange *exchange) {
    if (--exchange->refs)
        return;
    *exchange_slot(routes, exchange->vhost, (om_span){exchange->name, exchange->name_len}) = exchange->next;
    free(exchange);
}

/* ---- routes ---- */

int om_route_is_fresh(const om_route *route) {
    return route->exchange && route->generation == route->exchange->generation;
}

static void unlink_route(om_routes *routes, om_route *route) {
    om_route **slot = &routes->by_hash[route->hash & (routes->buckets - 1)];
    while (*slot != route)
        slot = &(*slot)->next;
    *slot = route->next;
    *(route->newer ? &route->newer->older : &routes->newest) = route->older;
    *(route->older ? &route->older->newer : &routes->oldest) = route->newer;
    routes->count--;
    om_route_unref(route);
}

void om_route_unref(om_route *route) {
    if (--route->refs)
        return;
    for (int32_t i = 0; i < route->count; i++)
        om_queue_unref(route->queues[i]);
    if (route->exchange)
        let_exchange_go(route->routes, route->exchange);
    free(route->key);
    free(route);
}

static void move_to_front(om_routes *routes, om_route *route) {
    if (routes->newest == route)
        return;
    route->newer->older = route->older;
    *(route->older ? &route->older->newer : &routes->oldest) = route->newer;
    route->newer = NULL;
    route->older = routes->newest;
    routes->newest->newer = route;
    routes->newest = route;
}

om_route *om_route_find(om_engine *engine, uint32_t vhost, uint32_t salt, om_span exchange, om_span key) {
    om_routes *routes = &engine->queues->routes;
    uint32_t hash = hash_of(vhost, salt, exchange, key);
    om_route *route = routes->by_hash[hash & (routes->buckets - 1)];
    while (route && !(route->hash == hash && route->exchange->vhost == vhost && route->salt == salt &&
                      equals(route->key, route->key_len, key) &&
                      equals(route->exchange->name, route->exchange->name_len, exchange)))
        route = route->next;
    if (!route)
        return NULL;
    if (!om_route_is_fresh(route)) {
        unlink_route(routes, route);
        return NULL;
    }
    move_to_front(routes, route);
    return route;
}

static int cache(om_engine *engine, om_route *route, uint32_t vhost, uint32_t salt, om_span exchange, om_span key) {
    om_routes *routes = &engine->queues->routes;
    om_exchange *kept = need_exchange(routes, vhost, exchange);
    route->key = malloc(key.len ? (size_t)key.len : 1);
    if (!kept || !route->key) {
        if (kept)
            let_exchange_go(routes, kept);
        return OM_E_NO_MEMORY;
    }
    /* Each connection's first publish asks Python, whether the route is known or not. */
    om_route *known = om_route_find(engine, vhost, salt, exchange, key);
    if (known)
        unlink_route(routes, known);
    while (routes->count >= engine->options.route_cache && routes->oldest)
        unlink_route(routes, routes->oldest);
    memcpy(route->key, key.data, (size_t)key.len);
    route->key_len = (uint8_t)key.len;
    route->exchange = kept;
    route->generation = kept->generation;
    route->salt = salt;
    route->hash = hash_of(vhost, salt, exchange, key);
    om_route **slot = &routes->by_hash[route->hash & (routes->buckets - 1)];
    route->next = *slot;
    *slot = route;
    route->older = routes->newest;
    *(routes->newest ? &routes->newest->newer : &routes->oldest) = route;
    routes->newest = route;
    routes->count++;
    route->refs++;
    return OM_OK;
}

om_route *om_route_make(om_engine *engine, uint32_t vhost, uint32_t salt, om_span exchange, om_span key,
                        const uint64_t *queues, int32_t count, uint32_t flags) {
    om_route *route = calloc(1, sizeof *route + (size_t)count * sizeof *route->queues);
    if (!route)
        return NULL;
    route->routes = &engine->queues->routes;
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

/* A stale route that is never looked up again would keep its queues, which may be gone, in memory. */
void om_routes_sweep(om_engine *engine) {
    om_routes *routes = &engine->queues->routes;
    uint32_t share = routes->buckets / ROUTE_SWEEPS;
    for (uint32_t end = routes->swept + share; routes->swept < end; routes->swept++) {
        om_route *route = routes->by_hash[routes->swept];
        while (route) {
            om_route *next = route->next;
            if (!om_route_is_fresh(route))
                unlink_route(routes, route);
            route = next;
        }
    }
    if (routes->swept >= routes->buckets)
        routes->swept = 0;
}

void om_routes_clear(om_engine *engine) {
    om_routes *routes = &engine->queues->routes;
    while (routes->oldest)
        unlink_route(routes, routes->oldest);
}

void om_routes_forget(om_engine *engine, uint32_t vhost, om_span exchange) {
    om_routes *routes = &engine->queues->routes;
    uint64_t generation = next_generation(routes);
    om_exchange *known = *exchange_slot(routes, vhost, exchange);
    if (known)
        known->generation = generation;
}

void om_routes_forget_all(om_engine *engine) {
    om_routes *routes = &engine->queues->routes;
    uint64_t generation = next_generation(routes);
    for (uint32_t i = 0; i < routes->exchange_buckets; i++)
        for (om_exchange *known = routes->exchanges[i]; known; known = known->next)
            known->generation = generation;
}
