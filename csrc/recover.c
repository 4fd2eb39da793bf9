/* recover.c -- the start: every log from its checkpoint and segments, then the WAL over it.
 *
 * A logged batch is in its segment, or in the WAL, or settled for good (then neither may have it).
 * Replay appends what comes after a log's end. A batch that is missing *before* the end means
 * that the machine lost pages the kernel had not written yet: unless the cursor says that it
 * was settled, the log is cut there and made again from the WAL in a second pass. Records that
 * were in no WAL and vanished leave a gap; gaps count as settled.
 */
#define _GNU_SOURCE
#include "store.h"

#include "bytes.h"
#include "cursor.h"
#include "producer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct recovery {
    om_store *store;
    om_patient *patients;
    size_t count;
    size_t next;             /* atomic: the next one to load */
    int result;              /* atomic */
    int pass;                /* over the WAL: 1, or 2 for what must be rebuilt */
    int has_hole;            /* the WAL: what it doesn't know of may have been logged */
} recovery;

/* ---- loading, side by side ---- */

static void *load_some(void *arg) {
    recovery *recovery = arg;
    size_t i;
    while ((i = __atomic_fetch_add(&recovery->next, 1, __ATOMIC_RELAXED)) < recovery->count) {
        int result = om_store_called_off(recovery->store) ? OM_END
                                                          : om_patient_load(recovery->store, &recovery->patients[i]);
        if (result != OM_OK)
            __atomic_store_n(&recovery->result, result, __ATOMIC_RELAXED);
        __atomic_add_fetch(&recovery->store->progress.logs_done, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static int load_all(recovery *recovery) {
    enum { MOST = 16 };
    pthread_t threads[MOST];
    long wanted = recovery->store->options.recovery_threads;
    if (!wanted)
        wanted = sysconf(_SC_NPROCESSORS_ONLN);
    long helpers = 0;
    while (helpers < wanted - 1 && helpers < MOST && (size_t)helpers + 1 < recovery->count &&
           pthread_create(&threads[helpers], NULL, load_some, recovery) == 0)
        helpers++;
    load_some(recovery);
    for (long i = 0; i < helpers; i++)
        pthread_join(threads[i], NULL);
    return recovery->result;
}

/* ---- replay ---- */

/* Memory stays bounded: what was replayed goes to segments as the hot tail fills. */
static int make_room(om_store *store) {
    int64_t wrote = 1;
    while (wrote > 0 && store->hot_bytes > store->options.hot_buffer_size / 2)
        wrote = om_writer_round(store);
    return wrote < 0 ? (int)wrote : OM_OK;
}

/* Is what lies at that place this very batch? Its base offset and its epoch have no checksum. */
static int is_the_same(const om_log *log, const om_batch_info *info) {
    uint32_t index = om_log_segment_for(log, info->base_offset), hot = om_hot_find(&log->hot, info->base_offset);
    om_batch_info found;
    uint64_t position;
    if (index == log->segment_count || (hot < log->hot.count && om_hot_at(&log->hot, hot)->base_offset <= info->base_offset))
        return 1; /* it came from the WAL */
    return om_segment_find(log->segments[index], info->base_offset, &position, &found) == OM_OK &&
           found.base_offset == info->base_offset && found.size == info->size && found.crc == info->crc &&
           found.leader_epoch == info->leader_epoch;
}

/* Was it cut off later on? Then it must not come back in the second pass, which knows only batches. */
static int is_cut_off(const om_patient *patient, const om_batch_info *info, uint64_t seq) {
    for (uint32_t i = 0; i < patient->cut_count; i++)
        if (patient->cuts[i].seq > seq && patient->cuts[i].offset <= info->base_offset)
            return 1;
    return 0;
}

/* The WAL has the batch that stands at this place. */
static void believe(om_patient *patient, int64_t base) {
    for (uint32_t i = 0; i < patient->doubt_count; i++)
        if (patient->doubts[i].base == base) {
            patient->doubts[i] = patient->doubts[--patient->doubt_count];
            return;
        }
}

static int replay_batch(recovery *recovery, om_log *log, om_bytes *bytes, om_batch_info *info, uint64_t seq) {
    om_patient *patient = log->patient;
    int64_t last = info->base_offset + info->last_offset_delta;
    if (last < log->recovery_point)
        return OM_OK;
    if (recovery->pass == 1 && om_seen_note(&patient->seen, bytes->data, bytes->len, info, 1) != OM_OK)
        return OM_E_NO_MEMORY;
    if (om_ranges_contain(&patient->present, info->base_offset) && (recovery->pass == 2 || is_the_same(log, info))) {
        believe(patient, info->base_offset);
        return OM_OK;
    }
    if (recovery->pass == 2 && (patient->rebuild_from < 0 || info->base_offset < patient->rebuild_from ||
                                is_cut_off(patient, info, seq)))
        return OM_OK;
    if (info->base_offset < log->next_offset)
        return om_ranges_add(&patient->missing, info->base_offset, last);
    int counted = log->cursor && last < log->cursor->end;
    log->next_offset = last + 1;
    log->last_logged_seq = seq;
    if (info->leader_epoch > log->leader_epoch)
        log->leader_epoch = info->leader_epoch;
    int result = om_ranges_add(&patient->present, info->base_offset, last);
    if (result != OM_OK)
        return result;
    om_bytes_ref(bytes);
    return om_log_push(log, bytes, info, seq, 0, counted ? OM_WEIGHT_COUNTED : OM_WEIGHT_UNKNOWN);
}

static int is_wanted(const recovery *recovery, const om_log *log) {
    return log && log->patient && (recovery->pass == 1 || log->patient->rebuild_from >= 0);
}

static int apply_batch(recovery *recovery, om_log *log, const uint8_t *data, size_t len, uint64_t seq) {
    om_batch_info info;
    if (om_batch_check(data, len, &info) != OM_OK || (size_t)info.size != len)
        return OM_E_CORRUPT;
    if (!is_wanted(recovery, log))
        return OM_OK;
    om_bytes *bytes = om_bytes_copy(data, (uint32_t)len);
    if (!bytes)
        return OM_E_NO_MEMORY;
    int result = replay_batch(recovery, log, bytes, &info, seq);
    om_bytes_unref(bytes);
    return result;
}

static int apply_fanout(recovery *recovery, const uint8_t *data, size_t len, uint64_t seq) {
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
    om_bytes *bytes = om_bytes_copy(batch, (uint32_t)batch_len);
    int result = bytes ? OM_OK : OM_E_NO_MEMORY;
    for (uint32_t i = 0; i < count && result == OM_OK; i++) {
        const uint8_t *entry = data + 8 + (size_t)i * OM_FANOUT_ENTRY;
        om_log *log = om_store_find(recovery->store, om_get_le64(entry));
        info.base_offset = (int64_t)om_get_le64(entry + 8);
        info.leader_epoch = (int32_t)om_get_le32(entry + 16);
        if (info.base_offset < 0)
            result = OM_E_CORRUPT;
        else if (is_wanted(recovery, log))
            result = replay_batch(recovery, log, bytes, &info, seq);
    }
    if (bytes)
        om_bytes_unref(bytes);
    return result;
}

static int apply_cursor(om_log *log, const uint8_t *data, size_t len, uint64_t seq) {
    if (len % sizeof(om_cursor_op))
        return OM_E_CORRUPT;
    if (seq <= log->patient->cursor_seq)
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
    log->patient->trim_to = offset;
    log->trim_rule = rule;
    if (log->cursor && offset > 0)
        om_cursor_settle(log->cursor, 0, offset - 1, -1);
}

/* The files of a log that recovery has cut are not needed: what they held is gone or comes from
 * the WAL, and a new segment may want their names. */
static int remove_cut(om_store *store, int rule) {
    om_segment_node *cut = NULL, **link = &store->doomed;
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
    while (cut) {
        om_segment_node *node = cut;
        cut = node->next;
        if (result == OM_OK)
            om_segment_node_remove(node);
        else
            om_segment_node_free(node);
    }
    return result;
}

static int note_cut(om_patient *patient, int64_t offset, uint64_t seq) {
    void *cuts = realloc(patient->cuts, (patient->cut_count + 1) * sizeof *patient->cuts);
    if (!cuts)
        return OM_E_NO_MEMORY;
    patient->cuts = cuts;
    patient->cuts[patient->cut_count].seq = seq;
    patient->cuts[patient->cut_count++].offset = offset;
    return OM_OK;
}

static int apply_truncate(om_store *store, om_log *log, const uint8_t *data, uint64_t seq) {
    om_patient *patient = log->patient;
    int64_t offset = (int64_t)om_get_le64(data);
    if (note_cut(patient, offset, seq) != OM_OK)
        return OM_E_NO_MEMORY;
    om_log_cut(log, offset, (int32_t)om_get_le32(data + 8));
    int removed = remove_cut(store, OM_RULE_TRUNCATE);
    if (removed != OM_OK)
        return removed;
    om_ranges_cut(&patient->present, offset);
    om_ranges_cut(&patient->missing, offset);
    for (uint32_t i = patient->doubt_count; i-- > 0;)
        if (patient->doubts[i].base >= offset)
            patient->doubts[i] = patient->doubts[--patient->doubt_count];
    om_seen_cut(&patient->seen, offset, 0);
    patient->saved_next = log->next_offset;
    for (om_damage *damage = patient->damages; damage; damage = damage->next)
        if (damage->last >= offset)
            damage->last = offset - 1;
    return OM_OK;
}

static int apply_delete(om_store *store, om_log *log) {
    om_grave *grave = calloc(1, sizeof *grave);
    if (!grave)
        return OM_E_NO_MEMORY;
    log->deleted = 1;
    log->patient = NULL;
    om_store_forget(store, log);
    *grave = (om_grave){.log = log, .next = store->graves};
    store->graves = grave;
    om_store_add_report(store, OM_REPORT_DELETED, log, 0, 0, "%s was deleted before the last stop", log->folder);
    return OM_OK;
}

/* An earlier life began here, as this one does at its end. */
static void apply_start(recovery *recovery, uint64_t seq) {
    for (size_t i = 0; i < recovery->count; i++) {
        om_patient *patient = &recovery->patients[i];
        if (patient->log->cursor && !patient->log->deleted && seq > patient->cursor_seq)
            om_cursor_return_all(patient->log->cursor, 0);
    }
}

static int apply(recovery *recovery, uint8_t type, uint64_t log_id, const uint8_t *data, size_t len, uint64_t seq);

static int apply_atomic(recovery *recovery, const uint8_t *data, size_t len, uint64_t seq) {
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

static int apply(recovery *recovery, uint8_t type, uint64_t log_id, const uint8_t *data, size_t len, uint64_t seq) {
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
    if (type == OM_REC_BATCH)
        return apply_batch(recovery, log, data, len, seq);
    /* Ids are never used again: a record of a log that nobody knows is of one that is gone. The
     * second pass is for batches alone. */
    if (!log || !log->patient || recovery->pass == 2)
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

static int replay(recovery *recovery, om_wal_tail *tail, char *err, size_t err_len) {
    om_store *store = recovery->store;
    char path[4096];
    snprintf(path, sizeof path, "%s/wal", store->dir);
    om_wal_reader *reader = om_wal_reader_open(path, store->checkpoint_seq, err, err_len);
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
    return result == OM_END ? OM_OK : result == OM_OK ? OM_END : result;
}

/* ---- holes ---- */

static int is_settled(const om_log *log, int64_t first, int64_t last) {
    const om_cursor *cursor = log->cursor;
    if (!cursor || (log->options.flags & OM_LOG_KEEP_SETTLED))
        return 0;
    if (first < cursor->floor)
        first = cursor->floor;
    return (cursor->settled.len ? om_offset_set_next_gap(&cursor->settled, first) : first) > last;
}

static int64_t first_hole(const recovery *recovery, const om_patient *patient) {
    int64_t hole = INT64_MAX;
    for (uint32_t i = 0; i < patient->missing.count; i++) {
        int64_t first = patient->missing.items[i].first;
        if (first < hole && !is_settled(patient->log, first, patient->missing.items[i].last))
            hole = first;
    }
    /* Nobody vouches for what stands behind such a gap, so it is not at its place. It was never
     * logged: where the WAL is whole, it would have it. */
    for (uint32_t i = 0; i < patient->doubt_count && !recovery->has_hole; i++) {
        int64_t gap = patient->doubts[i].gap;
        if (gap < hole && !is_settled(patient->log, gap, patient->doubts[i].base - 1))
            hole = gap;
    }
    return hole;
}

/* What stood at a spoilt place has taken the cursor's end there; no offset past all leases was shown. */
static void bring_back_end(const om_patient *patient, int64_t hole) {
    const om_log *log = patient->log;
    int64_t end = hole > patient->saved_next ? hole : patient->saved_next;
    end = log->lease_end > end ? log->lease_end : end;
    end = patient->saved_end > end ? patient->saved_end : end;
    if (end < log->cursor->end) {
        om_cursor_settle(log->cursor, end, log->cursor->end - 1, 0);
        om_cursor_truncate(log->cursor, end);
    }
}

/* Cut the log at the hole; its cursor and producers keep what they know. */
static int cut_at_hole(om_store *store, om_patient *patient, int64_t hole) {
    om_log *log = patient->log;
    om_cursor *cursor = log->cursor;
    om_producers *producers = log->producers;
    log->cursor = NULL;
    log->producers = NULL;
    om_log_cut(log, hole, log->leader_epoch);
    log->cursor = cursor;
    log->producers = producers;
    int removed = remove_cut(store, OM_RULE_REBUILT);
    if (removed != OM_OK)
        return removed;
    om_ranges_cut(&patient->present, hole);
    om_seen_cut(&patient->seen, hole, 1);
    patient->missing.count = 0;
    patient->rebuild_from = hole;
    if (cursor && patient->doubt_count)
        bring_back_end(patient, hole);
    om_segment *last = log->segment_count ? log->segments[log->segment_count - 1] : NULL;
    return last && last->exists ? om_segment_trim_file(last, last->size) : OM_OK;
}

static int mend_holes(recovery *recovery, om_wal_tail *tail, char *err, size_t err_len) {
    int any = 0;
    for (size_t i = 0; i < recovery->count; i++) {
        om_patient *patient = &recovery->patients[i];
        int64_t hole = patient->log->deleted ? INT64_MAX : first_hole(recovery, patient);
        if (hole == INT64_MAX)
            continue;
        any = 1;
        int result = cut_at_hole(recovery->store, patient, hole);
        if (result != OM_OK) {
            snprintf(err, err_len, "can't cut %s: %s", patient->log->folder, om_result_text(result));
            return result;
        }
    }
    recovery->pass = 2;
    return any ? replay(recovery, tail, err, err_len) : OM_OK;
}

/* ---- the end of it ---- */

static void report_damage(om_store *store, om_patient *patient) {
    om_log *log = patient->log;
    for (om_damage *damage = patient->damages; damage; damage = damage->next) {
        int64_t first = damage->first > log->start_offset ? damage->first : log->start_offset;
        if (damage->last < first)
            continue;
        char aside[512] = "";
        int opened;
        om_segment *segment = damage->segment_base < 0
                                  ? NULL
                                  : om_segment_open(store->files, log->folder, damage->segment_base, &opened);
        om_removal_record_one(log, segment, segment ? OM_RULE_SET_ASIDE : OM_RULE_MISSING, first, damage->last + 1, 0);
        if (segment) {
            om_segment_set_aside(segment, aside, sizeof aside);
            om_segment_unref(segment);
        }
        om_store_add_report(store, OM_REPORT_CORRUPT, log, first, damage->last,
                            "records %lld to %lld of '%.64s' are lost: segment %s%s%.100s", (long long)first,
                            (long long)damage->last, log->name, damage->why, *aside ? ", set aside as " : "", aside);
        log->manifest_stale = 1;
        /* The next checkpoint names a segment that is there: a loss is told once. */
        if (damage->first <= log->recovery_base && log->recovery_base <= damage->last) {
            log->recovery_base = -1;
            log->recovery_position = 0;
        }
        if (log->cursor)
            om_cursor_skip(log->cursor, first, damage->last);
    }
}

/* What isn't there weighs nothing, unless the checkpoint's cursor knew and had weighed it. */
static void skip_gap(om_patient *patient, int64_t first, int64_t last) {
    om_cursor *cursor = patient->log->cursor;
    if (last >= patient->saved_end) {
        int64_t unknown = first > patient->saved_end ? first : patient->saved_end;
        om_cursor_settle(cursor, unknown, last, 0);
        last = unknown - 1;
    }
    if (first <= last)
        om_cursor_skip(cursor, first, last);
}

/* Of the records past the recovery point, those that aren't there count as settled. */
static void skip_gaps(om_patient *patient) {
    om_log *log = patient->log;
    int64_t at = log->recovery_point;
    for (uint32_t i = 0; i < patient->present.count; i++) {
        if (patient->present.items[i].first > at)
            skip_gap(patient, at, patient->present.items[i].first - 1);
        if (patient->present.items[i].last >= at)
            at = patient->present.items[i].last + 1;
    }
    if (log->cursor->end > at)
        skip_gap(patient, at, log->cursor->end - 1);
}

static void finish(om_store *store, om_patient *patient) {
    om_log *log = patient->log;
    int64_t end = log->next_offset, next = end;
    report_damage(store, patient);
    if (log->cursor) {
        skip_gaps(patient);
        next = log->cursor->end > next ? log->cursor->end : next;
    }
    log->gap_start = log->cursor ? next : om_log_record_end(log);
    next = log->lease_end > next ? log->lease_end : next;
    next = patient->saved_next > next ? patient->saved_next : next;
    if (next > end && next > patient->saved_next) {
        /* An unclean stop: whoever saw offsets we don't know of must not meet them again. */
        log->leader_epoch++;
    }
    log->gap_end = next > log->gap_start ? next : 0;
    if (!log->cursor && log->gap_end)
        om_removal_note_range(log, OM_RULE_SKIPPED, log->gap_start, log->gap_end);
    if (next > end) {
        log->next_offset = next;
        if (log->cursor)
            om_cursor_skip(log->cursor, end, next - 1);
    }
    /* A tail that was never synced may reach past the lease. Before anybody is shown that it does,
     * the offsets must be leased, or a power loss would let them be given again. */
    log->lease_durable = om_log_uses_wal(log) && log->lease_end < next ? log->lease_end : next;
    log->lease_end = next;
    if (log->lease_durable < next) {
        log->leased = 1;
        log->lease_seq = UINT64_MAX; /* it has none yet */
        om_list_push(&store->leases, log, OM_LINK(next_lease));
    }
    om_log_start_at(log, patient->trim_to);
    om_producers_trim(log, log->start_offset);
    om_log_note_missing(log);
    if (log->cursor) {
        om_handed_recall(log);
        om_cursor_return_all(log->cursor, 0);
    }
    if (!log->touched && (end > log->recovery_point || log->manifest_stale || patient->damages)) {
        log->touched = 1;
        om_list_push(&store->touched, log, OM_LINK(next_touched));
    }
}

static void patient_free(om_patient *patient) {
    while (patient->damages) {
        om_damage *damage = patient->damages;
        patient->damages = damage->next;
        free(damage);
    }
    free(patient->present.items);
    free(patient->control.items);
    free(patient->seen.items);
    free(patient->missing.items);
    free(patient->cuts);
    free(patient->doubts);
}

static int admit_patients(om_store *store, recovery *recovery) {
    recovery->patients = calloc(store->log_count ? store->log_count : 1, sizeof *recovery->patients);
    if (!recovery->patients)
        return OM_E_NO_MEMORY;
    for (uint32_t slot = 0; slot < store->table_size; slot++) {
        for (om_log *log = store->table[slot]; log; log = log->next_in_table) {
            log->patient = &recovery->patients[recovery->count++];
            log->patient->log = log;
            om_log_ref(log);
        }
    }
    store->progress.logs_total = recovery->count;
    return OM_OK;
}

int om_recover(om_store *store, om_wal_tail *tail, char *err, size_t err_len) {
    recovery recovery = {.store = store, .pass = 1};
    int result = admit_patients(store, &recovery);
    if (result == OM_OK)
        result = load_all(&recovery);
    if (result < 0)
        snprintf(err, err_len, "can't load the logs: %s", om_result_text(result));
    if (result == OM_OK)
        result = replay(&recovery, tail, err, err_len);
    if (result == OM_OK)
        result = mend_holes(&recovery, tail, err, err_len);
    for (size_t i = 0; i < recovery.count && result == OM_OK; i++)
        if (!recovery.patients[i].log->deleted)
            result = om_producers_replay(recovery.patients[i].log, &recovery.patients[i].seen);
    for (size_t i = 0; i < recovery.count; i++) {
        if (result == OM_OK && !recovery.patients[i].log->deleted)
            finish(store, &recovery.patients[i]);
        recovery.patients[i].log->patient = NULL;
        patient_free(&recovery.patients[i]);
        om_log_release(recovery.patients[i].log);
    }
    free(recovery.patients);
    om_saved_free(store);
    return result;
}
