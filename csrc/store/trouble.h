/* trouble.h -- what can't be written to the disk: since when, and why. Under the store's lock. */
#ifndef OM_TROUBLE_H
#define OM_TROUBLE_H
#include "om_store.h"

/* All times by om_now_ns; 0: all is well. */
typedef struct om_trouble {
    uint64_t writer_since_ns, checkpoint_since_ns, still_since_ns;
    uint64_t looked_ns, durable; /* at the last look at the WAL */
    int alarm;                   /* for too long: publishers are held back */
    char checkpoint[320];        /* why the last checkpoint failed */
    char why[320];               /* of the alarm */
} om_trouble;

void om_trouble_look(om_store *store);
int om_trouble_is_alarm(const om_store *store);

#endif
