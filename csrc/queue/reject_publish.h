/* reject_publish.h -- a full queue rejects new messages. */
#ifndef OM_REJECT_PUBLISH_H
#define OM_REJECT_PUBLISH_H

#include "om_engine.h"
#include "store/store.h"

typedef struct om_queue om_queue;

/* A message that a record under way doesn't bring to its queue, or brings only to be dead-lettered. */
typedef struct om_rejected {
    om_queue *queue; /* held */
    /* Which of the record's messages in that log it is, from 1; once sealed, from the end. 0: it isn't in there. */
    int64_t place;
    uint32_t weight;
    uint8_t lane;
} om_rejected;

typedef struct om_rejected_list {
    om_rejected *items;
    uint32_t count, cap;
} om_rejected_list;

/* soon_taken: of those in it, what consumers have as good as taken (om_queue_hand_on). */
int om_reject_publish_refuses(const om_queue *queue, int64_t soon_taken, int64_t more_bytes);
int om_reject_publish_dead_letters(const om_queue *queue); /* and dead-letters what it refuses */
/* Into that record, unless the queue is gone or refuses it. */
int om_reject_publish_stage(om_atomic *atomic, om_rejected_list *rejects, om_queue *queue, int priority, om_span key,
                            om_span body, om_span tail);
void om_reject_publish_seal(om_rejected_list *rejects);               /* just before the commit ... */
void om_reject_publish_end(om_rejected_list *rejects, int committed); /* ... and right after it */

#endif
