/* queue_deadlines.h -- queues by the time at which their head must be looked at. */
#ifndef OM_QUEUE_DEADLINES_H
#define OM_QUEUE_DEADLINES_H

#include "om_engine.h"

typedef struct om_queue om_queue;

typedef struct om_deadlines {
    om_queue **heap; /* slot 0 unused */
    uint32_t count, cap;
} om_deadlines;

void om_deadline_set(om_queue *queue, int64_t at_ms);
void om_deadline_clear(om_queue *queue);
void om_deadline_run(om_engine *engine);
int64_t om_deadline_next(const om_engine *engine);

#endif
