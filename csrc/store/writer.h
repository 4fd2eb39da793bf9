/* writer.h -- the writer: durable batches go from the hot tail into segments. */
#ifndef OM_WRITER_H
#define OM_WRITER_H
#include "store/log_list.h"
#include "store/segment_node.h"

#include <pthread.h>

typedef struct om_writer {
    /* under the store's lock */
    om_list queued;           /* logs with batches to write, oldest first */
    om_list write_now;        /* logs whose batches are in no WAL: to the page cache at once */
    om_segment_node *to_seal; /* full segments whose files are to be finished */
    uint64_t flush_left;      /* a flush is under way: so many logs of the queue to go */
    /* under `mutex`, which is taken after the store's lock, never before */
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    int kick;
    int flushing; /* somebody waits for a flush */
    int flush_result;

    int stuck; /* atomic: the last round met an error and will be tried again */
    /* the writer's thread; others read the text once `stuck` says that it is set */
    char error[320];        /* ... which, and where */
    struct om_round *round; /* working space */
    pthread_t thread;
} om_writer;

int om_writer_init(om_store *store, const pthread_condattr_t *clock);
void *om_writer_main(void *store);
void om_writer_wake(om_store *store);
int om_writer_wants(const om_store *store); /* is there a reason to write now? Under the store's lock. */
/* The rest without it. */
/* Write what may be written now, in the calling thread (the writer's, or recovery before it
 * runs). Returns how many batches were written or OM_E_*. */
int64_t om_writer_round(om_store *store);
/* Write everything that is durable now into segments; wait for it. */
int om_writer_flush(om_store *store);

#endif
