/* crowd.h -- how many are there that say little: see crowd.c. */
#ifndef OM_CROWD_H
#define OM_CROWD_H

#include <stdint.h>

typedef struct om_crowd {
    uint64_t tick_ns;        /* when the last tick began */
    uint64_t counted_ns;     /* since when it is counted ... */
    uint32_t seldom;         /* ... how many were read who hadn't said a word for a while */
    int gathers;             /* they are so many that ticks keep their distance */
} om_crowd;

/* A connection has brought something, that many ms after the last time. */
void om_crowd_heard(om_crowd *crowd, int64_t silent_ms);
/* A tick begins. */
void om_crowd_tick(om_crowd *crowd, uint64_t now_ns);
/* When the next one may begin, on the clock of now_ns; 0: as soon as there is something to do. */
uint64_t om_crowd_next(const om_crowd *crowd);
#endif
