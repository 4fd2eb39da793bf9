/* tick_coalesce.h -- counts the mostly idle clients that are active: see tick_coalesce.c. */
#ifndef OM_TICK_COALESCE_H
#define OM_TICK_COALESCE_H

#include <stdint.h>

typedef struct om_coalesce {
    uint64_t tick_ns;    /* when the last tick began */
    uint64_t counted_ns; /* since when it is counted ... */
    uint32_t seldom;     /* ... how many were heard after a silence */
    int gathers;         /* they are so many that ticks keep their distance */
} om_coalesce;

/* A connection has brought something, that many ms after the last time. */
void om_coalesce_heard(om_coalesce *coalesce, int64_t silent_ms);
/* A tick begins. */
void om_coalesce_tick(om_coalesce *coalesce, uint64_t now_ns);
/* When the next one may begin, on the clock of now_ns; 0: as soon as there is something to do. */
uint64_t om_coalesce_next(const om_coalesce *coalesce);
#endif
