/* get.h -- basic.get. */
#ifndef OM_GET_H
#define OM_GET_H

#include "amqp/channel.h"

/* OM_E_NOT_RESIDENT: nothing was answered, as it can't be told yet whether there is a message. */
int om_get(om_channel *channel, om_queue *queue, int no_ack);
/* The same, and the connection stands still until it can be told. queue NULL: it is gone. */
void om_get_later(om_channel *channel, om_queue *queue, int no_ack);
void om_get_again(om_conn *conn); /* the one that had to wait */

#endif
