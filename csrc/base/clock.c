/* clock.c -- the clocks: the system's, the kernel's, a thread's, and the one for messages.
 *
 * om_clock is the system's time without its jumps. A clock that is set back would let messages live for
 * ever, one that is set forward would end them at once. So time goes on as the kernel's boot clock does,
 * which nobody sets and which counts while the machine sleeps; where the system's time is elsewhere, ours
 * gains or loses one part in a hundred until they meet. Between two lives only the system's time knows what
 * has passed: each checkpoint keeps ours (checkpoint_file.c), and the next life doesn't begin before it.
 */
#include "base/clock.h"

#include <time.h>

#define SLEW 100

static int64_t read_ns(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void om_clock_init(om_clock *clock) {
    pthread_mutex_init(&clock->mutex, NULL);
    clock->ns = read_ns(CLOCK_REALTIME);
    clock->asked_ns = read_ns(CLOCK_BOOTTIME);
}

void om_clock_free(om_clock *clock) {
    pthread_mutex_destroy(&clock->mutex);
}

int64_t om_clock_raise(om_clock *clock, int64_t least_ms) {
    int64_t now_ms = om_clock_ms(clock), ns;
    if (least_ms <= now_ms || __builtin_mul_overflow(least_ms, 1000000, &ns))
        return 0;
    pthread_mutex_lock(&clock->mutex);
    clock->ns = ns;
    pthread_mutex_unlock(&clock->mutex);
    return least_ms - now_ms;
}

int64_t om_clock_ms(om_clock *clock) {
    pthread_mutex_lock(&clock->mutex);
    int64_t asked_ns = read_ns(CLOCK_BOOTTIME), passed = asked_ns - clock->asked_ns;
    int64_t apart = read_ns(CLOCK_REALTIME) - (clock->ns + passed), most = passed / SLEW;
    clock->ns += passed + (apart > most ? most : apart < -most ? -most : apart);
    clock->asked_ns = asked_ns;
    int64_t ms = clock->ns / 1000000;
    pthread_mutex_unlock(&clock->mutex);
    return ms;
}

int64_t om_now_ms(void) {
    return read_ns(CLOCK_REALTIME) / 1000000;
}

uint64_t om_now_ns(void) {
    return (uint64_t)read_ns(CLOCK_MONOTONIC);
}

uint64_t om_thread_cpu_ns(void) {
    return (uint64_t)read_ns(CLOCK_THREAD_CPUTIME_ID);
}
