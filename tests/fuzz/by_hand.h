/* by_hand.h -- the engine without a thread of its own: a fuzz target calls its ticks, and moves its clock.
 *
 * Handing the engine's lock to and fro between two threads took most of an input's time, and what an
 * input did hung on who came first. Here a tick is a call, in the target's own thread; delays and
 * expiries of a few milliseconds are due at the next one, so that what an input causes happens
 * before the next begins. The disk's threads live as ever, by the real clock.
 *
 * Link with -Wl,--wrap=om_engine_main,--wrap=om_clock_ms,--wrap=om_now_ns
 */
#ifndef BY_HAND_H
#define BY_HAND_H

#include "engine/engine.h"

#define TICK_MS 5 /* longer than any delay a seed asks for */

static __thread int64_t hand_ahead_ms = 0; /* of this thread's clock */

int64_t __real_om_clock_ms(om_clock *clock);
uint64_t __real_om_now_ns(void);
int64_t __wrap_om_clock_ms(om_clock *clock);
uint64_t __wrap_om_now_ns(void);
void *__wrap_om_engine_main(void *engine);

int64_t __wrap_om_clock_ms(om_clock *clock) {
    return __real_om_clock_ms(clock) + hand_ahead_ms;
}

uint64_t __wrap_om_now_ns(void) {
    return __real_om_now_ns() + (uint64_t)hand_ahead_ms * 1000000u;
}

void *__wrap_om_engine_main(void *engine) {
    (void)engine;
    return NULL;
}

static inline void tick(om_engine *engine) {
    hand_ahead_ms += TICK_MS;
    PROMISE(om_engine_tick(engine, 0) == OM_OK);
}
#endif
