/* timing_wheel.c -- see timing_wheel.h. */
#include "base/timing_wheel.h"

#include <stddef.h>

#define SLOT_MASK (OM_WHEEL_SLOTS - 1)
#define DUE UINT8_MAX /* the level of those whose time is up */

static void link_into(om_wheel_timer **list, om_wheel_timer *timer) {
    timer->next = *list;
    timer->link = list;
    if (timer->next)
        timer->next->link = &timer->next;
    *list = timer;
}

static void unlink_timer(om_wheel *wheel, om_wheel_timer *timer) {
    *timer->link = timer->next;
    if (timer->next)
        timer->next->link = timer->link;
    timer->link = NULL;
    if (timer->level != DUE && !wheel->slots[timer->level][timer->slot])
        wheel->occupied[timer->level] &= ~(1ull << timer->slot);
}

static void place(om_wheel *wheel, om_wheel_timer *timer) {
    int64_t away = timer->at - wheel->now;
    if (away <= 0) {
        timer->level = DUE;
        link_into(&wheel->due, timer);
        return;
    }
    int level = 0;
    while (level < OM_WHEEL_LEVELS - 1 && away >> (OM_WHEEL_BITS * (level + 1)))
        level++;
    int shift = OM_WHEEL_BITS * level;
    /* Past the rim: as far as the wheel reaches, from where it is placed again. */
    int64_t at = away >> (shift + OM_WHEEL_BITS) ? wheel->now + ((int64_t)SLOT_MASK << shift) : timer->at;
    timer->level = (uint8_t)level;
    timer->slot = (uint8_t)(at >> shift & SLOT_MASK);
    wheel->occupied[level] |= 1ull << timer->slot;
    link_into(&wheel->slots[level][timer->slot], timer);
}

void om_wheel_clear(om_wheel *wheel, om_wheel_timer *timer) {
    if (!timer->link)
        return;
    unlink_timer(wheel, timer);
    wheel->count--;
}

void om_wheel_set(om_wheel *wheel, om_wheel_timer *timer, int64_t at) {
    om_wheel_clear(wheel, timer);
    timer->at = at;
    wheel->count++;
    place(wheel, timer);
}

/* Everything in that slot is placed anew: a level down, or its time is up. */
static void empty_slot(om_wheel *wheel, int level, unsigned slot) {
    om_wheel_timer *timer = wheel->slots[level][slot];
    wheel->slots[level][slot] = NULL;
    wheel->occupied[level] &= ~(1ull << slot);
    while (timer) {
        om_wheel_timer *next = timer->next;
        place(wheel, timer);
        timer = next;
    }
}

static void step(om_wheel *wheel) {
    for (int level = OM_WHEEL_LEVELS - 1; level > 0; level--) {
        int shift = OM_WHEEL_BITS * level;
        if (!(wheel->now & ((1ll << shift) - 1)))
            empty_slot(wheel, level, (unsigned)(wheel->now >> shift & SLOT_MASK));
    }
    empty_slot(wheel, 0, (unsigned)(wheel->now & SLOT_MASK));
}

om_wheel_timer *om_wheel_expired(om_wheel *wheel, int64_t now) {
    while (!wheel->due && wheel->now < now) {
        int64_t next = om_wheel_next(wheel); /* what lies between is empty */
        wheel->now = next < now ? next : now;
        step(wheel);
    }
    om_wheel_timer *timer = wheel->due;
    if (timer)
        om_wheel_clear(wheel, timer);
    return timer;
}

int64_t om_wheel_next(const om_wheel *wheel) {
    if (wheel->due)
        return wheel->now;
    int64_t first = INT64_MAX;
    for (int level = 0; level < OM_WHEEL_LEVELS; level++) {
        uint64_t bits = wheel->occupied[level];
        if (!bits)
            continue;
        int shift = OM_WHEEL_BITS * level;
        unsigned at = (unsigned)((wheel->now >> shift) + 1) & SLOT_MASK;
        uint64_t turned = at ? bits >> at | bits << (OM_WHEEL_SLOTS - at) : bits;
        int64_t when = ((wheel->now >> shift) + 1 + __builtin_ctzll(turned)) << shift;
        first = when < first ? when : first;
    }
    return first;
}
