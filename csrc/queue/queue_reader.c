/* queue_reader.c -- reads a log message by message, in the order its queue gives them out.
 *
 * The next message is mostly the next record of the current batch. A returned message, a gap or the batch's end needs
 * another batch: from the hot tail (held), or from a range of the mapped segment. Its CRCs are checked when it is
 * mapped, unless its bytes go from the file to the socket unread. A compressed batch is read from its decompressed
 * copy (decompressed.c).
 */
#include "queue/queue_reader.h"
#include "base/attributes.h"
#include "queue/queues.h"
#include "store/log_read.h"
#include "store/producer.h"

#include <stdlib.h>

#define STRETCH (1u << 20) /* of a segment, read in one go; and what comes next is asked for meanwhile */

om_queue_reader *om_queue_reader_new(void) {
    om_queue_reader *reader = calloc(1, sizeof *reader);
    if (reader)
        reader->next = -1;
    return reader;
}

static void let_bytes_go(om_queue_reader *reader) {
    if (reader->decompressed)
        om_buffer_unref(reader->decompressed);
    reader->decompressed = NULL;
    if (reader->bytes)
        om_buffer_unref(reader->bytes);
    reader->bytes = NULL;
    reader->next = -1;
}

void om_queue_reader_rest(om_queue_reader *reader) {
    let_bytes_go(reader);
    if (reader->backing)
        om_backing_unref(reader->backing);
    reader->backing = NULL;
    reader->is_unseen = 0;
    om_read_free(&reader->read);
}

void om_queue_reader_free(om_queue_reader *reader) {
    if (!reader)
        return;
    om_queue_reader_rest(reader);
    free(reader);
}

void om_queue_reader_doubt(om_queue_reader *reader, om_log *log) {
    uint64_t position;
    if (!om_queue_reader_bytes(reader) && reader->read.pins)
        om_reader_survey(log, om_read_segment(&reader->read, &position), OM_NO_SUSPECT);
    om_queue_reader_rest(reader);
}

om_backing *om_queue_reader_backing(om_queue_reader *reader, const uint8_t *data, uint64_t *position) {
    if (om_queue_reader_bytes(reader) || !reader->read.pins)
        return NULL;
    uint64_t start;
    om_segment *segment = om_read_segment(&reader->read, &start);
    if (!reader->backing)
        reader->backing = om_backing_open(segment);
    *position = start + (uint64_t)(data - reader->read.spans[0].data);
    return reader->backing;
}

/* ---- a batch at hand ---- */

/* Markers and aborted transactions are given to no consumer. */
static int is_for_nobody(const om_log *log, const om_batch_info *info) {
    return (info->attributes & OM_ATTR_CONTROL) ||
           ((info->attributes & OM_ATTR_TRANSACTIONAL) && om_log_is_aborted(log, info));
}

/* The records are read from where the batch lies, or from where it was decompressed. */
static int start_batch(om_engine *engine, om_queue_reader *reader, const om_log *log, const uint8_t *data, size_t len,
                       int64_t base_offset) {
    om_batch_info info;
    if (reader->decompressed)
        om_buffer_unref(reader->decompressed);
    reader->decompressed = NULL;
    if (om_batch_peek(data, len, &info) != OM_OK)
        return OM_E_UNREADABLE;
    info.base_offset = base_offset;
    if (is_for_nobody(log, &info))
        return OM_READER_PASS;
    if (info.attributes & OM_ATTR_CODEC_MASK) {
        int result = om_decompressed_get(engine, log->id, base_offset, data, len, &reader->decompressed);
        if (result != OM_OK)
            return result;
        om_buffer_ref(reader->decompressed);
        data = reader->decompressed->data;
        len = reader->decompressed->len;
    }
    size_t room = OM_HEADER_ROOM(engine->options.frame_max);
    int result =
        om_content_iter_init(&reader->iter, data, len, engine->queues->foreign, room < OM_FOREIGN ? room : OM_FOREIGN);
    if (result != OM_OK)
        return OM_E_UNREADABLE; /* not what it was */
    /* A fan-out's batch carries the head of another log. */
    reader->iter.records.batch.base_offset = base_offset;
    reader->next = base_offset;
    reader->last = base_offset + reader->iter.records.batch.last_offset_delta;
    reader->batch_size = (uint32_t)reader->iter.records.batch.size;
    return OM_OK;
}

static int take_hot(om_engine *engine, om_queue_reader *reader, om_log *log, int64_t offset, int64_t *skip_to) {
    uint32_t index = om_hot_find(&log->hot, offset);
    if (index == log->hot.count)
        return OM_END;
    const om_hot *hot = om_hot_at(&log->hot, index);
    if (hot->base_offset > offset) {
        *skip_to = hot->base_offset;
        return OM_READER_PASS;
    }
    om_queue_reader_rest(reader);
    reader->bytes = hot->bytes;
    om_buffer_ref(hot->bytes);
    *skip_to = hot->last_offset + 1;
    return start_batch(engine, reader, log, hot->bytes->data, hot->bytes->len, hot->base_offset);
}

/* The batch that holds offset, in the stretch that is mapped. */
static int step_to(om_engine *engine, om_queue_reader *reader, const om_log *log, int64_t offset, int64_t *skip_to) {
    const uint8_t *data = reader->read.spans[0].data;
    size_t len = (size_t)reader->read.spans[0].len;
    size_t at = reader->next >= 0 && reader->read_at < len && offset > reader->last ? reader->read_at : 0;
    int result = OM_READER_PASS;
    *skip_to = reader->read.next_offset;
    om_read_guard(&reader->read);
    while (at < len) {
        om_batch_info info;
        if (om_batch_peek(data + at, len - at, &info) != OM_OK || (size_t)info.size > len - at)
            break;
        if (info.base_offset + info.last_offset_delta >= offset) {
            *skip_to = info.base_offset + info.last_offset_delta + 1;
            result = start_batch(engine, reader, log, data + at, (size_t)info.size, info.base_offset);
            reader->read_at = at;
            break;
        }
        at += (size_t)info.size;
    }
    int faulted = om_read_unguard(&reader->read);
    return faulted != OM_OK ? faulted : result;
}

/* Nothing but messages that go from the file to the socket, in a part that this process wrote: their
 * bytes aren't read here, and checking them would cost more than sending them. */
static int goes_unseen(om_engine *engine, const om_queue_reader *reader) {
    uint64_t position, least = engine->options.zero_copy_min;
    const om_segment *segment = om_read_segment(&reader->read, &position);
    if (!least || position < segment->inherited)
        return 0;
    const uint8_t *data = reader->read.spans[0].data;
    size_t len = (size_t)reader->read.spans[0].len, at = 0;
    om_read_guard(&reader->read);
    while (at < len) {
        om_batch_info info;
        if (om_batch_peek(data + at, len - at, &info) != OM_OK ||
            (uint64_t)info.size / least < (uint64_t)info.record_count)
            break;
        at += (size_t)info.size;
    }
    return om_read_unguard(&reader->read) == OM_OK && at == len;
}

static int take_mapped(om_engine *engine, om_queue_reader *reader, om_log *log, int64_t offset, int64_t *skip_to) {
    int goes_on = reader->read.pins && offset == reader->read.next_offset;
    om_queue_reader_rest(reader);
    int result = om_log_read_mapped(log, offset, STRETCH, &reader->read);
    if (result != OM_OK) {
        *skip_to = reader->read.next_offset;
        return result;
    }
    *skip_to = reader->read.next_offset;
    if (goes_on)
        om_read_ahead(&reader->read, STRETCH);
    reader->is_unseen = (uint8_t)goes_unseen(engine, reader);
    result = reader->is_unseen ? OM_OK : om_read_check(&reader->read);
    *skip_to = reader->read.next_offset;
    if (result != OM_OK) {
        om_queue_reader_rest(reader); /* nothing is read of a stretch that isn't right */
        return result;
    }
    reader->read_at = 0;
    return step_to(engine, reader, log, offset, skip_to);
}

static int find_batch(om_engine *engine, om_queue_reader *reader, om_log *log, int64_t offset, int64_t *skip_to) {
    if (!reader->bytes && reader->read.pins && offset >= reader->read.first_offset && offset < reader->read.next_offset)
        return step_to(engine, reader, log, offset, skip_to);
    if (log->hot.count && offset >= om_hot_at(&log->hot, 0)->base_offset)
        return take_hot(engine, reader, log, offset, skip_to);
    int result = take_mapped(engine, reader, log, offset, skip_to);
    /* A gap up to what is in memory: offsets skipped after a crash. */
    return result == OM_END && log->hot.count ? take_hot(engine, reader, log, offset, skip_to) : result;
}

/* ---- the message ---- */

static int read_record(om_queue_reader *reader, int64_t offset, om_content *out) {
    om_queue_reader_guard(reader);
    int result = om_content_next(&reader->iter, out);
    int faulted = om_queue_reader_unguard(reader);
    if (faulted != OM_OK)
        return faulted;
    if (result != OM_OK)
        return result == OM_END ? OM_READER_PASS : OM_E_UNREADABLE;
    reader->next = out->offset + 1;
    return out->offset == offset ? OM_OK : OM_READER_PASS;
}

static int get(om_engine *engine, om_queue_reader *reader, om_log *log, int64_t offset, om_content *out,
               int64_t *skip_to) {
    if (reader->next < 0 || offset < reader->next || offset > reader->last) {
        int result = find_batch(engine, reader, log, offset, skip_to);
        if (result != OM_OK) {
            reader->next = -1;
            return result;
        }
    }
    if (offset > reader->next) {
        om_queue_reader_guard(reader);
        om_content_seek(&reader->iter, offset);
        if (om_queue_reader_unguard(reader) != OM_OK)
            return OM_E_UNREADABLE;
    }
    *skip_to = offset + 1;
    int result = read_record(reader, offset, out);
    if (result != OM_OK) {
        /* A gap within the batch: the next record shows how far it goes. */
        if (result == OM_READER_PASS && reader->next > offset + 1)
            *skip_to = reader->next - 1;
        reader->next = -1;
    }
    return result;
}

#define LOOK_AGAIN 67 /* beside om_result, in here only */

/* Bytes that nobody was to look at make no sense. OM_OK: they are what they were, all the same. LOOK_AGAIN: they
 * may not be, read them again. */
static int check_after_all(om_queue_reader *reader, int64_t offset) {
    int result = om_read_check(&reader->read);
    reader->is_unseen = 0;
    if (result == OM_OK && offset < reader->read.next_offset)
        return OM_OK;
    om_queue_reader_rest(reader);
    return result == OM_OK ? LOOK_AGAIN : result;
}

OM_PER_MESSAGE
int om_queue_reader_get(om_engine *engine, om_queue_reader *reader, om_log *log, int64_t offset, om_content *out,
                        int64_t *skip_to) {
    int result = get(engine, reader, log, offset, out, skip_to);
    if (om_queue_reader_goes_on(result) && reader->is_unseen) {
        int checked = check_after_all(reader, offset);
        if (checked != OM_OK)
            return checked == LOOK_AGAIN ? om_queue_reader_get(engine, reader, log, offset, out, skip_to) : checked;
    }
    if (result != OM_E_UNREADABLE || om_queue_reader_unguard(reader) == OM_OK)
        return result;
    om_queue_reader_doubt(reader, log); /* a page of it couldn't be had: a survey finds what is left */
    return OM_E_NOT_RESIDENT;
}
