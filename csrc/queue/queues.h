/* queues.h -- all queues of an engine, and what they share. */
#ifndef OM_QUEUES_H
#define OM_QUEUES_H

#include "net/engine_core.h"
#include "queue/dead_letter.h"
#include "queue/decompressed.h"
#include "queue/queue.h"
#include "queue/queue_deadlines.h"
#include "queue/route.h"

typedef struct om_queues {
    om_queue **by_id, **by_name;
    uint32_t buckets, count;
    om_queue *active, *active_tail; /* have or may have something to do this tick */
    om_queue *waiting;              /* look again when the disk has news */
    int paused;                     /* none acts: see om_engine_start */
    int64_t shortest_timeout_ms;    /* that any queue or consumer has had for acks */
    om_deadlines deadlines;
    om_routes routes;
    om_dead_letters dead_letters;
    om_decompressed *decompressed; /* compressed batches in plain; NULL before the first */
    uint8_t *foreign;              /* properties of Kafka records: OM_FOREIGN bytes */
} om_queues;

int om_queues_init(om_engine *engine); /* OM_E_NO_MEMORY: om_queues_free is due all the same */
void om_queues_free(om_engine *engine);
void om_queues_start(om_engine *engine); /* they act from now on */
void om_queues_clear(om_engine *engine); /* the lists of those that have something to do */
void om_queues_wake(om_engine *engine);  /* all that wait */
void om_queues_pump(om_engine *engine);  /* the end of a tick */
int om_queues_are_due(const om_engine *engine);
void om_queues_note_timeout(om_engine *engine, int64_t timeout_ms); /* of a queue or consumer; below 0: none */

#endif
