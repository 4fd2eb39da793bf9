/* segment_rebuild.c -- a segment whose sync failed is made again, into a new file, from the WAL.
 *
 * After a failed fsync the kernel may have dropped the pages and forgotten the error, so neither
 * asking again nor what the file reads as proves anything. What an earlier checkpoint synced is
 * copied; logged records come from the WAL, which no checkpoint has released; records that were
 * never logged come from the old file where their checksum is right, and are lost (reported by
 * nobody: nobody was promised anything) where it isn't. Records settled meanwhile stay out.
 */
#define _GNU_SOURCE
#include "store/segment_rebuild.h"

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/file_util.h"
#include "base/ticket_lock.h"
#include "format/batch.h"
#include "segment/segment.h"
#include "store/log.h"
#include "store/log_cursor.h"
#include "store/store.h"
#include "store/store_report.h"
#include "store/wal_records.h"
#include "store/writer.h"
#include "wal/wal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct copy {
    int64_t base, last;
    om_buffer *bytes;
} copy;

typedef struct redo {
    om_store *store;
    om_log *log;
    om_segment *old;
    int64_t from;  /* the first offset that isn't known to be on disk */
    uint64_t good; /* ... and where it starts */
    copy *copies;  /* of the WAL's batches, in offset order */
    size_t count, cap;
} redo;

/* ---- the WAL's batches ---- */

static int is_settled(const redo *redo, int64_t last) {
    if (!redo->log->cursor || (redo->log->options.flags & OM_LOG_KEEP_SETTLED))
        return 0;
    om_ticket_lock_take(&redo->store->turn);
    int64_t floor = om_log_durable_floor(redo->log);
    om_ticket_lock_give(&redo->store->turn);
    return last < floor;
}

static int keep(redo *redo, const uint8_t *data, size_t len, int64_t base, int32_t epoch) {
    om_batch_info info;
    if (om_batch_check(data, len, &info) != OM_OK)
        return OM_OK; /* not one of ours: recovery would have refused it */
    int64_t last = base + info.last_offset_delta;
    if (base < redo->from || base >= redo->old->next_offset || is_settled(redo, last))
        return OM_OK;
    if (redo->count == redo->cap) {
        size_t cap = redo->cap ? redo->cap * 2 : 64;
        copy *copies = realloc(redo->copies, cap * sizeof *copies);
        if (!copies)
            return OM_E_NO_MEMORY;
        redo->copies = copies;
        redo->cap = cap;
    }
    om_buffer *bytes = om_buffer_copy(data, (uint32_t)len);
    if (!bytes)
        return OM_E_NO_MEMORY;
    om_batch_patch(bytes->data, base, epoch);
    redo->copies[redo->count++] = (copy){base, last, bytes};
    return OM_OK;
}

static int keep_plain(redo *redo, const uint8_t *data, size_t len) {
    om_batch_info info;
    if (om_batch_peek(data, len, &info) != OM_OK)
        return OM_OK;
    return keep(redo, data, len, info.base_offset, info.leader_epoch);
}

static int keep_fanout(redo *redo, const uint8_t *data, size_t len) {
    uint32_t count = len < 8 ? 0 : om_get_le32(data);
    if (len < 8 || count > (len - 8) / OM_FANOUT_ENTRY)
        return OM_OK;
    size_t table = 8 + (size_t)count * OM_FANOUT_ENTRY;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *entry = data + 8 + (size_t)i * OM_FANOUT_ENTRY;
        if (om_get_le64(entry) == redo->log->id)
            return keep(redo, data + table, len - table, (int64_t)om_get_le64(entry + 8),
                        (int32_t)om_get_le32(entry + 16));
    }
    return OM_OK;
}

static int keep_atomic(redo *redo, const uint8_t *data, size_t len) {
    int result = OM_OK;
    while (result == OM_OK && len >= OM_ATOMIC_HEADER) {
        size_t part = om_get_le32(data), padded = (part + 7) & ~(size_t)7;
        if (padded > len - OM_ATOMIC_HEADER)
            break;
        if (data[4] == OM_REC_BATCH && om_get_le64(data + 8) == redo->log->id)
            result = keep_plain(redo, data + OM_ATOMIC_HEADER, part);
        data += OM_ATOMIC_HEADER + padded;
        len -= OM_ATOMIC_HEADER + padded;
    }
    return result;
}

static int read_wal(redo *redo) {
    char err[256];
    om_wal_reader *reader = om_wal_reader_live(redo->store->wal, redo->store->checkpoint.seq, err, sizeof err);
    if (!reader)
        return OM_E_IO;
    om_wal_record record;
    int result;
    while ((result = om_wal_reader_next(reader, &record)) == OM_OK) {
        if (record.type == OM_REC_BATCH && record.log_id == redo->log->id)
            result = keep_plain(redo, record.payload, record.len);
        else if (record.type == OM_REC_FANOUT)
            result = keep_fanout(redo, record.payload, record.len);
        else if (record.type == OM_REC_ATOMIC)
            result = keep_atomic(redo, record.payload, record.len);
        if (result != OM_OK)
            break;
    }
    om_wal_reader_close(reader);
    return result == OM_END ? OM_OK : result;
}

/* ---- the new file ---- */

static int write_copies_below(const redo *redo, int fd, size_t *next, int64_t offset) {
    int result = OM_OK;
    while (result == OM_OK && *next < redo->count && redo->copies[*next].base < offset) {
        om_buffer *bytes = redo->copies[(*next)++].bytes;
        result = om_write_all(fd, bytes->data, bytes->len);
    }
    return result;
}

/* The old file's batches where they are sound, the WAL's in their places; the WAL's win. */
static int merge(const redo *redo, int fd, const om_view *view) {
    size_t next = 0, at = 0;
    int result = OM_OK;
    om_batch_info info;
    while (result == OM_OK && at < view->len && om_batch_check(view->data + at, view->len - at, &info) == OM_OK) {
        result = write_copies_below(redo, fd, &next, info.base_offset);
        int in_wal = next < redo->count && redo->copies[next].base == info.base_offset;
        if (result == OM_OK && !in_wal && !is_settled(redo, info.base_offset + info.last_offset_delta))
            result = om_write_all(fd, view->data + at, (size_t)info.size);
        at += (size_t)info.size;
    }
    return result == OM_OK ? write_copies_below(redo, fd, &next, INT64_MAX) : result;
}

static int write_rest(const redo *redo, int fd) {
    if (lseek(fd, (off_t)redo->good, SEEK_SET) < 0)
        return OM_E_IO;
    om_view view = {0};
    if (om_view_open(redo->old, redo->good, SIZE_MAX, &view) == OM_OK) {
        om_sigbus_begin(&view);
        int result = merge(redo, fd, &view);
        int faulted = om_sigbus_end(&view);
        om_view_release(&view);
        if (faulted == OM_OK || result != OM_OK)
            return result;
        if (lseek(fd, (off_t)redo->good, SEEK_SET) < 0 || ftruncate(fd, (off_t)redo->good) != 0)
            return OM_E_IO;
    }
    size_t next = 0;
    return write_copies_below(redo, fd, &next, INT64_MAX);
}

/* A new segment over the new file, known by reading it. */
static om_segment *make_segment(redo *redo, int *result) {
    int fd;
    *result = om_segment_rewrite_begin(redo->old, redo->good, &fd);
    if (*result != OM_OK)
        return NULL;
    *result = write_rest(redo, fd);
    om_segment *fresh =
        *result == OM_OK ? om_segment_new(redo->store->files, redo->log->folder, redo->old->base_offset) : NULL;
    if (!fresh) {
        om_segment_rewrite_abort(redo->old, fd);
        *result = *result == OM_OK ? OM_E_NO_MEMORY : *result;
        return NULL;
    }
    om_scan scan;
    /* From the rename on its name is another file's: a reader that opens the old one must find that out. */
    __atomic_store_n(&redo->old->deleted, 1, __ATOMIC_RELEASE);
    *result = om_segment_rewrite_commit(fresh, fd);
    if (*result == OM_OK)
        *result = om_segment_scan(fresh, 0, fresh->base_offset, 0, &scan);
    if (*result == OM_OK && scan.stopped != OM_OK)
        *result = OM_E_CORRUPT;
    if (*result != OM_OK) {
        /* It is still suspect: the next checkpoint begins anew. */
        __atomic_store_n(&redo->old->deleted, 0, __ATOMIC_RELEASE);
        om_segment_unref(fresh);
        return NULL;
    }
    om_segment_seal(fresh);
    return fresh;
}

static void swap(redo *redo, om_segment *fresh) {
    om_log *log = redo->log;
    om_ticket_lock_take(&redo->store->turn);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        if (log->segments[i] != redo->old)
            continue;
        om_segment_ref(fresh);
        log->segments[i] = fresh;
        om_segment_unref(redo->old);
    }
    log->manifest_stale = 1;
    redo->store->segments_rewritten++;
    om_ticket_lock_give(&redo->store->turn);
}

/* From here on nothing is placed in it, and all that was is in the (old) file. */
static int close_segment(redo *redo) {
    om_ticket_lock_take(&redo->store->turn);
    if (!redo->old->sealed)
        om_segment_seal(redo->old);
    int is_recovery = redo->old->base_offset == redo->log->recovery_base;
    redo->good = is_recovery ? redo->log->recovery_position : 0;
    redo->from = is_recovery ? redo->log->recovery_point : redo->old->base_offset;
    om_ticket_lock_give(&redo->store->turn);
    return om_writer_flush(redo->store);
}

int om_segment_rebuild(om_store *store, om_log *log, om_segment **segment) {
    redo redo = {.store = store, .log = log, .old = *segment};
    int result = close_segment(&redo);
    if (result == OM_OK)
        result = read_wal(&redo);
    om_segment *fresh = result == OM_OK ? make_segment(&redo, &result) : NULL;
    for (size_t i = 0; i < redo.count; i++)
        om_buffer_unref(redo.copies[i].bytes);
    free(redo.copies);
    if (!fresh)
        return result;
    swap(&redo, fresh);
    om_store_add_report(store, OM_REPORT_SEGMENT_REWRITTEN, log, fresh->base_offset, fresh->next_offset - 1,
                        "segment %s/%020lld.log couldn't be synced and was written again from the WAL", log->folder,
                        (long long)fresh->base_offset);
    om_segment_unref(*segment);
    *segment = fresh;
    return OM_OK;
}
