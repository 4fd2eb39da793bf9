/* ack.h -- acks, rejections, returns. */
#ifndef OM_ACK_H
#define OM_ACK_H

#include "amqp/channel.h"
#include "amqp/frame.h"

enum om_verdict om_basic_ack(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_basic_nack(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_basic_reject(om_channel *channel, const uint8_t *args, size_t len);
/* The fate of a delivery. As RabbitMQ 4.3 has it, basic.nack with requeue says that this consumer
 * couldn't, basic.reject with requeue (and a channel that closes) that the delivery failed: only that
 * counts against the delivery limit. */
enum om_fate { OM_ACKED, OM_RETURNED, OM_FAILED, OM_REJECTED };
/* Back to its place; `counted`: against the delivery limit. */
void om_ack_return(om_channel *channel, om_unacked *entry, int counted);
void om_ack_return_all(om_channel *channel);
void om_basic_recover(om_channel *channel); /* basic.recover */

#endif
