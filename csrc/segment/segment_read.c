/* segment_read.c -- reading a segment: views of its mapping, look-ups, ranges for sendfile.
 *
 * Promise: a view stays readable until it is released, whatever happens to the segment. A look-up
 * trusts neither the index nor the bytes: what an entry says is compared with the batch it points
 * at, every header is checked before it is stepped over, all under the guard.
 */
#define _GNU_SOURCE
#include "segment/file_cache.h"

#include "base/file_util.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---- views ---------------------------------------------------------------------------- */

int om_view_open(om_segment *segment, uint64_t position, size_t len, om_view *view) {
    for (;;) {
        uint64_t written = om_segment_written(segment);
        if (om_segment_is(&segment->fenced))
            return OM_E_UNREADABLE;
        if (position >= written)
            return OM_END;
        if (len > written - position)
            len = (size_t)(written - position);
        om_mapping *mapping;
        int result = om_file_cache_map(segment, position + len, &mapping);
        if (result == OM_E_RANGE)
            continue; /* cut this very moment: look again at what is left */
        if (result != OM_OK)
            return result;
        om_segment_ref(segment);
        *view = (om_view){mapping->base + position, len, segment, mapping};
        return OM_OK;
    }
}

void om_view_narrow(om_view *view, uint64_t position, size_t len) {
    size_t left = view->len - (size_t)position;
    view->data += position;
    view->len = len < left ? len : left;
}

void om_view_release(om_view *view) {
    om_segment *segment = view->segment;
    if (!segment)
        return;
    om_file_cache_unmap(segment->files, view->mapping);
    *view = (om_view){0};
    om_segment_unref(segment);
}

/* The view's pages: where the first one starts, and how many bytes from there on. */
static uint8_t *first_page(const om_view *view, uintptr_t page, size_t *len) {
    uintptr_t start = (uintptr_t)view->data & ~(page - 1);
    *len = view->len + ((uintptr_t)view->data - start);
    return (uint8_t *)start;
}

/* Look-ups load a sealed segment's index on first use: a read of a file, that may wait. */
static int has_index(const om_view *view) {
    om_mapping *mapping = view->mapping;
    return om_segment_is(&view->segment->index_loaded) || __atomic_load_n(&mapping->index, __ATOMIC_ACQUIRE);
}

int om_view_resident(const om_view *view) {
    unsigned char pages[1024];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), left;
    if (!has_index(view))
        return 0;
    uint8_t *at = first_page(view, page, &left);
    while (left > 0) {
        size_t part = left < sizeof pages * page ? left : sizeof pages * page;
        if (mincore(at, part, pages) < 0)
            return om_errno_result();
        for (size_t i = 0; i < (part + page - 1) / page; i++)
            if (!(pages[i] & 1))
                return 0;
        at += part;
        left -= part;
    }
    return 1;
}

int om_view_load(const om_view *view) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), len;
    uint8_t *start = first_page(view, page, &len);
    madvise(start, len, MADV_WILLNEED);
    om_sigbus_begin(view);
    for (size_t at = 0; at < len; at += page)
        (void)*(volatile const uint8_t *)(start + at);
    int result = om_sigbus_end(view);
    om_mapping *mapping = view->mapping;
    om_view whole = {mapping->base, (size_t)om_segment_written(view->segment), view->segment, mapping};
    if (result == OM_OK && !has_index(view) && whole.len <= mapping->len)
        result = om_segment_need_index(view->segment, &whole);
    om_file_cache_reap(view->segment->files);
    return result;
}

/* ---- look-ups ------------------------------------------------------------------------- */

/* A look-up: the question and the answer. */
typedef struct om_query {
    int64_t wanted; /* an offset or a timestamp */
    uint64_t position;
    om_batch_info *batch;
    int64_t offset, timestamp;
} om_query;

/* Where the index says to start, and what it claims is there. */
typedef struct om_start {
    uint64_t position;
    int64_t last;      /* last offset of the batch at position; -1: nothing claimed */
    int64_t time_last; /* last offset of the batch with max_timestamp; -1: nothing claimed */
    int64_t max_timestamp;
} om_start;

typedef struct om_look_up {
    void (*ask)(const om_index *index, int64_t base, int64_t wanted, om_start *start);
    int (*walk)(const om_segment *segment, const om_view *view, const om_start *start, om_query *query);
} om_look_up;

/* Ask the index, wherever it lives. It may move (saved and dropped) between two looks. */
static int ask_index(om_segment *segment, const om_view *view, const om_look_up *by, int64_t wanted, om_start *start) {
    om_mapping *mapping = view->mapping;
    *start = (om_start){.last = -1, .time_last = -1};
    for (;;) {
        int result = om_segment_need_index(segment, view);
        if (result != OM_OK)
            return result;
        if (om_segment_is(&segment->index_loaded)) {
            om_file_cache_lock(segment->files);
            int loaded = segment->index_loaded;
            if (loaded)
                by->ask(&segment->index, segment->base_offset, wanted, start);
            om_file_cache_unlock(segment->files);
            if (loaded)
                return OM_OK;
        } else {
            om_loaded_index *loaded = __atomic_load_n(&mapping->index, __ATOMIC_ACQUIRE);
            if (loaded) {
                by->ask(&loaded->index, segment->base_offset, wanted, start);
                return OM_OK;
            }
        }
    }
}

/* A walk that ran into something that is no batch was either sent there by a wrong index, or the
 * segment itself is damaged: with a new index it will be seen, and answered with OM_E_CORRUPT. */
static int look_up(om_segment *segment, const om_look_up *by, om_query *query, om_view *view) {
    *view = (om_view){0};
    int result = om_view_open(segment, 0, SIZE_MAX, view);
    for (int rebuilt = 0; result == OM_OK; rebuilt = 1) {
        om_start start;
        result = ask_index(segment, view, by, query->wanted, &start);
        if (result != OM_OK)
            break;
        om_sigbus_begin(view);
        result = by->walk(segment, view, &start, query);
        if (om_sigbus_end(view) != OM_OK)
            result = OM_E_UNREADABLE;
        if (result != OM_E_CORRUPT || rebuilt)
            break;
        result = om_segment_rebuild_index(segment, view);
    }
    if (result != OM_OK)
        om_view_release(view);
    return result;
}

static int is_all(const om_segment *segment, const om_view *view) {
    return view->len >= __atomic_load_n(&segment->size, __ATOMIC_RELAXED);
}

/* The written bytes end with a batch, in a growing segment too: a batch that reaches past them isn't one. */
static int step_on(const om_segment *segment, const om_view *view, uint64_t at, int64_t least, om_step *step) {
    int result = om_segment_step(segment, view, at, least, step);
    return result == OM_E_SHORT ? OM_E_CORRUPT : result;
}

/* The first batch that ends at or past `offset`, from the start on. */
static int walk_to(const om_segment *segment, const om_view *view, const om_start *start, int64_t offset,
                   uint64_t *position, om_step *step) {
    uint64_t at = start->position;
    if (at >= view->len)
        return OM_END; /* placed, not yet written */
    int result = step_on(segment, view, at, segment->base_offset, step);
    if (result != OM_OK)
        return result;
    if (start->last >= 0 && (step->last != start->last || step->bad))
        return OM_E_CORRUPT;
    while (step->last < offset) {
        at += step->size;
        if (at >= view->len)
            return OM_END;
        result = step_on(segment, view, at, step->last + 1, step);
        if (result != OM_OK)
            return result;
    }
    *position = at;
    return step->bad ? OM_E_UNREADABLE : OM_OK;
}

/* Nothing to look for past the end, once that is known (placed, scanned or trusted). */
static int end_result(const om_segment *segment) {
    return om_segment_is(&segment->fenced) ? OM_E_UNREADABLE : OM_END;
}

/* ---- by offset ------------------------------------------------------------------------ */

static void ask_offset(const om_index *index, int64_t base, int64_t offset, om_start *start) {
    uint32_t rank = om_index_rank(index, offset - base);
    if (!rank)
        return;
    start->position = (uint64_t)om_index_position(index, rank - 1);
    start->last = base + om_index_offset(index, rank - 1);
}

static int walk_offset(const om_segment *segment, const om_view *view, const om_start *start, om_query *query) {
    om_step step;
    int result = walk_to(segment, view, start, query->wanted, &query->position, &step);
    return result == OM_OK ? om_batch_peek(view->data + query->position, step.size, query->batch) : result;
}

int om_segment_find_view(om_segment *segment, int64_t offset, uint64_t *position, om_batch_info *batch, om_view *view) {
    static const om_look_up by_offset = {ask_offset, walk_offset};
    int64_t next = __atomic_load_n(&segment->next_offset, __ATOMIC_ACQUIRE);
    if (next > segment->base_offset && offset >= next)
        return end_result(segment);
    om_query query = {.wanted = offset, .batch = batch};
    int result = look_up(segment, &by_offset, &query, view);
    *position = query.position;
    return result;
}

int om_segment_find(om_segment *segment, int64_t offset, uint64_t *position, om_batch_info *batch) {
    om_view view = {0};
    int result = om_segment_find_view(segment, offset, position, batch, &view);
    om_view_release(&view);
    return result;
}

int om_segment_hint(om_segment *segment, int64_t offset, uint64_t *position, int64_t *last) {
    om_view view = {0};
    om_start start = {.last = -1};
    int result = om_view_open(segment, 0, SIZE_MAX, &view);
    if (result != OM_OK)
        return result;
    om_mapping *mapping = view.mapping;
    om_file_cache_lock(segment->files);
    if (segment->index_loaded)
        ask_offset(&segment->index, segment->base_offset, offset, &start);
    om_file_cache_unlock(segment->files);
    om_loaded_index *loaded = __atomic_load_n(&mapping->index, __ATOMIC_ACQUIRE);
    if (!start.position && loaded)
        ask_offset(&loaded->index, segment->base_offset, offset, &start);
    *position = start.position;
    *last = start.last;
    result = start.position < view.len ? OM_OK : OM_END;
    om_view_release(&view);
    return result;
}

/* ---- by time -------------------------------------------------------------------------- */

static void ask_time(const om_index *index, int64_t base, int64_t timestamp, om_start *start) {
    uint32_t rank = om_index_rank_time(index, timestamp);
    if (!rank)
        return;
    start->time_last = base + om_index_time_offset(index, rank - 1);
    start->max_timestamp = om_index_time(index, rank - 1);
    ask_offset(index, base, start->time_last, start);
}

/* The first record of this batch that is old enough. OM_END: its header promised too much. */
static int first_record(const uint8_t *data, size_t len, om_query *query) {
    om_batch_info batch;
    om_record_iter iter;
    om_record record;
    if (om_batch_check(data, len, &batch) != OM_OK)
        return OM_E_CORRUPT;
    if (batch.attributes & OM_ATTR_CODEC_MASK) {
        query->offset = batch.base_offset;
        query->timestamp = batch.max_timestamp;
        return OM_OK;
    }
    int result = om_record_iter_init(&iter, data, len);
    while (result == OM_OK && (result = om_record_next(&iter, &record, NULL, 0)) == OM_OK) {
        if (record.timestamp >= query->wanted) {
            query->offset = record.offset;
            query->timestamp = record.timestamp;
            return OM_OK;
        }
    }
    return result;
}

/* A base offset has no checksum: the batch behind it shows whether it is too large. */
static int is_before_next(const om_segment *segment, const om_view *view, uint64_t at, const om_step *step) {
    om_step after;
    return at + step->size >= view->len || step_on(segment, view, at + step->size, step->last + 1, &after) == OM_OK;
}

static int walk_time(const om_segment *segment, const om_view *view, const om_start *start, om_query *query) {
    uint64_t at = 0;
    om_step step = {.last = segment->base_offset - 1};
    if (start->time_last >= 0) {
        int result = walk_to(segment, view, start, start->time_last, &at, &step);
        if ((result == OM_END && is_all(segment, view)) || result == OM_E_UNREADABLE)
            return OM_E_CORRUPT; /* all is written, and it isn't there, or not any more */
        if (result != OM_OK)
            return result;
        if (step.last != start->time_last || step.max_timestamp != start->max_timestamp)
            return OM_E_CORRUPT;
        step.last = step.first - 1; /* look at this very batch first */
    }
    while (at < view->len) {
        int result = step_on(segment, view, at, step.last + 1, &step);
        if (result != OM_OK)
            return result;
        if (!step.bad && step.max_timestamp >= query->wanted) {
            if (!is_before_next(segment, view, at, &step))
                return OM_E_CORRUPT;
            result = first_record(view->data + at, step.size, query);
            if (result != OM_END)
                return result;
        }
        at += step.size;
    }
    return OM_END;
}

int om_segment_find_time(om_segment *segment, int64_t timestamp, int64_t *offset, int64_t *found_timestamp) {
    static const om_look_up by_time = {ask_time, walk_time};
    int known = __atomic_load_n(&segment->next_offset, __ATOMIC_ACQUIRE) > segment->base_offset;
    if (known && timestamp > __atomic_load_n(&segment->max_timestamp, __ATOMIC_RELAXED))
        return end_result(segment);
    om_query query = {.wanted = timestamp};
    om_view view;
    int result = look_up(segment, &by_time, &query, &view);
    om_view_release(&view);
    *offset = query.offset;
    *found_timestamp = query.timestamp;
    return result;
}

/* ---- ranges --------------------------------------------------------------------------- */

int om_range_open(om_segment *segment, int *fd) {
    if (om_segment_is(&segment->fenced))
        return OM_E_UNREADABLE;
    if (!om_segment_is(&segment->exists))
        return OM_END;
    om_file *file;
    int result = om_file_cache_open(segment, &file);
    if (result != OM_OK)
        return result;
    om_segment_ref(segment);
    *fd = file->fd;
    return OM_OK;
}

void om_range_release(om_segment *segment, int fd) {
    om_file *file = om_file_cache_by_fd(segment, fd);
    if (!file)
        return;
    om_file_cache_close(segment->files, file);
    om_segment_unref(segment);
}
