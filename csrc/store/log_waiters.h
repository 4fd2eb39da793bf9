/* log_waiters.h -- readers that wait until a log's high watermark moves. Under the store's lock. */
#ifndef OM_LOG_WAITERS_H
#define OM_LOG_WAITERS_H
#include "om_store.h"

typedef struct om_log_waiter {
    struct om_log_waiter *next, **link; /* link NULL: it doesn't wait */
    om_log *log;                        /* held */
} om_log_waiter;

void om_log_add_waiter(om_log *log, om_log_waiter *waiter);
void om_log_remove_waiter(om_log_waiter *waiter);
void om_log_wake_waiters(om_log *log); /* at the end of the tick, if the high watermark has moved by then */
void om_log_wake_due(om_store *store, void (*wake)(om_log_waiter *waiter)); /* that end */
void om_log_forget_to_wake(om_store *store);

#endif
