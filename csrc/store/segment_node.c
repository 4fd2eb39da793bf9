/* segment_node.c -- see segment_node.h. */
#include "store/segment_node.h"

#include "segment/segment.h"
#include "store/log.h"

#include <stdlib.h>

om_segment_node *om_segment_node_new(om_log *log, om_segment *segment) {
    om_segment_node *node = calloc(1, sizeof *node);
    if (!node)
        return NULL;
    om_log_ref(log); /* the segment's path is the log's */
    node->log = log;
    node->segment = segment;
    return node;
}

void om_segment_node_free(om_segment_node *node) {
    om_segment_unref(node->segment);
    om_log_release(node->log);
    free(node);
}

void om_segment_nodes_free(om_segment_node *list) {
    while (list) {
        om_segment_node *node = list;
        list = node->next;
        om_segment_node_free(node);
    }
}
