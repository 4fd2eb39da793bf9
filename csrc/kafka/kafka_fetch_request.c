/* kafka_fetch_request.c -- Fetch: what a client wants, by one request or by a session (KIP-227).
 *
 * A request without a session names all it wants, and so does one that begins a session; later requests of a session
 * send only changes. Either way the wanted partitions are in the same arrays, which stay with the connection, and
 * kafka_fetch_response.c answers from them. A session ends with its connection: a client that reconnects begins a new
 * one anyway.
 */
#include "kafka/kafka.h"

#include "format/kafka_wire.h"

#include <stdlib.h>
#include <string.h>

#define VERSION_MIN 4
#define VERSION_MAX 17
#define FLEXIBLE_FROM 12
#define IDS_FROM 13
#define TOPIC_LEAST 3
#define NAME_MAX_KEPT 250 /* bytes of a topic's name: one that long is no topic's */
#define PARTITION_LEAST 16
#define PARTS_MAX 100000  /* a request may name so many */
#define SESSION_MAX 10000 /* ... and a session holds so many */
#define KEPT (64u << 10)  /* bytes that stay allocated without a session */
#define WAIT_MAX_MS 600000
#define FINAL_EPOCH -1

/* ---- arrays ---- */

static int need(void **list, uint32_t *cap, uint32_t count, size_t size) {
    if (count <= *cap)
        return OM_OK;
    uint32_t wider = *cap ? *cap * 2 : 8;
    while (wider < count)
        wider *= 2;
    void *moved = realloc(*list, wider * size);
    if (!moved)
        return OM_E_NO_MEMORY;
    *list = moved;
    *cap = wider;
    return OM_OK;
}

static void forget_all(om_kafka_fetch *fetch) {
    fetch->topic_count = fetch->part_count = fetch->names_len = fetch->forgotten = fetch->start = 0;
    fetch->session = fetch->epoch = 0;
    free(fetch->topic_index);
    free(fetch->part_index);
    fetch->topic_index = fetch->part_index = NULL;
    fetch->topic_slots = fetch->part_slots = 0;
    if (fetch->part_cap * sizeof *fetch->parts <= KEPT && fetch->names_cap <= KEPT)
        return;
    free(fetch->parts);
    free(fetch->topics);
    free(fetch->names);
    fetch->parts = NULL;
    fetch->topics = NULL;
    fetch->names = NULL;
    fetch->part_cap = fetch->topic_cap = fetch->names_cap = 0;
}

void om_kafka_fetch_free(om_conn *conn) {
    om_kafka_fetch *fetch = om_kafka_of(conn)->fetch;
    if (!fetch)
        return;
    om_kafka_wait_over(conn);
    free(fetch->topic_index);
    free(fetch->part_index);
    free(fetch->parts);
    free(fetch->topics);
    free(fetch->names);
    free(fetch);
    om_kafka_of(conn)->fetch = NULL;
}

/* ---- topics and partitions by name ---- */

typedef struct named { /* how a request names a topic */
    om_span name;
    const uint8_t *id;
} named;

static const uint8_t *name_of(const om_kafka_fetch *fetch, const om_kafka_fetch_topic *topic) {
    return fetch->names + topic->name_at;
}

static uint32_t hash_of(const named *named) {
    return named->id ? om_crc32c(0, named->id, 16) : om_crc32c(0, named->name.data, (size_t)named->name.len);
}

static int is_same(const om_kafka_fetch *fetch, const om_kafka_fetch_topic *topic, const named *named) {
    if (named->id)
        return memcmp(topic->id, named->id, sizeof topic->id) == 0;
    return topic->name_len == (uint32_t)named->name.len &&
           memcmp(name_of(fetch, topic), named->name.data, topic->name_len) == 0;
}

static uint32_t part_hash(uint32_t topic, int32_t partition) {
    return (uint32_t)((((uint64_t)topic << 32 | (uint32_t)partition) * 0x9E3779B97F4A7C15u) >> 32);
}

/* The slot of a topic, or the free one where it would be. */
static uint32_t topic_slot(const om_kafka_fetch *fetch, const named *named) {
    uint32_t at = hash_of(named) & (fetch->topic_slots - 1);
    while (fetch->topic_index[at] && !is_same(fetch, &fetch->topics[fetch->topic_index[at] - 1], named))
        at = (at + 1) & (fetch->topic_slots - 1);
    return at;
}

static uint32_t part_slot(const om_kafka_fetch *fetch, uint32_t topic, int32_t partition) {
    uint32_t at = part_hash(topic, partition) & (fetch->part_slots - 1);
    while (fetch->part_index[at]) {
        const om_kafka_part *part = &fetch->parts[fetch->part_index[at] - 1];
        if (part->topic == topic && part->partition == partition)
            break;
        at = (at + 1) & (fetch->part_slots - 1);
    }
    return at;
}

/* Both indexes anew, at most half full with what there is and is to come. */
static int build_index(om_kafka_fetch *fetch) {
    uint32_t topics = 16, parts = 16;
    while (topics < fetch->topic_count * 4)
        topics *= 2;
    while (parts < fetch->part_count * 4)
        parts *= 2;
    free(fetch->topic_index);
    free(fetch->part_index);
    fetch->topic_index = calloc(topics, sizeof *fetch->topic_index);
    fetch->part_index = calloc(parts, sizeof *fetch->part_index);
    fetch->topic_slots = topics;
    fetch->part_slots = parts;
    if (!fetch->topic_index || !fetch->part_index)
        return OM_E_NO_MEMORY;
    for (uint32_t i = 0; i < fetch->topic_count; i++) {
        const om_kafka_fetch_topic *topic = &fetch->topics[i];
        named named = {{name_of(fetch, topic), (int32_t)topic->name_len}, fetch->by_id ? topic->id : NULL};
        fetch->topic_index[topic_slot(fetch, &named)] = i + 1;
    }
    for (uint32_t i = 0; i < fetch->part_count; i++)
        fetch->part_index[part_slot(fetch, fetch->parts[i].topic, fetch->parts[i].partition)] = i + 1;
    return OM_OK;
}

/* Its place; -1: no memory. */
static int64_t add_topic(om_kafka_fetch *fetch, const named *named) {
    uint32_t slot = 0;
    if (fetch->topic_index) {
        if (fetch->topic_count * 2 >= fetch->topic_slots && build_index(fetch) != OM_OK)
            return -1;
        slot = topic_slot(fetch, named);
        if (fetch->topic_index[slot])
            return fetch->topic_index[slot] - 1;
    }
    uint32_t len = named->id ? 0 : (uint32_t)named->name.len;
    if (need((void **)&fetch->topics, &fetch->topic_cap, fetch->topic_count + 1, sizeof *fetch->topics) != OM_OK ||
        need((void **)&fetch->names, &fetch->names_cap, fetch->names_len + len + 1, 1) != OM_OK)
        return -1;
    om_kafka_fetch_topic *topic = &fetch->topics[fetch->topic_count++];
    *topic = (om_kafka_fetch_topic){.name_at = fetch->names_len, .name_len = len};
    if (named->id)
        memcpy(topic->id, named->id, sizeof topic->id);
    else if (len)
        memcpy(fetch->names + fetch->names_len, named->name.data, len);
    fetch->names_len += len;
    fetch->generation = 0; /* to be looked up */
    if (fetch->topic_index)
        fetch->topic_index[slot] = fetch->topic_count;
    return fetch->topic_count - 1;
}

static om_kafka_part *add_part(om_kafka_fetch *fetch, uint32_t topic, int32_t partition) {
    uint32_t slot = 0;
    if (fetch->part_index) {
        if (fetch->part_count * 2 >= fetch->part_slots && build_index(fetch) != OM_OK)
            return NULL;
        slot = part_slot(fetch, topic, partition);
        if (fetch->part_index[slot])
            return &fetch->parts[fetch->part_index[slot] - 1];
    }
    if (need((void **)&fetch->parts, &fetch->part_cap, fetch->part_count + 1, sizeof *fetch->parts) != OM_OK)
        return NULL;
    om_kafka_part *part = &fetch->parts[fetch->part_count++];
    *part = (om_kafka_part){.topic = topic, .partition = partition, .told_watermark = -1, .told_start = -1};
    if (fetch->part_index)
        fetch->part_index[slot] = fetch->part_count;
    return part;
}

void om_kafka_fetch_resolve(om_kafka_fetch *fetch) {
    om_engine *engine = fetch->conn->engine;
    uint64_t generation = engine->kafka->generation + 1; /* never 0 */
    if (fetch->generation == generation)
        return;
    for (uint32_t i = 0; i < fetch->topic_count; i++) {
        om_kafka_fetch_topic *topic = &fetch->topics[i];
        topic->topic = fetch->by_id ? om_kafka_topic_by_id(engine, topic->id)
                                    : om_kafka_topic_named(engine, name_of(fetch, topic), topic->name_len);
    }
    fetch->generation = generation;
}

/* ---- the request ---- */

static named read_name(om_wire *wire, int version) {
    named named = {{NULL, -1}, NULL};
    if (version >= IDS_FROM)
        named.id = om_wire_take(wire, 16);
    else
        named.name = om_wire_string(wire);
    if (!named.id && (named.name.len < 0 || named.name.len > INT16_MAX))
        wire->bad = 1;
    else if (named.name.len > NAME_MAX_KEPT)
        named.name.len = NAME_MAX_KEPT; /* thousands of longer ones would fill our memory for nothing */
    return named;
}

static void read_part(om_wire *wire, int version, om_kafka_part *part) {
    part->leader_epoch = version >= 9 ? om_wire_i32(wire) : -1;
    part->offset = om_wire_i64(wire);
    if (version >= 12)
        om_wire_i32(wire); /* the last epoch it has: only followers are held against that */
    if (version >= 5)
        om_wire_i64(wire); /* a follower's log start */
    part->max_bytes = om_wire_i32(wire);
    om_wire_skip_tags(wire);
    part->forgotten = 0;
}

/* OM_E_CORRUPT, OM_E_NO_MEMORY, OM_E_LIMIT. */
static int read_wanted(om_kafka_fetch *fetch, om_wire *wire, uint32_t most) {
    int32_t topics = om_wire_count(wire, TOPIC_LEAST);
    for (int32_t i = 0; i < topics && !wire->bad; i++) {
        named named = read_name(wire, fetch->version);
        int32_t count = om_wire_count(wire, PARTITION_LEAST);
        int64_t topic = wire->bad ? -1 : add_topic(fetch, &named);
        if (topic < 0)
            return wire->bad ? OM_E_CORRUPT : OM_E_NO_MEMORY;
        for (int32_t j = 0; j < count && !wire->bad; j++) {
            om_kafka_part *part = add_part(fetch, (uint32_t)topic, om_wire_i32(wire));
            if (!part || fetch->part_count > most)
                return part ? OM_E_LIMIT : OM_E_NO_MEMORY;
            if (part->forgotten) { /* it is back: all of it is sent again */
                fetch->forgotten--;
                part->told_watermark = part->told_start = -1;
            }
            read_part(wire, fetch->version, part);
        }
        om_wire_skip_tags(wire);
        if (fetch->topic_count > most)
            return OM_E_LIMIT;
    }
    return wire->bad ? OM_E_CORRUPT : OM_OK;
}

static int read_forgotten(om_kafka_fetch *fetch, om_wire *wire) {
    int32_t topics = fetch->version >= 7 ? om_wire_count(wire, TOPIC_LEAST) : 0;
    for (int32_t i = 0; i < topics && !wire->bad; i++) {
        named named = read_name(wire, fetch->version);
        int32_t count = om_wire_count(wire, 4);
        uint32_t place = !wire->bad && fetch->topic_index ? fetch->topic_index[topic_slot(fetch, &named)] : 0;
        for (int32_t j = 0; j < count && !wire->bad; j++) {
            int32_t partition = om_wire_i32(wire);
            uint32_t at = place ? fetch->part_index[part_slot(fetch, place - 1, partition)] : 0;
            if (at && !fetch->parts[at - 1].forgotten) {
                fetch->parts[at - 1].forgotten = 1;
                fetch->forgotten++;
            }
        }
        om_wire_skip_tags(wire);
    }
    if (fetch->version >= 11)
        om_wire_string(wire); /* the client's rack */
    om_wire_skip_tags(wire);
    return wire->bad || wire->at != wire->end ? OM_E_CORRUPT : OM_OK;
}

/* Those that were forgotten go, once they are the most. */
static int compact(om_kafka_fetch *fetch) {
    if (fetch->forgotten < 64 || fetch->forgotten * 2 < fetch->part_count)
        return OM_OK;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < fetch->part_count; i++)
        if (!fetch->parts[i].forgotten)
            fetch->parts[kept++] = fetch->parts[i];
    fetch->part_count = kept;
    fetch->forgotten = fetch->start = 0;
    return build_index(fetch);
}

static int32_t new_session(om_engine *engine) {
    uint64_t mixed = (++engine->kafka->serial ^ (uint64_t)engine->wall_ms << 20) * 0x9E3779B97F4A7C15u;
    int32_t id = (int32_t)(mixed >> 33);
    return id ? id : 1;
}

/* Every partition anew, and a session if the client wants one and it isn't too large. */
static int take_full(om_kafka_fetch *fetch, om_wire *wire, int32_t epoch) {
    forget_all(fetch);
    fetch->by_id = fetch->version >= IDS_FROM;
    int result = read_wanted(fetch, wire, PARTS_MAX);
    if (result == OM_OK)
        result = read_forgotten(fetch, wire);
    if (result != OM_OK || epoch == FINAL_EPOCH || fetch->part_count > SESSION_MAX)
        return result;
    fetch->session = new_session(fetch->conn->engine);
    fetch->epoch = 1;
    return build_index(fetch);
}

static int take_changes(om_kafka_fetch *fetch, om_wire *wire, int32_t session, int32_t epoch) {
    if (!fetch->session || fetch->session != session) {
        fetch->error = OM_KAFKA_E_FETCH_SESSION_ID_NOT_FOUND;
        return OM_OK;
    }
    if (fetch->epoch != epoch) {
        fetch->error = OM_KAFKA_E_INVALID_FETCH_SESSION_EPOCH;
        return OM_OK;
    }
    if (fetch->by_id != (fetch->version >= IDS_FROM)) {
        fetch->error = OM_KAFKA_E_FETCH_SESSION_TOPIC_ID_ERROR;
        return OM_OK;
    }
    int result = read_wanted(fetch, wire, SESSION_MAX);
    if (result == OM_E_LIMIT) { /* the client begins again, without a session */
        forget_all(fetch);
        fetch->error = OM_KAFKA_E_FETCH_SESSION_ID_NOT_FOUND;
        return OM_OK;
    }
    if (result == OM_OK)
        result = read_forgotten(fetch, wire);
    fetch->epoch = epoch == INT32_MAX ? 1 : epoch + 1;
    fetch->incremental = 1;
    return result == OM_OK ? compact(fetch) : result;
}

static int parse(om_kafka_fetch *fetch, om_wire *wire) {
    if (fetch->version < 15)
        om_wire_i32(wire); /* the replica: there are none, every client is a consumer */
    int32_t wait = om_wire_i32(wire);
    fetch->min_bytes = om_wire_i32(wire);
    fetch->max_bytes = om_wire_i32(wire);
    fetch->committed = om_wire_i8(wire) == 1;
    int32_t session = fetch->version >= 7 ? om_wire_i32(wire) : 0;
    int32_t epoch = fetch->version >= 7 ? om_wire_i32(wire) : FINAL_EPOCH;
    if (wire->bad)
        return OM_E_CORRUPT;
    if (fetch->max_bytes < 0)
        fetch->max_bytes = 0;
    if (fetch->min_bytes > fetch->max_bytes)
        fetch->min_bytes = fetch->max_bytes;
    wait = wait < 0 ? 0 : wait > WAIT_MAX_MS ? WAIT_MAX_MS : wait;
    fetch->deadline = fetch->conn->engine->now_ms + wait;
    fetch->error = 0;
    fetch->incremental = 0;
    return epoch > 0 ? take_changes(fetch, wire, session, epoch) : take_full(fetch, wire, epoch);
}

int om_kafka_fetch_take(const om_kafka_request *request, const uint8_t *body) {
    om_conn *conn = request->conn;
    if (request->version < VERSION_MIN || request->version > VERSION_MAX) {
        om_conn_break(conn, "unsupported Fetch version");
        return 1;
    }
    om_kafka_fetch *fetch = om_kafka_of(conn)->fetch;
    if (!fetch)
        fetch = om_kafka_of(conn)->fetch = calloc(1, sizeof *fetch);
    if (!fetch) {
        om_conn_break(conn, "out of memory");
        return 1;
    }
    fetch->conn = conn;
    fetch->version = request->version;
    fetch->correlation = request->correlation;
    om_wire wire = {.at = body, .end = request->data + request->len, .flexible = request->version >= FLEXIBLE_FROM};
    int result = parse(fetch, &wire);
    if (result != OM_OK)
        om_conn_break(conn, result == OM_E_NO_MEMORY ? "out of memory"
                            : result == OM_E_LIMIT   ? "too many partitions in Fetch request"
                                                     : "invalid Fetch request");
    else
        om_kafka_fetch_serve(conn, 0);
    return 1;
}
