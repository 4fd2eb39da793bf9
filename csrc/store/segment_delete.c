/* segment_delete.c -- segments that nothing needs any more: from a log's list, over a checkpoint, to gone.
 *
 *   trim, truncate -> pending -> recorded (removal_record.h) -> a checkpoint that no longer names them
 *                                                                     -> ready -> unlinked
 *
 * Removing a file of 64 MiB that is in the page cache costs 4 ms of CPU and 30 ms of waiting on
 * the machines at hand, and retention may hand over thousands. So they leave without hurry: in
 * the checkpoint's thread but not as part of a checkpoint, which they make way for, and with at
 * most a fiftieth of a core. Only when the disk is short of space, or the store closes, all go
 * at once.
 *
 * What a truncation cut off can't wait: a new segment may want its name.
 */
#include "store/segment_delete.h"

#include "base/clock.h"
#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/checkpoint.h"
#include "store/log.h"
#include "store/segment_node.h"
#include "store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_CPU_NS 20000000u
#define SLICE_NS 1000000000u
#define SHARE 50 /* one part in so many of a core */

/* What can't be read is kept for an operator, whatever rule lets its segment go: a purge settles what nobody could
 * look at. Deleting a queue gives it up. */
static int is_kept(const om_segment_node *node) {
    return om_segment_is_damaged(node->segment) && node->rule != OM_RULE_DELETE && !node->log->deleted;
}

void om_segment_delete_now(om_segment_node *node) {
    char aside[512];
    int kept = node->segment->exists && is_kept(node);
    /* Or it stays, and the next start does it; unless there is no file to keep. */
    if (kept && om_segment_set_aside(node->segment, aside, sizeof aside) != OM_OK)
        kept = errno != ENOENT;
    if (!kept && node->segment->exists)
        om_segment_unlink(node->segment);
    if (node->log->deleted)
        rmdir(node->log->folder); /* its last file was in the way; fails while others are */
    om_segment_node_free(node);
}

/* ---- pending: the checkpoint on disk names them ---- */

void om_segment_delete_add(om_store *store, om_segment_node *node) {
    node->next = store->deletions.pending;
    store->deletions.pending = node;
}

om_segment_node *om_segment_delete_take(om_store *store) {
    om_ticket_lock_take(&store->lock);
    om_segment_node *nodes = store->deletions.pending;
    store->deletions.pending = NULL;
    om_ticket_lock_give(&store->lock);
    return nodes;
}

void om_segment_delete_put_back(om_store *store, om_segment_node *nodes) {
    om_ticket_lock_take(&store->lock);
    while (nodes) {
        om_segment_node *node = nodes;
        nodes = node->next;
        om_segment_delete_add(store, node);
    }
    om_ticket_lock_give(&store->lock);
}

/* ---- ready: nothing names them ---- */

void om_segment_delete_release(om_store *store, om_segment_node *nodes) {
    om_segment_node *at_once = NULL;
    om_ticket_lock_take(&store->lock);
    while (nodes) {
        om_segment_node *node = nodes;
        om_segment_node **list = node->at_once ? &at_once : &store->deletions.ready;
        nodes = node->next;
        node->next = *list;
        *list = node;
    }
    om_ticket_lock_give(&store->lock);
    while (at_once) {
        om_segment_node *node = at_once;
        at_once = node->next;
        om_segment_delete_now(node);
    }
}

static om_segment_node *pop(om_store *store) {
    om_ticket_lock_take(&store->lock);
    om_segment_node *node = store->deletions.ready;
    if (node)
        store->deletions.ready = node->next;
    om_ticket_lock_give(&store->lock);
    return node;
}

void om_segment_delete_some(om_store *store) {
    uint64_t began = om_now_ns(), cpu = om_thread_cpu_ns(), used = 0;
    int hurry = om_store_short_of_space(store);
    om_segment_node *node;
    if (began < store->deletions.not_before && !hurry)
        return;
    while (used < SLICE_CPU_NS && om_now_ns() - began < SLICE_NS && (hurry || !om_checkpoint_is_asked_for(store)) &&
           (node = pop(store))) {
        om_segment_delete_now(node);
        used = om_thread_cpu_ns() - cpu;
    }
    store->deletions.not_before = hurry ? 0 : began + used * SHARE;
}

void om_segment_delete_all(om_store *store) {
    om_segment_node *node;
    while ((node = pop(store)))
        om_segment_delete_now(node);
}
