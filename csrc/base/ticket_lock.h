/* ticket_lock.h -- the store's lock: first come, first served.
 *
 * A plain mutex lets the thread that has just let go take it again at once; under full load the
 * engine would starve every caller. Here each comer draws a ticket, so a caller waits for at
 * most the tick that is running.
 *
 * Where nobody else wants it, taking and giving are one atomic addition each. The mutex and the condition are
 * for waiting only, and no wake-up is lost: a comer draws its ticket before it looks at `serving`, the holder
 * serves the next before it looks at `next`. So one of them sees the other; and a comer that has to wait
 * looks once more with the mutex held, which the holder needs for its broadcast.
 */
#ifndef OM_TICKET_LOCK_H
#define OM_TICKET_LOCK_H
#include <pthread.h>
#include <stdint.h>

typedef struct om_ticket_lock {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    uint64_t next, serving;
} om_ticket_lock;

static inline void om_ticket_lock_init(om_ticket_lock *lock) {
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->moved, NULL);
    lock->next = lock->serving = 0;
}

static inline void om_ticket_lock_destroy(om_ticket_lock *lock) {
    pthread_cond_destroy(&lock->moved);
    pthread_mutex_destroy(&lock->mutex);
}

static inline void om_ticket_lock_take(om_ticket_lock *lock) {
    uint64_t mine = __atomic_fetch_add(&lock->next, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&lock->serving, __ATOMIC_SEQ_CST) == mine)
        return;
    pthread_mutex_lock(&lock->mutex);
    while (__atomic_load_n(&lock->serving, __ATOMIC_SEQ_CST) != mine)
        pthread_cond_wait(&lock->moved, &lock->mutex);
    pthread_mutex_unlock(&lock->mutex);
}

static inline void om_ticket_lock_give(om_ticket_lock *lock) {
    uint64_t served = __atomic_add_fetch(&lock->serving, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&lock->next, __ATOMIC_SEQ_CST) == served)
        return;
    pthread_mutex_lock(&lock->mutex);
    pthread_cond_broadcast(&lock->moved);
    pthread_mutex_unlock(&lock->mutex);
}
#endif
