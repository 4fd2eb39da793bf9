/* get.h -- basic.get. */
#ifndef OM_GET_H
#define OM_GET_H

#include "amqp/channel.h"

/* OM_E_NOT_RESIDENT: not answered: whether there is a message isn't known yet. */
int om_get(om_channel *channel, om_queue *queue, int no_ack);
/* The same; if nothing could be answered, the connection is stalled until it can. queue NULL: it is gone. */
void om_get_later(om_channel *channel, om_queue *queue, int no_ack);
void om_get_again(om_conn *conn); /* the one that had to wait */

#endif
