/* tick_coalesce.c -- ticks keep their distance while a crowd is there.
 *
 * A thousand clients that each send a message now and then wake the engine for every few of them, and
 * each of those ticks is a group for the disk, a call for each consumer that gets two or three
 * messages of it, and a wake-up of whoever waits for these. None of that is dearer for a hundred
 * messages. So while at least CROWD of them are heard in two milliseconds, a tick begins no sooner
 * than that after the last one.
 *
 * Who counts are those who were silent for a while. A client that waits for each of its confirms
 * would only be slowed down; it speaks again as soon as it has its answer, and doesn't count.
 */
#include "net/tick_coalesce.h"

#define DISTANCE_NS UINT64_C(2000000)
#define SILENT_MS 6 /* longer than an answer takes while ticks keep their distance */
#define CROWD 64

void om_coalesce_heard(om_coalesce *crowd, int64_t silent_ms) {
    crowd->seldom += silent_ms >= SILENT_MS;
}

void om_coalesce_tick(om_coalesce *crowd, uint64_t now_ns) {
    uint64_t passed = now_ns - crowd->counted_ns;
    crowd->tick_ns = now_ns;
    if (passed < DISTANCE_NS)
        return;
    crowd->gathers = crowd->seldom * DISTANCE_NS >= CROWD * passed;
    crowd->counted_ns = now_ns;
    crowd->seldom = 0;
}

uint64_t om_coalesce_next(const om_coalesce *crowd) {
    return crowd->gathers ? crowd->tick_ns + DISTANCE_NS : 0;
}
