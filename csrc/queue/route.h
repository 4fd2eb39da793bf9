/* route.h -- the route cache: (vhost, exchange, key) -> queues. */
#ifndef OM_ROUTE_H
#define OM_ROUTE_H

#include "om_engine.h"

typedef struct om_queue om_queue;
typedef struct om_exchange om_exchange;
typedef struct om_route om_route;

/* Only a name and a generation. */
struct om_exchange {
    uint32_t vhost;
    uint32_t refs;
    uint64_t generation;
    uint8_t name_len;
    om_exchange *next;
    uint8_t name[];
};

struct om_route {
    struct om_routes *routes; /* the cache */
    om_exchange *exchange;    /* held; NULL: made for one message */
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

typedef struct om_routes {
    om_exchange **exchanges;
    uint32_t exchange_buckets;
    om_route **by_hash;
    uint32_t buckets, count;
    uint32_t swept; /* the bucket to be swept next */
    om_route *newest, *oldest;
    uint64_t generation; /* moves with every change of a binding; read without the lock */
} om_routes;

int om_routes_init(om_engine *engine); /* OM_E_NO_MEMORY: om_routes_free is due all the same */
void om_routes_free(om_engine *engine);
int om_route_is_fresh(const om_route *route);
om_route *om_route_find(om_engine *engine, uint32_t vhost, uint32_t salt, om_span exchange, om_span key);
/* A route of these queues (those that are gone are left out); cached when the flags say so. */
om_route *om_route_make(om_engine *engine, uint32_t vhost, uint32_t salt, om_span exchange, om_span key,
                        const uint64_t *queues, int32_t count, uint32_t flags);
void om_route_unref(om_route *route);
void om_routes_forget(om_engine *engine, uint32_t vhost, om_span exchange); /* a binding changed */
void om_routes_forget_all(om_engine *engine);
void om_routes_clear(om_engine *engine);
void om_routes_sweep(om_engine *engine); /* some of them, with each sweep */

#endif
