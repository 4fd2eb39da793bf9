/* kafka_topics.c -- topics by name and by id, their partitions, and who may use them.
 *
 * Python says what a topic is: which lane of which queue is which partition. A queue is looked up when its partition
 * is first used, and held from then on; a removed queue makes its partition unknown. Rights are kept by a topic's
 * serial: a topic that was deleted and created again is a new one.
 */
#include "base/bytes.h"
#include "kafka/kafka.h"

#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 255

/* ---- the tables ---- */

static uint32_t name_bucket(const struct om_kafka *kafka, const uint8_t *name, size_t len) {
    return om_crc32c(0, name, len) & (kafka->buckets - 1);
}

static uint32_t id_bucket(const struct om_kafka *kafka, const uint8_t id[16]) {
    return (uint32_t)(om_get_be64(id + 8) ^ om_get_be64(id)) & (kafka->buckets - 1);
}

int om_kafka_init(om_engine *engine) {
    struct om_kafka *kafka = engine->kafka;
    kafka->buckets = 64;
    kafka->wheel.now = engine->now_ms;
    kafka->by_name = calloc(kafka->buckets, sizeof *kafka->by_name);
    kafka->by_id = calloc(kafka->buckets, sizeof *kafka->by_id);
    return kafka->by_name && kafka->by_id ? OM_OK : OM_E_NO_MEMORY;
}

static void link_topic(struct om_kafka *kafka, om_kafka_topic *topic) {
    om_kafka_topic **slot = &kafka->by_name[name_bucket(kafka, topic->name, topic->name_len)];
    topic->next_by_name = *slot;
    *slot = topic;
    slot = &kafka->by_id[id_bucket(kafka, topic->id)];
    topic->next_by_id = *slot;
    *slot = topic;
}

static void unlink_topic(struct om_kafka *kafka, om_kafka_topic *topic) {
    om_kafka_topic **slot = &kafka->by_name[name_bucket(kafka, topic->name, topic->name_len)];
    while (*slot != topic)
        slot = &(*slot)->next_by_name;
    *slot = topic->next_by_name;
    slot = &kafka->by_id[id_bucket(kafka, topic->id)];
    while (*slot != topic)
        slot = &(*slot)->next_by_id;
    *slot = topic->next_by_id;
}

/* Twice as wide when there are as many topics as buckets; without memory it stays as it is. */
static void widen(struct om_kafka *kafka) {
    uint32_t old = kafka->buckets;
    om_kafka_topic **before = kafka->by_name;
    om_kafka_topic **by_name = calloc((size_t)old * 2, sizeof *by_name);
    om_kafka_topic **by_id = calloc((size_t)old * 2, sizeof *by_id);
    if (!by_name || !by_id) {
        free(by_name);
        free(by_id);
        return;
    }
    free(kafka->by_id);
    kafka->by_name = by_name;
    kafka->by_id = by_id;
    kafka->buckets = old * 2;
    for (uint32_t i = 0; i < old; i++)
        for (om_kafka_topic *topic = before[i], *next; topic; topic = next) {
            next = topic->next_by_name;
            link_topic(kafka, topic);
        }
    free(before);
}

om_kafka_topic *om_kafka_topic_named(om_engine *engine, const uint8_t *name, size_t len) {
    const struct om_kafka *kafka = engine->kafka;
    om_kafka_topic *topic = kafka->by_name[name_bucket(kafka, name, len)];
    while (topic && !(topic->name_len == len && memcmp(topic->name, name, len) == 0))
        topic = topic->next_by_name;
    return topic;
}

om_kafka_topic *om_kafka_topic_by_id(om_engine *engine, const uint8_t id[16]) {
    const struct om_kafka *kafka = engine->kafka;
    om_kafka_topic *topic = kafka->by_id[id_bucket(kafka, id)];
    while (topic && memcmp(topic->id, id, 16) != 0)
        topic = topic->next_by_id;
    return topic;
}

/* ---- partitions ---- */

om_log *om_kafka_topic_log(om_engine *engine, om_kafka_topic *topic, int32_t partition, om_queue **queue) {
    if (partition < 0 || partition >= topic->count)
        return NULL;
    om_kafka_partition_log *place = &topic->partitions[partition];
    if (!place->queue || place->queue->removed) {
        if (place->queue)
            om_queue_unref(place->queue);
        place->queue = om_queue_find(engine, place->id);
        if (!place->queue)
            return NULL;
        om_queue_ref(place->queue);
    }
    om_queue *found = place->queue;
    if (place->lane < 0 || place->lane >= found->lane_count || found->lanes[place->lane].log->deleted)
        return NULL;
    *queue = found;
    return found->lanes[place->lane].log;
}

static void free_places(om_kafka_partition_log *places, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (places[i].queue)
            om_queue_unref(places[i].queue);
    free(places);
}

static void free_topic(om_kafka_topic *topic) {
    free_places(topic->partitions, topic->count);
    free(topic);
}

void om_kafka_clear(om_engine *engine) {
    struct om_kafka *kafka = engine->kafka;
    for (uint32_t i = 0; i < kafka->buckets; i++) {
        for (om_kafka_topic *topic = kafka->by_name[i], *next; topic; topic = next) {
            next = topic->next_by_name;
            free_topic(topic);
        }
        kafka->by_name[i] = kafka->by_id[i] = NULL;
    }
    om_log_forget_to_wake(engine->store);
}

void om_kafka_free(om_engine *engine) {
    struct om_kafka *kafka = engine->kafka;
    free(kafka->by_name);
    free(kafka->by_id);
    free(kafka->reply);
    free(kafka->plans);
}

/* ---- as Python sets them ---- */

static om_kafka_topic *new_topic(struct om_kafka *kafka, const uint8_t *name, size_t len, const uint8_t *id) {
    om_kafka_topic *topic = calloc(1, sizeof *topic + len);
    if (!topic)
        return NULL;
    if (kafka->count >= kafka->buckets)
        widen(kafka);
    topic->serial = ++kafka->serial;
    topic->name_len = (uint32_t)len;
    memcpy(topic->name, name, len);
    memcpy(topic->id, id, sizeof topic->id);
    link_topic(kafka, topic);
    kafka->count++;
    return topic;
}

static void remove_topic(om_engine *engine, om_kafka_topic *topic) {
    om_kafka_wake_topic(engine, topic);
    unlink_topic(engine->kafka, topic);
    engine->kafka->count--;
    free_topic(topic);
}

int om_kafka_topic_put(om_engine *engine, const uint8_t *name, size_t len, const uint8_t *id,
                       const om_kafka_partition *partitions, int32_t count, const om_kafka_topic_options *options) {
    if (!len || len > NAME_MAX_LEN || count < 0)
        return OM_E_INVALID;
    om_kafka_partition_log *places = calloc(count ? (size_t)count : 1, sizeof *places);
    if (!places)
        return OM_E_NO_MEMORY;
    for (int32_t i = 0; i < count; i++)
        places[i] = (om_kafka_partition_log){.id = partitions[i].queue, .lane = partitions[i].lane};
    om_kafka_topic *topic = om_kafka_topic_named(engine, name, len);
    if (topic && memcmp(topic->id, id, sizeof topic->id) != 0) {
        remove_topic(engine, topic);
        topic = NULL;
    }
    if (!topic)
        topic = new_topic(engine->kafka, name, len, id);
    if (!topic) {
        free(places);
        return OM_E_NO_MEMORY;
    }
    om_kafka_wake_topic(engine, topic);
    free_places(topic->partitions, topic->count);
    topic->partitions = places;
    topic->count = count;
    topic->options = *options;
    engine->kafka->generation++;
    return OM_OK;
}

int om_kafka_topic_drop(om_engine *engine, const uint8_t *name, size_t len) {
    om_kafka_topic *topic = om_kafka_topic_named(engine, name, len);
    if (!topic)
        return OM_E_GONE;
    remove_topic(engine, topic);
    engine->kafka->generation++;
    return OM_OK;
}

/* ---- rights ---- */

static uint32_t rights_slot(const om_kafka_rights *rights, uint64_t serial) {
    uint32_t at = (uint32_t)(serial * 0x9E3779B97F4A7C15u >> 32) & (rights->cap - 1);
    while (rights->slots[at].serial && rights->slots[at].serial != serial)
        at = (at + 1) & (rights->cap - 1);
    return at;
}

int om_kafka_rights_get(const om_engine *engine, const om_kafka_rights *rights, const om_kafka_topic *topic) {
    if (!rights->cap || rights->permissions != engine->permissions)
        return -1;
    uint32_t at = rights_slot(rights, topic->serial);
    return rights->slots[at].serial ? (int)rights->slots[at].bits : -1;
}

void om_kafka_rights_clear(om_kafka_rights *rights) {
    free(rights->slots);
    memset(rights, 0, sizeof *rights);
}

static int widen_rights(om_kafka_rights *rights) {
    om_kafka_rights wider = {.permissions = rights->permissions, .cap = rights->cap ? rights->cap * 2 : 8};
    wider.slots = calloc(wider.cap, sizeof *wider.slots);
    if (!wider.slots)
        return OM_E_NO_MEMORY;
    for (uint32_t i = 0; i < rights->cap; i++)
        if (rights->slots[i].serial)
            wider.slots[rights_slot(&wider, rights->slots[i].serial)] = rights->slots[i];
    wider.count = rights->count;
    free(rights->slots);
    *rights = wider;
    return OM_OK;
}

int om_kafka_rights_set(const om_engine *engine, om_kafka_rights *rights, const om_kafka_topic *topic, uint32_t bits) {
    if (rights->permissions != engine->permissions)
        om_kafka_rights_clear(rights);
    rights->permissions = engine->permissions;
    if (rights->count * 2 >= rights->cap && widen_rights(rights) != OM_OK)
        return OM_E_NO_MEMORY;
    uint32_t at = rights_slot(rights, topic->serial);
    rights->count += !rights->slots[at].serial;
    rights->slots[at].serial = topic->serial;
    rights->slots[at].bits = bits;
    return OM_OK;
}
