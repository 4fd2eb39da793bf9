/* x_death.c -- the headers that dead-lettering writes into a message, as RabbitMQ 4 does.
 *
 *   x-death: [ {original-expiration, count, reason, queue, time, exchange, routing-keys}, ... ]
 *
 * The newest death comes first. A second death in the same queue for the same reason is no new
 * entry: its count goes up and it moves to the front; its time, exchange and keys stay those of the
 * first. Recency is what makes cycles visible: a message that is about to enter a queue where it
 * died before is going round, unless somebody rejected it since; then somebody looks at it.
 */
#include "format/content_rewrite.h"

static const char *const REASONS[] = {"expired", "rejected", "maxlen", "delivery_limit"};
#define REASON_COUNT (int)(sizeof REASONS / sizeof *REASONS)

static om_span text(const char *text) {
    return (om_span){(const uint8_t *)text, (int32_t)strlen(text)};
}

static int same(const om_span *a, const om_span *b) {
    return a->len == b->len && (a->len <= 0 || memcmp(a->data, b->data, (size_t)a->len) == 0);
}

static int get_text(const om_span *table, const char *name, om_span *out) {
    om_field field;
    if (om_table_get(table->data, (size_t)table->len, name, &field) != OM_OK || field.type != 'S')
        return 0;
    *out = field.value;
    return 1;
}

static int get_array(const om_properties *in, const char *name, om_span *out) {
    om_field field;
    if (om_table_get(in->headers.data, in->headers.len > 0 ? (size_t)in->headers.len : 0, name, &field) != OM_OK ||
        field.type != 'A')
        return 0;
    *out = field.value;
    return 1;
}

/* The next death on record: entries that are no table are passed over. */
static int next_death(const om_span *deaths, size_t *at, om_span *out) {
    om_field field;
    while (om_array_next(deaths->data, (size_t)deaths->len, at, &field) == OM_OK) {
        if (field.type != 'F')
            continue;
        *out = field.value;
        return 1;
    }
    return 0;
}

static int is_same_death(const om_span *entry, const om_x_death *death) {
    om_span queue, reason;
    return get_text(entry, "queue", &queue) && same(&queue, &death->queue) && get_text(entry, "reason", &reason) &&
           om_span_is(&reason, REASONS[death->reason]);
}

/* ---- writing x-death ------------------------------------------------------------------ */

static void put_text(om_rewrite *to, const char *name, om_span value) {
    om_rewrite_name(to, name, 'S');
    om_rewrite_text(to, value);
}

static void put_new_death(om_rewrite *to, const om_x_death *death) {
    om_span copies;
    om_rewrite_type(to, 'F');
    size_t table = om_rewrite_open(to);
    if (to->in->expiration.len >= 0)
        put_text(to, "original-expiration", to->in->expiration);
    om_rewrite_name(to, "count", 'l');
    om_rewrite_long(to, 1);
    put_text(to, "reason", text(REASONS[death->reason]));
    put_text(to, "queue", death->queue);
    om_rewrite_name(to, "time", 'T');
    om_rewrite_long(to, death->now_s);
    put_text(to, "exchange", death->exchange);
    om_rewrite_name(to, "routing-keys", 'A');
    size_t keys = om_rewrite_open(to);
    om_rewrite_type(to, 'S');
    om_rewrite_text(to, death->routing_key);
    if (get_array(to->in, "CC", &copies)) {
        om_field field;
        size_t at = 0;
        while (om_array_next(copies.data, (size_t)copies.len, &at, &field) == OM_OK)
            if (field.type == 'S') {
                om_rewrite_type(to, 'S');
                om_rewrite_text(to, field.value);
            }
    }
    om_rewrite_close(to, keys);
    om_rewrite_close(to, table);
}

static void put_counted_up(om_rewrite *to, const om_span *entry) {
    om_field field;
    int64_t count = 1;
    if (om_table_get(entry->data, (size_t)entry->len, "count", &field) == OM_OK)
        om_field_integer(&field, &count);
    om_rewrite_type(to, 'F');
    size_t table = om_rewrite_open(to);
    om_rewrite_name(to, "count", 'l');
    om_rewrite_long(to, count < INT64_MAX ? count + 1 : count);
    for (size_t at = 0, from = 0; om_table_next(entry->data, (size_t)entry->len, &at, &field) == OM_OK; from = at)
        if (!om_span_is(&field.name, "count"))
            om_rewrite_bytes(to, entry->data + from, at - from);
    om_rewrite_close(to, table);
}

static void put_deaths(om_rewrite *to, const om_x_death *death) {
    om_span deaths, entry, again = {NULL, -1};
    int known = !death->first && get_array(to->in, "x-death", &deaths);
    om_rewrite_name(to, "x-death", 'A');
    size_t array = om_rewrite_open(to);
    for (size_t at = 0; known && again.data == NULL && next_death(&deaths, &at, &entry);)
        if (is_same_death(&entry, death))
            again = entry;
    if (again.data != NULL)
        put_counted_up(to, &again);
    else
        put_new_death(to, death);
    for (size_t at = 0; known && next_death(&deaths, &at, &entry);) {
        if (entry.data == again.data)
            continue;
        om_rewrite_type(to, 'F');
        om_rewrite_text(to, entry);
    }
    om_rewrite_close(to, array);
}

/* ---- the message ---------------------------------------------------------------------- */

/* Headers that are written anew, or no longer true. */
static int is_replaced(const om_span *name, const om_x_death *death, int keeps_first) {
    static const char *const GONE[] = {"x-death", "x-last-death-reason", "x-last-death-queue", "x-last-death-exchange",
                                       "BCC"};
    static const char *const FIRST[] = {"x-first-death-reason", "x-first-death-queue", "x-first-death-exchange"};
    for (size_t i = 0; i < sizeof GONE / sizeof *GONE; i++)
        if (om_span_is(name, GONE[i]))
            return 1;
    for (size_t i = 0; i < sizeof FIRST / sizeof *FIRST && !keeps_first; i++)
        if (om_span_is(name, FIRST[i]))
            return 1;
    return death->drop_cc && om_span_is(name, "CC");
}

/* Room for three of each name, the fixed texts (under 500 bytes) and the CC keys once more. */
size_t om_x_death_bound(const om_properties *in, const om_x_death *death) {
    return 640 + 2 * (size_t)in->len + 3 * ((size_t)death->queue.len + (size_t)death->exchange.len) +
           (size_t)death->routing_key.len;
}

int64_t om_x_death_rewrite(uint8_t *out, size_t cap, const om_properties *in, const om_x_death *death) {
    om_rewrite to;
    om_field field;
    om_span deaths, entry;
    size_t start = 0;
    int result = OM_END;
    if (death->reason < 0 || death->reason >= REASON_COUNT || death->queue.len < 0 || death->exchange.len < 0 ||
        death->routing_key.len < 0)
        return OM_E_INVALID;
    int keeps_first = !death->first && get_array(in, "x-death", &deaths) && next_death(&deaths, &start, &entry) &&
                      om_table_get(in->headers.data, (size_t)in->headers.len, "x-first-death-reason", &field) == OM_OK;
    om_rewrite_begin(&to, out, cap, in);
    for (size_t at = 0, from = 0; in->headers.len > 0; from = at) {
        result = om_table_next(in->headers.data, (size_t)in->headers.len, &at, &field);
        if (result != OM_OK)
            break;
        if (!is_replaced(&field.name, death, keeps_first))
            om_rewrite_bytes(&to, in->headers.data + from, at - from);
    }
    if (result != OM_END)
        return OM_E_CORRUPT;
    if (!keeps_first) {
        put_text(&to, "x-first-death-reason", text(REASONS[death->reason]));
        put_text(&to, "x-first-death-queue", death->queue);
        put_text(&to, "x-first-death-exchange", death->exchange);
    }
    put_text(&to, "x-last-death-reason", text(REASONS[death->reason]));
    put_text(&to, "x-last-death-queue", death->queue);
    put_text(&to, "x-last-death-exchange", death->exchange);
    put_deaths(&to, death);
    return om_rewrite_end(&to, 1);
}

int om_x_death_cycle(const om_properties *in, om_span queue) {
    om_span deaths, entry, name;
    if (!get_array(in, "x-death", &deaths))
        return 0;
    for (size_t at = 0; next_death(&deaths, &at, &entry);) {
        om_span reason;
        if (get_text(&entry, "reason", &reason) && om_span_is(&reason, REASONS[OM_DEATH_REJECTED]))
            return 0;
        if (get_text(&entry, "queue", &name) && same(&name, &queue))
            return 1;
    }
    return 0;
}
