/* delayed_exchange.h -- messages of a delayed exchange. */
#ifndef OM_DELAYED_EXCHANGE_H
#define OM_DELAYED_EXCHANGE_H

#include <stdint.h>

typedef struct om_queue om_queue;

/* When a delayed message is due. */
typedef struct om_due {
    int64_t at_ms; /* wall clock */
    int64_t offset;
} om_due;

void om_delay_pump(om_queue *queue); /* what is due goes on its way */

#endif
