/* queue_length.h -- how long a queue is. */
#ifndef OM_QUEUE_LENGTH_H
#define OM_QUEUE_LENGTH_H

#include "queue/queue.h"

int64_t om_queue_length(const om_queue *queue); /* records, those of the open batches and transactions included */
int64_t om_queue_ready(const om_queue *queue);  /* without those of open transactions, and what can't be read */
int64_t om_queue_ready_bytes(const om_queue *queue);
void om_queue_trim_length(om_queue *queue); /* drop-head */

#endif
