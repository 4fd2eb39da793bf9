/* removal.c -- segments that nothing needs any more: from doomed, over a checkpoint, to gone.
 *
 *   trim, truncate -> doomed -> a checkpoint that no longer names them -> leaving -> unlinked
 *
 * Removing a file of 64 MiB that is in the page cache costs 4 ms of CPU and 30 ms of waiting on
 * the machines at hand, and retention may hand over thousands. So they leave without hurry: in
 * the checkpoint's thread but not as part of a checkpoint, which they make way for, and with at
 * most a fiftieth of a core. Only when the disk is short of space, or the store closes, all go
 * at once.
 *
 * What a truncation cut off can't wait: a new segment may want its name.
 */
#include "store.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SLICE_CPU_NS 20000000u
#define SLICE_NS 1000000000u
#define SHARE 50             /* one part in so many of a core */

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

void om_segment_node_remove(om_segment_node *node) {
    if (node->segment->exists)
        om_segment_unlink(node->segment);
    if (node->log->deleted)
        rmdir(node->log->folder); /* its last file was in the way; fails while others are */
    om_segment_node_free(node);
}

void om_removal_release(om_store *store, om_segment_node *doomed) {
    om_segment_node *at_once = NULL;
    om_turn_take(&store->turn);
    while (doomed) {
        om_segment_node *node = doomed;
        om_segment_node **list = node->at_once ? &at_once : &store->leaving;
        doomed = node->next;
        node->next = *list;
        *list = node;
    }
    om_turn_give(&store->turn);
    while (at_once) {
        om_segment_node *node = at_once;
        at_once = node->next;
        om_segment_node_remove(node);
    }
}

static om_segment_node *pop(om_store *store) {
    om_turn_take(&store->turn);
    om_segment_node *node = store->leaving;
    if (node)
        store->leaving = node->next;
    om_turn_give(&store->turn);
    return node;
}

uint64_t om_thread_cpu_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

void om_removal_some(om_store *store) {
    uint64_t began = om_now_ns(), cpu = om_thread_cpu_ns(), used = 0;
    int hurry = om_store_short_of_space(store);
    om_segment_node *node;
    if (began < store->removal_after && !hurry)
        return;
    while (used < SLICE_CPU_NS && om_now_ns() - began < SLICE_NS && !om_checkpoint_is_asked_for(store) &&
           (node = pop(store))) {
        om_segment_node_remove(node);
        used = om_thread_cpu_ns() - cpu;
    }
    store->removal_after = hurry ? 0 : began + used * SHARE;
}

void om_removal_all(om_store *store) {
    om_segment_node *node;
    while ((node = pop(store)))
        om_segment_node_remove(node);
}
