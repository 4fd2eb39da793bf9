/* queue_pump.h -- a queue gives out its messages. */
#ifndef OM_QUEUE_PUMP_H
#define OM_QUEUE_PUMP_H

#include "queue/consumer.h"

void om_queue_pump(om_queue *queue);
/* Has the WAL room for what is given out now to be settled? If not, the queue waits for it. */
int om_queue_can_settle(om_queue *queue);
/* To consumers that wait, before the tick is over: a queue that refuses what is too much isn't full while
 * they empty it. How many of those that can't be had yet, but soon, they will take. */
int64_t om_queue_hand_on(om_queue *queue);
void om_queue_keep_short(om_queue *queue);      /* gives out, then what is over its limit leaves */
int64_t om_queue_credit(const om_queue *queue); /* how many more its consumers may be given; INT64_MAX: any number */

#endif
