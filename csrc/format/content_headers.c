/* content_headers.c -- a message's headers changed on its way: counts added, BCC taken out.
 *
 * Entries that stay keep their bytes and their order, whatever types they have: nothing is
 * decoded that isn't asked for. The other properties are copied as they are.
 */
#include "format/content_rewrite.h"

/* Where the first property's value lies: after the flags, all words of them. */
static const uint8_t *first_value(const om_properties *in) {
    const uint8_t *at = in->data;
    while (om_get_be16(at) & 1)
        at += 2;
    return at + 2;
}

/* Where the headers table is, or would be, its length included. */
static const uint8_t *table_place(const om_properties *in) {
    if (in->headers.len >= 0)
        return in->headers.data - 4;
    if (in->content_encoding.len >= 0)
        return in->content_encoding.data + in->content_encoding.len;
    if (in->content_type.len >= 0)
        return in->content_type.data + in->content_type.len;
    return first_value(in);
}

void om_rewrite_begin(om_rewrite *to, uint8_t *out, size_t cap, const om_properties *in) {
    const uint8_t *first = first_value(in);
    *to = (om_rewrite){.in = in, .out = out, .cap = cap};
    om_rewrite_bytes(to, "\0", 2); /* flags: known at the end */
    om_rewrite_bytes(to, first, (size_t)(table_place(in) - first));
    to->table_at = om_rewrite_open(to);
}

int64_t om_rewrite_end(om_rewrite *to, int without_expiration) {
    const om_properties *in = to->in;
    const uint8_t *rest = table_place(in), *end = in->data + in->len;
    uint16_t flags = in->flags | OM_HAS_HEADERS;
    if (in->headers.len >= 0)
        rest += 4 + in->headers.len;
    if (to->len == to->table_at + 4) { /* an empty table: no headers at all */
        to->len = to->table_at;
        flags &= (uint16_t)~OM_HAS_HEADERS;
    } else {
        om_rewrite_close(to, to->table_at);
    }
    if (without_expiration && in->expiration.len >= 0) {
        const uint8_t *expiration = in->expiration.data - 1;
        om_rewrite_bytes(to, rest, (size_t)(expiration - rest));
        rest = in->expiration.data + in->expiration.len;
        flags &= (uint16_t)~OM_HAS_EXPIRATION;
    }
    om_rewrite_bytes(to, rest, (size_t)(end - rest));
    if (to->full)
        return OM_E_SHORT;
    om_put_be16(to->out, flags);
    return (int64_t)to->len;
}

/* ---- entries set and removed --------------------------------------------------------- */

static int is_extra(const om_span *name, const om_extra *extras, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (om_span_is(name, extras[i].name))
            return 1;
    return 0;
}

static int is_named(const om_span *name, const char *const *names, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (om_span_is(name, names[i]))
            return 1;
    return 0;
}

static void put_extra(om_rewrite *to, const om_extra *extra) {
    uint8_t truth = extra->number != 0;
    if (extra->type == 0)
        return;
    om_rewrite_name(to, extra->name, extra->type);
    if (extra->type == 'S')
        om_rewrite_text(to, extra->text);
    else if (extra->type == 't')
        om_rewrite_bytes(to, &truth, 1);
    else
        om_rewrite_long(to, extra->number);
}

size_t om_headers_bound(const om_properties *in, const om_extra *extras, int32_t count) {
    size_t bound = 4 + 8 + (size_t)in->len; /* a table's length, a delay that becomes an 'l' */
    for (int32_t i = 0; i < count; i++)
        bound += 1 + UINT8_MAX + 1 + 8 + (extras[i].text.len > 0 ? (size_t)extras[i].text.len : 0);
    return bound;
}

int64_t om_headers_with(uint8_t *out, size_t cap, const om_properties *in, const om_extra *extras, int32_t count) {
    om_rewrite to;
    om_field field;
    int result = OM_END;
    for (int32_t i = 0; i < count; i++)
        if (strlen(extras[i].name) > UINT8_MAX ||
            (extras[i].type != 0 && extras[i].type != 'l' && extras[i].type != 'S' && extras[i].type != 't'))
            return OM_E_INVALID;
    om_rewrite_begin(&to, out, cap, in);
    for (size_t at = 0, from = 0; in->headers.len > 0; from = at) {
        result = om_table_next(in->headers.data, (size_t)in->headers.len, &at, &field);
        if (result != OM_OK)
            break;
        if (!is_extra(&field.name, extras, count))
            om_rewrite_bytes(&to, in->headers.data + from, at - from);
    }
    if (result != OM_END)
        return OM_E_CORRUPT;
    for (int32_t i = 0; i < count; i++)
        put_extra(&to, &extras[i]);
    return om_rewrite_end(&to, 0);
}

int64_t om_headers_without(uint8_t *out, size_t cap, const om_properties *in, const char *const *names, int32_t count) {
    om_rewrite to;
    om_field field;
    int result = OM_END;
    om_rewrite_begin(&to, out, cap, in);
    for (size_t at = 0, from = 0; in->headers.len > 0; from = at) {
        result = om_table_next(in->headers.data, (size_t)in->headers.len, &at, &field);
        if (result != OM_OK)
            break;
        if (!is_named(&field.name, names, count))
            om_rewrite_bytes(&to, in->headers.data + from, at - from);
    }
    return result == OM_END ? om_rewrite_end(&to, 0) : OM_E_CORRUPT;
}

int om_properties_hide_bcc(om_properties *p, uint8_t *out, size_t cap) {
    static const char *const names[] = {"BCC"};
    om_field field;
    if (om_table_get(p->headers.data, (size_t)p->headers.len, names[0], &field) != OM_OK)
        return OM_OK;
    int64_t len = om_headers_without(out, cap, p, names, 1);
    return len < 0 ? (int)len : om_properties_parse(out, (size_t)len, p);
}

/* ---- x-delay ------------------------------------------------------------------------- */

static int delay_of_text(const om_span *text, int64_t *out) {
    int64_t value = 0;
    if (text->len < 1 || text->len > 18) /* digits that fit */
        return OM_END;
    for (int32_t i = 0; i < text->len; i++) {
        uint8_t digit = (uint8_t)(text->data[i] - '0');
        if (digit > 9)
            return OM_END;
        value = value * 10 + digit;
    }
    *out = value;
    return OM_OK;
}

static int delay_of_float(double value, int64_t *out) {
    if (!(value > -1e18 && value < 1e18)) /* nor a NaN */
        return OM_END;
    *out = (int64_t)value;
    return OM_OK;
}

static int delay_of(const om_field *field, int64_t *out) {
    float single;
    double number;
    uint32_t bits;
    uint64_t wide;
    switch (field->type) {
    case 'S':
        return delay_of_text(&field->value, out);
    case 'f':
        bits = om_get_be32(field->value.data);
        memcpy(&single, &bits, sizeof single);
        return delay_of_float(single, out);
    case 'd':
        wide = om_get_be64(field->value.data);
        memcpy(&number, &wide, sizeof number);
        return delay_of_float(number, out);
    default:
        return om_field_integer(field, out) == OM_OK ? OM_OK : OM_END;
    }
}

int om_delay_ms(const om_properties *in, int64_t *out) {
    om_field field;
    if (om_table_get(in->headers.data, (size_t)in->headers.len, "x-delay", &field) != OM_OK)
        return OM_END;
    return delay_of(&field, out);
}

int64_t om_headers_delayed(uint8_t *out, size_t cap, const om_properties *in) {
    om_rewrite to;
    om_field field;
    int result = OM_END, is_first = 1;
    om_rewrite_begin(&to, out, cap, in);
    for (size_t at = 0, from = 0; in->headers.len > 0; from = at) {
        int64_t delay;
        result = om_table_next(in->headers.data, (size_t)in->headers.len, &at, &field);
        if (result != OM_OK)
            break;
        int counts = is_first && om_span_is(&field.name, "x-delay");
        if (counts)
            is_first = 0;
        if (counts && delay_of(&field, &delay) == OM_OK && delay > 0) {
            om_rewrite_name(&to, "x-delay", 'l');
            om_rewrite_long(&to, -delay);
        } else {
            om_rewrite_bytes(&to, in->headers.data + from, at - from);
        }
    }
    return result == OM_END ? om_rewrite_end(&to, 0) : OM_E_CORRUPT;
}
