/* checkpoint_sync.h -- the part of a checkpoint that syncs segments. The checkpoint's thread; takes the store's lock
 * for moments.
 *
 *   gather -> run -> done           recovery points move
 *                 -> give_back      it failed: all of it waits for the next checkpoint
 *          ... -> end, always
 */
#ifndef OM_CHECKPOINT_SYNC_H
#define OM_CHECKPOINT_SYNC_H
#include "om_store.h"

typedef struct om_checkpoint_sync {
    struct om_touched_log *logs; /* held */
    size_t count, cap;
    size_t files;
} om_checkpoint_sync;

void om_checkpoint_sync_gather(om_store *store, om_checkpoint_sync *work);
int om_checkpoint_sync_run(om_store *store, om_checkpoint_sync *work);
void om_checkpoint_sync_done(om_store *store, const om_checkpoint_sync *work);
void om_checkpoint_sync_give_back(om_store *store, const om_checkpoint_sync *work);
/* Files of logs that were deleted meanwhile may go then. */
void om_checkpoint_sync_end(om_store *store, om_checkpoint_sync *work);
/* Closing: of all logs, what of their indexes isn't saved yet. */
void om_checkpoint_sync_indexes(om_store *store);

#endif
