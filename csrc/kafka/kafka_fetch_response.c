/* kafka_fetch_response.c -- Fetch: the response, planned first, then sent.
 *
 * A plan says what each partition contributes: nothing, an error, batches of the hot tail, or a range of a segment's
 * file. Batches are whole, even when the offset is in the middle of one. The first partition with data contributes at
 * least one batch, however large, so a client always makes progress. With less than min_bytes, the fetch waits
 * (kafka_delayed_fetch.c) and is planned again.
 *
 * The heads of all partitions are written one behind the other, so that their length is known; then they go out with
 * the data between them: by reference from the hot tail, by sendfile from a segment.
 */
#include "format/kafka_wire.h"
#include "kafka/kafka.h"
#include "store/log_offsets.h"
#include "store/log_read.h"
#include "store/producer.h"

#include <stdlib.h>
#include <string.h>

#define FLEXIBLE_FROM 12
#define SMALL 4096 /* a batch below this is copied: cheaper than to be referred to */
#define ANSWER_HEAD 32
#define TOPIC_HEAD 32 /* besides its name */
#define PART_HEAD 64  /* besides aborted transactions */
#define ABORTED_SIZE 17
#define PLANS_KEPT 8192
#define STRETCH_MAX (8u << 20) /* of a segment, in one answer */
#define EMPTY_MAX 1024         /* segments without records that one answer passes over */

typedef struct om_kafka_plan {
    om_kafka_part *part;
    om_log *log; /* NULL: there is none */
    int error;
    int64_t watermark, stable, start;
    uint32_t hot_first, hot_count; /* of the hot tail, */
    om_stretch stretch;            /* or of a segment (held) */
    uint64_t bytes;
    int64_t next_offset; /* behind what it gives */
    size_t head_end;     /* of its head among the heads */
} om_kafka_plan;

typedef struct reading {
    om_engine *engine;
    om_conn *conn;
    om_kafka_fetch *fetch;
    om_kafka_plan *plans;
    uint32_t count;
    uint64_t bytes;
    int failed, cold;
} reading;

/* ---- rights ---- */

/* The names of topics that must be asked about, each behind its length. */
static int ask_rights(reading *r) {
    om_kafka_fetch *fetch = r->fetch;
    uint8_t *names = om_kafka_reply_room(r->engine, (size_t)fetch->topic_count * (2 + 255) + fetch->names_len + 1),
            *at = names;
    for (uint32_t i = 0; names && i < fetch->topic_count; i++) {
        const om_kafka_fetch_topic *wanted = &fetch->topics[i];
        om_span name = {fetch->names + wanted->name_at, (int32_t)wanted->name_len};
        if (wanted->topic) {
            if (om_kafka_rights_get(r->engine, &om_kafka_of(r->conn)->rights, wanted->topic) >= 0)
                continue;
            name = (om_span){wanted->topic->name, (int32_t)wanted->topic->name_len};
        } else if (fetch->by_id) {
            continue; /* an unknown id */
        }
        at = om_wire_put_string(at, 0, name);
    }
    if (!names || at == names)
        return 0;
    om_event event = {
        .kind = OM_EV_KAFKA_TOPICS,
        .protocol = r->conn->protocol,
        .conn = r->conn->id,
        .code = OM_KAFKA_FETCH,
        .method = (uint32_t)fetch->version,
        .key = {names, (int32_t)(at - names)},
    };
    om_kafka_hold(r->conn, OM_KAFKA_ASKED_FETCH);
    om_event_push(r->engine, &event);
    return 1;
}

/* ---- one partition ---- */

static int find_log(reading *r, om_kafka_plan *plan) {
    const om_kafka_fetch_topic *wanted = &r->fetch->topics[plan->part->topic];
    om_queue *queue;
    if (!wanted->topic)
        return r->fetch->by_id ? OM_KAFKA_E_UNKNOWN_TOPIC_ID : OM_KAFKA_E_UNKNOWN_TOPIC_OR_PARTITION;
    int rights = om_kafka_rights_get(r->engine, &om_kafka_of(r->conn)->rights, wanted->topic);
    if (rights < 0 || !(rights & OM_KAFKA_READ))
        return OM_KAFKA_E_TOPIC_AUTHORIZATION_FAILED;
    plan->log = om_kafka_topic_log(r->engine, wanted->topic, plan->part->partition, &queue);
    if (!plan->log)
        return OM_KAFKA_E_UNKNOWN_TOPIC_OR_PARTITION;
    plan->watermark = om_log_high_watermark(plan->log);
    plan->stable = om_log_last_stable(plan->log);
    plan->start = plan->log->start_offset;
    int32_t epoch = plan->part->leader_epoch;
    if (epoch >= 0 && epoch != plan->log->leader_epoch)
        return epoch < plan->log->leader_epoch ? OM_KAFKA_E_FENCED_LEADER_EPOCH : OM_KAFKA_E_UNKNOWN_LEADER_EPOCH;
    int64_t offset = plan->part->offset;
    return offset < plan->start || offset > plan->log->next_offset ? OM_KAFKA_E_OFFSET_OUT_OF_RANGE : 0;
}

static void plan_hot(om_kafka_plan *plan, int64_t offset, int64_t end, uint64_t limit, int at_least_one) {
    const om_hot_ring *ring = &plan->log->hot;
    uint32_t first = om_hot_find(ring, offset);
    for (uint32_t i = first; i < ring->count; i++) {
        const om_hot *hot = om_hot_at(ring, i);
        if (hot->base_offset >= end)
            break;
        if (plan->bytes + hot->bytes->len > limit && !(at_least_one && i == first))
            break;
        plan->bytes += hot->bytes->len;
        plan->next_offset = hot->last_offset + 1;
        plan->hot_count++;
    }
    plan->hot_first = first;
}

/* One batch without records, as compaction leaves it at a segment's end, gives a client nothing to go
 * on with (librdkafka calls it MSG_SIZE_TOO_LARGE): what comes behind it is looked for. OM_END: the
 * segments have no more. */
static int locate(om_log *log, int64_t *offset, int64_t end, uint64_t limit, om_stretch *out) {
    for (int left = EMPTY_MAX; *offset < end; left--) {
        if (!log->segment_count || (log->hot.count && *offset >= om_hot_at(&log->hot, 0)->base_offset))
            break;
        int result = om_log_locate(log, *offset, end, limit, out);
        if (result != OM_OK || out->len != OM_BATCH_OVERHEAD || !left)
            return result;
        *offset = out->next_offset;
        om_segment_unref(out->segment);
        *out = (om_stretch){0};
    }
    return OM_END;
}

static void plan_data(reading *r, om_kafka_plan *plan, uint64_t limit, int at_least_one) {
    om_log *log = plan->log;
    int64_t offset = plan->part->offset, end = r->fetch->committed ? plan->stable : plan->watermark;
    if (offset >= end || (!limit && !at_least_one))
        return;
    int result = locate(log, &offset, end, limit < STRETCH_MAX ? limit : STRETCH_MAX, &plan->stretch);
    if (result == OM_OK && (plan->stretch.len <= limit || at_least_one)) {
        plan->bytes = plan->stretch.len;
        plan->next_offset = plan->stretch.next_offset;
        return;
    }
    if (result == OM_OK)
        om_segment_unref(plan->stretch.segment);
    plan->stretch = (om_stretch){0};
    r->cold |= result == OM_E_NOT_RESIDENT;
    /* The client gets an error and seeks behind it: a record skipped in silence is lost in silence. */
    if (result == OM_E_UNREADABLE)
        plan->error = OM_KAFKA_E_CORRUPT_MESSAGE;
    else if (result < 0 && result != OM_E_NOT_RESIDENT)
        plan->error = OM_KAFKA_E_STORAGE_ERROR;
    if (result == OM_END)
        plan_hot(plan, offset, end, limit, at_least_one);
}

/* ---- all of them ---- */

static int make_plans(reading *r) {
    struct om_kafka *kafka = r->engine->kafka;
    om_kafka_fetch *fetch = r->fetch;
    if (fetch->part_count > kafka->plan_cap || kafka->plan_cap > PLANS_KEPT) {
        uint32_t cap = 64;
        while (cap < fetch->part_count)
            cap *= 2;
        free(kafka->plans);
        kafka->plans = malloc(cap * sizeof *kafka->plans);
        kafka->plan_cap = kafka->plans ? cap : 0;
        if (!kafka->plans)
            return OM_E_NO_MEMORY;
    }
    r->plans = kafka->plans;
    uint64_t left = (uint64_t)fetch->max_bytes;
    for (uint32_t i = 0; i < fetch->part_count; i++) {
        uint32_t at = fetch->start + i;
        om_kafka_part *part = &fetch->parts[at < fetch->part_count ? at : at - fetch->part_count];
        if (part->forgotten)
            continue;
        om_kafka_plan *plan = &r->plans[r->count++];
        *plan = (om_kafka_plan){.part = part, .watermark = -1, .stable = -1, .start = -1};
        plan->error = find_log(r, plan);
        uint64_t limit = part->max_bytes > 0 ? (uint64_t)part->max_bytes : 0;
        if (!plan->error)
            plan_data(r, plan, limit < left ? limit : left, !r->bytes);
        r->bytes += plan->bytes;
        left -= plan->bytes < left ? plan->bytes : left;
        r->failed |= plan->error;
    }
    return OM_OK;
}

static void drop_plans(reading *r) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->plans[i].stretch.segment)
            om_segment_unref(r->plans[i].stretch.segment);
}

/* ---- waiting ---- */

static void wait_for_more(reading *r) {
    om_kafka_hold(r->conn, OM_KAFKA_FETCHING);
    om_kafka_set_timer(r->conn, &r->fetch->timer, OM_KAFKA_TIMER_FETCH, r->fetch->deadline);
    for (uint32_t i = 0; i < r->count; i++)
        if (r->plans[i].log)
            om_kafka_wait_for_log(r->conn, r->plans[i].part, r->plans[i].log);
    if (r->cold)
        om_kafka_wait_for_pages(r->conn);
}

/* ---- heads ---- */

/* Has anything changed that a session's client doesn't know? */
static int is_news(const om_kafka_plan *plan) {
    const om_kafka_part *part = plan->part;
    return plan->bytes || plan->error || part->told_watermark != plan->watermark || part->told_start != plan->start;
}

static void note_told(om_kafka_plan *plan) {
    plan->part->told_watermark = plan->error ? -1 : plan->watermark; /* an error is sent until it is over */
    plan->part->told_start = plan->start;
}

typedef struct heads {
    om_engine *engine;
    uint8_t *data;
    size_t len, cap;
    int bad;
} heads;

static uint8_t *more_room(heads *heads, size_t len) {
    if (heads->cap - heads->len < len) {
        size_t cap = (heads->cap + len) * 2;
        struct om_kafka *kafka = heads->engine->kafka;
        uint8_t *moved = realloc(kafka->reply, cap);
        if (!moved) {
            heads->bad = 1;
            return NULL;
        }
        kafka->reply = heads->data = moved;
        kafka->reply_cap = heads->cap = cap;
    }
    return heads->data + heads->len;
}

static uint8_t *put_aborted(uint8_t *at, const om_kafka_plan *plan, int flexible, int count) {
    om_aborted aborted[64], *list = count > 64 ? malloc((size_t)count * sizeof *list) : aborted;
    if (!list)
        return NULL;
    om_log_aborted(plan->log, plan->part->offset, plan->next_offset, list, count);
    at = om_wire_put_count(at, flexible, count);
    for (int i = 0; i < count; i++) {
        at = om_wire_put_i64(at, list[i].producer_id);
        at = om_wire_put_i64(at, list[i].first_offset);
        at = om_wire_put_tags(at, flexible);
    }
    if (list != aborted)
        free(list);
    return at;
}

static void put_part(heads *heads, const om_kafka_fetch *fetch, const om_kafka_plan *plan) {
    int flexible = fetch->version >= FLEXIBLE_FROM, committed = fetch->committed && plan->bytes;
    int aborted = committed ? om_log_aborted(plan->log, plan->part->offset, plan->next_offset, NULL, 0) : 0;
    uint8_t *at = more_room(heads, PART_HEAD + (size_t)aborted * ABORTED_SIZE);
    if (!at)
        return;
    at = om_wire_put_i32(at, plan->part->partition);
    at = om_wire_put_i16(at, (int16_t)plan->error);
    at = om_wire_put_i64(at, plan->watermark);
    at = om_wire_put_i64(at, plan->stable);
    if (fetch->version >= 5)
        at = om_wire_put_i64(at, plan->start);
    at =
        aborted ? put_aborted(at, plan, flexible, aborted) : om_wire_put_count(at, flexible, fetch->committed ? 0 : -1);
    if (!at) {
        heads->bad = 1;
        return;
    }
    if (fetch->version >= 11)
        at = om_wire_put_i32(at, -1); /* read from us */
    at = om_wire_put_count(at, flexible, (int64_t)plan->bytes);
    heads->len = (size_t)(at - heads->data);
}

static void put_topic(heads *heads, const om_kafka_fetch *fetch, uint32_t place, int64_t parts) {
    const om_kafka_fetch_topic *wanted = &fetch->topics[place];
    int flexible = fetch->version >= FLEXIBLE_FROM;
    uint8_t *at = more_room(heads, TOPIC_HEAD + wanted->name_len);
    if (!at)
        return;
    if (fetch->by_id) {
        memcpy(at, wanted->id, sizeof wanted->id);
        at += sizeof wanted->id;
    } else {
        at = om_wire_put_string(at, flexible, (om_span){fetch->names + wanted->name_at, (int32_t)wanted->name_len});
    }
    at = om_wire_put_count(at, flexible, parts);
    heads->len = (size_t)(at - heads->data);
}

/* The end of a structure. */
static void put_end(heads *heads, int flexible) {
    uint8_t *at = more_room(heads, 1);
    if (at)
        heads->len = (size_t)(om_wire_put_tags(at, flexible) - heads->data);
}

/* How many that follow belong to the same topic. */
static uint32_t run_of(const reading *r, uint32_t from) {
    uint32_t end = from + 1;
    while (end < r->count && r->plans[end].part->topic == r->plans[from].part->topic)
        end++;
    return end - from;
}

static void put_start(heads *heads, reading *r) {
    const om_kafka_fetch *fetch = r->fetch;
    int flexible = fetch->version >= FLEXIBLE_FROM;
    int64_t topics = 0;
    for (uint32_t i = 0; i < r->count; i += run_of(r, i))
        topics++;
    uint8_t *at = more_room(heads, ANSWER_HEAD);
    if (!at)
        return;
    at = om_wire_put_i32(at + 4, fetch->correlation);
    at = om_wire_put_tags(at, flexible);
    at = om_wire_put_i32(at, (int32_t)om_kafka_take_throttle(r->conn));
    if (fetch->version >= 7) {
        at = om_wire_put_i16(at, fetch->error);
        at = om_wire_put_i32(at, fetch->error ? 0 : fetch->session);
    }
    at = om_wire_put_count(at, flexible, topics);
    heads->len = (size_t)(at - heads->data);
}

/* Data follows each partition's head; what is written behind it begins the next one's. */
static int put_heads(heads *heads, reading *r) {
    int flexible = r->fetch->version >= FLEXIBLE_FROM;
    put_start(heads, r);
    for (uint32_t i = 0; i < r->count && !heads->bad;) {
        uint32_t run = run_of(r, i);
        put_topic(heads, r->fetch, r->plans[i].part->topic, run);
        for (uint32_t end = i + run; i < end && !heads->bad; i++) {
            put_part(heads, r->fetch, &r->plans[i]);
            r->plans[i].head_end = heads->len;
            put_end(heads, flexible);
        }
        put_end(heads, flexible);
    }
    put_end(heads, flexible);
    return heads->bad ? OM_E_NO_MEMORY : OM_OK;
}

/* ---- sending ---- */

static int put_copy(om_output *out, const uint8_t *data, size_t len) {
    uint8_t *at = len ? om_output_put(out, len) : NULL;
    if (at)
        memcpy(at, data, len);
    return at || !len ? OM_OK : OM_E_NO_MEMORY;
}

static int put_hot(om_output *out, const om_hot *hot) {
    const uint8_t *data = hot->bytes->data;
    size_t len = hot->bytes->len;
    if (hot->shared) { /* another log's head: its own goes before the rest */
        uint8_t *at = om_output_put(out, OM_BATCH_HEAD);
        if (!at)
            return OM_E_NO_MEMORY;
        om_hot_put_head(hot, at);
        data += OM_BATCH_HEAD;
        len -= OM_BATCH_HEAD;
    }
    return len < SMALL ? put_copy(out, data, len) : om_output_bytes(out, hot->bytes, data, len);
}

static int put_data(om_output *out, const om_kafka_plan *plan) {
    int result = OM_OK;
    for (uint32_t i = 0; i < plan->hot_count && result == OM_OK; i++)
        result = put_hot(out, om_hot_at(&plan->log->hot, plan->hot_first + i));
    if (!plan->stretch.segment)
        return result;
    om_backing *backing = om_backing_open(plan->stretch.segment);
    if (!backing)
        return OM_E_IO;
    result = om_output_file(out, backing, plan->stretch.position, plan->stretch.len);
    om_backing_unref(backing);
    return result;
}

static int send_all(reading *r, const heads *heads) {
    om_output *out = &r->conn->out;
    size_t at = 0;
    int result = OM_OK;
    for (uint32_t i = 0; i < r->count && result == OM_OK; i++) {
        result = put_copy(out, heads->data + at, r->plans[i].head_end - at);
        at = r->plans[i].head_end;
        if (result == OM_OK)
            result = put_data(out, &r->plans[i]);
    }
    return result == OM_OK ? put_copy(out, heads->data + at, heads->len - at) : result;
}

/* A session's next answer begins behind the last partition that gave something. */
static void rotate_start(reading *r) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->plans[i].bytes)
            r->fetch->start = (uint32_t)(r->plans[i].part - r->fetch->parts) + 1;
    if (r->fetch->start >= r->fetch->part_count)
        r->fetch->start = 0;
}

static void leave_out_old(reading *r) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (is_news(&r->plans[i]))
            r->plans[kept++] = r->plans[i]; /* what is left out holds no segment: it has no bytes */
    r->count = kept;
}

static void answer(reading *r) {
    om_kafka_fetch *fetch = r->fetch;
    if (fetch->session) {
        rotate_start(r);
        if (fetch->incremental)
            leave_out_old(r);
        for (uint32_t i = 0; i < r->count; i++)
            note_told(&r->plans[i]);
    }
    heads heads = {.engine = r->engine};
    om_kafka_reply_room(r->engine, 1);
    heads.data = r->engine->kafka->reply;
    heads.cap = r->engine->kafka->reply_cap;
    int result = put_heads(&heads, r);
    if (result == OM_OK) {
        om_put_be32(heads.data, (uint32_t)(heads.len - 4 + r->bytes));
        result = send_all(r, &heads);
    }
    om_conn_dirty(r->conn);
    om_kafka_of(r->conn)->fetched_bytes += r->bytes;
    if (result != OM_OK)
        om_conn_break(r->conn, result == OM_E_IO ? "segment unreadable" : "out of memory");
}

/* Its input goes on; in the next tick, as this one may be at its end. */
static void go_on(om_conn *conn) {
    if (om_kafka_of(conn)->wait == OM_KAFKA_GOES_ON || om_kafka_of(conn)->wait == OM_KAFKA_MUTED || conn->broken)
        return;
    om_kafka_of(conn)->wait = OM_KAFKA_GOES_ON;
    conn->paused = 0;
    if (conn->in_len || conn->wants_room) {
        om_conn_stall(conn);
        conn->engine->retry = 1;
    } else if (!conn->reading) {
        om_conn_watch(conn);
    }
}

void om_kafka_fetch_serve(om_conn *conn, int late) {
    om_kafka_fetch *fetch = om_kafka_of(conn)->fetch;
    reading r = {.engine = conn->engine, .conn = conn, .fetch = fetch};
    if (!fetch->error) {
        om_kafka_fetch_resolve(fetch);
        if (!om_kafka_of(conn)->answered && ask_rights(&r))
            return;
        om_kafka_of(conn)->answered = 0;
        if (make_plans(&r) != OM_OK) {
            om_conn_break(conn, "out of memory");
            return;
        }
        int enough = r.bytes >= (uint64_t)(fetch->min_bytes > 0 ? fetch->min_bytes : 0) && !(r.cold && !r.bytes);
        if (!late && !enough && !r.failed && r.count && fetch->deadline > r.engine->now_ms) {
            wait_for_more(&r);
            drop_plans(&r);
            return;
        }
    }
    answer(&r);
    drop_plans(&r);
    go_on(conn);
}
