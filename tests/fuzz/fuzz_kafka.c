/* fuzz_kafka.c -- bytes from strangers on a Kafka connection of a real engine over a real store.
 *
 *   | mode u8 | pace u8 | the rest |
 *   mode: 1 the rest are loose steps, | kind u8 | a u8 | b u8 | len u8 | payload |, see step(); else
 *           bytes as they come
 *         2 nothing is read until the end
 *         4 the connection breaks at the end; else it is closed
 *   pace: bytes that are fed at once; 0: all
 *
 * The engine, its store and its topics live on from input to input. What is promised is checked:
 * responses are whole and come in the order of their requests; and another connection writes a batch
 * and reads it back behind every input.
 */
#include "../engine/mini_server.h"
#include "by_hand.h"
#include "format/batch.h"

#include <dirent.h>
#include <unistd.h>

#define INPUT_MAX 65536
#define RESPONSE_MAX (4u << 20)
#define STEPS_MAX 4096
#define PRODUCER 7 /* whom the coordinator knows; other ids have no transactions */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Topics are the queues of their letters: a work queue, one that drops its head, one of three lanes,
 * one that refuses, a stream. */
static const char TOPICS[] = "abcdf";

typedef struct client {
    uint64_t conn;
    int in_order; /* correlations are counted: they must come back growing */
    int32_t sent, seen;
    int16_t fetches[STEPS_MAX]; /* by correlation: the version of a Fetch, else -1 */
    int32_t session, epoch;
    uint8_t *held; /* RESPONSE_MAX bytes */
    size_t len;
} client;

static mini_server server;
static client other;    /* the connection that must not notice */
static client stranger; /* each input's own; its memory stays: 4 MiB a time were half of an input's cost */
static uint8_t good_batch[256];
static size_t good_len;
static char folder[64];

/* ---- the engine ---- */

static void remove_all(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char name[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR)
            remove_all(name);
        else
            unlink(name);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static void stop(void) {
    stop_server(&server);
    free(other.held);
    free(stranger.held);
    remove_all(folder);
}

static void set_topic(int index, uint32_t flags) {
    char name = TOPICS[index];
    uint8_t id[16] = {0};
    int queue = queue_index(name);
    om_kafka_partition partitions[LANES];
    om_kafka_topic_options options = {
        .flags = flags,
        .codec = name == 'c' ? 4 : OM_KAFKA_AS_SENT,
        .max_message_bytes = 50000,
        .timestamp_before_max_ms = INT64_MAX,
        .timestamp_after_max_ms = INT64_MAX,
    };
    id[15] = (uint8_t)name;
    for (int32_t lane = 0; lane < QUEUES[queue].lanes; lane++)
        partitions[lane] = (om_kafka_partition){(uint64_t)queue + 1, lane};
    PROMISE(om_kafka_topic_set(server.engine, (const uint8_t *)&name, 1, id, partitions, QUEUES[queue].lanes,
                               &options) == OM_OK);
}

static void begin(client *client) {
    client->conn = om_conn_virtual(server.engine, OM_PROTOCOL_KAFKA, "fuzz");
    PROMISE(client->conn != 0);
    PROMISE(client->held != NULL);
}

static void start(void) {
    snprintf(folder, sizeof folder, "%s/fuzz_kafka.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    PROMISE(mkdtemp(folder) != NULL);
    start_server(&server, folder);
    for (int i = 0; TOPICS[i]; i++)
        set_topic(i, 0);
    om_batch_info info = {.producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    om_record record = {.key = text_span("key"), .value = text_span("value")};
    int64_t len = om_batch_encode(&info, &record, 1, good_batch, sizeof good_batch);
    PROMISE(len > 0);
    good_len = (size_t)len;
    other.in_order = 1;
    other.held = malloc(RESPONSE_MAX);
    stranger.held = malloc(RESPONSE_MAX);
    begin(&other);
    atexit(stop);
}

/* ---- the server ---- */

/* Each is left as it was, given back as another one, or refused. */
static void answer_batches(const om_event *event) {
    om_kafka_repacked made[256];
    uint32_t count = 0;
    for (const uint8_t *at = event->payload.data, *end = at + event->payload.len; at < end;) {
        PROMISE(end - at > 14 && count < 256);
        uint32_t place = om_get_be32(at), len = om_get_be32(at + 10);
        PROMISE(len > 0 && len <= (size_t)(end - at) - 14);
        made[count] = (om_kafka_repacked){.place = place, .error = place % 3 == 2 ? 2 : 0};
        if (place % 3 == 1) {
            made[count].data = good_batch;
            made[count].len = good_len;
        }
        count++;
        at += 14 + len;
    }
    om_kafka_batches_repacked(server.engine, event->conn, made, count);
}

static int answer_kafka(void) {
    int count = 0;
    om_event *event;
    while ((event = om_engine_next_event(server.engine))) {
        count++;
        if (event->kind == OM_EV_CONN_HELLO) {
            om_kafka_open(server.engine, event->conn, "guest");
            om_kafka_trust(server.engine, event->conn, 1);
        } else if (event->kind == OM_EV_KAFKA_REQUEST && event->code < 2) {
            om_kafka_retry(server.engine, event->conn);
        } else if (event->kind == OM_EV_KAFKA_REQUEST) {
            uint8_t answer[8] = {0, 0, 0, 4};
            memcpy(answer + 4, event->payload.data + 4, 4);
            om_kafka_answer(server.engine, event->conn, event->count, answer, event->code % 5 ? sizeof answer : 0);
        } else if (event->kind == OM_EV_KAFKA_TOPICS) {
            if (event->header.len > 0)
                om_kafka_permit_producer(server.engine, event->conn, event->header.data, (size_t)event->header.len,
                                         event->header.len % 2);
            for (const uint8_t *at = event->key.data, *end = at + event->key.len; at < end;) {
                size_t len = om_get_be16(at);
                PROMISE(len + 2 <= (size_t)(end - at));
                om_kafka_permit(server.engine, event->conn, at + 2, len, len == 1 && at[2] == 'd' ? OM_KAFKA_READ : 3);
                at += 2 + len;
            }
            om_kafka_retry(server.engine, event->conn);
        } else if (event->kind == OM_EV_KAFKA_BATCHES) {
            answer_batches(event);
        } else if (event->kind == OM_EV_DEAD_ROUTE) {
            answer_route(&server, event);
        }
        om_event_free(event);
    }
    return count;
}

/* ---- responses ---- */

static void check_response(client *client, const uint8_t *data, size_t len) {
    PROMISE(len >= 4);
    int32_t correlation = (int32_t)om_get_be32(data);
    if (!client->in_order)
        return;
    PROMISE(correlation > client->seen && correlation <= client->sent);
    client->seen = correlation;
    int version = client->fetches[correlation % STEPS_MAX];
    if (version >= 7) {
        size_t at = 4 + (version >= 12) + 4;
        PROMISE(len >= at + 6);
        client->session = (int32_t)om_get_be32(data + at + 2);
        if (om_get_be16(data + at))
            client->epoch = 0;
    }
}

/* Returns 0 when the connection is gone. */
static int drain_responses(client *client) {
    for (;;) {
        int64_t got =
            om_conn_drain(server.engine, client->conn, client->held + client->len, RESPONSE_MAX - client->len);
        if (got < 0)
            return 0;
        client->len += (size_t)got;
        size_t at = 0;
        while (client->len - at >= 4) {
            size_t size = om_get_be32(client->held + at);
            PROMISE(size + 4 <= RESPONSE_MAX);
            if (client->len - at - 4 < size)
                break;
            check_response(client, client->held + at + 4, size);
            at += 4 + size;
        }
        memmove(client->held, client->held + at, client->len - at);
        client->len -= at;
        if (!got)
            return 1;
    }
}

/* ---- requests ---- */

static uint8_t *put_head(client *client, uint8_t *at, int key, int version, int flexible) {
    om_put_be16(at + 4, (uint16_t)key);
    om_put_be16(at + 6, (uint16_t)version);
    om_put_be32(at + 8, (uint32_t)++client->sent);
    om_put_be16(at + 12, UINT16_MAX);
    at[14] = 0;
    client->fetches[client->sent % STEPS_MAX] = (int16_t)(key == 1 ? version : -1);
    return at + 14 + flexible;
}

static uint8_t *put32(uint8_t *at, int32_t value) {
    om_put_be32(at, (uint32_t)value);
    return at + 4;
}

static uint8_t *put_count(uint8_t *at, int flexible, int32_t count) {
    if (flexible)
        *at = (uint8_t)(count + 1);
    return flexible ? at + 1 : put32(at, count);
}

static uint8_t *put_topic(uint8_t *at, int flexible, int by_id, int which) {
    char name = TOPICS[which % (int)(sizeof TOPICS - 1)];
    if (by_id) {
        memset(at, 0, 16);
        at[15] = (uint8_t)name;
        return at + 16;
    }
    if (flexible)
        *at++ = 2;
    else
        om_put_be16(at, 1), at += 2;
    *at++ = (uint8_t)name;
    return at;
}

/* Whatever the payload is: a batch with its length, magic and CRC right; less than a header changes the good one. */
static size_t make_batch(uint8_t *at, const uint8_t *payload, size_t len) {
    memcpy(at, good_batch, good_len);
    size_t total = len > OM_BATCH_OVERHEAD ? len : good_len;
    if (len)
        memcpy(at, payload, len);
    om_put_be64(at, 0);
    om_put_be32(at + 8, (uint32_t)(total - 12));
    at[16] = 2;
    om_put_be32(at + 17, om_crc32c(0, at + 21, total - 21));
    return total;
}

static uint8_t *put_produce(client *client, uint8_t *start, int a, int b, const uint8_t *payload, size_t len) {
    int version = 3 + b % 9, flexible = version >= 9;
    uint8_t *at = put_head(client, start, 0, version, flexible);
    if (flexible)
        *at++ = (uint8_t)(b & 64 ? 2 : 0);
    else
        om_put_be16(at, b & 64 ? 1 : UINT16_MAX), at += 2;
    if (b & 64)
        *at++ = 't';
    om_put_be16(at, (uint16_t)(a % 4 - 1)); /* acks: -1, 0, 1 or 2 */
    at = put32(at + 2, 1000);
    at = put_topic(put_count(at, flexible, 1), flexible, 0, a >> 2);
    at = put32(put_count(at, flexible, 1), b >> 4 & 3);
    uint8_t made[512];
    size_t total = make_batch(made, payload, len);
    if (flexible)
        *at++ = (uint8_t)((total + 1) | 0x80), *at++ = (uint8_t)((total + 1) >> 7);
    else
        at = put32(at, (int32_t)total);
    memcpy(at, made, total);
    at += total;
    for (int i = 0; flexible && i < 3; i++)
        *at++ = 0;
    return at;
}

/* Each 4 bytes of the payload: topic, partition, offset, limit. */
static uint8_t *put_fetch(client *client, uint8_t *start, int a, int b, const uint8_t *payload, size_t len) {
    int version = 4 + b % 14, flexible = version >= 12, by_id = version >= 13;
    uint8_t *at = put_head(client, start, 1, version, flexible);
    if (version < 15)
        at = put32(at, -1);
    at = put32(at, a & 3); /* how long it waits */
    at = put32(at, a >> 2 & 15);
    at = put32(at, b & 16 ? 1 << 20 : b);
    *at++ = (uint8_t)(a >> 6 & 1);
    if (version >= 7) {
        int goes_on = a & 128 && client->session;
        client->epoch = goes_on ? client->epoch + 1 : 0;
        at = put32(at, goes_on ? client->session : 0);
        at = put32(at, goes_on ? client->epoch : b & 32 ? 0 : -1);
    }
    int32_t count = (int32_t)(len / 4 < 40 ? len / 4 : 40);
    at = put_count(at, flexible, count);
    for (int32_t i = 0; i < count; i++) {
        at = put_topic(at, flexible, by_id, payload[i * 4]);
        at = put32(put_count(at, flexible, 1), (int8_t)payload[i * 4 + 1]);
        if (version >= 9)
            at = put32(at, -1);
        om_put_be64(at, (uint64_t)(int64_t)(int8_t)payload[i * 4 + 2]);
        at += 8;
        if (version >= 12)
            at = put32(at, -1);
        if (version >= 5)
            om_put_be64(at, 0), at += 8;
        at = put32(at, payload[i * 4 + 3] * 16);
        for (int tags = 0; flexible && tags < 2; tags++)
            *at++ = 0;
    }
    if (version >= 7) {
        int32_t forgets = a % 5 == 0 && count ? 1 : 0;
        at = put_count(at, flexible, forgets);
        if (forgets) {
            at = put_topic(at, flexible, by_id, payload[0]);
            at = put32(put_count(at, flexible, 1), (int8_t)payload[1]);
            if (flexible)
                *at++ = 0;
        }
    }
    if (version >= 11)
        om_put_be16(at, flexible ? 0x0100 : 0), at += flexible ? 1 : 2;
    if (flexible)
        *at++ = 0;
    return at;
}

static uint8_t *put_any(client *client, uint8_t *start, int a, int b, const uint8_t *payload, size_t len) {
    int key = a % 4 < 2 ? a % 4 : a, flexible = (key == 0 && b >= 9) || (key == 1 && b >= 12);
    uint8_t *at = put_head(client, start, key, b, flexible);
    memcpy(at, payload, len);
    return at + len;
}

/* What others do meanwhile. */
static void disturb(client *client, int a, int b) {
    int topic = b % (int)(sizeof TOPICS - 1), queue = queue_index(TOPICS[topic]);
    uint64_t seq;
    om_log_stat stat;
    om_appended marker;
    switch (a % 8) {
    case 0:
        om_engine_forget_permissions(server.engine);
        break;
    case 1:
        set_topic(topic, (uint32_t)(b >> 3 & 7));
        break;
    case 2:
        om_kafka_topic_remove(server.engine, (const uint8_t *)&TOPICS[topic], 1);
        set_topic(topic, 0);
        break;
    case 3:
        om_log_stat_get(server.logs[queue][0], &stat);
        om_log_trim(server.logs[queue][0], stat.start_offset + (stat.high_watermark - stat.start_offset) / 2,
                    OM_RULE_SETTLED, &seq);
        break;
    case 4:
        om_kafka_throttle(server.engine, client->conn, (uint32_t)b % 3);
        break;
    case 5:
        om_log_enlist(server.logs[queue][0], PRODUCER, (int16_t)(b >> 4 & 3));
        break;
    case 6:
        om_log_marker(server.logs[queue][0], PRODUCER, (int16_t)(b >> 4 & 3), 0, b >> 6 & 1, &marker);
        break;
    default:
        om_log_bump_epoch(server.logs[queue][0]);
    }
}

/* ---- the input ---- */

/* Returns 0 when the connection is gone. */
static int feed(client *client, const uint8_t *data, size_t len, size_t pace, int reads) {
    int idle = 0;
    while (len) {
        int64_t taken = om_conn_feed(server.engine, client->conn, data, len < pace ? len : pace);
        if (taken < 0)
            return 0;
        data += taken;
        len -= (size_t)taken;
        int busy = answer_kafka();
        if (!taken)
            tick(server.engine);
        if (reads && !drain_responses(client))
            return 0;
        idle = taken || busy ? 0 : idle + 1;
        if (idle > 20)
            usleep(200); /* a fetch waits, or the disk has the word */
        if (idle == (reads ? 60 : 30))
            return 1;
    }
    return 1;
}

static int step(client *client, const uint8_t *data, size_t load, size_t pace, int reads) {
    uint8_t room[4096];
    int a = data[1], b = data[2];
    if (client->sent >= STEPS_MAX - 1)
        return 0;
    if (data[0] % 4 == 3) {
        disturb(client, a, b);
        return 1;
    }
    uint8_t *end = data[0] % 4 == 0   ? put_any(client, room, a, b, data + 4, load)
                   : data[0] % 4 == 1 ? put_produce(client, room, a, b, data + 4, load)
                                      : put_fetch(client, room, a, b, data + 4, load);
    om_put_be32(room, (uint32_t)(end - room - 4));
    /* Exactly this size, so that the sanitizer sees a read one byte past it. */
    size_t len = (size_t)(end - room);
    uint8_t *copy = malloc(len);
    PROMISE(copy != NULL);
    memcpy(copy, room, len);
    int goes_on = feed(client, copy, len, pace, reads);
    free(copy);
    return goes_on;
}

static void run_steps(client *client, const uint8_t *data, size_t size, size_t pace, int reads) {
    while (size >= 4) {
        size_t load = data[3] < size - 4 ? data[3] : size - 4;
        if (!step(client, data, load, pace, reads))
            return;
        data += 4 + load;
        size -= 4 + load;
    }
}

/* ---- the others ---- */

static void wait_for_answer(client *client) {
    for (int tries = 0; client->seen < client->sent; tries++) {
        answer_kafka();
        PROMISE(drain_responses(client));
        PROMISE(tries < 20000);
        tick(server.engine);
        if (tries > 10)
            usleep(500);
    }
}

static void serve_other(void) {
    static uint8_t request[1024];
    if (other.sent >= STEPS_MAX - 4)
        other.sent = other.seen = 0;
    om_log_stat before, after;
    om_log_stat_get(server.logs[queue_index('a')][0], &before);
    uint8_t *end = put_produce(&other, request, 2, 0, NULL, 0); /* acks 1, topic a, partition 0 */
    om_put_be32(request, (uint32_t)(end - request - 4));
    PROMISE(om_conn_feed(server.engine, other.conn, request, (size_t)(end - request)) == end - request);
    wait_for_answer(&other);
    om_log_stat_get(server.logs[queue_index('a')][0], &after);
    PROMISE(after.next_offset == before.next_offset + 1);
}

/* A transaction that an input left open would hold back every reader behind it. */
static void end_transactions(om_log *log) {
    om_producer_stat producers[64];
    om_appended marker;
    int64_t count = om_log_producers(log, producers, 64);
    for (int64_t i = 0; i < count && i < 64; i++)
        if (producers[i].first_open >= 0)
            om_log_marker(log, producers[i].producer_id, producers[i].epoch, producers[i].coordinator_epoch, 0,
                          &marker);
}

static void clear_topics(void) {
    static unsigned inputs;
    uint64_t seq;
    inputs++;
    for (int i = 0; TOPICS[i]; i++) {
        int index = queue_index(TOPICS[i]);
        if (inputs % 8 == 0)
            om_queue_purge(server.engine, (uint64_t)index + 1, &seq);
        for (int lane = 0; inputs % 500 == 0 && lane < QUEUES[index].lanes; lane++) {
            om_log_stat stat;
            end_transactions(server.logs[index][lane]);
            om_log_stat_get(server.logs[index][lane], &stat);
            om_log_trim(server.logs[index][lane], stat.high_watermark, OM_RULE_SETTLED, &seq);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3 || size > INPUT_MAX)
        return 0;
    if (!server.engine)
        start();
    int mode = data[0], reads = !(mode & 2);
    size_t pace = data[1] ? data[1] : INPUT_MAX;
    client *client = &stranger;
    *client = (struct client){.held = client->held};
    begin(client);
    client->in_order = mode & 1;
    if (mode & 1) {
        run_steps(client, data + 2, size - 2, pace, reads);
    } else {
        uint8_t *copy = malloc(size - 2);
        PROMISE(copy != NULL);
        memcpy(copy, data + 2, size - 2);
        feed(client, copy, size - 2, pace, reads);
        free(copy);
    }
    if (!(mode & 4))
        drain_responses(client);
    om_conn_close(server.engine, client->conn, NULL, 0);
    while (drain_responses(client))
        answer_kafka();
    tick(server.engine);
    answer_kafka();
    serve_other();
    clear_topics();
    return 0;
}
