/* log_read.c -- reading: hot tail, mapped segment, file range, time.
 *
 * Nothing is copied. A read holds what it points into: bytes of the hot tail, or a view of a
 * mapped segment; both outlive whatever happens to the log meanwhile.
 */
#define _GNU_SOURCE
#include "store/log_read.h"

#include "base/buffer.h"
#include "base/ticket_lock.h"
#include "segment/segment.h"
#include "store/hot.h"
#include "store/log.h"
#include "store/log_damage.h"
#include "store/log_offsets.h"
#include "store/log_segments.h"
#include "store/reader.h"
#include "store/store.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* A reader of this much reads on: pages are mapped in one call and the next ones asked for. */
#define STREAMING (64u << 10)
#define AHEAD (4u << 20)

typedef struct pins {
    om_log *log;
    int nowait;   /* must not wait for a disk */
    om_view view; /* mapped: one span, of the file from this position on */
    uint64_t position;
    uint32_t bytes_count; /* hot: so many of these */
    om_buffer *bytes[OM_READ_MAX_SPANS];
    uint8_t heads[OM_READ_MAX_SPANS / 2][OM_BATCH_HEAD];
} pins;

/* Where a read goes: a segment (held), or the hot tail from this batch on. */
typedef struct place {
    om_segment *segment;
    uint32_t hot;
    int64_t limit;
    uint64_t end; /* of what is in the segment's file ... */
    int64_t past; /* ... and one past its last offset: where to go on when it has nothing more */
} place;

/* ---- finding the place: under the lock ---- */

static int find_place(om_log *log, int64_t offset, int64_t end, place *out) {
    if (log->deleted)
        return OM_E_DELETED;
    if (offset < log->start_offset || offset > log->next_offset)
        return OM_E_RANGE;
    int64_t readable = om_log_readable_end(log);
    out->limit = end >= 0 && end < readable ? end : readable;
    out->segment = NULL;
    if (offset >= out->limit)
        return OM_END;
    int64_t hot_base = log->hot.count ? om_hot_at(&log->hot, 0)->base_offset : INT64_MAX;
    uint32_t index = om_log_segment_for(log, offset);
    if (offset < hot_base && index < log->segment_count && log->segments[index]->base_offset < hot_base) {
        /* What has its place in the segment but isn't written yet is still in the hot tail. */
        out->segment = log->segments[index];
        om_log_written_part(log, out->segment, &out->end, &out->past);
        om_segment_ref(out->segment);
        return OM_OK;
    }
    out->hot = om_hot_find(&log->hot, offset);
    if (out->hot == log->hot.count || om_hot_at(&log->hot, out->hot)->base_offset >= out->limit)
        return OM_END;
    return OM_OK;
}

/* ---- the hot tail: under the lock ---- */

static void add_span(om_read *read, const uint8_t *data, uint32_t len) {
    read->spans[read->span_count++] = (om_span){data, (int32_t)len};
    read->bytes += len;
}

static void read_hot(om_log *log, const place *place, uint64_t max_bytes, om_read *read, pins *held) {
    for (uint32_t i = place->hot; i < log->hot.count; i++) {
        const om_hot *hot = om_hot_at(&log->hot, i);
        om_buffer *bytes = hot->bytes;
        if (hot->base_offset >= place->limit || read->span_count + 2 > OM_READ_MAX_SPANS)
            break;
        if (read->bytes && read->bytes + bytes->len > max_bytes)
            break;
        if (!read->bytes)
            read->first_offset = hot->base_offset;
        if (hot->shared) {
            uint8_t *head = held->heads[read->span_count / 2];
            om_hot_put_head(hot, head);
            add_span(read, head, OM_BATCH_HEAD);
            add_span(read, bytes->data + OM_BATCH_HEAD, bytes->len - OM_BATCH_HEAD);
        } else {
            add_span(read, bytes->data, bytes->len);
        }
        om_buffer_ref(bytes);
        held->bytes[held->bytes_count++] = bytes;
        read->next_offset = hot->last_offset + 1;
    }
}

/* ---- a segment: without the lock ---- */

typedef struct extent {
    uint64_t position, len;
    int64_t first_offset, next_offset;
    uint64_t suspect; /* the batch that isn't one, when that is known */
} extent;

/* How many whole batches from the start of the view fit into max_bytes; the first always does, unless it
 * lies past the limit (there was a gap before it). No checksum covers where a batch begins and how long it
 * is, so the header behind it has a say: one that this contradicts isn't given out. is_all: the view ends
 * where a batch does. */
static int measure(const om_view *view, const place *place, uint64_t max_bytes, int is_all, extent *out) {
    size_t at = 0, before = 0;
    int64_t next = 0, next_before = 0;
    int past = 0, wrong = 0;
    om_sigbus_begin(view);
    while (at < view->len) {
        om_batch_info info;
        size_t left = view->len - at;
        int result = om_batch_peek(view->data + at, left, &info);
        if (result == OM_OK && (size_t)info.size > left && (is_all || !at))
            result = OM_E_CORRUPT;
        if (result == OM_E_SHORT && !is_all)
            break;
        wrong = result != OM_OK || info.base_offset < next || info.base_offset + info.last_offset_delta >= place->past;
        int is_over =
            info.base_offset >= place->limit || at + (size_t)info.size > max_bytes || (size_t)info.size > left;
        if (wrong || past || (at && is_over))
            break;
        if (!at)
            out->first_offset = info.base_offset;
        past = info.base_offset >= place->limit;
        before = at;
        next_before = next;
        next = info.base_offset + info.last_offset_delta + 1;
        at += (size_t)info.size;
    }
    int faulted = om_sigbus_end(view);
    out->len = wrong ? before : at;
    out->next_offset = wrong ? next_before : next;
    if (faulted != OM_OK || !out->len)
        return OM_E_CORRUPT;
    return past ? OM_END : OM_OK;
}

/* In memory already? Else the reader thread is asked for it. */
static int demand_resident(om_log *log, om_segment *segment, uint64_t position, uint64_t len) {
    om_view view;
    int result = om_view_open(segment, position, len, &view);
    if (result != OM_OK)
        return result;
    if (om_view_resident(&view) == 1) {
        om_view_release(&view);
        return OM_OK;
    }
    om_reader_ask(log, &view);
    return OM_E_NOT_RESIDENT;
}

/* A look-up that steps only on pages that are in memory: from where the index points to, header
 * by header. */
static int locate_resident(om_log *log, om_segment *segment, int64_t offset, uint64_t *position, om_batch_info *info) {
    int64_t claimed, least = segment->base_offset;
    int result = om_segment_hint(segment, offset, position, &claimed);
    while (result == OM_OK) {
        om_view view;
        const om_bad *bad = om_segment_bad_at(segment, *position);
        if (bad) {
            *position = bad->end;
            least = bad->last + 1;
            claimed = -1;
            continue;
        }
        result = demand_resident(log, segment, *position, OM_BATCH_OVERHEAD);
        if (result == OM_OK)
            result = om_view_open(segment, *position, OM_BATCH_OVERHEAD, &view);
        if (result != OM_OK)
            break;
        om_sigbus_begin(&view);
        int peeked = om_batch_peek(view.data, view.len, info);
        result = om_sigbus_end(&view);
        om_view_release(&view);
        if (result != OM_OK)
            break;
        int64_t last = info->base_offset + info->last_offset_delta;
        if (peeked != OM_OK || info->base_offset < least || (claimed >= 0 && last != claimed))
            return om_segment_find(segment, offset, position, info); /* the index was wrong: it mends that */
        if (last >= offset)
            return OM_OK;
        *position += (uint64_t)info->size;
        least = last + 1;
        claimed = -1;
    }
    return result;
}

/* A sequential reader pays for a fault every 64 KiB, and for a wait whenever the kernel guesses
 * that a mapping is read at random. So it is told, and maps the pages it wants now in one call.
 * (Asking for pages ahead with MADV_WILLNEED was slower: those come one by one, not in large
 * folios.) Only a hint: what it can't do, the access itself does. */
static void stream(const om_view *view, size_t now) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)view->data & ~(page - 1);
    uintptr_t end = (uintptr_t)view->data + view->len;
    uintptr_t here = now < view->len ? (uintptr_t)view->data + now : end;
    madvise((void *)start, end - start, MADV_SEQUENTIAL);
    madvise((void *)start, here - start, MADV_POPULATE_READ);
}

static int read_good(om_log *log, const place *place, int64_t offset, uint64_t max_bytes, int flags, om_view *view,
                     extent *out) {
    om_batch_info info;
    int waits = !(flags & OM_READ_NOWAIT);
    int result = waits ? om_segment_find_view(place->segment, offset, &out->position, &info, view)
                       : locate_resident(log, place->segment, offset, &out->position, &info);
    if (result != OM_OK)
        return result;
    if (out->position >= place->end) {
        om_view_release(view);
        return OM_END; /* written since we looked */
    }
    uint64_t end = om_segment_good_until(place->segment, out->position);
    uint64_t good = (end < place->end ? end : place->end) - out->position;
    uint64_t most = max_bytes > (uint64_t)info.size ? max_bytes : (uint64_t)info.size;
    uint64_t want = most < good && most + OM_BATCH_OVERHEAD < good ? most + OM_BATCH_OVERHEAD /* the header behind it */
                                                                   : good;
    int streaming = waits && max_bytes >= STREAMING;
    uint64_t ahead = good - want < AHEAD ? good - want : AHEAD;
    if (waits)
        om_view_narrow(view, out->position, streaming ? want + ahead : want);
    else if ((result = demand_resident(log, place->segment, out->position, want)) == OM_OK)
        result = om_view_open(place->segment, out->position, want, view);
    if (result != OM_OK)
        return result;
    if (streaming)
        stream(view, want);
    out->suspect = out->position;
    result = measure(view, place, most, view->len == good, out);
    if (result != OM_OK)
        om_view_release(view);
    return result;
}

/* OM_E_UNREADABLE: a bad stretch, and out->next_offset says where it ends. OM_E_CORRUPT: something is
 * wrong that isn't known yet: a survey finds out. */
static int read_segment(om_log *log, const place *place, int64_t offset, uint64_t max_bytes, int flags, om_view *view,
                        extent *out) {
    const om_bad *bad = om_segment_bad_for(place->segment, offset);
    *out = (extent){.suspect = OM_NO_SUSPECT};
    if (bad || __atomic_load_n(&place->segment->fenced, __ATOMIC_ACQUIRE)) {
        out->next_offset = bad ? bad->last + 1 : place->past;
        return OM_E_UNREADABLE;
    }
    if (__atomic_load_n(&place->segment->doubtful, __ATOMIC_ACQUIRE))
        return OM_E_CORRUPT;
    int result = read_good(log, place, offset, max_bytes, flags, view, out);
    return result == OM_E_UNREADABLE ? OM_E_CORRUPT : result;
}

/* Walks over segments that turn out to hold nothing past the offset. On OM_OK either the hot
 * tail is in `read`, or `view` and `found` are set. */
static int read_from(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, int flags, om_read *read, pins *held,
                     om_view *view, extent *found) {
    for (int tries = 1000;;) {
        place place = {0};
        om_ticket_lock_take(&log->store->lock);
        int result = find_place(log, offset, end, &place);
        if (result == OM_OK && !place.segment && read)
            read_hot(log, &place, max_bytes, read, held);
        om_ticket_lock_give(&log->store->lock);
        if (result != OM_OK || !place.segment)
            return result;
        uint32_t seen = om_segment_surveys(place.segment);
        result = read_segment(log, &place, offset, max_bytes, flags, view, found);
        int64_t past = place.past;
        if (result == OM_E_CORRUPT)
            result = flags & OM_READ_NOWAIT ? om_reader_survey(log, place.segment, found->suspect)
                                            : om_log_survey(log, place.segment, found->suspect, seen);
        om_segment_unref(place.segment);
        /* Surveyed; trimmed, or made again in another file, since we looked: in a moment the list knows. */
        if ((result == OM_E_DELETED || result == OM_SURVEYED) && tries-- > 0) {
            sched_yield();
            continue;
        }
        if (result != OM_END)
            return result;
        if (past <= offset)
            return OM_END;
        offset = past;
    }
}

/* ---- the outside ---- */

static void point_to_view(om_read *out, pins *held, const extent *found) {
    held->position = found->position;
    add_span(out, held->view.data, (uint32_t)found->len);
    out->first_offset = found->first_offset;
    out->next_offset = found->next_offset;
}

static pins *begin_read(om_read *out) {
    /* The arrays are not cleared: a look-up is too short to spend its time on that. */
    pins *held = malloc(sizeof *held);
    out->span_count = 0;
    out->bytes = 0;
    out->first_offset = out->next_offset = 0;
    out->pins = NULL;
    if (!held)
        return NULL;
    held->view = (om_view){0};
    held->bytes_count = 0;
    return held;
}

static void hold(om_read *out, om_log *log, pins *held, int nowait) {
    held->log = log;
    held->nowait = nowait;
    om_log_ref(log);
    out->pins = held;
}

/* Under the lock, never waiting. OM_OK: `view` is open, and `found` says what it holds. */
static int read_resident(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, om_view *view, extent *found) {
    for (;;) {
        place place = {0};
        int result = find_place(log, offset, end, &place);
        if (result != OM_OK || !place.segment)
            return result == OM_OK ? OM_END : result;
        result = read_segment(log, &place, offset, max_bytes, OM_READ_NOWAIT, view, found);
        if (result == OM_E_CORRUPT)
            result = om_reader_survey(log, place.segment, found->suspect);
        om_segment_unref(place.segment);
        if (result != OM_END || place.past <= offset)
            /* Made again in another file at this very moment: it will be known in the next tick. */
            return result == OM_E_DELETED && !log->deleted ? OM_E_NOT_RESIDENT : result;
        offset = place.past;
    }
}

int om_log_locate(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, om_stretch *out) {
    om_view view = {0};
    extent found = {0};
    int result = read_resident(log, offset, end, max_bytes, &view, &found);
    *out = (om_stretch){.position = found.position, .len = found.len, .next_offset = found.next_offset};
    if (result != OM_OK)
        return result;
    out->segment = view.segment;
    om_segment_ref(view.segment);
    om_view_release(&view);
    return OM_OK;
}

int om_log_read_mapped(om_log *log, int64_t offset, uint64_t max_bytes, om_read *out) {
    pins *held = begin_read(out);
    if (!held)
        return OM_E_NO_MEMORY;
    extent found = {0};
    int result = read_resident(log, offset, -1, max_bytes, &held->view, &found);
    if (result != OM_OK) {
        out->next_offset = found.next_offset;
        free(held);
        return result;
    }
    point_to_view(out, held, &found);
    hold(out, log, held, 1);
    return OM_OK;
}

void om_read_ahead(const om_read *read, uint64_t bytes) {
    const pins *held = read->pins;
    om_view next;
    if (om_view_open(held->view.segment, held->position + read->bytes, bytes, &next) == OM_OK)
        om_reader_ask(held->log, &next);
}

int om_log_read(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, int flags, om_read *out) {
    pins *held = begin_read(out);
    if (!held)
        return OM_E_NO_MEMORY;
    extent found = {0};
    int result = read_from(log, offset, end, max_bytes, flags, out, held, &held->view, &found);
    if (result != OM_OK) {
        out->next_offset = found.next_offset;
        free(held);
        return result;
    }
    if (held->view.segment)
        point_to_view(out, held, &found);
    hold(out, log, held, flags & OM_READ_NOWAIT);
    return OM_OK;
}

void om_read_free(om_read *read) {
    pins *held = read->pins;
    if (!held)
        return;
    for (uint32_t i = 0; i < held->bytes_count; i++)
        om_buffer_unref(held->bytes[i]);
    if (held->view.segment)
        om_view_release(&held->view);
    om_log_release(held->log);
    free(held);
    read->pins = NULL;
}

/* How many bytes from the start on are batches with right checksums; *next: the offset behind them. */
static size_t good_batches(const uint8_t *data, size_t len, int64_t *next) {
    size_t at = 0;
    om_batch_info info;
    while (at < len && om_batch_check(data + at, len - at, &info) == OM_OK) {
        at += (size_t)info.size;
        *next = info.base_offset + info.last_offset_delta + 1;
    }
    return at;
}

/* Only the first `good` bytes of a mapped read are what they were. With nothing before what is bad, a
 * survey finds out how far that goes: OM_E_UNREADABLE and read->next_offset, or OM_E_NOT_RESIDENT. */
static int keep_good(om_read *read, size_t good, int64_t next) {
    pins *held = read->pins;
    om_segment *segment = held->view.segment;
    if (good == read->bytes)
        return OM_OK;
    if (good) {
        read->spans[0].len = (int32_t)good;
        read->bytes = good;
        read->next_offset = next;
        return OM_OK;
    }
    if (held->nowait)
        return om_reader_survey(held->log, segment, held->position);
    int result = om_log_survey(held->log, segment, held->position, om_segment_surveys(segment));
    if (result != OM_SURVEYED)
        return result;
    const om_bad *bad = om_segment_bad_for(segment, read->first_offset);
    read->next_offset = bad ? bad->last + 1 : read->first_offset; /* not bad after all: to be read again */
    return OM_E_UNREADABLE;
}

om_segment *om_read_segment(const om_read *read, uint64_t *position) {
    const pins *held = read->pins;
    *position = held->position;
    return held->view.segment;
}

void om_read_guard(const om_read *read) {
    const pins *held = read->pins;
    om_sigbus_begin(&held->view);
}

int om_read_unguard(const om_read *read) {
    const pins *held = read->pins;
    return om_sigbus_end(&held->view);
}

int om_read_check(om_read *read) {
    pins *held = read->pins;
    if (!held->view.segment)
        return OM_OK; /* the hot tail has been in our hands all the time */
    int64_t next = read->first_offset;
    om_sigbus_begin(&held->view);
    size_t good = good_batches(held->view.data, read->bytes, &next);
    /* A page that couldn't be had reads as zeros, now or as another reader left it: no batch is right then,
     * unless it is one of zeros. */
    if (om_sigbus_end(&held->view) != OM_OK && good == read->bytes)
        good = 0;
    return keep_good(read, good, next);
}

int64_t om_read_copy(om_read *read, uint8_t *out, size_t cap) {
    pins *held = read->pins;
    if (read->bytes > cap)
        return OM_E_SHORT;
    uint8_t *at = out;
    int result = OM_OK;
    if (held->view.segment)
        om_sigbus_begin(&held->view);
    for (int32_t i = 0; i < read->span_count; i++) {
        memcpy(at, read->spans[i].data, (size_t)read->spans[i].len);
        at += read->spans[i].len;
    }
    if (held->view.segment)
        result = om_sigbus_end(&held->view);
    int64_t next = read->first_offset;
    size_t good = good_batches(out, read->bytes, &next);
    if (!held->view.segment)
        return good == read->bytes ? (int64_t)good : OM_E_CORRUPT;
    result = keep_good(read, result != OM_OK && good == read->bytes ? 0 : good, next);
    return result == OM_OK ? (int64_t)read->bytes : result;
}

int om_log_range(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, om_range *out) {
    memset(out, 0, sizeof *out);
    om_view view = {0};
    extent found = {0};
    int result = read_from(log, offset, end, max_bytes, 0, NULL, NULL, &view, &found);
    out->next_offset = found.next_offset;
    if (result != OM_OK || !view.segment)
        return result == OM_OK ? OM_END : result;
    result = om_range_open(view.segment, &out->fd);
    if (result == OM_OK) {
        out->position = found.position;
        out->len = found.len;
        out->first_offset = found.first_offset;
        om_segment_ref(view.segment);
        out->pins = view.segment;
    }
    om_view_release(&view);
    return result;
}

void om_range_free(om_range *range) {
    om_segment *segment = range->pins;
    if (!segment)
        return;
    om_range_release(segment, range->fd);
    om_segment_unref(segment);
    range->pins = NULL;
}
