/* stream.c -- stream queues: many readers of one log; nothing is removed by reading.
 *
 * Each consumer has its own offset and its own reader; an ack only returns credit. Readers stop at the high watermark
 * (so nobody sees what a power failure could take back) and before an open transaction.
 */
#include "queue/stream.h"
#include "net/engine_core.h"
#include "store/producer.h"

#include <string.h>

#define STREAM_MAX 1024 /* messages a consumer gets in one go */

/* ---- where to start ---- */

/* The first offset of the last batch: what RabbitMQ calls the last chunk. */
static int64_t last_batch(om_engine *engine, om_consumer *consumer, om_log *log, int64_t end) {
    om_content content;
    int64_t skip_to;
    if (end <= log->start_offset)
        return end;
    if (om_queue_reader_get(engine, consumer->reader, log, end - 1, &content, &skip_to) != OM_OK)
        return end - 1;
    return consumer->reader->iter.records.batch.base_offset;
}

void om_stream_start_at(om_consumer *consumer, const om_consume *consume) {
    om_log *log = consumer->queue->lanes[0].log;
    int64_t end = om_log_last_stable(log);
    consumer->reader = om_queue_reader_new();
    switch (consume->start) {
    case OM_STREAM_FIRST:
        consumer->offset = log->start_offset;
        break;
    case OM_STREAM_LAST:
        consumer->offset = consumer->reader ? last_batch(consumer->queue->engine, consumer, log, end) : end;
        break;
    case OM_STREAM_OFFSET:
    case OM_STREAM_TIME: /* found by the caller, which may wait for the disk */
        consumer->offset = consume->start_value < log->start_offset ? log->start_offset : consume->start_value;
        break;
    default:
        consumer->offset = log->next_offset;
    }
}

/* ---- filters ---- */

int om_stream_wants(const om_consumer *consumer, const om_properties *properties) {
    om_field field;
    if (!consumer->filter_len)
        return 1;
    size_t len = properties->headers.len > 0 ? (size_t)properties->headers.len : 0;
    if (om_table_get(properties->headers.data, len, "x-stream-filter-value", &field) != OM_OK || field.type != 'S')
        return consumer->match_unfiltered;
    for (uint32_t at = 0; at < consumer->filter_len; at += 1u + consumer->filter[at])
        if (consumer->filter[at] == field.value.len &&
            memcmp(consumer->filter + at + 1, field.value.data, (size_t)field.value.len) == 0)
            return 1;
    return 0;
}

/* ---- giving ---- */

static void serve(om_queue *queue, om_consumer *consumer) {
    om_log *log = queue->lanes[0].log;
    int64_t end = om_log_last_stable(log);
    if (consumer->offset < log->start_offset)
        consumer->offset = log->start_offset; /* retention was faster */
    for (int given = 0; consumer->offset < end; given++) {
        om_content content;
        int64_t skip_to = consumer->offset + 1;
        if (!om_consumer_can_take(consumer))
            return;
        if (given == STREAM_MAX) {
            om_queue_activate(queue);
            return;
        }
        int result = om_queue_reader_get(queue->engine, consumer->reader, log, consumer->offset, &content, &skip_to);
        if (result == OM_E_NOT_RESIDENT || result == OM_END) {
            om_queue_wait(queue);
            return;
        }
        if (result != OM_OK) {
            consumer->offset = skip_to > consumer->offset ? skip_to : consumer->offset + 1;
            continue;
        }
        result = consumer->subscriber->ops->deliver_copy(consumer, &content);
        if (result == OM_E_UNREADABLE) { /* a page of it couldn't be had, this very moment */
            om_queue_reader_doubt(consumer->reader, log);
            om_queue_wait(queue);
            return;
        }
        if (result != OM_OK && result != OM_DELIVERY_TOO_LONG)
            om_conn_break(consumer->subscriber->conn, "out of memory");
        if (result != OM_OK)
            return;
        consumer->offset++;
    }
    om_queue_reader_rest(consumer->reader);
    if (end < log->next_offset)
        om_queue_wait(queue);
}

void om_stream_pump(om_queue *queue) {
    if (queue->lanes[0].log->deleted)
        return;
    for (uint32_t i = 0; i < queue->consumer_count; i++) {
        om_consumer *consumer = queue->consumers[i];
        if ((queue->options.flags & OM_QUEUE_SINGLE_ACTIVE) && queue->active != consumer)
            continue;
        if (!consumer->reader && !(consumer->reader = om_queue_reader_new()))
            continue;
        serve(queue, consumer);
        if (i < queue->consumer_count && queue->consumers[i] != consumer)
            i--; /* it left on the way */
    }
}
