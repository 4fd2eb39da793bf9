/* kafka_batch.c -- may this batch be appended to that topic? Each refusal has Kafka's own error code. */
#include "kafka/kafka.h"

#include <string.h>

#define ZSTD_FROM 7 /* the version of Produce */
#define CODEC_ZSTD 4
/* More bytes come out of no batch (ottermq/storage/codecs.py), and a record has 7: more records are a lie, which
 * would cost offsets and make a queue look full. */
#define RECORDS_MOST ((128 << 20) / 7)

int om_kafka_refuse(om_kafka_outcome *out, int error, const char *text) {
    out->error = error;
    out->text = (om_span){(const uint8_t *)text, text ? (int32_t)strlen(text) : -1};
    return error;
}

static int check_head(om_kafka_batch *batch, const om_kafka_topic *topic, om_kafka_outcome *out) {
    om_span data = batch->data;
    om_batch_info *info = &batch->info;
    if (data.len <= 0)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD, "no record batch");
    if (data.len > 16 && data.data[16] != OM_BATCH_MAGIC)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD, "a message format that isn't version 2");
    if (om_batch_peek(data.data, (size_t)data.len, info) != OM_OK || info->size > data.len)
        return om_kafka_refuse(out, OM_KAFKA_E_CORRUPT_MESSAGE, NULL);
    if (info->size > topic->options.max_message_bytes)
        return om_kafka_refuse(out, OM_KAFKA_E_MESSAGE_TOO_LARGE, "larger than max.message.bytes");
    if (info->size < data.len)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD, "more than one record batch");
    if (om_batch_check(data.data, (size_t)data.len, info) != OM_OK)
        return om_kafka_refuse(out, OM_KAFKA_E_CORRUPT_MESSAGE, NULL);
    return 0;
}

static int check_records(om_kafka_batch *batch, const om_kafka_topic *topic, om_kafka_outcome *out) {
    int keyed = (topic->options.flags & OM_KAFKA_COMPACTED) != 0;
    om_records_seen found;
    int result = om_records_survey(batch->data.data, (size_t)batch->data.len, keyed, &found);
    if (result == OM_E_INVALID)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD, "a compacted topic takes no record without a key");
    if (result != OM_OK)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD, "records that don't lie within their batch");
    batch->first_time = found.first_time;
    batch->last_time = batch->info.max_timestamp = found.last_time;
    batch->claims = found.named_amqp > 0;
    return 0;
}

int om_kafka_batch_check(om_kafka_batch *batch, const om_kafka_topic *topic, int version, int may_be_transactional,
                         om_kafka_outcome *out) {
    const om_batch_info *info = &batch->info;
    int error = check_head(batch, topic, out);
    if (error)
        return error;
    if (info->attributes & (OM_ATTR_CONTROL | OM_ATTR_DELETE_HORIZON))
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD, "clients don't write control batches");
    if (info->record_count > RECORDS_MOST)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD, "more records than a batch can hold");
    if (info->record_count < 1 || info->record_count - 1 != info->last_offset_delta)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD,
                               "a last offset delta that isn't the count of records - 1");
    int codec = info->attributes & OM_ATTR_CODEC_MASK;
    if (codec > CODEC_ZSTD || (codec == CODEC_ZSTD && version < ZSTD_FROM))
        return om_kafka_refuse(out, OM_KAFKA_E_UNSUPPORTED_COMPRESSION, NULL);
    if ((info->attributes & OM_ATTR_TRANSACTIONAL) && !may_be_transactional)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_RECORD, "a transactional batch without a transactional id");
    batch->first_time = batch->last_time = info->max_timestamp;
    return codec ? 0 : check_records(batch, topic, out);
}

int om_kafka_batch_check_times(const om_kafka_batch *batch, const om_kafka_topic *topic, int64_t now_ms,
                               om_kafka_outcome *out) {
    const om_kafka_topic_options *options = &topic->options;
    int64_t first = batch->first_time, last = batch->last_time;
    if (options->flags & OM_KAFKA_LOG_APPEND_TIME)
        return 0;
    if (batch->info.attributes & OM_ATTR_LOG_APPEND_TIME)
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_TIMESTAMP, "a producer can't know the time of its append");
    if ((first >= 0 && first < now_ms && now_ms - first > options->timestamp_before_max_ms) ||
        (last > now_ms && last - now_ms > options->timestamp_after_max_ms))
        return om_kafka_refuse(out, OM_KAFKA_E_INVALID_TIMESTAMP, "a timestamp out of the topic's range");
    return 0;
}
