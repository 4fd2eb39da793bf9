/* bytes.h -- numbers in byte strings: big-endian (Kafka's formats), little-endian (our own
 * files) and zigzag varints (records). Unaligned addresses are fine everywhere.
 *
 * Fixed-width loads and stores check nothing: the caller has checked the length. Varint stores
 * need OM_VARINT_MAX or OM_VARLONG_MAX bytes of room (or exactly om_varint_size / ..long_size)
 * and return the place after; varint loads take the end and never read at or past it.
 */
#ifndef OM_BYTES_H
#define OM_BYTES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OM_VARINT_MAX 5
#define OM_VARLONG_MAX 10

/* memcpy compiles to one move, and is the one way to read an unaligned word that is defined. */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define OM_BE16(x) (x)
#define OM_BE32(x) (x)
#define OM_BE64(x) (x)
#define OM_LE16(x) __builtin_bswap16(x)
#define OM_LE32(x) __builtin_bswap32(x)
#define OM_LE64(x) __builtin_bswap64(x)
#else
#define OM_BE16(x) __builtin_bswap16(x)
#define OM_BE32(x) __builtin_bswap32(x)
#define OM_BE64(x) __builtin_bswap64(x)
#define OM_LE16(x) (x)
#define OM_LE32(x) (x)
#define OM_LE64(x) (x)
#endif

#define OM_LOAD_STORE(order, bits, swap)                                                                               \
    static inline uint##bits##_t om_get_##order##bits(const void *at) {                                                \
        uint##bits##_t raw;                                                                                            \
        memcpy(&raw, at, sizeof raw);                                                                                  \
        return swap(raw);                                                                                              \
    }                                                                                                                  \
    static inline void om_put_##order##bits(void *at, uint##bits##_t value) {                                          \
        uint##bits##_t raw = swap(value);                                                                              \
        memcpy(at, &raw, sizeof raw);                                                                                  \
    }

OM_LOAD_STORE(be, 16, OM_BE16)
OM_LOAD_STORE(be, 32, OM_BE32)
OM_LOAD_STORE(be, 64, OM_BE64)
OM_LOAD_STORE(le, 16, OM_LE16)
OM_LOAD_STORE(le, 32, OM_LE32)
OM_LOAD_STORE(le, 64, OM_LE64)

#undef OM_LOAD_STORE

/* ---- zigzag varints: 0, -1, 1, -2 ... become 0, 1, 2, 3 ..., 7 bits per byte, low first ---- */

static inline uint32_t om_zigzag32(int32_t value) {
    return ((uint32_t)value << 1) ^ (value < 0 ? UINT32_MAX : 0);
}

static inline uint64_t om_zigzag64(int64_t value) {
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

/* Bytes of the varint: ceil(significant bits / 7), as a multiplication. */
static inline size_t om_varint_size(int32_t value) {
    return (size_t)(((31 - __builtin_clz(om_zigzag32(value) | 1)) * 9 + 73) / 64);
}

static inline size_t om_varlong_size(int64_t value) {
    return (size_t)(((63 - __builtin_clzll(om_zigzag64(value) | 1)) * 9 + 73) / 64);
}

static inline uint8_t *om_put_uvarlong(uint8_t *at, uint64_t raw) {
    while (raw >= 0x80) {
        *at++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *at++ = (uint8_t)raw;
    return at;
}

static inline uint8_t *om_put_varint(uint8_t *at, int32_t value) {
    return om_put_uvarlong(at, om_zigzag32(value));
}

static inline uint8_t *om_put_varlong(uint8_t *at, int64_t value) {
    return om_put_uvarlong(at, om_zigzag64(value));
}

/* The place after the varint, or NULL when it runs into `end` or over 64 bits. */
static inline const uint8_t *om_get_varlong(const uint8_t *at, const uint8_t *end, int64_t *value) {
    uint64_t raw = 0;
    for (unsigned shift = 0; at < end; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
            return at;
        }
    }
    return NULL;
}

/* The same for a number that must fit 32 bits. */
static inline const uint8_t *om_get_varint(const uint8_t *at, const uint8_t *end, int32_t *value) {
    int64_t wide;
    const uint8_t *next = om_get_varlong(at, end, &wide);
    if (next == NULL || next - at > OM_VARINT_MAX || wide < INT32_MIN || wide > INT32_MAX)
        return NULL;
    *value = (int32_t)wide;
    return next;
}

#endif
