/* queue_head.h -- the head of a queue. */
#ifndef OM_QUEUE_HEAD_H
#define OM_QUEUE_HEAD_H

#include "queue/queue.h"

/* Its lane and offset; messages expired at `as_of` are taken out before. OM_OK; OM_END: empty; OM_E_NOT_RESIDENT:
 * there is one, available later; OM_E_*. */
int om_queue_head(om_queue *queue, int64_t as_of, int32_t *lane, int64_t *offset, om_content *content);
/* Looks at each lane's head when it expires (queue_deadlines.c): with priorities, each does in its place. */
void om_queue_watch_heads(om_queue *queue);

#endif
