/* queue_reader.c -- reading a log message by message, in the order its queue gives them out.
 *
 * Mostly that is the next record of the batch at hand. A returned message, a gap or the batch's end
 * means another batch: of the hot tail (held), or of a stretch of the mapped segment, whose CRCs are
 * checked when it is taken in, unless nobody here is going to touch its bytes. A compressed batch is
 * read from where it was opened (decompressed.c).
 */
#include "queue/queue_reader.h"
#include "base/attributes.h"
#include "queue/queues.h"
#include "store/log_read.h"
#include "store/producer.h"

#include <stdlib.h>

#define STRETCH (1u << 20) /* of a segment, read in one go; and what comes next is asked for meanwhile */

om_queue_reader *om_queue_reader_new(void) {
    om_queue_reader *feed = calloc(1, sizeof *feed);
    if (feed)
        feed->next = -1;
    return feed;
}

static void let_bytes_go(om_queue_reader *feed) {
    if (feed->opened)
        om_buffer_unref(feed->opened);
    feed->opened = NULL;
    if (feed->bytes)
        om_buffer_unref(feed->bytes);
    feed->bytes = NULL;
    feed->next = -1;
}

void om_queue_reader_rest(om_queue_reader *feed) {
    let_bytes_go(feed);
    if (feed->backing)
        om_backing_unref(feed->backing);
    feed->backing = NULL;
    om_read_free(&feed->read);
}

void om_queue_reader_free(om_queue_reader *feed) {
    if (!feed)
        return;
    om_queue_reader_rest(feed);
    free(feed);
}

void om_queue_reader_doubt(om_queue_reader *feed, om_log *log) {
    uint64_t position;
    if (!om_queue_reader_bytes(feed) && feed->read.pins)
        om_reader_survey(log, om_read_segment(&feed->read, &position), OM_NO_SUSPECT);
    om_queue_reader_rest(feed);
}

om_backing *om_queue_reader_backing(om_queue_reader *feed, const uint8_t *data, uint64_t *position) {
    if (om_queue_reader_bytes(feed) || !feed->read.pins)
        return NULL;
    uint64_t start;
    om_segment *segment = om_read_segment(&feed->read, &start);
    if (!feed->backing)
        feed->backing = om_backing_open(segment);
    *position = start + (uint64_t)(data - feed->read.spans[0].data);
    return feed->backing;
}

/* ---- a batch at hand ---- */

/* Nobody is given markers, nor what a transaction wrote that was given up. */
static int is_for_nobody(const om_log *log, const om_batch_info *info) {
    return (info->attributes & OM_ATTR_CONTROL) ||
           ((info->attributes & OM_ATTR_TRANSACTIONAL) && om_log_is_aborted(log, info));
}

/* The records are read from where the batch lies, or from where it was opened. */
static int start_batch(om_engine *engine, om_queue_reader *feed, const om_log *log, const uint8_t *data, size_t len,
                       int64_t base_offset) {
    om_batch_info info;
    if (feed->opened)
        om_buffer_unref(feed->opened);
    feed->opened = NULL;
    if (om_batch_peek(data, len, &info) != OM_OK)
        return OM_E_UNREADABLE;
    info.base_offset = base_offset;
    if (is_for_nobody(log, &info))
        return OM_E_RANGE;
    if (info.attributes & OM_ATTR_CODEC_MASK) {
        int result = om_decompressed_get(engine, log->id, base_offset, data, len, &feed->opened);
        if (result != OM_OK)
            return result;
        om_buffer_ref(feed->opened);
        data = feed->opened->data;
        len = feed->opened->len;
    }
    size_t room = OM_HEADER_ROOM(engine->options.frame_max);
    int result =
        om_content_iter_init(&feed->iter, data, len, engine->queues->foreign, room < OM_FOREIGN ? room : OM_FOREIGN);
    if (result != OM_OK)
        return OM_E_UNREADABLE; /* not what it was */
    /* A fan-out's batch carries the head of another log. */
    feed->iter.records.batch.base_offset = base_offset;
    feed->next = base_offset;
    feed->last = base_offset + feed->iter.records.batch.last_offset_delta;
    feed->batch_size = (uint32_t)feed->iter.records.batch.size;
    return OM_OK;
}

static int take_hot(om_engine *engine, om_queue_reader *feed, om_log *log, int64_t offset, int64_t *skip_to) {
    uint32_t index = om_hot_find(&log->hot, offset);
    if (index == log->hot.count)
        return OM_END;
    const om_hot *hot = om_hot_at(&log->hot, index);
    if (hot->base_offset > offset) {
        *skip_to = hot->base_offset;
        return OM_E_RANGE;
    }
    om_queue_reader_rest(feed);
    feed->bytes = hot->bytes;
    om_buffer_ref(hot->bytes);
    *skip_to = hot->last_offset + 1;
    return start_batch(engine, feed, log, hot->bytes->data, hot->bytes->len, hot->base_offset);
}

/* The batch that holds offset, in the stretch that is mapped. */
static int step_to(om_engine *engine, om_queue_reader *feed, const om_log *log, int64_t offset, int64_t *skip_to) {
    const uint8_t *data = feed->read.spans[0].data;
    size_t len = (size_t)feed->read.spans[0].len;
    size_t at = feed->next >= 0 && feed->read_at < len && offset > feed->last ? feed->read_at : 0;
    int result = OM_E_RANGE;
    *skip_to = feed->read.next_offset;
    om_read_guard(&feed->read);
    while (at < len) {
        om_batch_info info;
        if (om_batch_peek(data + at, len - at, &info) != OM_OK || (size_t)info.size > len - at)
            break;
        if (info.base_offset + info.last_offset_delta >= offset) {
            *skip_to = info.base_offset + info.last_offset_delta + 1;
            result = start_batch(engine, feed, log, data + at, (size_t)info.size, info.base_offset);
            feed->read_at = at;
            break;
        }
        at += (size_t)info.size;
    }
    int faulted = om_read_unguard(&feed->read);
    return faulted != OM_OK ? faulted : result;
}

/* Nothing but messages that go from the file to the socket, in a part that this process wrote: their
 * bytes pass nobody here, and looking at them would cost more than sending them. */
static int goes_unseen(om_engine *engine, const om_queue_reader *feed) {
    uint64_t position, least = engine->options.zero_copy_min;
    const om_segment *segment = om_read_segment(&feed->read, &position);
    if (!least || position < segment->inherited)
        return 0;
    const uint8_t *data = feed->read.spans[0].data;
    size_t len = (size_t)feed->read.spans[0].len, at = 0;
    om_read_guard(&feed->read);
    while (at < len) {
        om_batch_info info;
        if (om_batch_peek(data + at, len - at, &info) != OM_OK ||
            (uint64_t)info.size / least < (uint64_t)info.record_count)
            break;
        at += (size_t)info.size;
    }
    return om_read_unguard(&feed->read) == OM_OK && at == len;
}

static int take_mapped(om_engine *engine, om_queue_reader *feed, om_log *log, int64_t offset, int64_t *skip_to) {
    int goes_on = feed->read.pins && offset == feed->read.next_offset;
    om_queue_reader_rest(feed);
    int result = om_log_read_mapped(log, offset, STRETCH, &feed->read);
    if (result != OM_OK) {
        *skip_to = feed->read.next_offset;
        return result;
    }
    *skip_to = feed->read.next_offset;
    if (goes_on)
        om_read_ahead(&feed->read, STRETCH);
    result = goes_unseen(engine, feed) ? OM_OK : om_read_check(&feed->read);
    *skip_to = feed->read.next_offset;
    if (result != OM_OK) {
        om_queue_reader_rest(feed); /* nobody steps to what wasn't right */
        return result;
    }
    feed->read_at = 0;
    return step_to(engine, feed, log, offset, skip_to);
}

static int find_batch(om_engine *engine, om_queue_reader *feed, om_log *log, int64_t offset, int64_t *skip_to) {
    if (!feed->bytes && feed->read.pins && offset >= feed->read.first_offset && offset < feed->read.next_offset)
        return step_to(engine, feed, log, offset, skip_to);
    if (log->hot.count && offset >= om_hot_at(&log->hot, 0)->base_offset)
        return take_hot(engine, feed, log, offset, skip_to);
    int result = take_mapped(engine, feed, log, offset, skip_to);
    /* A gap up to what is in memory: offsets skipped after a crash. */
    return result == OM_END && log->hot.count ? take_hot(engine, feed, log, offset, skip_to) : result;
}

/* ---- the message ---- */

static int read_record(om_queue_reader *feed, int64_t offset, om_content *out) {
    om_queue_reader_guard(feed);
    int result = om_content_next(&feed->iter, out);
    int faulted = om_queue_reader_unguard(feed);
    if (faulted != OM_OK)
        return faulted;
    if (result != OM_OK)
        return result == OM_END ? OM_E_RANGE : OM_E_UNREADABLE;
    feed->next = out->offset + 1;
    return out->offset == offset ? OM_OK : OM_E_RANGE;
}

static int get(om_engine *engine, om_queue_reader *feed, om_log *log, int64_t offset, om_content *out,
               int64_t *skip_to) {
    if (feed->next < 0 || offset < feed->next || offset > feed->last) {
        int result = find_batch(engine, feed, log, offset, skip_to);
        if (result != OM_OK) {
            feed->next = -1;
            return result;
        }
    }
    if (offset > feed->next) {
        om_queue_reader_guard(feed);
        om_content_seek(&feed->iter, offset);
        if (om_queue_reader_unguard(feed) != OM_OK)
            return OM_E_UNREADABLE;
    }
    *skip_to = offset + 1;
    int result = read_record(feed, offset, out);
    if (result != OM_OK) {
        /* A gap within the batch: the next record there is tells how far it goes. */
        if (result == OM_E_RANGE && feed->next > offset + 1)
            *skip_to = feed->next - 1;
        feed->next = -1;
    }
    return result;
}

OM_PER_MESSAGE
int om_queue_reader_get(om_engine *engine, om_queue_reader *feed, om_log *log, int64_t offset, om_content *out,
                        int64_t *skip_to) {
    int result = get(engine, feed, log, offset, out, skip_to);
    if (result != OM_E_UNREADABLE || om_queue_reader_unguard(feed) == OM_OK)
        return result;
    om_queue_reader_doubt(feed, log); /* a page of it couldn't be had: a survey tells what is left */
    return OM_E_NOT_RESIDENT;
}
