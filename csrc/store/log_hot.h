/* log_hot.h -- batches leave a log's hot tail: written, refused or cut off. Under the store's lock. */
#ifndef OM_LOG_HOT_H
#define OM_LOG_HOT_H
#include "om_store.h"

void om_log_drop_hot(om_log *log, uint32_t count);       /* from the head: they are in a segment, or needn't be */
void om_log_cut_hot(om_log *log, int64_t offset);        /* those that reach past it */
void om_log_refuse_after(om_log *log, uint64_t durable); /* a fence: what isn't durable is gone */

#endif
