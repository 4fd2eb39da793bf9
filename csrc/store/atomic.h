/* atomic.h -- transactions over several logs. See om_atomic_new (om_store.h). Under the store's lock. */
#ifndef OM_ATOMIC_H
#define OM_ATOMIC_H
#include "om_store.h"

/* One AMQP message more; those for one log gather in one batch. */
int om_atomic_stage_content(om_atomic *atomic, om_log *log, int64_t now_ms, om_span key, om_span body, om_span tail);
int om_atomic_commit_held(om_atomic *atomic, uint64_t *seq); /* om_atomic_commit, under the lock */

#endif
