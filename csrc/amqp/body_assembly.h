/* body_assembly.h -- a body that comes in pieces, or waits for its route. */
#ifndef OM_BODY_ASSEMBLY_H
#define OM_BODY_ASSEMBLY_H

#include "amqp/channel.h"

int om_assembly_put(om_channel *channel, om_span part);            /* the next piece of the body; OM_E_NO_MEMORY */
om_span om_assembly_body(const om_channel *channel);               /* all of it, once it is there */
int om_assembly_holds(const om_channel *channel, om_span body);    /* is it that? */
int om_assembly_can_stay(const om_channel *channel, om_span body); /* ... and may a log take it over as it is? */
uint64_t om_assembly_weight(const om_channel *channel);
void om_assembly_drop(om_channel *channel);

#endif
