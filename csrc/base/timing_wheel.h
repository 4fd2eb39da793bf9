/* timing_wheel.h -- a hierarchical timing wheel: setting, clearing and expiring a timer cost O(1).
 *
 *   level 0: 64 slots of 1 ms     level 1: 64 of 64 ms     level 2: 64 of 4 s  ...
 *
 * A timer lies in the level whose reach holds its time; when the wheel comes to a slot of a higher
 * level, its timers move down. Nothing is allocated: a timer is a member of its owner.
 */
#ifndef OM_TIMING_WHEEL_H
#define OM_TIMING_WHEEL_H
#include <stdint.h>

#define OM_WHEEL_BITS 6
#define OM_WHEEL_SLOTS 64
#define OM_WHEEL_LEVELS 5 /* reaches 12 days; what is further waits at the rim */

typedef struct om_wheel_timer {
    struct om_wheel_timer *next, **link; /* link NULL: not set */
    int64_t at;
    uint8_t level, slot;
    uint8_t kind; /* its owner's word for it */
} om_wheel_timer;

typedef struct om_wheel {
    int64_t now;
    uint64_t occupied[OM_WHEEL_LEVELS]; /* a bit per slot */
    om_wheel_timer *slots[OM_WHEEL_LEVELS][OM_WHEEL_SLOTS];
    om_wheel_timer *due; /* time is up */
    uint64_t count;
} om_wheel;

void om_wheel_set(om_wheel *wheel, om_wheel_timer *timer, int64_t at); /* anew, if it was set */
void om_wheel_clear(om_wheel *wheel, om_wheel_timer *timer);
/* One whose time is up by then, cleared; NULL: no more. */
om_wheel_timer *om_wheel_expired(om_wheel *wheel, int64_t now);
/* When to look again: never later than the first timer; INT64_MAX: there is none. */
int64_t om_wheel_next(const om_wheel *wheel);
#endif
