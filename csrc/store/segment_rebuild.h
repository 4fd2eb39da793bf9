/* segment_rebuild.h -- a segment whose sync failed is made again from the WAL. */
#ifndef OM_SEGMENT_REBUILD_H
#define OM_SEGMENT_REBUILD_H
#include "om_store.h"
#include "segment/segment.h"

/* *segment (held) becomes the new one. The checkpoint's thread, without the store's lock. */
int om_segment_rebuild(om_store *store, om_log *log, om_segment **segment);

#endif
