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

typedef struct rebuild {
    om_store *store;
    om_log *log;
    om_segment *old;
    int64_t from;  /* the first offset that isn't known to be on disk */
    uint64_t good; /* ... and where it starts */
    copy *copies;  /* of the WAL's batches, in offset order */
    size_t count, cap;
} rebuild;

/* ---- the WAL's batches ---- */

static int is_settled(const rebuild *rebuild, int64_t last) {
    if (!rebuild->log->cursor || (rebuild->log->options.flags & OM_LOG_KEEP_SETTLED))
        return 0;
    om_ticket_lock_take(&rebuild->store->lock);
    int64_t floor = om_log_durable_floor(rebuild->log);
    om_ticket_lock_give(&rebuild->store->lock);
    return last < floor;
}

static int keep(rebuild *rebuild, const uint8_t *data, size_t len, int64_t base, int32_t epoch) {
    om_batch_info info;
    if (om_batch_check(data, len, &info) != OM_OK)
        return OM_OK; /* not one of ours: recovery would have refused it */
    int64_t last = base + info.last_offset_delta;
    if (base < rebuild->from || base >= rebuild->old->next_offset || is_settled(rebuild, last))
        return OM_OK;
    if (rebuild->count == rebuild->cap) {
        size_t cap = rebuild->cap ? rebuild->cap * 2 : 64;
        copy *copies = realloc(rebuild->copies, cap * sizeof *copies);
        if (!copies)
            return OM_E_NO_MEMORY;
        rebuild->copies = copies;
        rebuild->cap = cap;
    }
    om_buffer *bytes = om_buffer_copy(data, (uint32_t)len);
    if (!bytes)
        return OM_E_NO_MEMORY;
    om_batch_patch(bytes->data, base, epoch);
    rebuild->copies[rebuild->count++] = (copy){base, last, bytes};
    return OM_OK;
}

static int keep_plain(rebuild *rebuild, const uint8_t *data, size_t len) {
    om_batch_info info;
    if (om_batch_peek(data, len, &info) != OM_OK)
        return OM_OK;
    return keep(rebuild, data, len, info.base_offset, info.leader_epoch);
}

static int keep_fanout(rebuild *rebuild, const uint8_t *data, size_t len) {
    uint32_t count = len < 8 ? 0 : om_get_le32(data);
    if (len < 8 || count > (len - 8) / OM_FANOUT_ENTRY)
        return OM_OK;
    size_t table = 8 + (size_t)count * OM_FANOUT_ENTRY;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *entry = data + 8 + (size_t)i * OM_FANOUT_ENTRY;
        if (om_get_le64(entry) == rebuild->log->id)
            return keep(rebuild, data + table, len - table, (int64_t)om_get_le64(entry + 8),
                        (int32_t)om_get_le32(entry + 16));
    }
    return OM_OK;
}

static int keep_atomic(rebuild *rebuild, const uint8_t *data, size_t len) {
    int result = OM_OK;
    while (result == OM_OK && len >= OM_ATOMIC_HEADER) {
        size_t part = om_get_le32(data), padded = (part + 7) & ~(size_t)7;
        if (padded > len - OM_ATOMIC_HEADER)
            break;
        if (data[4] == OM_REC_BATCH && om_get_le64(data + 8) == rebuild->log->id)
            result = keep_plain(rebuild, data + OM_ATOMIC_HEADER, part);
        data += OM_ATOMIC_HEADER + padded;
        len -= OM_ATOMIC_HEADER + padded;
    }
    return result;
}

static int read_wal(rebuild *rebuild) {
    char err[256];
    om_wal_reader *reader = om_wal_reader_live(rebuild->store->wal, rebuild->store->checkpoint.seq, err, sizeof err);
    if (!reader)
        return OM_E_IO;
    om_wal_record record;
    int result;
    while ((result = om_wal_reader_next(reader, &record)) == OM_OK) {
        if (record.type == OM_REC_BATCH && record.log_id == rebuild->log->id)
            result = keep_plain(rebuild, record.payload, record.len);
        else if (record.type == OM_REC_FANOUT)
            result = keep_fanout(rebuild, record.payload, record.len);
        else if (record.type == OM_REC_ATOMIC)
            result = keep_atomic(rebuild, record.payload, record.len);
        if (result != OM_OK)
            break;
    }
    om_wal_reader_close(reader);
    return result == OM_END ? OM_OK : result;
}

/* ---- the new file ---- */

static int write_copies_below(const rebuild *rebuild, int fd, size_t *next, int64_t offset) {
    int result = OM_OK;
    while (result == OM_OK && *next < rebuild->count && rebuild->copies[*next].base < offset) {
        om_buffer *bytes = rebuild->copies[(*next)++].bytes;
        result = om_write_all(fd, bytes->data, bytes->len);
    }
    return result;
}

/* The old file's batches where they are sound, the WAL's in their places; the WAL's win. */
static int merge(const rebuild *rebuild, int fd, const om_view *view) {
    size_t next = 0, at = 0;
    int result = OM_OK;
    om_batch_info info;
    while (result == OM_OK && at < view->len && om_batch_check(view->data + at, view->len - at, &info) == OM_OK) {
        result = write_copies_below(rebuild, fd, &next, info.base_offset);
        int in_wal = next < rebuild->count && rebuild->copies[next].base == info.base_offset;
        if (result == OM_OK && !in_wal && !is_settled(rebuild, info.base_offset + info.last_offset_delta))
            result = om_write_all(fd, view->data + at, (size_t)info.size);
        at += (size_t)info.size;
    }
    return result == OM_OK ? write_copies_below(rebuild, fd, &next, INT64_MAX) : result;
}

static int write_rest(const rebuild *rebuild, int fd) {
    if (lseek(fd, (off_t)rebuild->good, SEEK_SET) < 0)
        return OM_E_IO;
    om_view view = {0};
    if (om_view_open(rebuild->old, rebuild->good, SIZE_MAX, &view) == OM_OK) {
        om_sigbus_begin(&view);
        int result = merge(rebuild, fd, &view);
        int faulted = om_sigbus_end(&view);
        om_view_release(&view);
        if (faulted == OM_OK || result != OM_OK)
            return result;
        if (lseek(fd, (off_t)rebuild->good, SEEK_SET) < 0 || ftruncate(fd, (off_t)rebuild->good) != 0)
            return OM_E_IO;
    }
    size_t next = 0;
    return write_copies_below(rebuild, fd, &next, INT64_MAX);
}

/* A new segment over the new file, known by reading it. */
static om_segment *make_segment(rebuild *rebuild, int *result) {
    int fd;
    *result = om_segment_rewrite_begin(rebuild->old, rebuild->good, &fd);
    if (*result != OM_OK)
        return NULL;
    *result = write_rest(rebuild, fd);
    om_segment *fresh = *result == OM_OK
                            ? om_segment_new(rebuild->store->files, rebuild->log->folder, rebuild->old->base_offset)
                            : NULL;
    if (!fresh) {
        om_segment_rewrite_abort(rebuild->old, fd);
        *result = *result == OM_OK ? OM_E_NO_MEMORY : *result;
        return NULL;
    }
    om_scan scan;
    /* From the rename on its name is another file's: a reader that opens the old one must find that out. */
    __atomic_store_n(&rebuild->old->deleted, 1, __ATOMIC_RELEASE);
    *result = om_segment_rewrite_commit(fresh, fd);
    if (*result == OM_OK)
        *result = om_segment_scan(fresh, 0, fresh->base_offset, 0, &scan);
    if (*result == OM_OK && scan.stopped != OM_OK)
        *result = OM_E_CORRUPT;
    if (*result != OM_OK) {
        /* It is still suspect: the next checkpoint begins anew. */
        __atomic_store_n(&rebuild->old->deleted, 0, __ATOMIC_RELEASE);
        om_segment_unref(fresh);
        return NULL;
    }
    om_segment_seal(fresh);
    return fresh;
}

static void swap(rebuild *rebuild, om_segment *fresh) {
    om_log *log = rebuild->log;
    om_ticket_lock_take(&rebuild->store->lock);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        if (log->segments[i] != rebuild->old)
            continue;
        om_segment_ref(fresh);
        log->segments[i] = fresh;
        om_segment_unref(rebuild->old);
    }
    log->manifest_stale = 1;
    rebuild->store->segments_rewritten++;
    om_ticket_lock_give(&rebuild->store->lock);
}

/* From here on nothing is placed in it, and all that was is in the (old) file. */
static int close_segment(rebuild *rebuild) {
    om_ticket_lock_take(&rebuild->store->lock);
    if (!rebuild->old->sealed)
        om_segment_seal(rebuild->old);
    int is_recovery = rebuild->old->base_offset == rebuild->log->recovery_base;
    rebuild->good = is_recovery ? rebuild->log->recovery_position : 0;
    rebuild->from = is_recovery ? rebuild->log->recovery_point : rebuild->old->base_offset;
    om_ticket_lock_give(&rebuild->store->lock);
    return om_writer_flush(rebuild->store);
}

int om_segment_rebuild(om_store *store, om_log *log, om_segment **segment) {
    rebuild rebuild = {.store = store, .log = log, .old = *segment};
    int result = close_segment(&rebuild);
    if (result == OM_OK)
        result = read_wal(&rebuild);
    om_segment *fresh = result == OM_OK ? make_segment(&rebuild, &result) : NULL;
    for (size_t i = 0; i < rebuild.count; i++)
        om_buffer_unref(rebuild.copies[i].bytes);
    free(rebuild.copies);
    if (!fresh)
        return result;
    swap(&rebuild, fresh);
    om_store_add_report(store, OM_REPORT_SEGMENT_REWRITTEN, log, fresh->base_offset, fresh->next_offset - 1,
                        "segment %s/%020lld.log couldn't be synced and was written again from the WAL", log->folder,
                        (long long)fresh->base_offset);
    om_segment_unref(*segment);
    *segment = fresh;
    return OM_OK;
}
