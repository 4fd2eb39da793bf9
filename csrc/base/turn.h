/* turn.h -- the engine's lock: first come, first served.
 *
 * A plain mutex lets the thread that has just let go take it again at once; under full load the
 * engine would starve every caller. Here each comer draws a ticket, so a caller waits for at
 * most the tick that is running.
 */
#ifndef OM_TURN_H
#define OM_TURN_H
#include <pthread.h>
#include <stdint.h>

typedef struct om_turn {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    uint64_t next, serving;
} om_turn;

static inline void om_turn_init(om_turn *turn) {
    pthread_mutex_init(&turn->mutex, NULL);
    pthread_cond_init(&turn->moved, NULL);
    turn->next = turn->serving = 0;
}

static inline void om_turn_destroy(om_turn *turn) {
    pthread_cond_destroy(&turn->moved);
    pthread_mutex_destroy(&turn->mutex);
}

static inline void om_turn_take(om_turn *turn) {
    pthread_mutex_lock(&turn->mutex);
    uint64_t mine = turn->next++;
    while (turn->serving != mine)
        pthread_cond_wait(&turn->moved, &turn->mutex);
    pthread_mutex_unlock(&turn->mutex);
}

static inline void om_turn_give(om_turn *turn) {
    pthread_mutex_lock(&turn->mutex);
    turn->serving++;
    if (turn->next != turn->serving)
        pthread_cond_broadcast(&turn->moved);
    pthread_mutex_unlock(&turn->mutex);
}
#endif
