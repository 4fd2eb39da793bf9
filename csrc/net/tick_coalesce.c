/* tick_coalesce.c -- ticks keep a distance while many mostly idle clients are active.
 *
 * A thousand clients that each send a message now and then wake the engine for every few of them. Each of those ticks
 * is a group for the disk, a call for each consumer that gets two or three of its messages, and a wake-up of all that
 * wait for these. None of that costs more for a hundred messages. So while at least CLIENTS_MIN of them send within
 * two milliseconds, a tick begins no sooner than that after the last one.
 *
 * Only clients that were silent for a while are counted. A client that waits for each of its confirms would only be
 * slowed down; it sends again as soon as it has its answer, and isn't counted.
 */
#include "net/tick_coalesce.h"

#define DISTANCE_NS UINT64_C(2000000)
#define SILENT_MS 6 /* longer than an answer takes while ticks keep their distance */
#define CLIENTS_MIN 64

void om_coalesce_heard(om_coalesce *coalesce, int64_t silent_ms) {
    coalesce->seldom += silent_ms >= SILENT_MS;
}

void om_coalesce_tick(om_coalesce *coalesce, uint64_t now_ns) {
    uint64_t passed = now_ns - coalesce->counted_ns;
    coalesce->tick_ns = now_ns;
    if (passed < DISTANCE_NS)
        return;
    coalesce->gathers = coalesce->seldom * DISTANCE_NS >= CLIENTS_MIN * passed;
    coalesce->counted_ns = now_ns;
    coalesce->seldom = 0;
}

uint64_t om_coalesce_next(const om_coalesce *coalesce) {
    return coalesce->gathers ? coalesce->tick_ns + DISTANCE_NS : 0;
}
