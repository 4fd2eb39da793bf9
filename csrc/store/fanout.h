/* fanout.h -- one batch for several logs. Under the store's lock. */
#ifndef OM_FANOUT_H
#define OM_FANOUT_H
#include "format/batch.h"
#include "om_store.h"

/* This tick's batch for several logs, each of which points here. */
typedef struct om_fanout {
    om_build build;
    int64_t weight; /* bytes of the values in it */
    uint8_t unlogged;
    int32_t log_count;
    om_log *logs[];
} om_fanout;

/* One AMQP message to several logs, which agree on whether it is logged. OM_END: one of them has
 * something else open, so it is to be staged one by one; OM_E_*: nobody has it. */
int om_fanout_stage_content(om_log *const *logs, int32_t log_count, int64_t now_ms, om_span key, om_span body,
                            om_span tail, int unlogged);
void om_fanout_seal(om_fanout *fanout);

#endif
