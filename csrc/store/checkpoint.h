/* checkpoint.h -- checkpoints: the thread that takes them, and the ways to ask for one. */
#ifndef OM_CHECKPOINT_H
#define OM_CHECKPOINT_H
#include "store/log_list.h"

#include <pthread.h>

typedef struct om_checkpointer {
    pthread_mutex_t mutex; /* one checkpoint at a time; taken before the store's lock */
    om_list touched;       /* under the store's lock: logs that were written since the last one */
    uint64_t count, ns;    /* under the store's lock */
    uint64_t seq;          /* atomic: recovery starts after this */
    pthread_mutex_t timer; /* pairs with `wake`, guards `kick` */
    pthread_cond_t wake;
    int kick;
    pthread_t thread;
} om_checkpointer;

void om_checkpoint_init(om_store *store, const pthread_condattr_t *clock);
void *om_checkpoint_main(void *store);
int om_checkpoint_run(om_store *store, int closing);
/* For a caller that must change a log's past and have it recorded before anything else is: truncate. */
void om_checkpoint_lock(om_store *store);
int om_checkpoint_run_locked(om_store *store, int closing);
void om_checkpoint_unlock(om_store *store);
void om_checkpoint_wake(om_store *store);
int om_checkpoint_is_asked_for(om_store *store); /* or the thread is to stop */
void om_log_touch(om_log *log);                  /* the next one looks at this log; under the store's lock */

#endif
