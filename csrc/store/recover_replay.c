/* recover_replay.c -- the WAL's records, applied one after the other to the logs as they were loaded. */
#include "store/recover.h"

#include "base/buffer.h"
#include "base/bytes.h"
#include "cursor/cursor.h"
#include "segment/segment.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_append.h"
#include "store/log_control.h"
#include "store/log_cursor.h"
#include "store/log_delete.h"
#include "store/log_segments.h"
#include "store/removal_record.h"
#include "store/segment_delete.h"
#include "store/segment_node.h"
#include "store/store.h"
#include "store/store_report.h"
#include "store/unknown_logs.h"
#include "store/wal_records.h"
#include "store/writer.h"
#include "wal/wal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory stays bounded: what was replayed goes to segments as the hot tail fills. On a full disk it
 * stays in memory, bounded by the WAL's size: consumers must be able to drain it. */
static int make_room(om_store *store) {
    int64_t wrote = 1;
    while (wrote > 0 && !store->no_space && store->hot_bytes > store->options.hot_buffer_size / 2)
        wrote = om_writer_round(store);
    store->no_space |= wrote == OM_E_NO_SPACE;
    return wrote < 0 && wrote != OM_E_NO_SPACE ? (int)wrote : OM_OK;
}

/* Is what lies at that place this very batch? Its base offset and its epoch have no checksum. */
static int is_the_same(const om_log *log, const om_batch_info *info) {
    uint32_t index = om_log_segment_for(log, info->base_offset), hot = om_hot_find(&log->hot, info->base_offset);
    om_batch_info found;
    uint64_t position;
    if (index == log->segment_count ||
        (hot < log->hot.count && om_hot_at(&log->hot, hot)->base_offset <= info->base_offset))
        return 1; /* it came from the WAL */
    return om_segment_find(log->segments[index], info->base_offset, &position, &found) == OM_OK &&
           found.base_offset == info->base_offset && found.size == info->size && found.crc == info->crc &&
           found.leader_epoch == info->leader_epoch;
}

/* Was it cut off later on? Then it must not come back in the second pass, which knows only batches. */
static int is_cut_off(const om_log_recovery *found, const om_batch_info *info, uint64_t seq) {
    for (uint32_t i = 0; i < found->cut_count; i++)
        if (found->cuts[i].seq > seq && found->cuts[i].offset <= info->base_offset)
            return 1;
    return 0;
}

/* The WAL has the batch that stands at this place. */
static void believe(om_log_recovery *found, int64_t base) {
    for (uint32_t i = 0; i < found->doubt_count; i++)
        if (found->doubts[i].base == base) {
            found->doubts[i] = found->doubts[--found->doubt_count];
            return;
        }
}

static int replay_batch(om_recovery *recovery, om_log *log, om_buffer *bytes, om_batch_info *info, uint64_t seq) {
    om_log_recovery *found = log->recovery;
    int64_t last = info->base_offset + info->last_offset_delta;
    if (last < log->recovery_point)
        return OM_OK;
    if (recovery->pass == 1 && om_seen_note(&found->seen, bytes->data, bytes->len, info, 1) != OM_OK)
        return OM_E_NO_MEMORY;
    if (om_ranges_contain(&found->present, info->base_offset) && (recovery->pass == 2 || is_the_same(log, info))) {
        believe(found, info->base_offset);
        return OM_OK;
    }
    if (recovery->pass == 2 &&
        (found->rebuild_from < 0 || info->base_offset < found->rebuild_from || is_cut_off(found, info, seq)))
        return OM_OK;
    if (info->base_offset < log->next_offset)
        return om_ranges_add(&found->missing, info->base_offset, last);
    int counted = log->cursor && last < log->cursor->end;
    log->next_offset = last + 1;
    log->last_logged_seq = seq;
    if (info->leader_epoch > log->leader_epoch)
        log->leader_epoch = info->leader_epoch;
    int result = om_ranges_add(&found->present, info->base_offset, last);
    if (result != OM_OK)
        return result;
    om_buffer_ref(bytes);
    return om_log_push(log, bytes, info, seq, 0, counted ? OM_WEIGHT_COUNTED : OM_WEIGHT_UNKNOWN);
}

static int is_wanted(const om_recovery *recovery, const om_log *log) {
    return log && log->recovery && (recovery->pass == 1 || log->recovery->rebuild_from >= 0);
}

static int apply_batch(om_recovery *recovery, om_log *log, const uint8_t *data, size_t len, uint64_t seq) {
    om_batch_info info;
    if (om_batch_check(data, len, &info) != OM_OK || (size_t)info.size != len)
        return OM_E_CORRUPT;
    if (!is_wanted(recovery, log))
        return OM_OK;
    om_buffer *bytes = om_buffer_copy(data, (uint32_t)len);
    if (!bytes)
        return OM_E_NO_MEMORY;
    int result = replay_batch(recovery, log, bytes, &info, seq);
    om_buffer_unref(bytes);
    return result;
}

/* A log that nobody added: deleted, or the catalogue isn't what it was. */
static int note_unknown(om_recovery *recovery, uint64_t id, uint8_t type) {
    uint32_t flags = type == OM_REC_NAMED ? OM_UNKNOWN_NAMED : type == OM_REC_DELETE ? OM_UNKNOWN_DELETED : 0;
    return recovery->pass == 1 ? om_unknown_logs_note(&recovery->store->unknown_logs, id, flags) : OM_OK;
}

static int apply_fanout(om_recovery *recovery, const uint8_t *data, size_t len, uint64_t seq) {
    if (len < 8)
        return OM_E_CORRUPT;
    uint32_t count = om_get_le32(data);
    if (count > (len - 8) / OM_FANOUT_ENTRY)
        return OM_E_CORRUPT;
    const uint8_t *batch = data + 8 + (size_t)count * OM_FANOUT_ENTRY;
    size_t batch_len = (size_t)(data + len - batch);
    om_batch_info info;
    if (om_batch_check(batch, batch_len, &info) != OM_OK || (size_t)info.size != batch_len)
        return OM_E_CORRUPT;
    om_buffer *bytes = om_buffer_copy(batch, (uint32_t)batch_len);
    int result = bytes ? OM_OK : OM_E_NO_MEMORY;
    for (uint32_t i = 0; i < count && result == OM_OK; i++) {
        const uint8_t *entry = data + 8 + (size_t)i * OM_FANOUT_ENTRY;
        om_log *log = om_store_find(recovery->store, om_get_le64(entry));
        info.base_offset = (int64_t)om_get_le64(entry + 8);
        info.leader_epoch = (int32_t)om_get_le32(entry + 16);
        if (info.base_offset < 0)
            result = OM_E_CORRUPT;
        else if (!log)
            result = note_unknown(recovery, om_get_le64(entry), OM_REC_BATCH);
        else if (is_wanted(recovery, log))
            result = replay_batch(recovery, log, bytes, &info, seq);
    }
    if (bytes)
        om_buffer_unref(bytes);
    return result;
}

static int apply_cursor(om_log *log, const uint8_t *data, size_t len, uint64_t seq) {
    if (len % sizeof(om_cursor_op))
        return OM_E_CORRUPT;
    if (seq <= log->recovery->cursor_seq)
        return OM_OK;
    for (size_t at = 0; at < len; at += sizeof(om_cursor_op)) {
        om_cursor_op op = om_cursor_op_at(data + at);
        int result = om_log_apply_op(log, &op);
        if (result != OM_OK)
            return result;
    }
    return OM_OK;
}

static void apply_lease(om_log *log, const uint8_t *data) {
    int64_t end = (int64_t)om_get_le64(data);
    int32_t epoch = (int32_t)om_get_le32(data + 8);
    if (end > log->lease_end)
        log->lease_end = end;
    if (epoch > log->leader_epoch)
        log->leader_epoch = epoch;
}

/* The files go at the end, when all is known of them. The cursor must follow at once: what comes
 * next in the WAL was done to a queue that began there. */
static void apply_trim(om_log *log, int64_t offset, uint8_t rule) {
    log->recovery->trim_to = offset;
    log->trim_rule = rule;
    if (log->cursor && offset > 0)
        om_cursor_settle(log->cursor, 0, offset - 1, -1);
}

/* The files of a log that recovery has cut are not needed: what they held is gone or comes from
 * the WAL, and a new segment may want their names. */
int om_replay_remove_cut(om_store *store, int rule) {
    om_segment_node *cut = NULL, **link = &store->deletions.pending;
    while (*link) {
        om_segment_node *node = *link;
        if (!node->at_once) {
            link = &node->next;
            continue;
        }
        *link = node->next;
        node->rule = (uint8_t)rule;
        node->next = cut;
        cut = node;
    }
    int result = om_removal_record(store, cut);
    if (result == OM_E_NO_SPACE) {
        om_removal_note_later(store, cut);
        result = OM_OK;
    }
    while (cut) {
        om_segment_node *node = cut;
        cut = node->next;
        if (result == OM_OK)
            om_segment_delete_now(node);
        else
            om_segment_node_free(node);
    }
    return result;
}

static int note_cut(om_log_recovery *found, int64_t offset, uint64_t seq) {
    void *cuts = realloc(found->cuts, (found->cut_count + 1) * sizeof *found->cuts);
    if (!cuts)
        return OM_E_NO_MEMORY;
    found->cuts = cuts;
    found->cuts[found->cut_count].seq = seq;
    found->cuts[found->cut_count++].offset = offset;
    return OM_OK;
}

static int apply_truncate(om_store *store, om_log *log, const uint8_t *data, uint64_t seq) {
    om_log_recovery *found = log->recovery;
    int64_t offset = (int64_t)om_get_le64(data);
    if (note_cut(found, offset, seq) != OM_OK)
        return OM_E_NO_MEMORY;
    om_log_cut(log, offset, (int32_t)om_get_le32(data + 8));
    int removed = om_replay_remove_cut(store, OM_RULE_TRUNCATE);
    if (removed != OM_OK)
        return removed;
    om_ranges_cut(&found->present, offset);
    om_ranges_cut(&found->missing, offset);
    for (uint32_t i = found->doubt_count; i-- > 0;)
        if (found->doubts[i].base >= offset)
            found->doubts[i] = found->doubts[--found->doubt_count];
    om_seen_cut(&found->seen, offset, 0);
    found->saved_next = log->next_offset;
    for (om_damage *damage = found->damages; damage; damage = damage->next)
        if (damage->last >= offset)
            damage->last = offset - 1;
    return OM_OK;
}

static int apply_delete(om_store *store, om_log *log) {
    om_deleted_log *deleted = calloc(1, sizeof *deleted);
    if (!deleted)
        return OM_E_NO_MEMORY;
    log->recovery = NULL;
    om_log_delete_add(log, deleted, 0);
    om_store_add_report(store, OM_REPORT_DELETED, log, 0, 0, "%s was deleted before the last stop", log->folder);
    return OM_OK;
}

/* An earlier life began here, as this one does at its end. */
static void apply_start(om_recovery *recovery, uint64_t seq) {
    for (size_t i = 0; i < recovery->count; i++) {
        om_log_recovery *found = &recovery->logs[i];
        if (found->log->cursor && !found->log->deleted && seq > found->cursor_seq)
            om_cursor_return_all(found->log->cursor, 0);
    }
}

static int apply(om_recovery *recovery, uint8_t type, uint64_t log_id, const uint8_t *data, size_t len, uint64_t seq);

static int apply_atomic(om_recovery *recovery, const uint8_t *data, size_t len, uint64_t seq) {
    while (len) {
        if (len < OM_ATOMIC_HEADER)
            return OM_E_CORRUPT;
        size_t part = om_get_le32(data);
        size_t padded = (part + 7) & ~(size_t)7;
        if (padded > len - OM_ATOMIC_HEADER || data[4] == OM_REC_ATOMIC)
            return OM_E_CORRUPT;
        int result = apply(recovery, data[4], om_get_le64(data + 8), data + OM_ATOMIC_HEADER, part, seq);
        if (result != OM_OK)
            return result;
        data += OM_ATOMIC_HEADER + padded;
        len -= OM_ATOMIC_HEADER + padded;
    }
    return OM_OK;
}

static int apply(om_recovery *recovery, uint8_t type, uint64_t log_id, const uint8_t *data, size_t len, uint64_t seq) {
    om_store *store = recovery->store;
    if (type == OM_REC_FANOUT)
        return apply_fanout(recovery, data, len, seq);
    if (type == OM_REC_ATOMIC)
        return apply_atomic(recovery, data, len, seq);
    if (type == OM_REC_START) {
        if (recovery->pass == 1)
            apply_start(recovery, seq);
        return OM_OK;
    }
    om_log *log = om_store_find(store, log_id);
    if (!log && note_unknown(recovery, log_id, type) != OM_OK)
        return OM_E_NO_MEMORY;
    if (type == OM_REC_BATCH)
        return apply_batch(recovery, log, data, len, seq);
    /* Ids are never used again: a record of a log that nobody knows changes nothing. The second
     * pass is for batches alone. */
    if (!log || !log->recovery || recovery->pass == 2 || type == OM_REC_NAMED)
        return OM_OK;
    if (type == OM_REC_CURSOR)
        return apply_cursor(log, data, len, seq);
    if (type == OM_REC_DELETE)
        return apply_delete(store, log);
    if (len < 12)
        return OM_E_CORRUPT;
    if (type == OM_REC_LEASE)
        apply_lease(log, data);
    else if (type == OM_REC_TRIM)
        apply_trim(log, (int64_t)om_get_le64(data), data[8]);
    else if (type == OM_REC_TRUNCATE)
        return apply_truncate(store, log, data, seq);
    else
        return OM_E_CORRUPT;
    return OM_OK;
}

int om_replay(om_recovery *recovery, om_wal_tail *tail, char *err, size_t err_len) {
    om_store *store = recovery->store;
    char path[4096];
    snprintf(path, sizeof path, "%s/wal", store->dir);
    om_wal_reader *reader = om_wal_reader_open(path, store->checkpoint.seq, err, err_len);
    if (!reader)
        return OM_E_IO;
    om_wal_record record;
    int result;
    uint64_t replayed = 0, before = store->progress.done;
    while ((result = om_wal_reader_next(reader, &record)) == OM_OK && !om_store_called_off(store)) {
        if (apply(recovery, record.type, record.log_id, record.payload, record.len, record.seq) != OM_OK) {
            /* Its checksum was right, so we wrote this: a bug or a later version's record. */
            snprintf(err, err_len, "WAL record %llu of type %u can't be applied", (unsigned long long)record.seq,
                     record.type);
            om_wal_reader_close(reader);
            return OM_E_CORRUPT;
        }
        result = make_room(store);
        if (result != OM_OK)
            break;
        replayed++;
        if (replayed % 256 == 0) {
            uint64_t total;
            uint64_t done = om_wal_reader_bytes(reader, &total);
            __atomic_store_n(&store->progress.done, before + done, __ATOMIC_RELAXED);
            __atomic_store_n(&store->progress.total, before + total, __ATOMIC_RELAXED);
            __atomic_store_n(&store->progress.replayed, replayed, __ATOMIC_RELAXED);
        }
    }
    if (result == OM_E_CORRUPT) {
        om_store_add_report(store, OM_REPORT_WAL_HOLE, NULL, 0, 0, "%s", om_wal_reader_error(reader));
        recovery->has_hole = 1;
        result = OM_END;
    }
    if (result < 0)
        snprintf(err, err_len, "can't replay the WAL: %s", om_result_text(result));
    om_wal_reader_tail(reader, tail);
    om_wal_reader_close(reader);
    __atomic_store_n(&store->progress.replayed, replayed, __ATOMIC_RELAXED);
    return result == OM_END ? OM_OK : result == OM_OK ? OM_E_INTERRUPTED : result;
}
