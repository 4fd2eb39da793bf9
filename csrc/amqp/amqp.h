/* amqp.h -- AMQP's part of the engine. */
#ifndef OM_AMQP_H
#define OM_AMQP_H

#include <stdint.h>

typedef struct om_channel om_channel;

typedef struct om_amqp {
    om_channel *published, *confirming; /* confirm.c */
    uint64_t confirmed_seq;             /* what was durable when the confirming ones were last looked at */
    int confirm_due;                    /* ... and one of them has something that waits for nothing */
    uint64_t tx_bytes;                  /* of publishes that wait for their commit */
} om_amqp;

#endif
