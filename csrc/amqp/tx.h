/* tx.h -- AMQP transactions. */
#ifndef OM_TX_H
#define OM_TX_H

#include "amqp/channel.h"

int om_tx_publish(om_channel *channel, om_route *route, om_span body);
int om_tx_settle(om_channel *channel, om_unacked *entry, int fate); /* enum om_fate */
int om_tx_select(om_channel *channel);
int om_tx_commit(om_channel *channel, const uint8_t *ok, size_t len); /* as om_channel_tx_commit */
void om_tx_rollback(om_channel *channel);
void om_tx_free(om_channel *channel);

#endif
