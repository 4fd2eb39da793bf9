/* removal_record.c -- each removal is recorded first, with its reason, in the journal (removal_journal.h). */
#include "store/removal_record.h"

#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/log.h"
#include "store/log_delete.h"
#include "store/removal_journal.h"
#include "store/segment_node.h"
#include "store/store.h"
#include "store/store_report.h"

#include <stdlib.h>
#include <string.h>

typedef struct list {
    om_removal *items;
    size_t count, cap;
} list;

static om_removal about(const om_log *log, const om_segment *segment, int rule) {
    om_removal removed = {
        .log_id = log->id,
        .folder = log->folder + strlen(log->store->dir) + 1,
        .name = log->name,
        .segment = -1,
        .first_timestamp = -1,
        .max_timestamp = -1,
        .rule = rule,
    };
    if (segment) {
        removed.segment = removed.first = segment->base_offset;
        removed.next = segment->next_offset;
        removed.bytes = segment->size;
        removed.first_timestamp = segment->first_timestamp;
        removed.max_timestamp = segment->max_timestamp;
    }
    return removed;
}

static int add(list *list, const om_removal *removed) {
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 64;
        om_removal *items = realloc(list->items, cap * sizeof *items);
        if (!items)
            return OM_E_NO_MEMORY;
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = *removed;
    return OM_OK;
}

static void reverse(list *list) {
    for (size_t i = 0, j = list->count; i + 1 < j--; i++) {
        om_removal item = list->items[i];
        list->items[i] = list->items[j];
        list->items[j] = item;
    }
}

/* Nobody is promised anything of what lives in the scratch folder. */
static int is_worth_recording(const om_log *log, const om_segment *segment) {
    return !(log->options.flags & OM_LOG_SCRATCH) && segment->exists;
}

static int write_list(om_store *store, list *list, int result) {
    if (result == OM_OK)
        result = om_removal_journal_write(store->removals.journal, list->items, list->count);
    free(list->items);
    int failed = __atomic_exchange_n(&store->removals.failed, result != OM_OK, __ATOMIC_RELAXED);
    if (result != OM_OK && !failed)
        om_store_add_report(store, OM_REPORT_WRITE_FAILED, NULL, 0, 0,
                            "removal journal not written (%s): segments are kept; retrying", om_result_text(result));
    return result;
}

static om_removal_note *take_notes(om_store *store) {
    om_ticket_lock_take(&store->lock);
    om_removal_note *notes = store->removals.notes;
    store->removals.notes = NULL;
    om_ticket_lock_give(&store->lock);
    return notes;
}

static void put_notes_back(om_store *store, om_removal_note *notes) {
    om_removal_note **end = &notes;
    while (*end)
        end = &(*end)->next;
    om_ticket_lock_take(&store->lock);
    *end = store->removals.notes;
    store->removals.notes = notes;
    om_ticket_lock_give(&store->lock);
}

int om_removal_record(om_store *store, om_segment_node *nodes) {
    list list = {0};
    int result = OM_OK;
    om_removal_note *notes = take_notes(store);
    for (om_removal_note *note = notes; note && result == OM_OK; note = note->next)
        result = add(&list, &note->removed);
    for (om_segment_node *node = nodes; node && result == OM_OK; node = node->next) {
        if (node->recorded || !is_worth_recording(node->log, node->segment))
            continue;
        om_removal removed = about(node->log, node->segment, node->rule);
        result = add(&list, &removed);
    }
    reverse(&list); /* the oldest first: both lists grow at their heads */
    result = write_list(store, &list, result);
    if (result != OM_OK) {
        put_notes_back(store, notes);
        return result;
    }
    om_removal_notes_free(notes);
    for (om_segment_node *node = nodes; node; node = node->next)
        node->recorded = 1;
    return OM_OK;
}

int om_removal_record_deleted(om_store *store, const om_deleted_log *logs) {
    list list = {0};
    int result = OM_OK;
    for (; logs; logs = logs->next) {
        const om_log *log = logs->log;
        for (uint32_t i = 0; i < log->segment_count && result == OM_OK; i++) {
            if (!is_worth_recording(log, log->segments[i]))
                continue;
            om_removal removed = about(log, log->segments[i], OM_RULE_DELETE);
            result = add(&list, &removed);
        }
    }
    return write_list(store, &list, result);
}

int om_removal_record_one(om_log *log, const om_segment *segment, int rule, int64_t first, int64_t next,
                          uint64_t left) {
    list list = {0};
    om_removal removed = about(log, segment, rule);
    removed.first = first;
    removed.next = next;
    removed.left = left;
    return write_list(log->store, &list, add(&list, &removed));
}

int om_removal_record_merged(om_log *log, om_segment *const *segments, uint32_t count, uint64_t left) {
    list list = {0};
    int result = OM_OK;
    for (uint32_t i = 0; i < count && result == OM_OK; i++) {
        om_removal removed = about(log, segments[i], OM_RULE_COMPACTION);
        removed.left = i ? 0 : left;
        result = add(&list, &removed);
    }
    return write_list(log->store, &list, result);
}

void om_removal_note_range(om_log *log, int rule, int64_t first, int64_t next) {
    om_removal_note *note = log->options.flags & OM_LOG_SCRATCH ? NULL : calloc(1, sizeof *note);
    if (!note)
        return; /* no memory: the files themselves are recorded when they go */
    om_log_ref(log);
    note->log = log;
    note->removed = about(log, NULL, rule);
    note->removed.first = first;
    note->removed.next = next;
    note->next = log->store->removals.notes;
    log->store->removals.notes = note;
}

void om_removal_note_later(om_store *store, const om_segment_node *nodes) {
    for (; nodes; nodes = nodes->next) {
        om_removal_note *note = is_worth_recording(nodes->log, nodes->segment) ? calloc(1, sizeof *note) : NULL;
        if (!note)
            continue;
        om_log_ref(nodes->log);
        note->log = nodes->log;
        note->removed = about(nodes->log, nodes->segment, nodes->rule);
        note->next = store->removals.notes;
        store->removals.notes = note;
    }
}

void om_removal_notes_free(om_removal_note *list) {
    while (list) {
        om_removal_note *note = list;
        list = note->next;
        om_log_release(note->log);
        free(note);
    }
}

int om_removal_record_baseline(om_store *store) {
    list list = {0};
    int result = OM_OK;
    for (uint32_t i = 0; i < store->table_size; i++)
        for (om_log *log = store->table[i]; log && result == OM_OK; log = log->next_in_table) {
            om_removal removed = about(log, NULL, OM_RULE_BEFORE);
            removed.next = log->start_offset;
            if (log->start_offset > 0)
                result = add(&list, &removed);
        }
    return write_list(store, &list, result);
}

void om_log_note(om_log *log, int rule) {
    om_store_enter(log->store);
    om_removal_note_range(log, rule, log->start_offset, log->next_offset);
    om_store_leave(log->store);
}

int om_store_note_removed(om_store *store, const om_removal *items, size_t count) {
    return om_removal_journal_write(store->removals.journal, items, count);
}
