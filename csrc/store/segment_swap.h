/* segment_swap.h -- a compacted file takes the place of segments. See om_log_rewrite_begin (om_store.h). */
#ifndef OM_SEGMENT_SWAP_H
#define OM_SEGMENT_SWAP_H
#include "om_store.h"

/* What a crash left of segments that were to become one. Before the folder is looked at. */
int om_log_finish_merges(const om_log *log);

#endif
