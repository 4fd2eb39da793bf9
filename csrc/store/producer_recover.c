/* producer_recover.c -- a log's producers at the start: the checkpoint's, then the batches behind it.
 *
 * Batches past the recovery point come from two places, in no common order: the tail of the segments
 * and the WAL. (What a consumer settled may be in the WAL alone; what was never logged in a segment
 * alone.) They are noted as they are seen, and looked at in offset order when all are known. The
 * checkpoint may know of them already: its own truth stays, each is counted once.
 */
#include "store/producer.h"

#include "store/log.h"
#include "store/recover.h"

#include <stdlib.h>

int om_seen_note(om_seen_list *list, const uint8_t *batch, size_t len, const om_batch_info *info, int from_wal) {
    om_seen seen = {.info = *info, .coordinator_epoch = -1, .from_wal = from_wal};
    if (info->producer_id < 0)
        return OM_OK;
    if ((info->attributes & OM_ATTR_CONTROL) &&
        om_marker_parse(batch, len, &seen.coordinator_epoch, &seen.commit) != OM_OK)
        return OM_OK; /* another kind of control record: it says nothing of transactions */
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 16;
        om_seen *items = realloc(list->items, cap * sizeof *items);
        if (!items)
            return OM_E_NO_MEMORY;
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = seen;
    return OM_OK;
}

void om_seen_cut(om_seen_list *list, int64_t offset, int keep_wal) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].info.base_offset < offset || (keep_wal && list->items[i].from_wal))
            list->items[kept++] = list->items[i];
    list->count = kept;
}

/* By offset; what the WAL says of one comes first. */
static int by_offset(const void *a, const void *b) {
    const om_seen *left = a, *right = b;
    if (left->info.base_offset != right->info.base_offset)
        return left->info.base_offset < right->info.base_offset ? -1 : 1;
    return right->from_wal - left->from_wal;
}

int om_producers_replay(om_log *log, om_seen_list *list) {
    if (list->count)
        qsort(list->items, list->count, sizeof *list->items, by_offset);
    for (size_t i = 0; i < list->count; i++) {
        const om_seen *seen = &list->items[i];
        if (i && seen->info.base_offset == list->items[i - 1].info.base_offset)
            continue;
        if (!om_producer_need(log, seen->info.producer_id))
            return OM_E_NO_MEMORY;
        if (!(seen->info.attributes & OM_ATTR_CONTROL))
            om_producer_appended(log, &seen->info);
        else if (om_producer_marked(log, &seen->info, seen->coordinator_epoch, seen->commit) != OM_OK)
            return OM_E_NO_MEMORY;
    }
    return OM_OK;
}
