/* clock.h -- the clocks; om_clock is the time by which messages are stamped, expire and come due. */
#ifndef OM_CLOCK_H
#define OM_CLOCK_H

#include <pthread.h>
#include <stdint.h>

typedef struct om_clock {
    pthread_mutex_t mutex;
    int64_t ns;       /* since 1970, when it was last asked ... */
    int64_t asked_ns; /* ... which was then, by the clock that nobody sets */
} om_clock;

void om_clock_init(om_clock *clock); /* at the system's time */
void om_clock_free(om_clock *clock);
/* It doesn't begin before that. How many ms the system's time is behind it; 0: it isn't. */
int64_t om_clock_raise(om_clock *clock, int64_t least_ms);
int64_t om_clock_ms(om_clock *clock);

int64_t om_now_ms(void);         /* the system's time, ms since 1970 */
uint64_t om_now_ns(void);        /* for durations: a clock that nobody sets */
uint64_t om_thread_cpu_ns(void); /* CPU time of the calling thread */

#endif
