/* segment_delete.h -- the files of segments that nothing needs any more. */
#ifndef OM_SEGMENT_DELETE_H
#define OM_SEGMENT_DELETE_H
#include "store/segment_node.h"

typedef struct om_segment_deletions {
    om_segment_node *pending; /* under the store's lock: until a checkpoint no longer names them */
    om_segment_node *ready;   /* under the store's lock: no longer named, removed bit by bit */
    uint64_t not_before;      /* by om_now_ns; the checkpoint's thread only */
} om_segment_deletions;

void om_segment_delete_add(om_store *store, om_segment_node *node); /* to the pending ones; under the store's lock */
/* The rest without it. */
om_segment_node *om_segment_delete_take(om_store *store); /* all that are pending */
/* They stay pending: a checkpoint that should no longer name them failed. */
void om_segment_delete_put_back(om_store *store, om_segment_node *nodes);
void om_segment_delete_release(om_store *store, om_segment_node *nodes); /* a checkpoint no longer names them */
void om_segment_delete_some(om_store *store);                            /* as many as may go now */
void om_segment_delete_all(om_store *store);
void om_segment_delete_now(om_segment_node *node); /* its file, and the node */

#endif
