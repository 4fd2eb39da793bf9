/* dead_letter.c -- leaving a queue another way than to a consumer: expired, rejected, over the limit.
 *
 * A message that dies is kept on its queue's list of the dying until its route is known and the
 * WAL has room. Then its new life (x-death rewritten) and its settling here become one atomic
 * record, shared with all that died in the same tick: after a crash it is in exactly one place.
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

#define ATONCE 1024            /* messages in one go, so that others get their turn */
#define LEAVING_MAX (4u << 20) /* bytes in one record, but for the last message */
#define HOLD_MS 1000           /* at-least-once: between two tries to find a place */
#define TRIES 32               /* ... of as many at most, however many wait */

/* What to take back if the record is refused. */
typedef struct om_leaver {
    om_queue *queue; /* held */
    om_dying dying;
} om_leaver;

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

static int add(om_queue *queue, om_dying added) {
    if (queue->dying_at && queue->dying_at == queue->dying_count)
        queue->dying_at = queue->dying_count = 0;
    if (queue->dying_count == queue->dying_cap && queue->dying_at > queue->dying_cap / 2) {
        queue->dying_count -= queue->dying_at;
        memmove(queue->dying, queue->dying + queue->dying_at, queue->dying_count * sizeof *queue->dying);
        queue->dying_at = 0;
    }
    if (queue->dying_count == queue->dying_cap) {
        uint32_t cap = queue->dying_cap ? queue->dying_cap * 2 : 8;
        om_dying *dying = realloc(queue->dying, cap * sizeof *dying);
        if (!dying) {
            return OM_E_NO_MEMORY;
        }
        queue->dying = dying;
        queue->dying_cap = cap;
    }
    queue->dying[queue->dying_count++] = added;
    queue->dying_bytes += added.weight;
    om_queue_activate(queue);
    return OM_OK;
}

void om_dead_letter_add(om_queue *queue, int lane, int64_t offset, uint32_t weight, int reason) {
    /* Without memory it stays in flight, held by nobody, until the next start returns it. */
    add(queue, (om_dying){.offset = offset, .weight = weight, .lane = (uint8_t)lane, .reason = (uint8_t)reason});
}

void om_dead_letter_add_refused(om_queue *queue, int index, int64_t offset, uint32_t weight) {
    om_lane *lane = &queue->lanes[index];
    om_dying dying = {
        .offset = offset, .weight = weight, .lane = (uint8_t)index, .reason = OM_DEATH_MAXLEN, .refused = 1};
    if (add(queue, dying) != OM_OK)
        return; /* a queue may be too long by one */
    if (!lane->refused++ || offset < lane->refused_from)
        lane->refused_from = offset;
}

static void done_with_first(om_queue *queue) {
    queue->dying_bytes -= queue->dying[queue->dying_at].weight;
    if (++queue->dying_at == queue->dying_count)
        queue->dying_at = queue->dying_count = 0;
}

/* Settled: what came behind it in its lane may be given out. */
static void is_gone(om_queue *queue, const om_dying *dying) {
    queue->lanes[dying->lane].refused -= dying->refused;
}

/* ---- where it goes ---- */

typedef struct letter {
    om_content content;
    om_span exchange, key;
    om_properties properties; /* as they will be, in engine->rewrite */
} letter;

static int rewrite(om_queue *queue, const om_dying *dying, letter *letter) {
    om_engine *engine = queue->engine;
    om_properties before;
    int result = om_properties_parse(letter->content.properties.data, (size_t)letter->content.properties.len, &before);
    if (result != OM_OK)
        return OM_E_UNREADABLE;
    om_x_death death = {
        .reason = dying->reason,
        .queue = {queue->name, queue->name_len},
        .exchange = letter->content.exchange,
        .routing_key = letter->content.routing_key,
        .now_s = engine->wall_ms / 1000,
        .drop_cc = queue->options.has_dlrk,
        .first = !letter->content.died,
    };
    int delayed = dying->reason == OM_DYING_DELAYED;
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

static int read_letter(om_queue *queue, const om_dying *dying, letter *letter) {
    om_lane *lane = &queue->lanes[dying->lane];
    int64_t skip_to;
    if (!lane->feed && !(lane->feed = om_queue_reader_new()))
        return OM_E_NO_MEMORY;
    int result = om_queue_reader_get(queue->engine, lane->feed, lane->log, dying->offset, &letter->content, &skip_to);
    if (result != OM_OK)
        return result;
    int delayed = dying->reason == OM_DYING_DELAYED;
    letter->exchange = delayed ? letter->content.exchange : queue->options.dlx;
    letter->key = !delayed && queue->options.has_dlrk ? queue->options.dlrk : letter->content.routing_key;
    return rewrite(queue, dying, letter);
}

/* Python's answer, if it is for this letter and not for one that went another way meanwhile. */
static om_route *take_answer(om_queue *queue, const om_dying *dying, const letter *letter) {
    om_route *route = queue->dead_route;
    queue->dead_route = NULL;
    if (!route)
        return NULL;
    if (queue->asked_offset == dying->offset && queue->asked_lane == dying->lane &&
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
static om_route *find_route(om_queue *queue, const om_dying *dying, const letter *letter) {
    om_engine *engine = queue->engine;
    om_route *route = take_answer(queue, dying, letter);
    if (route)
        return route;
    om_span cc, bcc;
    /* CC names more keys: only Python can tell where they lead. So does BCC, which only delayed ones still have. */
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
    queue->asked_offset = dying->offset;
    queue->asked_lane = dying->lane;
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

static int remember(om_dead_letters *letters, om_queue *queue, const om_dying *dying) {
    if (letters->count == letters->cap) {
        uint32_t cap = letters->cap ? letters->cap * 2 : 64;
        om_leaver *leavers = realloc(letters->leavers, cap * sizeof *leavers);
        if (!leavers)
            return OM_E_NO_MEMORY;
        letters->leavers = leavers;
        letters->cap = cap;
    }
    letters->leavers[letters->count++] = (om_leaver){queue, *dying};
    om_queue_ref(queue);
    return OM_OK;
}

static int send_to(om_dead_letters *letters, om_queue *target, const letter *letter, om_span tail) {
    target->published++;
    om_queue_activate(target);
    return om_reject_publish_stage(letters->record, &letters->refusals, target, letter->properties.priority,
                                   letter->key, letter->content.body, tail);
}

static int goes_to(const om_dying *dying, const letter *letter, const om_queue *target) {
    return !target->removed && (dying->reason == OM_DEATH_REJECTED || dying->reason == OM_DYING_DELAYED ||
                                !om_x_death_cycle(&letter->properties, (om_span){target->name, target->name_len}));
}

/* At least once: it stays where it is until somebody takes it, and all that should do. OM_E_FULL: one
 * of them has no room for it; OM_E_GONE: there is nobody. */
static int may_go(const om_queue *queue, const om_dying *dying, const letter *letter, const om_route *route) {
    int takers = 0;
    if (!(queue->options.flags & OM_QUEUE_AT_LEAST_ONCE))
        return OM_OK;
    for (int32_t i = 0; i < route->count; i++) {
        if (!goes_to(dying, letter, route->queues[i]))
            continue;
        if (om_reject_publish_refuses(route->queues[i], 0, letter->content.body.len))
            return OM_E_FULL;
        takers++;
    }
    return takers ? OM_OK : OM_E_GONE;
}

/* Those behind it may have a place to go to. Where one is full the order is kept, and all wait. */
static int is_next_tried(om_queue *queue, const om_dying *dying) {
    uint32_t waiting = queue->dying_count - queue->dying_at;
    if (++queue->put_off < TRIES && queue->put_off < waiting && add(queue, *dying) == OM_OK) {
        done_with_first(queue);
        return 1;
    }
    return 0;
}

/* Its record headers, in memory of their own. Without BCC, which a delayed message kept for its second routing. */
static int make_tail(const om_dying *dying, const letter *letter, om_span *tail) {
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
    if (dying->reason != OM_DYING_DELAYED)
        om_content_mark_died(made);
    *tail = (om_span){made, (int32_t)len};
    return OM_OK;
}

static int leave(om_queue *queue, const om_dying *dying, letter *letter, const om_route *route) {
    om_engine *engine = queue->engine;
    om_dead_letters *letters = &engine->queues->dead_letters;
    om_span tail;
    if (!letters->record && !(letters->record = om_atomic_new(engine->store)))
        return OM_E_NO_MEMORY;
    int result = make_tail(dying, letter, &tail);
    if (result != OM_OK)
        return result;
    result = remember(letters, queue, dying);
    om_queue_reader *feed = queue->lanes[dying->lane].feed;
    om_queue_reader_guard(feed);
    /* The first queue of a delayed exchange's route is its delay log. */
    int32_t first = 0, count = route->count;
    if (route->flags & OM_ROUTE_DELAY) {
        int64_t delay;
        if (dying->reason != OM_DYING_DELAYED && om_delay_ms(&letter->properties, &delay) == OM_OK && delay > 0)
            count = 1;
        else
            first = 1;
    }
    for (int32_t i = first; i < count && result == OM_OK; i++) {
        if (goes_to(dying, letter, route->queues[i]))
            result = send_to(letters, route->queues[i], letter, tail);
    }
    om_queue_reader_unguard(feed); /* a page of zeros then, and the segment is fenced and reported */
    free((uint8_t *)tail.data);
    letters->bytes += (uint64_t)letter->content.body.len + letter->properties.len;
    if (result == OM_OK)
        result = om_atomic_settle(letters->record, queue->lanes[dying->lane].log, dying->offset, dying->offset,
                                  dying->weight);
    queue->dead_lettered += result == OM_OK;
    return result;
}

/* Nowhere to go, or nothing left to send. */
static void drop(om_queue *queue, const om_dying *dying) {
    om_log_settle_run(queue->lanes[dying->lane].log, dying->offset, dying->offset, dying->weight);
    is_gone(queue, dying);
    queue->dropped++;
}

/* It can't be read any more: it isn't settled, and nobody gets it. */
static void lose(om_queue *queue, const om_dying *dying) {
    om_log *log = queue->lanes[dying->lane].log;
    if (om_log_lose(log, dying->offset, dying->offset) == 0)
        log->lost++; /* it was given out, to us */
    is_gone(queue, dying);
}

void om_dead_letter_pump(om_queue *queue) {
    om_engine *engine = queue->engine;
    if (queue->held_until > engine->now_ms) {
        om_queue_wait(queue);
        return;
    }
    for (int gone = 0; queue->dying_count && gone < ATONCE; gone++) {
        om_dying dying = queue->dying[queue->dying_at];
        if (om_log_admit_settle(queue->lanes[dying.lane].log) != OM_OK) {
            om_queue_wait(queue);
            return;
        }
        if (dying.reason != OM_DYING_DELAYED && !queue->options.has_dlx) {
            drop(queue, &dying);
            done_with_first(queue);
            continue;
        }
        if (om_store_takes(engine->store) != OM_OK) {
            om_queue_wait(queue);
            return;
        }
        if (engine->queues->dead_letters.bytes > LEAVING_MAX)
            break; /* in the next record */
        letter letter;
        int result = read_letter(queue, &dying, &letter);
        if (result == OM_E_UNREADABLE && om_log_bad_for(queue->lanes[dying.lane].log, dying.offset)) {
            lose(queue, &dying);
            done_with_first(queue);
            continue;
        }
        if (result == OM_E_UNREADABLE || result == OM_E_RANGE) {
            drop(queue, &dying);
            done_with_first(queue);
            continue;
        }
        if (result != OM_OK) {
            om_queue_wait(queue);
            return;
        }
        om_route *route = find_route(queue, &dying, &letter);
        if (!route)
            return;
        int may = may_go(queue, &dying, &letter, route);
        result = may == OM_OK ? leave(queue, &dying, &letter, route) : may;
        om_route_unref(route);
        if (may == OM_E_GONE && is_next_tried(queue, &dying))
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
    if (queue->dying_count)
        om_queue_activate(queue);
}

int64_t om_dead_letter_purge(om_queue *queue) {
    int64_t purged = 0;
    for (; queue->dying_count; purged++) {
        om_dying dying = queue->dying[queue->dying_at];
        om_log_settle_run(queue->lanes[dying.lane].log, dying.offset, dying.offset, dying.weight);
        is_gone(queue, &dying);
        done_with_first(queue);
    }
    return purged;
}

void om_dead_letter_commit(om_engine *engine) {
    om_dead_letters *letters = &engine->queues->dead_letters;
    if (!letters->record)
        return;
    uint64_t seq;
    om_refusals_seal(&letters->refusals);
    int result = om_atomic_commit_held(letters->record, &seq);
    letters->record = NULL;
    letters->bytes = 0;
    om_refusals_end(&letters->refusals, result == OM_OK);
    for (uint32_t i = 0; i < letters->count; i++) {
        om_leaver *leaver = &letters->leavers[i];
        if (result == OM_OK) {
            is_gone(leaver->queue, &leaver->dying);
        } else if (!leaver->queue->removed) {
            if (add(leaver->queue, leaver->dying) != OM_OK)
                is_gone(leaver->queue, &leaver->dying);
            om_queue_wait(leaver->queue);
        }
        om_queue_unref(leaver->queue);
    }
    letters->count = 0;
}

void om_dead_letters_free(om_engine *engine) {
    free(engine->queues->dead_letters.leavers);
    free(engine->queues->dead_letters.refusals.list);
}
