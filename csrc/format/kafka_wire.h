/* kafka_wire.h -- Kafka's primitives, read within bounds and written into room that is there.
 *
 * A reader that once ran past its end, or met a length that can't be, is `bad` and gives zeros from
 * then on: a parser looks at that once, at the end. An array's count is accepted only if so many
 * elements of their least size fit into the bytes that are left.
 *
 *                  plain                    flexible
 *   string, bytes  length i16 / i32, -1 null   length + 1 as uvarint, 0 null
 *   array          count i32, -1 null          count + 1 as uvarint, 0 null
 *   tagged fields  none                        count uvarint, then tag, size, bytes
 */
#ifndef OM_KAFKA_WIRE_H
#define OM_KAFKA_WIRE_H
#include "base/bytes.h"
#include "om_base.h"

typedef struct om_wire {
    const uint8_t *at, *end;
    uint8_t bad, flexible;
} om_wire;

static inline const uint8_t *om_wire_take(om_wire *wire, size_t len) {
    if ((size_t)(wire->end - wire->at) < len) {
        wire->bad = 1;
        wire->at = wire->end;
        return NULL;
    }
    const uint8_t *at = wire->at;
    wire->at += len;
    return at;
}

static inline int8_t om_wire_i8(om_wire *wire) {
    const uint8_t *at = om_wire_take(wire, 1);
    return at ? (int8_t)*at : 0;
}

static inline int16_t om_wire_i16(om_wire *wire) {
    const uint8_t *at = om_wire_take(wire, 2);
    return at ? (int16_t)om_get_be16(at) : 0;
}

static inline int32_t om_wire_i32(om_wire *wire) {
    const uint8_t *at = om_wire_take(wire, 4);
    return at ? (int32_t)om_get_be32(at) : 0;
}

static inline int64_t om_wire_i64(om_wire *wire) {
    const uint8_t *at = om_wire_take(wire, 8);
    return at ? (int64_t)om_get_be64(at) : 0;
}

static inline uint32_t om_wire_uvarint(om_wire *wire) {
    uint32_t value = 0;
    for (unsigned shift = 0; wire->at < wire->end && shift < 35; shift += 7) {
        uint8_t byte = *wire->at++;
        if (shift == 28 && byte > 15)
            break;
        value |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    wire->bad = 1;
    wire->at = wire->end;
    return 0;
}

/* -1: null. */
static inline int64_t om_wire_length(om_wire *wire, int wide) {
    if (wire->flexible)
        return (int64_t)om_wire_uvarint(wire) - 1;
    return wide ? om_wire_i32(wire) : om_wire_i16(wire);
}

static inline om_span om_wire_span(om_wire *wire, int wide) {
    int64_t len = om_wire_length(wire, wide);
    if (len < -1)
        wire->bad = 1;
    if (len < 0)
        return (om_span){NULL, -1};
    const uint8_t *at = om_wire_take(wire, (size_t)len);
    return at ? (om_span){at, (int32_t)len} : (om_span){NULL, -1};
}

static inline om_span om_wire_string(om_wire *wire) {
    return om_wire_span(wire, 0);
}

static inline om_span om_wire_bytes(om_wire *wire) {
    return om_wire_span(wire, 1);
}

/* Of an array whose elements have at least so many bytes; null counts as empty. */
static inline int32_t om_wire_count(om_wire *wire, size_t least) {
    int64_t count = wire->flexible ? (int64_t)om_wire_uvarint(wire) - 1 : om_wire_i32(wire);
    if (count < -1 || (count > 0 && (uint64_t)count > (size_t)(wire->end - wire->at) / least)) {
        wire->bad = 1;
        wire->at = wire->end;
    }
    return wire->bad || count < 0 ? 0 : (int32_t)count;
}

static inline void om_wire_skip_tags(om_wire *wire) {
    if (!wire->flexible)
        return;
    for (uint32_t left = om_wire_uvarint(wire); left && !wire->bad; left--) {
        om_wire_uvarint(wire);
        om_wire_take(wire, om_wire_uvarint(wire));
    }
}

/* ---- writing: each returns the place after ---- */

static inline uint8_t *om_wire_put_i16(uint8_t *at, int16_t value) {
    om_put_be16(at, (uint16_t)value);
    return at + 2;
}

static inline uint8_t *om_wire_put_i32(uint8_t *at, int32_t value) {
    om_put_be32(at, (uint32_t)value);
    return at + 4;
}

static inline uint8_t *om_wire_put_i64(uint8_t *at, int64_t value) {
    om_put_be64(at, (uint64_t)value);
    return at + 8;
}

/* An array's count, or the length of bytes; -1: null. At most 5 bytes. */
static inline uint8_t *om_wire_put_count(uint8_t *at, int flexible, int64_t count) {
    return flexible ? om_put_uvarlong(at, (uint64_t)(count + 1)) : om_wire_put_i32(at, (int32_t)count);
}

/* At most 3 bytes and the string's own. */
static inline uint8_t *om_wire_put_string(uint8_t *at, int flexible, om_span string) {
    at = flexible ? om_put_uvarlong(at, (uint64_t)(string.len + 1)) : om_wire_put_i16(at, (int16_t)string.len);
    if (string.len > 0)
        memcpy(at, string.data, (size_t)string.len);
    return at + (string.len > 0 ? string.len : 0);
}

/* The end of a structure: no tagged fields. */
static inline uint8_t *om_wire_put_tags(uint8_t *at, int flexible) {
    if (flexible)
        *at++ = 0;
    return at;
}
#endif
