/* stream.h -- stream queues: each consumer has its own place. */
#ifndef OM_STREAM_H
#define OM_STREAM_H

#include "queue/consumer.h"

void om_stream_start_at(om_consumer *consumer, const om_consume *consume);
int om_stream_wants(const om_consumer *consumer, const om_properties *properties); /* its filter */
void om_stream_pump(om_queue *queue);

#endif
