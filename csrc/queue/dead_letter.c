/* dead_letter.c -- messages that leave a queue without a consumer: expired, rejected, over the limit.
 *
 * Such a message is on its queue's list until its route is known and the WAL has room. Its new copy (x-death
 * rewritten) and its settling here are then one atomic record, shared with all dead letters of the same tick: after a
 * crash the message is in exactly one place.
 */
#include "queue/dead_letter.h"
#include "base/attributes.h"
#include "base/bytes.h"
#include "queue/queues.h"
#include "store/atomic.h"
#include "store/log_cursor.h"
#include "store/log_damage.h"

#include <stdlib.h>
#include <string.h>

#define PUMP_MAX 1024         /* messages in one go, so that other queues get their turn */
#define RECORD_MAX (4u << 20) /* bytes in one record, but for the last message */
#define HOLD_MS 1000          /* at-least-once: between two tries to find a place */
#define TRIES 32              /* ... of as many at most, however many wait */

/* What to take back if the record is refused. */
typedef struct om_staged_dead_letter {
    om_queue *queue; /* held */
    om_dead_letter dead;
} om_staged_dead_letter;

/* ---- expiry ---- */

OM_PER_MESSAGE
int om_dead_letter_is_expired(const om_queue *queue, const om_content *content, int64_t now_ms, int64_t *deadline) {
    int64_t ttl = queue->options.message_ttl_ms, own;
    *deadline = INT64_MAX;
    if (content->properties.len >= 2 && (om_get_be16(content->properties.data) & OM_HAS_EXPIRATION)) {
        om_properties properties;
        if (om_properties_parse(content->properties.data, (size_t)content->properties.len, &properties) == OM_OK &&
            om_expiration_ms(properties.expiration, &own) == OM_OK && (ttl < 0 || own < ttl))
            ttl = own;
    }
    if (ttl < 0)
        return 0;
    /* A Kafka producer gives its records any time it likes, none included (-1). */
    if (__builtin_add_overflow(content->timestamp < 0 ? 0 : content->timestamp, ttl, deadline))
        *deadline = INT64_MAX;
    return *deadline <= now_ms;
}

/* ---- the list ---- */

static int add(om_queue *queue, om_dead_letter added) {
    if (queue->dead_letter_at && queue->dead_letter_at == queue->dead_letter_count)
        queue->dead_letter_at = queue->dead_letter_count = 0;
    if (queue->dead_letter_count == queue->dead_letter_cap && queue->dead_letter_at > queue->dead_letter_cap / 2) {
        queue->dead_letter_count -= queue->dead_letter_at;
        memmove(queue->dead_letters, queue->dead_letters + queue->dead_letter_at,
                queue->dead_letter_count * sizeof *queue->dead_letters);
        queue->dead_letter_at = 0;
    }
    if (queue->dead_letter_count == queue->dead_letter_cap) {
        uint32_t cap = queue->dead_letter_cap ? queue->dead_letter_cap * 2 : 8;
        om_dead_letter *dead = realloc(queue->dead_letters, cap * sizeof *dead);
        if (!dead) {
            return OM_E_NO_MEMORY;
        }
        queue->dead_letters = dead;
        queue->dead_letter_cap = cap;
    }
    queue->dead_letters[queue->dead_letter_count++] = added;
    queue->dead_letter_bytes += added.weight;
    om_queue_activate(queue);
    return OM_OK;
}

void om_dead_letter_add(om_queue *queue, int lane, int64_t offset, uint32_t weight, int reason) {
    /* Without memory it stays in flight until the next start returns it. */
    add(queue, (om_dead_letter){.offset = offset, .weight = weight, .lane = (uint8_t)lane, .reason = (uint8_t)reason});
}

void om_dead_letter_add_refused(om_queue *queue, int index, int64_t offset, uint32_t weight) {
    om_lane *lane = &queue->lanes[index];
    om_dead_letter dead = {
        .offset = offset, .weight = weight, .lane = (uint8_t)index, .reason = OM_DEATH_MAXLEN, .refused = 1};
    if (add(queue, dead) != OM_OK)
        return; /* a queue may be too long by one */
    if (!lane->refused++ || offset < lane->refused_from)
        lane->refused_from = offset;
}

static void done_with_first(om_queue *queue) {
    queue->dead_letter_bytes -= queue->dead_letters[queue->dead_letter_at].weight;
    if (++queue->dead_letter_at == queue->dead_letter_count)
        queue->dead_letter_at = queue->dead_letter_count = 0;
}

/* Settled: what came behind it in its lane may be given out. */
static void is_gone(om_queue *queue, const om_dead_letter *dead) {
    queue->lanes[dead->lane].refused -= dead->refused;
}

/* ---- where it goes ---- */

typedef struct letter {
    om_content content;
    om_span exchange, key;
    om_properties properties; /* as they will be, in engine->rewrite */
} letter;

static int rewrite(om_queue *queue, const om_dead_letter *dead, letter *letter) {
    om_engine *engine = queue->engine;
    om_properties before;
    int result = om_properties_parse(letter->content.properties.data, (size_t)letter->content.properties.len, &before);
    if (result != OM_OK)
        return OM_E_UNREADABLE;
    om_x_death death = {
        .reason = dead->reason,
        .queue = {queue->name, queue->name_len},
        .exchange = letter->content.exchange,
        .routing_key = letter->content.routing_key,
        .now_s = engine->wall_ms / 1000,
        .drop_cc = queue->options.has_dlrk,
        .first = !letter->content.died,
    };
    int delayed = dead->reason == OM_DEAD_LETTER_DELAYED;
    size_t bound = delayed ? (size_t)before.len + 64 : om_x_death_bound(&before, &death);
    if (bound > engine->rewrite_cap) {
        uint8_t *wider = realloc(engine->rewrite, bound);
        if (!wider)
            return OM_E_NO_MEMORY;
        engine->rewrite = wider;
        engine->rewrite_cap = bound;
    }
    int64_t len = delayed ? om_headers_delayed(engine->rewrite, engine->rewrite_cap, &before)
                          : om_x_death_rewrite(engine->rewrite, engine->rewrite_cap, &before, &death);
    if (len < 0)
        return OM_E_UNREADABLE;
    return om_properties_parse(engine->rewrite, (size_t)len, &letter->properties) == OM_OK ? OM_OK : OM_E_UNREADABLE;
}

static int read_letter(om_queue *queue, const om_dead_letter *dead, letter *letter) {
    om_lane *lane = &queue->lanes[dead->lane];
    int64_t skip_to;
    if (!lane->reader && !(lane->reader = om_queue_reader_new()))
        return OM_E_NO_MEMORY;
    int result = om_queue_reader_get(queue->engine, lane->reader, lane->log, dead->offset, &letter->content, &skip_to);
    if (result != OM_OK)
        return result;
    int delayed = dead->reason == OM_DEAD_LETTER_DELAYED;
    letter->exchange = delayed ? letter->content.exchange : queue->options.dlx;
    letter->key = !delayed && queue->options.has_dlrk ? queue->options.dlrk : letter->content.routing_key;
    return rewrite(queue, dead, letter);
}

/* Python's answer, if it is for this letter and not for one that went another way meanwhile. */
static om_route *take_answer(om_queue *queue, const om_dead_letter *dead, const letter *letter) {
    om_route *route = queue->dead_route;
    queue->dead_route = NULL;
    if (!route)
        return NULL;
    if (queue->asked_offset == dead->offset && queue->asked_lane == dead->lane &&
        queue->asked_exchange_len == letter->exchange.len && queue->asked_key_len == letter->key.len &&
        memcmp(queue->asked, letter->exchange.data, (size_t)letter->exchange.len) == 0 &&
        memcmp(queue->asked + letter->exchange.len, letter->key.data, (size_t)letter->key.len) == 0)
        return route;
    om_route_unref(route);
    return NULL;
}

/* The default exchange: the key is the queue's name, as for any publish. */
static om_route *name_route(om_queue *queue, const letter *letter) {
    om_queue *target = om_queue_named(queue->engine, queue->vhost, letter->key.data, (size_t)letter->key.len);
    uint64_t id = target ? target->id : 0;
    om_route *route =
        om_route_make(queue->engine, queue->vhost, 0, letter->exchange, letter->key, &id, target != NULL, 0);
    if (!route)
        om_queue_wait(queue);
    return route;
}

/* Held by the caller; NULL: Python has been asked. */
static om_route *find_route(om_queue *queue, const om_dead_letter *dead, const letter *letter) {
    om_engine *engine = queue->engine;
    om_route *route = take_answer(queue, dead, letter);
    if (route)
        return route;
    om_span cc, bcc;
    /* CC names more keys: only Python can route them. So does BCC, which only delayed ones still have. */
    int has_cc = om_properties_copies(&letter->properties, &cc, &bcc) != OM_OK || cc.len >= 0 || bcc.len >= 0;
    if (!has_cc && letter->exchange.len == 0)
        return name_route(queue, letter);
    if (!has_cc)
        route = om_route_find(engine, queue->vhost, 0, letter->exchange, letter->key);
    if (route) {
        route->refs++;
        return route;
    }
    if (queue->asked_route)
        return NULL;
    if (!queue->asked && !(queue->asked = malloc(510))) {
        om_queue_wait(queue);
        return NULL;
    }
    queue->asked_route = 1;
    queue->asked_offset = dead->offset;
    queue->asked_lane = dead->lane;
    queue->asked_exchange_len = (uint8_t)letter->exchange.len;
    queue->asked_key_len = (uint8_t)letter->key.len;
    memcpy(queue->asked, letter->exchange.data, (size_t)letter->exchange.len);
    memcpy(queue->asked + letter->exchange.len, letter->key.data, (size_t)letter->key.len);
    om_event event = {
        .kind = OM_EV_DEAD_ROUTE,
        .queue = queue->id,
        .exchange = letter->exchange,
        .key = letter->key,
        .header = {letter->properties.data, (int32_t)letter->properties.len},
    };
    om_event_push(engine, &event);
    return NULL;
}

int om_dead_letter_answer(om_queue *queue, const uint64_t *queues, int32_t count, uint32_t flags) {
    om_span exchange = {queue->asked, queue->asked_exchange_len};
    om_span key = {queue->asked + exchange.len, queue->asked_key_len};
    om_route *route = om_route_make(queue->engine, queue->vhost, 0, exchange, key, queues, count, flags);
    if (!route)
        return OM_E_NO_MEMORY;
    if (queue->dead_route)
        om_route_unref(queue->dead_route);
    queue->dead_route = route;
    return OM_OK;
}

/* ---- on its way ---- */

static int remember(om_dead_letters *letters, om_queue *queue, const om_dead_letter *dead) {
    if (letters->count == letters->cap) {
        uint32_t cap = letters->cap ? letters->cap * 2 : 64;
        om_staged_dead_letter *staged = realloc(letters->staged, cap * sizeof *staged);
        if (!staged)
            return OM_E_NO_MEMORY;
        letters->staged = staged;
        letters->cap = cap;
    }
    letters->staged[letters->count++] = (om_staged_dead_letter){queue, *dead};
    om_queue_ref(queue);
    return OM_OK;
}

static int send_to(om_dead_letters *letters, om_queue *target, const letter *letter, om_span tail) {
    target->published++;
    om_queue_activate(target);
    return om_reject_publish_stage(letters->record, &letters->rejects, target, letter->properties.priority, letter->key,
                                   letter->content.body, tail);
}

static int goes_to(const om_dead_letter *dead, const letter *letter, const om_queue *target) {
    return !target->removed && (dead->reason == OM_DEATH_REJECTED || dead->reason == OM_DEAD_LETTER_DELAYED ||
                                !om_x_death_cycle(&letter->properties, (om_span){target->name, target->name_len}));
}

/* At least once: it stays where it is until somebody takes it, and all that should do. OM_E_FULL: one
 * of them has no room for it; OM_E_GONE: it has no target. */
static int may_go(const om_queue *queue, const om_dead_letter *dead, const letter *letter, const om_route *route) {
    int takers = 0;
    if (!(queue->options.flags & OM_QUEUE_AT_LEAST_ONCE))
        return OM_OK;
    for (int32_t i = 0; i < route->count; i++) {
        if (!goes_to(dead, letter, route->queues[i]))
            continue;
        if (om_reject_publish_refuses(route->queues[i], 0, letter->content.body.len))
            return OM_E_FULL;
        takers++;
    }
    return takers ? OM_OK : OM_E_GONE;
}

/* Those behind it may have a place to go to. Where one is full the order is kept, and all wait. */
static int is_next_tried(om_queue *queue, const om_dead_letter *dead) {
    uint32_t waiting = queue->dead_letter_count - queue->dead_letter_at;
    if (++queue->put_off < TRIES && queue->put_off < waiting && add(queue, *dead) == OM_OK) {
        done_with_first(queue);
        return 1;
    }
    return 0;
}

/* Its record headers, in memory of their own. Without BCC, which a delayed message kept for its second routing. */
static int make_tail(const om_dead_letter *dead, const letter *letter, om_span *tail) {
    om_properties properties = letter->properties;
    size_t shorter_cap = om_headers_bound(&properties, NULL, 0);
    size_t bound = om_content_headers_bound(letter->exchange, &properties);
    uint8_t *made = malloc(bound + shorter_cap);
    if (!made)
        return OM_E_NO_MEMORY;
    int result = om_properties_hide_bcc(&properties, made + bound, shorter_cap);
    int64_t len = result == OM_OK ? om_content_template(made, bound, letter->exchange, &properties) : result;
    if (len < 0) {
        free(made);
        return (int)len;
    }
    if (dead->reason != OM_DEAD_LETTER_DELAYED)
        om_content_mark_died(made);
    *tail = (om_span){made, (int32_t)len};
    return OM_OK;
}

static int leave(om_queue *queue, const om_dead_letter *dead, letter *letter, const om_route *route) {
    om_engine *engine = queue->engine;
    om_dead_letters *letters = &engine->queues->dead_letters;
    om_span tail;
    if (!letters->record && !(letters->record = om_atomic_new(engine->store)))
        return OM_E_NO_MEMORY;
    int result = make_tail(dead, letter, &tail);
    if (result != OM_OK)
        return result;
    result = remember(letters, queue, dead);
    om_queue_reader *reader = queue->lanes[dead->lane].reader;
    om_queue_reader_guard(reader);
    /* The first queue of a delayed exchange's route is its delay log. */
    int32_t first = 0, count = route->count;
    if (route->flags & OM_ROUTE_DELAY) {
        int64_t delay;
        if (dead->reason != OM_DEAD_LETTER_DELAYED && om_delay_ms(&letter->properties, &delay) == OM_OK && delay > 0)
            count = 1;
        else
            first = 1;
    }
    for (int32_t i = first; i < count && result == OM_OK; i++) {
        if (goes_to(dead, letter, route->queues[i]))
            result = send_to(letters, route->queues[i], letter, tail);
    }
    om_queue_reader_unguard(reader); /* a page of zeros then, and the segment is fenced and reported */
    free((uint8_t *)tail.data);
    letters->bytes += (uint64_t)letter->content.body.len + letter->properties.len;
    if (result == OM_OK)
        result =
            om_atomic_settle(letters->record, queue->lanes[dead->lane].log, dead->offset, dead->offset, dead->weight);
    queue->dead_lettered += result == OM_OK;
    return result;
}

/* Nowhere to go, or nothing left to send. */
static void drop(om_queue *queue, const om_dead_letter *dead) {
    om_log_settle_run(queue->lanes[dead->lane].log, dead->offset, dead->offset, dead->weight);
    is_gone(queue, dead);
    queue->dropped++;
}

/* It can't be read any more: it isn't settled, and not delivered. */
static void lose(om_queue *queue, const om_dead_letter *dead) {
    om_log *log = queue->lanes[dead->lane].log;
    if (om_log_lose(log, dead->offset, dead->offset) == 0)
        log->lost++; /* it was given out, to us */
    is_gone(queue, dead);
}

void om_dead_letter_pump(om_queue *queue) {
    om_engine *engine = queue->engine;
    if (queue->held_until > engine->now_ms) {
        om_queue_wait(queue);
        return;
    }
    for (int gone = 0; queue->dead_letter_count && gone < PUMP_MAX; gone++) {
        om_dead_letter dead = queue->dead_letters[queue->dead_letter_at];
        if (om_log_admit_settle(queue->lanes[dead.lane].log) != OM_OK) {
            om_queue_wait(queue);
            return;
        }
        if (dead.reason != OM_DEAD_LETTER_DELAYED && !queue->options.has_dlx) {
            drop(queue, &dead);
            done_with_first(queue);
            continue;
        }
        if (om_store_takes(engine->store) != OM_OK) {
            om_queue_wait(queue);
            return;
        }
        if (engine->queues->dead_letters.bytes > RECORD_MAX)
            break; /* in the next record */
        letter letter;
        int result = read_letter(queue, &dead, &letter);
        if (result == OM_E_UNREADABLE && om_log_bad_for(queue->lanes[dead.lane].log, dead.offset)) {
            lose(queue, &dead);
            done_with_first(queue);
            continue;
        }
        if (om_queue_reader_goes_on(result)) {
            drop(queue, &dead);
            done_with_first(queue);
            continue;
        }
        if (result != OM_OK) {
            om_queue_wait(queue);
            return;
        }
        om_route *route = find_route(queue, &dead, &letter);
        if (!route)
            return;
        int may = may_go(queue, &dead, &letter, route);
        result = may == OM_OK ? leave(queue, &dead, &letter, route) : may;
        om_route_unref(route);
        if (may == OM_E_GONE && is_next_tried(queue, &dead))
            continue;
        queue->put_off = 0;
        if (may != OM_OK)
            queue->held_until = engine->now_ms + HOLD_MS;
        if (result != OM_OK) {
            om_queue_wait(queue);
            return;
        }
        done_with_first(queue);
    }
    if (queue->dead_letter_count)
        om_queue_activate(queue);
}

int64_t om_dead_letter_purge(om_queue *queue) {
    int64_t purged = 0;
    for (; queue->dead_letter_count; purged++) {
        om_dead_letter dead = queue->dead_letters[queue->dead_letter_at];
        om_log_settle_run(queue->lanes[dead.lane].log, dead.offset, dead.offset, dead.weight);
        is_gone(queue, &dead);
        done_with_first(queue);
    }
    return purged;
}

void om_dead_letter_commit(om_engine *engine) {
    om_dead_letters *letters = &engine->queues->dead_letters;
    if (!letters->record)
        return;
    uint64_t seq;
    om_reject_publish_seal(&letters->rejects);
    int result = om_atomic_commit_held(letters->record, &seq);
    letters->record = NULL;
    letters->bytes = 0;
    om_reject_publish_end(&letters->rejects, result == OM_OK);
    for (uint32_t i = 0; i < letters->count; i++) {
        om_staged_dead_letter *staged = &letters->staged[i];
        if (result == OM_OK) {
            is_gone(staged->queue, &staged->dead);
        } else if (!staged->queue->removed) {
            if (add(staged->queue, staged->dead) != OM_OK)
                is_gone(staged->queue, &staged->dead);
            om_queue_wait(staged->queue);
        }
        om_queue_unref(staged->queue);
    }
    letters->count = 0;
}

void om_dead_letters_free(om_engine *engine) {
    free(engine->queues->dead_letters.staged);
    free(engine->queues->dead_letters.rejects.items);
}
