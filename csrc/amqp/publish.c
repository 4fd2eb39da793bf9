/* publish.c -- a message comes in: method, header, body; then it goes to its queues.
 *
 * A publisher repeats itself. What its last method meant (om_publish_target: the route) and what its last properties
 * meant (om_props_cache: the record headers, ready to be copied) stays with the channel. A message that begins with
 * the same bytes is then only its body: one copy, from the read buffer into the batch of its log.
 */
#include "amqp/publish.h"
#include "amqp/amqp_conn.h"
#include "amqp/body_assembly.h"
#include "amqp/deliver.h"
#include "amqp/direct_reply_to.h"
#include "amqp/frame_write.h"
#include "amqp/tx.h"
#include "base/attributes.h"
#include "net/engine_core.h"
#include "queue/queue_pump.h"
#include "store/fanout.h"
#include "store/log_append.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FANOUT_MAX 1024

static int same(const uint8_t *kept, size_t kept_len, const uint8_t *data, size_t len) {
    return kept_len == len && memcmp(kept, data, len) == 0;
}

static int keep(uint8_t **kept, uint32_t *cap, const uint8_t *data, size_t len) {
    if (len > *cap) {
        uint8_t *grown = realloc(*kept, len);
        if (!grown)
            return OM_E_NO_MEMORY;
        *kept = grown;
        *cap = (uint32_t)len;
    }
    memcpy(*kept, data, len);
    return OM_OK;
}

static enum om_verdict out_of_memory(om_channel *channel) {
    return om_amqp_error(channel->conn, 0, 506, OM_BASIC_PUBLISH, "RESOURCE_ERROR - out of memory");
}

/* ---- the method ---- */

static int is_shortstr(const uint8_t *at, const uint8_t *end) {
    return at < end && at + 1 + at[0] <= end;
}

static int parse_target(om_publish_target *target, const uint8_t *args, size_t len) {
    const uint8_t *at = args + 2, *end = args + len;
    if (len < 5 || !is_shortstr(at, end) || !is_shortstr(at + 1 + at[0], end))
        return OM_E_CORRUPT;
    const uint8_t *key = at + 1 + at[0];
    const uint8_t *bits = key + 1 + key[0];
    if (bits + 1 != end)
        return OM_E_CORRUPT;
    if (keep(&target->method, &target->method_cap, args, len) != OM_OK)
        return OM_E_NO_MEMORY;
    target->method_len = (uint32_t)len;
    target->exchange = (om_span){target->method + 3, at[0]};
    target->key = (om_span){target->method + (key + 1 - args), key[0]};
    target->bits = bits[0];
    return OM_OK;
}

static void forget_route(om_publish_target *target) {
    if (target->route)
        om_route_unref(target->route);
    target->route = NULL;
    target->allowed = 0;
}

enum om_verdict om_publish_method(om_channel *channel, const uint8_t *args, size_t len) {
    om_conn *conn = channel->conn;
    om_publish_target *target = &channel->target;
    if (!om_engine_takes(conn->engine)) {
        conn->held_back = 1;
        return OM_STALL;
    }
    if (!target->method_len || !same(target->method, target->method_len, args, len)) {
        forget_route(target);
        target->method_len = 0;
        int result = parse_target(target, args, len);
        if (result == OM_E_NO_MEMORY)
            return out_of_memory(channel);
        if (result != OM_OK)
            return om_frame_undecodable(conn, OM_BASIC_PUBLISH, args, len);
    }
    if (target->bits & 2)
        return om_amqp_error(conn, 0, 540, OM_BASIC_PUBLISH, "NOT_IMPLEMENTED - immediate=true");
    channel->stage = OM_STAGE_HEADER;
    return OM_GO_ON;
}

/* ---- the header ---- */

static int is_user(const om_conn *conn, om_span name) {
    return (om_amqp_of(conn)->flags & OM_CONN_MAY_IMPERSONATE) ||
           same((const uint8_t *)conn->user, conn->user_len, name.data, (size_t)name.len);
}

/* In RabbitMQ's words: what is wrong with an expiration. */
static const char *why_not_a_time(om_span text, char *out, size_t len) {
    const char *data = (const char *)text.data;
    int32_t sign = text.len > 1 && (data[0] == '-' || data[0] == '+');
    int minus = sign && data[0] == '-';
    int32_t digits = sign;
    while (digits < text.len && data[digits] >= '0' && data[digits] <= '9')
        digits++;
    if (digits == sign)
        return "no_integer";
    if (digits < text.len)
        snprintf(out, len, "{leftover_string,\"%.*s\"}", text.len - digits, data + digits);
    else
        snprintf(out, len, "{%s,%.*s}", minus ? "value_negative" : "value_too_large", text.len - (sign - minus),
                 data + (sign - minus));
    return out;
}

static enum om_verdict check_properties(om_channel *channel, const om_properties *properties) {
    om_conn *conn = channel->conn;
    char why[300];
    int64_t ms;
    if ((properties->flags & OM_HAS_EXPIRATION) && om_expiration_ms(properties->expiration, &ms) != OM_OK)
        return om_amqp_error(conn, channel->number, 406, OM_BASIC_PUBLISH,
                             "PRECONDITION_FAILED - invalid expiration '%.*s': %s", (int)properties->expiration.len,
                             (const char *)properties->expiration.data,
                             why_not_a_time(properties->expiration, why, sizeof why));
    if ((properties->flags & OM_HAS_USER_ID) && !is_user(conn, properties->user_id))
        return om_amqp_error(conn, channel->number, 406, OM_BASIC_PUBLISH,
                             "PRECONDITION_FAILED - user_id property set to '%.*s' but authenticated user was '%s'",
                             (int)properties->user_id.len, (const char *)properties->user_id.data, conn->user);
    return OM_GO_ON;
}

static void read_headers(om_props_cache *props, const om_properties *properties) {
    om_span cc, bcc;
    props->by_event = 0;
    props->delay_ms = -1;
    if (!(properties->flags & OM_HAS_HEADERS))
        return;
    props->by_event = om_properties_copies(properties, &cc, &bcc) != OM_OK || cc.len >= 0 || bcc.len >= 0;
    if (om_delay_ms(properties, &props->delay_ms) != OM_OK)
        props->delay_ms = -1;
}

static int make_tail(om_props_cache *props, om_span exchange, const om_properties *properties) {
    size_t bound = om_content_headers_bound(exchange, properties);
    if (bound > props->tail_cap) {
        uint8_t *tail = realloc(props->tail, bound);
        if (!tail)
            return OM_E_NO_MEMORY;
        props->tail = tail;
        props->tail_cap = (uint32_t)bound;
    }
    int64_t len = om_content_template(props->tail, props->tail_cap, exchange, properties);
    if (len < 0)
        return (int)len;
    props->tail_len = (uint32_t)len;
    props->exchange_len = (uint8_t)exchange.len;
    memcpy(props->exchange, exchange.data, (size_t)exchange.len);
    return OM_OK;
}

/* The properties are kept as they are stored: with the reply address that finds its way back. */
static int keep_properties(om_channel *channel, om_properties *properties) {
    om_props_cache *props = &channel->props;
    om_engine *engine = channel->conn->engine;
    const uint8_t *data = properties->data;
    size_t len = properties->len;
    props->direct_reply = 0;
    if (properties->reply_to.len == (int32_t)strlen(OM_REPLY_TO) &&
        memcmp(properties->reply_to.data, OM_REPLY_TO, strlen(OM_REPLY_TO)) == 0) {
        int64_t rewritten = om_reply_rewrite(channel, properties, engine->rewrite, engine->rewrite_cap);
        if (rewritten < 0)
            return (int)rewritten;
        props->direct_reply = 1;
        data = engine->rewrite;
        len = (size_t)rewritten;
    }
    int result = keep(&props->data, &props->cap, data, len);
    if (result != OM_OK)
        return result;
    props->len = (uint32_t)len;
    return om_properties_parse(props->data, props->len, properties);
}

static enum om_verdict read_properties(om_channel *channel, const uint8_t *data, size_t len) {
    om_props_cache *props = &channel->props;
    om_span exchange = channel->target.exchange;
    int same_exchange = same(props->exchange, props->exchange_len, exchange.data, (size_t)exchange.len);
    if (props->known && same_exchange && !props->direct_reply && same(props->data, props->len, data, len))
        return OM_GO_ON;
    om_properties properties;
    props->known = 0;
    if (om_properties_parse(data, len, &properties) != OM_OK)
        return om_amqp_error(channel->conn, 0, 502, OM_BASIC_PUBLISH, "SYNTAX_ERROR - properties that can't be read");
    enum om_verdict verdict = check_properties(channel, &properties);
    if (verdict != OM_GO_ON)
        return verdict;
    int result = keep_properties(channel, &properties);
    if (result == OM_E_GONE)
        return om_amqp_error(channel->conn, channel->number, 406, OM_BASIC_PUBLISH,
                             "PRECONDITION_FAILED - fast reply consumer does not exist");
    if (result != OM_OK)
        return out_of_memory(channel);
    props->persistent = properties.delivery_mode == 2;
    props->priority = properties.priority;
    read_headers(props, &properties);
    om_engine *engine = channel->conn->engine;
    if (om_properties_hide_bcc(&properties, engine->rewrite, engine->rewrite_cap) != OM_OK ||
        make_tail(props, exchange, &properties) != OM_OK)
        return out_of_memory(channel);
    props->known = 1;
    return OM_GO_ON;
}

static enum om_verdict finish(om_channel *channel, om_span body);

enum om_verdict om_publish_header(om_channel *channel, const uint8_t *payload, size_t len) {
    om_conn *conn = channel->conn;
    int class_id = om_get_be16(payload);
    if (class_id != 60)
        return om_amqp_error(conn, channel->number, 505, OM_BASIC_PUBLISH,
                             "UNEXPECTED_FRAME - expected content header for class 60, got one for class %d instead",
                             class_id);
    if (om_get_be16(payload + 2) != 0)
        return om_amqp_error(
            conn, channel->number, 505, OM_BASIC_PUBLISH,
            "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead");
    uint64_t size = om_get_be64(payload + 4);
    if (size > conn->engine->options.max_message_size) {
        channel->stage = OM_STAGE_IDLE;
        return om_amqp_error(conn, channel->number, 406, OM_BASIC_PUBLISH,
                             "PRECONDITION_FAILED - message size %llu is larger than configured max size %llu",
                             (unsigned long long)size, (unsigned long long)conn->engine->options.max_message_size);
    }
    enum om_verdict verdict = read_properties(channel, payload + 12, len - 12);
    if (verdict != OM_GO_ON) {
        channel->stage = OM_STAGE_IDLE;
        return verdict;
    }
    channel->stage = OM_STAGE_BODY;
    channel->body_size = size;
    channel->body_len = 0;
    return size ? OM_GO_ON : finish(channel, (om_span){payload, 0});
}

/* ---- the body ---- */

enum om_verdict om_publish_body(om_channel *channel, const uint8_t *payload, size_t len) {
    if (len > channel->body_size - channel->body_len)
        return om_amqp_error(channel->conn, 0, 501, OM_BASIC_PUBLISH,
                             "FRAME_ERROR - a body of more than the %llu bytes its header told",
                             (unsigned long long)channel->body_size);
    if (channel->body_len == 0 && len == channel->body_size)
        return finish(channel, (om_span){payload, (int32_t)len});
    if (om_assembly_put(channel, (om_span){payload, (int32_t)len}) != OM_OK)
        return out_of_memory(channel);
    if (channel->body_len < channel->body_size)
        return OM_GO_ON;
    enum om_verdict verdict = finish(channel, om_assembly_body(channel));
    if (!channel->parked)
        om_assembly_drop(channel);
    return verdict;
}

/* ---- to its queues ---- */

void om_publish_return(om_channel *channel, om_span exchange, om_span key, om_span properties, om_span body) {
    uint8_t args[2 + 1 + 8 + 1 + 255 + 1 + 255], *at = args;
    om_engine *engine = channel->conn->engine;
    om_properties told;
    if (om_properties_parse(properties.data, (size_t)properties.len, &told) == OM_OK &&
        om_properties_hide_bcc(&told, engine->rewrite, engine->rewrite_cap) == OM_OK)
        properties = (om_span){told.data, (int32_t)told.len};
    om_put_be16(at, 312);
    at = om_put_shortstr(at + 2, (om_span){(const uint8_t *)"NO_ROUTE", 8});
    at = om_put_shortstr(at, exchange);
    at = om_put_shortstr(at, key);
    om_content content = {.body = body};
    om_deliver_frames(channel->conn, channel, OM_BASIC_RETURN, args, (size_t)(at - args), &content, properties, NULL);
    engine->stat.returned++;
}

static void give_back(om_channel *channel, om_span body) {
    om_publish_return(channel, channel->target.exchange, channel->target.key,
                      (om_span){channel->props.data, (int32_t)channel->props.len}, body);
}

static int is_unlogged(const om_props_cache *props, const om_queue *queue) {
    return !props->persistent && !(queue->options.flags & (OM_QUEUE_STREAM | OM_QUEUE_QUORUM | OM_QUEUE_DELAY));
}

static int is_logged(const om_props_cache *props, const om_queue *queue) {
    return om_log_is_logged(queue->lanes[0].log, is_unlogged(props, queue));
}

/* Returns 1 if the disk must have it, 0 if not, below 0 if it was refused. The last queue to get a large
 * message may keep it where it landed. */
static int stage(om_channel *channel, om_queue *queue, om_span body, int is_last) {
    const om_props_cache *props = &channel->props;
    if (queue->removed)
        return 0;
    int refused = om_reject_publish_refuses(queue, 0, body.len) &&
                  om_reject_publish_refuses(queue, om_queue_hand_on(queue), body.len);
    if (refused && !om_reject_publish_dead_letters(queue))
        return OM_E_FULL;
    int32_t lane = props->priority < queue->lane_count ? props->priority : queue->lane_count - 1;
    om_log *log = queue->lanes[lane].log;
    int unlogged = is_unlogged(props, queue);
    if (log->deleted)
        return 0;
    int logged = om_log_is_logged(log, unlogged);
    if (logged && channel->conn->engine->store->fence_handled)
        return OM_E_FENCED;
    int64_t now_ms = channel->conn->engine->wall_ms;
    int result = is_last && om_assembly_can_stay(channel, body)
                     ? om_log_stage_built(log, now_ms, &channel->assembly, body.len, unlogged)
                     : om_log_stage_content(log, now_ms, channel->target.key, body,
                                            (om_span){props->tail, (int32_t)props->tail_len}, unlogged);
    if (result != OM_OK)
        return result;
    if (refused) {
        /* In and out again at once: it becomes a dead letter like any other. */
        om_dead_letter_add_refused(queue, lane, log->next_offset - 1, (uint32_t)body.len);
        return OM_E_FULL;
    }
    queue->published++;
    om_queue_activate(queue);
    return logged;
}

/* Does this queue store a message as most do, with nothing of its own to check? */
static int is_plain(const om_queue *queue) {
    return !queue->removed && queue->lane_count == 1 && !queue->lanes[0].log->deleted &&
           !(queue->options.flags & (OM_QUEUE_REJECT_PUBLISH | OM_QUEUE_REJECT_DLX | OM_QUEUE_DELAY));
}

/* To all of them as one batch. OM_END: they are to be served one by one. */
OM_PER_MESSAGE
static int stage_together(om_channel *channel, om_queue *const *queues, int32_t count, om_span body, int *logged) {
    const om_props_cache *props = &channel->props;
    om_log *logs[FANOUT_MAX];
    if (count < 2 || count > FANOUT_MAX)
        return OM_END;
    *logged = is_logged(props, queues[0]);
    for (int32_t i = 0; i < count; i++) {
        if (!is_plain(queues[i]) || is_logged(props, queues[i]) != *logged)
            return OM_END;
        logs[i] = queues[i]->lanes[0].log;
    }
    if (*logged && channel->conn->engine->store->fence_handled)
        return OM_E_FENCED;
    int result = om_fanout_stage_content(logs, count, channel->conn->engine->wall_ms, channel->target.key, body,
                                         (om_span){props->tail, (int32_t)props->tail_len}, !*logged);
    if (result != OM_OK)
        return result;
    for (int32_t i = 0; i < count; i++) {
        queues[i]->published++;
        om_queue_activate(queues[i]);
    }
    return OM_OK;
}

static int stage_each(om_channel *channel, om_queue *const *queues, int32_t count, om_span body, int *logged) {
    int refused = OM_OK;
    *logged = 0;
    for (int32_t i = 0; i < count; i++) {
        int result = stage(channel, queues[i], body, i == count - 1);
        if (result < 0)
            refused = result;
        else
            *logged |= result;
    }
    return refused;
}

OM_PER_MESSAGE
static void publish(om_channel *channel, om_queue *const *queues, int32_t count, uint32_t flags, om_span body) {
    int32_t first = 0;
    if (flags & OM_ROUTE_DELAY) {
        if (channel->props.delay_ms > 0)
            count = 1;
        else
            first = 1;
    }
    channel->conn->published++;
    channel->conn->engine->stat.published++;
    if (first >= count && (channel->target.bits & 1))
        give_back(channel, body);
    int logged, refused = stage_together(channel, queues + first, count - first, body, &logged);
    if (refused == OM_END)
        refused = stage_each(channel, queues + first, count - first, body, &logged);
    if (refused)
        om_confirm_nack(channel);
    else
        om_confirm_published(channel, logged);
}

/* ---- where to ---- */

static int is_allowed(om_channel *channel) {
    om_publish_target *target = &channel->target;
    const om_amqp_conn *amqp = om_amqp_of(channel->conn);
    uint64_t permissions = amqp->conn.engine->permissions;
    if (target->allowed && target->permissions == permissions)
        return 1;
    forget_route(target);
    for (uint32_t i = 0; i < amqp->allowed_count; i++) {
        const om_allowed *allowed = &amqp->allowed[i];
        if (allowed->permissions != permissions ||
            !same(allowed->name, allowed->len, target->exchange.data, (size_t)target->exchange.len))
            continue;
        target->allowed = 1;
        target->permissions = permissions;
        target->salt = allowed->salt;
        target->by_event = allowed->by_event;
        return 1;
    }
    return 0;
}

/* Held until the address changes. NULL: Python must be asked. */
static om_route *find_route(om_channel *channel) {
    om_publish_target *target = &channel->target;
    om_conn *conn = channel->conn;
    if (target->route && om_route_is_fresh(target->route))
        return target->route;
    om_route *route = om_route_find(conn->engine, om_amqp_of(conn)->vhost, target->salt, target->exchange, target->key);
    if (target->route)
        om_route_unref(target->route);
    target->route = route;
    if (route)
        route->refs++;
    return route;
}

static enum om_verdict park(om_channel *channel, om_span body) {
    om_conn *conn = channel->conn;
    if (!om_assembly_holds(channel, body) && om_assembly_put(channel, body) != OM_OK)
        return out_of_memory(channel);
    channel->parked = 1;
    conn->paused = 1;
    conn->engine->stat.route_misses++;
    om_event event = {
        .kind = OM_EV_ROUTE,
        .conn = conn->id,
        .channel = channel->number,
        .exchange = channel->target.exchange,
        .key = channel->target.key,
        .header = {channel->props.data, (int32_t)channel->props.len},
    };
    om_event_push(conn->engine, &event);
    return OM_PAUSE;
}

/* Through no queue. 0: none of its keys is somebody's address. */
static int is_answer(om_channel *channel, om_span body) {
    const om_publish_target *target = &channel->target;
    return om_reply_answer(channel, target->exchange, target->key,
                           (om_span){channel->props.data, (int32_t)channel->props.len}, body) > 0;
}

static enum om_verdict answer_directly(om_channel *channel, om_span body) {
    if (!is_answer(channel, body) && (channel->target.bits & 1))
        give_back(channel, body);
    channel->conn->published++;
    om_confirm_published(channel, 0);
    return OM_GO_ON;
}

static enum om_verdict publish_in_tx(om_channel *channel, om_route *route, om_span body) {
    int result = om_tx_publish(channel, route, body);
    if (result == OM_E_LIMIT)
        return om_amqp_error(channel->conn, channel->number, 406, OM_BASIC_PUBLISH,
                             "PRECONDITION_FAILED - uncommitted transactions hold too much memory");
    return result == OM_OK ? OM_GO_ON : out_of_memory(channel);
}

/* The default exchange: the key is the queue's name. */
OM_PER_MESSAGE
static enum om_verdict publish_directly(om_channel *channel, om_span body) {
    om_publish_target *target = &channel->target;
    om_conn *conn = channel->conn;
    if (om_reply_is_address(target->key) && !channel->tx)
        return answer_directly(channel, body);
    om_queue *queue = om_queue_named(conn->engine, om_amqp_of(conn)->vhost, target->key.data, (size_t)target->key.len);
    if (!channel->tx) {
        publish(channel, &queue, queue != NULL, 0, body);
        return OM_GO_ON;
    }
    uint64_t id = queue ? queue->id : 0;
    om_route *route =
        om_route_make(conn->engine, om_amqp_of(conn)->vhost, 0, target->exchange, target->key, &id, queue != NULL, 0);
    if (!route)
        return out_of_memory(channel);
    enum om_verdict verdict = publish_in_tx(channel, route, body);
    om_route_unref(route);
    return verdict;
}

static enum om_verdict finish(om_channel *channel, om_span body) {
    om_publish_target *target = &channel->target;
    channel->stage = OM_STAGE_IDLE;
    if (!is_allowed(channel) || target->by_event || channel->props.by_event)
        return park(channel, body);
    if (target->exchange.len == 0)
        return publish_directly(channel, body);
    om_route *route = find_route(channel);
    if (!route)
        return park(channel, body);
    if (channel->tx)
        return publish_in_tx(channel, route, body);
    publish(channel, route->queues, route->count, route->flags, body);
    return OM_GO_ON;
}

/* A delayed message is routed once more, and by its BCC too: BCC is taken off then. */
static void keep_bcc(om_channel *channel, const om_route *route) {
    om_props_cache *props = &channel->props;
    om_properties properties;
    if (!(route->flags & OM_ROUTE_DELAY) || props->delay_ms <= 0 || !props->by_event)
        return;
    props->known = 0; /* the next message may go elsewhere */
    if (om_properties_parse(props->data, props->len, &properties) == OM_OK)
        make_tail(props, channel->target.exchange, &properties);
}

void om_publish_parked(om_channel *channel, om_route *route) {
    om_span body = om_assembly_body(channel);
    channel->parked = 0;
    keep_bcc(channel, route);
    if (channel->target.exchange.len == 0 && !channel->props.by_event)
        publish_directly(channel, body); /* Python was asked for the permission only */
    else if (!channel->tx && is_answer(channel, body) && !route->count)
        om_confirm_published(channel, 0);
    else if (channel->tx)
        publish_in_tx(channel, route, body);
    else
        publish(channel, route->queues, route->count, route->flags, body);
    om_assembly_drop(channel);
}

void om_publish_reset(om_channel *channel) {
    forget_route(&channel->target);
    free(channel->target.method);
    free(channel->props.data);
    free(channel->props.tail);
    om_assembly_drop(channel);
    memset(&channel->target, 0, sizeof channel->target);
    memset(&channel->props, 0, sizeof channel->props);
    channel->stage = OM_STAGE_IDLE;
    channel->parked = 0;
}
