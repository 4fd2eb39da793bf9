/* table.c -- AMQP field tables and arrays, as RabbitMQ writes them.
 *
 *   table:  name shortstr | type | value | name shortstr | type | value | ...
 *   array:                  type | value |                 type | value | ...
 *
 * Promise: never a byte read outside the table, however deep it claims to be. The check of nested
 * values keeps its own stack of OM_TABLE_DEPTH ends, so a client's nesting costs no C stack.
 *
 * The types are RabbitMQ's, not the specification's, where the two differ: 's' is a 16-bit number,
 * 'l' and 'L' are both signed 64-bit ones.
 */
#include "base/bytes.h"
#include "format/content.h"

#define UNKNOWN 0      /* so that letters without an entry below are unknown */
#define LONG_STRING -1 /* u32 length, bytes */
#define WIDTH(n) ((n) + 1)

static const int8_t TYPES[256] = {
    ['t'] = WIDTH(1),    ['b'] = WIDTH(1),    ['B'] = WIDTH(1),    ['s'] = WIDTH(2), ['u'] = WIDTH(2),
    ['I'] = WIDTH(4),    ['i'] = WIDTH(4),    ['f'] = WIDTH(4),    ['D'] = WIDTH(5), ['l'] = WIDTH(8),
    ['L'] = WIDTH(8),    ['d'] = WIDTH(8),    ['T'] = WIDTH(8),    ['V'] = WIDTH(0), ['S'] = LONG_STRING,
    ['x'] = LONG_STRING, ['A'] = LONG_STRING, ['F'] = LONG_STRING,
};

/* The place after the name, or NULL. */
static inline const uint8_t *take_name(const uint8_t *at, const uint8_t *end, om_span *name) {
    if (at >= end || *at >= end - at)
        return NULL;
    *name = (om_span){at + 1, *at};
    return at + 1 + *at;
}

/* The place after type and value, or NULL. */
static inline const uint8_t *take_value(const uint8_t *at, const uint8_t *end, om_field *out) {
    if (at >= end)
        return NULL;
    out->type = *at++;
    int kind = TYPES[out->type];
    size_t len, left = (size_t)(end - at);
    if (kind == LONG_STRING) {
        if (left < 4)
            return NULL;
        len = om_get_be32(at);
        at += 4;
        left -= 4;
    } else if (kind == UNKNOWN) {
        return NULL;
    } else {
        len = (size_t)kind - 1;
    }
    if (len > left || len > INT32_MAX)
        return NULL;
    out->value = (om_span){at, (int32_t)len};
    return at + len;
}

int om_table_check(const uint8_t *table, size_t len) {
    struct {
        const uint8_t *end;
        int array;
    } open[OM_TABLE_DEPTH];
    int depth = 0;
    const uint8_t *at = table;
    open[0].end = table + len;
    open[0].array = 0;
    for (;;) {
        while (at == open[depth].end)
            if (depth-- == 0)
                return OM_OK;
        om_field field;
        if (!open[depth].array && (at = take_name(at, open[depth].end, &field.name)) == NULL)
            return OM_E_CORRUPT;
        if ((at = take_value(at, open[depth].end, &field)) == NULL)
            return OM_E_CORRUPT;
        if (field.type == 'F' || field.type == 'A') {
            if (++depth == OM_TABLE_DEPTH)
                return OM_E_CORRUPT;
            open[depth].end = at;
            open[depth].array = field.type == 'A';
            at = field.value.data; /* go inside */
        }
    }
}

int om_table_next(const uint8_t *table, size_t len, size_t *at, om_field *out) {
    if (*at >= len)
        return OM_END;
    const uint8_t *next = take_name(table + *at, table + len, &out->name);
    if (next == NULL || (next = take_value(next, table + len, out)) == NULL)
        return OM_E_CORRUPT;
    *at = (size_t)(next - table);
    return OM_OK;
}

int om_array_next(const uint8_t *array, size_t len, size_t *at, om_field *out) {
    if (*at >= len)
        return OM_END;
    const uint8_t *next = take_value(array + *at, array + len, out);
    if (next == NULL)
        return OM_E_CORRUPT;
    out->name = (om_span){array + *at, 0};
    *at = (size_t)(next - array);
    return OM_OK;
}

int om_table_get(const uint8_t *table, size_t len, const char *name, om_field *out) {
    size_t at = 0, name_len = strlen(name);
    if (table == NULL)
        return OM_END;
    for (;;) {
        int result = om_table_next(table, len, &at, out);
        if (result != OM_OK)
            return result;
        if ((size_t)out->name.len == name_len && memcmp(out->name.data, name, name_len) == 0)
            return OM_OK;
    }
}

int om_field_integer(const om_field *field, int64_t *out) {
    const uint8_t *at = field->value.data;
    switch (field->type) {
    case 'b':
        *out = (int8_t)*at;
        break;
    case 'B':
        *out = *at;
        break;
    case 's':
        *out = (int16_t)om_get_be16(at);
        break;
    case 'u':
        *out = om_get_be16(at);
        break;
    case 'I':
        *out = (int32_t)om_get_be32(at);
        break;
    case 'i':
        *out = om_get_be32(at);
        break;
    case 'l':
    case 'L':
        *out = (int64_t)om_get_be64(at);
        break;
    default:
        return OM_E_INVALID;
    }
    return OM_OK;
}
