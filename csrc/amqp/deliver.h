/* deliver.h -- a message goes to a client. */
#ifndef OM_DELIVER_H
#define OM_DELIVER_H

#include "amqp/channel.h"

extern const om_delivery_ops om_amqp_delivery;

#define OM_TOO_LONG_FOR_IT "message properties exceed frame_max"
/* The arguments of basic.deliver; without a consumer, the start of get-ok's. Returns their end. */
#define OM_DELIVER_ARGS (1 + 255 + 8 + 1 + 1 + 255 + 1 + 255)
uint8_t *om_deliver_args(uint8_t *at, const om_consumer *consumer, uint64_t tag, int again, om_span exchange,
                         om_span key);
/* Frames of one message for that channel; method: deliver, get-ok or return. OM_DELIVERY_TOO_LONG: nothing was
 * written. */
int om_deliver_frames(om_conn *conn, om_channel *channel, uint32_t method, const uint8_t *args, size_t args_len,
                      const om_content *content, om_span properties, om_queue_reader *reader);
/* The head of a queue's lane, to a consumer or (NULL) by basic.get: frames, then acquired or settled. Returns what
 * om_delivery_ops does. */
int om_deliver_head(om_channel *channel, om_queue *queue, om_consumer *consumer, int no_ack, int32_t lane,
                    const om_content *content);

#endif
