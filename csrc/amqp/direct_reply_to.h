/* direct_reply_to.h -- answers that go from channel to channel, through no queue. */
#ifndef OM_DIRECT_REPLY_TO_H
#define OM_DIRECT_REPLY_TO_H

#include "amqp/channel.h"

#define OM_REPLY_TO "amq.rabbitmq.reply-to"
int om_reply_is_address(om_span key);
/* As om_consumer_add_reply_to. */
int om_reply_start(om_channel *channel, om_span tag, const uint8_t *ok, size_t len);
om_channel *om_reply_find(om_engine *engine, om_span address); /* NULL: nobody waits there */
/* A publish to the default exchange: to the channels that its key, CC and BCC name. How many are there. */
int om_reply_answer(om_channel *from, om_span exchange, om_span key, om_span properties, om_span body);
int64_t om_reply_rewrite(om_channel *channel, const om_properties *in, uint8_t *out, size_t cap);

#endif
