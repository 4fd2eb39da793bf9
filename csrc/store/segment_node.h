/* segment_node.h -- a segment on a list: to be sealed by the writer, or to go once a checkpoint no longer names it. */
#ifndef OM_SEGMENT_NODE_H
#define OM_SEGMENT_NODE_H
#include "om_store.h"
#include "segment/segment.h"

typedef struct om_segment_node {
    om_log *log; /* both held */
    om_segment *segment;
    struct om_segment_node *next;
    int at_once;      /* its name may be wanted again */
    uint8_t rule;     /* why it goes */
    uint8_t recorded; /* ... and that is on disk */
} om_segment_node;

om_segment_node *om_segment_node_new(om_log *log, om_segment *segment); /* takes over the segment */
void om_segment_node_free(om_segment_node *node);
void om_segment_nodes_free(om_segment_node *list);

#endif
