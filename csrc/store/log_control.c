/* log_control.c -- a log's segments and the rare operations: trim, truncate, epoch, delete.
 *
 * One rule keeps every crash harmless: a file is removed or cut only after a checkpoint that no
 * longer needs it. Until then the segment waits on the store's doomed list.
 */
#include "store/store.h"

#include "base/bytes.h"
#include "store/producer.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list of segments ---- */

om_segment *om_log_active(om_log *log) {
    if (!log->segment_count)
        return NULL;
    om_segment *last = log->segments[log->segment_count - 1];
    return last->sealed ? NULL : last;
}

int om_log_add_segment(om_log *log, om_segment *segment) {
    if (log->segment_count == log->segment_cap) {
        uint32_t cap = log->segment_cap ? log->segment_cap * 2 : 1;
        om_segment **segments = realloc(log->segments, cap * sizeof *segments);
        if (!segments)
            return OM_E_NO_MEMORY;
        log->segments = segments;
        log->segment_cap = cap;
    }
    log->segments[log->segment_count++] = segment;
    log->manifest_stale = 1;
    return OM_OK;
}

uint32_t om_log_segment_for(const om_log *log, int64_t offset) {
    uint32_t low = 0, high = log->segment_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (log->segments[mid]->next_offset <= offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void doom_segments(om_log *log, uint32_t from, uint32_t count, int at_once, int rule) {
    om_store *store = log->store;
    for (uint32_t i = from; i < from + count; i++) {
        om_segment_node *node = om_segment_node_new(log, log->segments[i]);
        om_segment_seal(log->segments[i]);
        if (!node) {
            om_segment_unref(log->segments[i]); /* its file is an orphan: removed at the next start */
            continue;
        }
        node->at_once = at_once;
        node->rule = (uint8_t)rule;
        node->next = store->doomed;
        store->doomed = node;
    }
    memmove(&log->segments[from], &log->segments[from + count],
            (log->segment_count - from - count) * sizeof *log->segments);
    log->segment_count -= count;
    log->manifest_stale = 1;
    /* The manifest is rewritten by the next checkpoint, which looks at touched logs only. */
    if (!log->touched) {
        log->touched = 1;
        om_list_push(&store->touched, log, OM_LINK(next_touched));
    }
}

void om_log_limits(const om_log *log, om_segment_limits *out) {
    *out = (om_segment_limits){
        .segment_size = log->options.segment_size,
        .initial_size = 64 * 1024,
        .max_age_ms = log->options.segment_max_age_ms,
        .index_max = 1024 * 1024,
        .pre_allocate = log->options.pre_allocate,
        .write_back = log->options.flush_mode != OM_FLUSH_ASYNC && !(log->options.flags & OM_LOG_SCRATCH),
    };
}

/* ---- trim ---- */

/* Of the first `gone` segments, how many can go. What of them wasn't written yet need never be: nobody
 * is given it any more. But what the writer has in its hands goes where it was told to: such a segment
 * stays until it is done. A batch never keeps a place in a segment that is gone. */
static uint32_t give_up_places(om_log *log, uint32_t gone) {
    const om_hot *first = log->hot.count ? om_hot_at(&log->hot, 0) : NULL;
    if (log->writing)
        for (uint32_t i = 0; i < gone; i++)
            if (log->segments[i] == first->segment)
                gone = i;
    uint32_t given_up = 0;
    while (gone && given_up < log->hot.count && om_hot_at(&log->hot, given_up)->segment &&
           om_hot_at(&log->hot, given_up)->last_offset < log->segments[gone - 1]->next_offset)
        given_up++;
    if (given_up)
        om_log_drop_hot(log, given_up);
    return gone;
}

void om_log_start_at(om_log *log, int64_t offset) {
    if (offset > log->next_offset)
        offset = log->next_offset;
    if (offset > log->start_offset) {
        log->start_offset = offset;
        if (log->cursor)
            om_cursor_settle(log->cursor, 0, offset - 1, -1);
        om_producers_trim(log, offset);
    }
    /* One that an earlier trim had to leave goes now. */
    uint32_t gone = give_up_places(log, om_log_segment_for(log, log->start_offset));
    if (gone)
        doom_segments(log, 0, gone, 0, log->trim_rule);
    if (log->missing)
        om_log_note_missing(log);
}

static uint64_t put_control(om_log *log, uint8_t type, int64_t offset, int32_t epoch) {
    uint8_t payload[16] = {0};
    om_put_le64(payload, (uint64_t)offset);
    om_put_le32(payload + 8, (uint32_t)epoch);
    struct iovec iov = {payload, sizeof payload};
    if (!om_log_uses_wal(log))
        return UINT64_MAX;
    uint64_t seq = om_wal_append(log->store->wal, type, log->id, &iov, 1);
    log->store->urgent = 1;
    return seq;
}

/* Not urgent: whoever deletes the catalogue in the second after a declaration finds the queue empty. */
void om_store_named(om_store *store, om_log *const *logs, size_t count) {
    om_store_enter(store);
    for (size_t i = 0; i < count; i++) {
        if (logs[i]->unnamed && !logs[i]->deleted && om_log_uses_wal(logs[i]))
            om_wal_append(store->wal, OM_REC_NAMED, logs[i]->id, NULL, 0);
        logs[i]->unnamed = 0;
    }
    om_store_leave(store);
}

int om_log_trim(om_log *log, int64_t offset, int rule, uint64_t *seq) {
    om_store_enter(log->store);
    int result = log->deleted ? OM_E_DELETED : offset < 0 || offset > log->next_offset ? OM_E_RANGE : OM_OK;
    if (result == OM_OK && offset > log->start_offset) {
        om_log_seal(log);
        om_log_log_ops(log);
        if (!put_control(log, OM_REC_TRIM, offset, rule))
            result = OM_E_FENCED;
    }
    if (result == OM_OK) {
        if (offset > log->start_offset || !log->trim_rule)
            log->trim_rule = (uint8_t)rule;
        om_log_start_at(log, offset);
    }
    *seq = om_store_leave(log->store);
    return result;
}

/* ---- truncate ---- */

/* Where in its segment the first batch that reaches past offset starts. */
static int cut_segment(om_log *log, int64_t offset) {
    uint32_t keep = om_log_segment_for(log, offset);
    if (keep == log->segment_count)
        return OM_OK;
    om_segment *segment = log->segments[keep];
    om_batch_info info;
    uint64_t position = 0;
    int found = segment->base_offset < offset ? om_segment_find(segment, offset, &position, &info) : OM_OK;
    if (found < 0)
        return found;
    if (found == OM_OK && position == 0) {
        doom_segments(log, keep, log->segment_count - keep, 1, OM_RULE_TRUNCATE);
        return OM_OK;
    }
    doom_segments(log, keep + 1, log->segment_count - keep - 1, 1, OM_RULE_TRUNCATE);
    if (found == OM_OK) {
        om_removal_note_range(log, OM_RULE_TRUNCATE, offset, segment->next_offset);
        om_segment_cut(segment, position, offset);
    }
    om_segment_seal(segment);
    return OM_OK;
}

static void cut_hot(om_log *log, int64_t offset) {
    uint32_t keep = om_hot_find(&log->hot, offset);
    uint32_t drop = log->hot.count - keep;
    for (uint32_t i = keep; i < log->hot.count; i++) {
        om_hot *hot = om_hot_at(&log->hot, i);
        log->store->hot_bytes -= hot->bytes->len;
        log->store->hot_batches--;
        om_buffer_unref(hot->bytes);
    }
    if (drop)
        om_hot_drop_tail(&log->hot, drop);
}

void om_log_cut(om_log *log, int64_t offset, int32_t epoch) {
    if (offset < log->next_offset) {
        cut_hot(log, offset);
        cut_segment(log, offset);
        log->next_offset = offset;
        om_log_note_missing(log);
        if (log->cursor)
            om_cursor_truncate(log->cursor, offset);
        om_producers_cut(log, offset);
        om_log_lower_floors(log, offset);
        if (log->recovery_point > offset) {
            log->recovery_point = offset;
            om_segment *last = log->segment_count ? log->segments[log->segment_count - 1] : NULL;
            log->recovery_base = last ? last->base_offset : -1;
            log->recovery_position = last ? last->size : 0;
        }
    }
    if (epoch > log->leader_epoch)
        log->leader_epoch = epoch;
}

/* Cut the files to what memory says, once the checkpoint has forgotten the rest. */
static int cut_file(om_log *log) {
    om_store_enter(log->store);
    om_segment *last = log->segment_count ? log->segments[log->segment_count - 1] : NULL;
    if (last)
        om_segment_ref(last);
    om_store_leave(log->store);
    int result = last && last->exists ? om_segment_trim_file(last, last->size) : OM_OK;
    if (last)
        om_segment_unref(last);
    return result;
}

/* Only whole batches can be taken away: each has one checksum. */
static int check_border(om_log *log, int64_t offset) {
    om_store_enter(log->store);
    uint32_t hot = om_hot_find(&log->hot, offset), index = om_log_segment_for(log, offset);
    int cuts = hot < log->hot.count && om_hot_at(&log->hot, hot)->base_offset < offset;
    om_segment *segment = !cuts && index < log->segment_count ? log->segments[index] : NULL;
    if (segment)
        om_segment_ref(segment);
    om_store_leave(log->store);
    if (!segment)
        return cuts ? OM_E_INVALID : OM_OK;
    uint64_t position;
    om_batch_info info;
    int found = om_segment_find(segment, offset, &position, &info);
    om_segment_unref(segment);
    return found < 0 ? found : found == OM_OK && info.base_offset < offset ? OM_E_INVALID : OM_OK;
}

/* One at a time, under the checkpoint's lock. When it fails half-way the log stays frozen: what
 * was cut must not be appended over until its file is cut too. Calling again goes on with it. */
static int truncate_locked(om_log *log, int64_t offset) {
    om_store *store = log->store;
    om_store_enter(store);
    int result = log->deleted                                              ? OM_E_DELETED
                 : offset < log->start_offset || offset > log->next_offset ? OM_E_RANGE
                                                                           : OM_OK;
    if (result != OM_OK) {
        om_store_leave(store);
        return result;
    }
    log->frozen = 1;
    uint64_t before = om_store_leave(store);
    /* Everything goes to its segment first: then there is one place to cut. */
    result = om_log_uses_wal(log) ? om_store_wait(store, before, -1) : OM_OK;
    if (result == OM_OK)
        result = om_writer_flush(store);
    om_store_enter(store);
    if (result == OM_OK && !put_control(log, OM_REC_TRUNCATE, offset, log->leader_epoch + 1))
        result = OM_E_FENCED;
    if (result == OM_OK) {
        om_log_cut(log, offset, log->leader_epoch + 1);
        if (!log->touched) {
            log->touched = 1;
            om_list_push(&store->touched, log, OM_LINK(next_touched));
        }
    }
    om_store_leave(store);
    /* The checkpoint makes the record durable, then forgets what was cut; only then the file. */
    if (result == OM_OK)
        result = om_checkpoint_run_locked(store, 0);
    if (result == OM_OK)
        result = cut_file(log);
    om_store_enter(store);
    log->frozen = result != OM_OK;
    om_store_leave(store);
    return result;
}

int om_log_truncate(om_log *log, int64_t offset) {
    om_checkpoint_lock(log->store);
    int result = check_border(log, offset);
    if (result == OM_OK)
        result = truncate_locked(log, offset);
    om_checkpoint_unlock(log->store);
    return result;
}

/* ---- epoch, delete, options ---- */

int32_t om_log_bump_epoch(om_log *log) {
    om_store_enter(log->store);
    int32_t epoch = log->leader_epoch + 1;
    om_log_raise_epoch(log, epoch);
    om_store_leave(log->store);
    return epoch;
}

int om_log_delete(om_log *log, uint64_t *seq) {
    om_store *store = log->store;
    om_deleted_log *grave = calloc(1, sizeof *grave);
    if (!grave)
        return OM_E_NO_MEMORY;
    om_store_enter(store);
    int result = log->deleted ? OM_E_DELETED : OM_OK;
    uint64_t record = 0;
    if (result == OM_OK) {
        om_log_seal(log);
        log->op_count = 0;
        record = put_control(log, OM_REC_DELETE, 0, 0);
        result = record ? OM_OK : OM_E_FENCED;
    }
    if (result == OM_OK) {
        log->deleted = 1;
        om_store_forget(store, log);
        *grave = (om_deleted_log){.log = log, .seq = record == UINT64_MAX ? 0 : record, .next = store->graves};
        store->graves = grave;
        grave = NULL;
    }
    *seq = om_store_leave(store);
    free(grave);
    return result;
}

void om_log_set_options(om_log *log, const om_log_options *options) {
    om_store_enter(log->store);
    om_log_seal(log);
    /* What decides where its bytes live can't change under it. */
    uint32_t fixed = OM_LOG_SCRATCH | OM_LOG_NO_CURSOR;
    uint32_t flags = (log->options.flags & fixed) | (options->flags & ~fixed);
    log->options = *options;
    log->options.flags = flags;
    om_store_leave(log->store);
}

void om_log_keep_settled(om_log *log, int keep) {
    om_store_enter(log->store);
    log->options.flags =
        keep ? log->options.flags | OM_LOG_KEEP_SETTLED : log->options.flags & ~(uint32_t)OM_LOG_KEEP_SETTLED;
    om_store_leave(log->store);
}

/* ---- what it looks like ---- */

void om_log_stat_get(om_log *log, om_log_stat *out) {
    om_store_enter(log->store);
    memset(out, 0, sizeof *out);
    out->id = log->id;
    out->start_offset = log->start_offset;
    out->next_offset = log->next_offset;
    out->high_watermark = om_log_high_watermark(log);
    out->readable_end = om_log_readable_end(log);
    out->last_stable = om_log_last_stable(log);
    out->oldest_open = log->producers && log->producers->oldest ? log->producers->oldest->id : -1;
    out->written_offset = om_log_written_offset(log);
    out->recovery_point = log->recovery_point;
    out->lease_end = log->lease_end;
    out->segments = log->segment_count;
    out->hot_batches = log->hot.count;
    out->leader_epoch = log->leader_epoch;
    out->segment_size = log->options.segment_size;
    out->memory = (int64_t)(sizeof *log + strlen(log->folder) + strlen(log->name) + 2 + log->hot.cap * sizeof(om_hot) +
                            log->op_cap * sizeof(om_cursor_op) + log->segment_cap * sizeof(om_segment *) +
                            log->segment_count * sizeof(om_segment));
    out->memory += om_producers_memory(log);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        om_segment *segment = log->segments[i];
        out->size_bytes += __atomic_load_n(&segment->written, __ATOMIC_ACQUIRE);
        out->memory += segment->index.offset_cap * OM_OFFSET_ENTRY + segment->index.time_cap * OM_TIME_ENTRY;
    }
    for (uint32_t i = 0; i < log->hot.count; i++) {
        uint32_t len = om_hot_at(&log->hot, i)->bytes->len;
        out->size_bytes += len;
        out->memory += len;
    }
    if (log->cursor) {
        om_cursor_stat cursor;
        om_cursor_stat_get(log->cursor, &cursor);
        out->memory += cursor.memory;
    }
    om_store_leave(log->store);
}

int64_t om_log_segments(om_log *log, om_segment_stat *out, int64_t cap) {
    om_store_enter(log->store);
    int64_t count = log->segment_count;
    for (int64_t i = 0; i < count && i < cap; i++) {
        const om_segment *segment = log->segments[i];
        out[i] = (om_segment_stat){
            .base_offset = segment->base_offset,
            .next_offset = segment->next_offset,
            .size = segment->size,
            .first_timestamp = segment->first_timestamp,
            .max_timestamp = segment->max_timestamp,
            .sealed = segment->sealed,
            .fenced = segment->fenced || om_segment_is_damaged(segment),
        };
    }
    om_store_leave(log->store);
    return count;
}

void om_store_used(om_store *store, om_log *const *logs, uint8_t *used, size_t count) {
    om_ticket_lock_take(&store->turn);
    for (size_t i = 0; i < count; i++)
        used[i] = logs[i]->segment_count > 0 || (logs[i]->cursor && logs[i]->cursor->floor > 0);
    om_ticket_lock_give(&store->turn);
}
