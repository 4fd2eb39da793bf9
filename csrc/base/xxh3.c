/* xxh3.c -- XXH3, 64 bits, seed 0, the default secret: the checksum of our own small files
 * (cursors, manifests) and of objects. Written from the published specification.
 *
 * Promise: the same number as xxhash.xxh3_64 for every length. The algorithm is a different
 * function for each range of lengths:
 *
 *     0 | 1..3 | 4..8 | 9..16 | 17..128 | 129..240 | 241 and more: 8 lanes over 64-byte stripes
 *
 * With seed 0 all the terms that add or subtract the seed are gone.
 */
#include "base/bytes.h"
#include "base/checksum.h"

#define PRIME32_1 0x9e3779b1u
#define PRIME32_2 0x85ebca77u
#define PRIME32_3 0xc2b2ae3du
#define PRIME64_1 0x9e3779b185ebca87u
#define PRIME64_2 0xc2b2ae3d27d4eb4fu
#define PRIME64_3 0x165667b19e3779f9u
#define PRIME64_4 0x85ebca77c2b2ae63u
#define PRIME64_5 0x27d4eb2f165667c5u
#define PRIME_MX1 0x165667919e3779f9u
#define PRIME_MX2 0x9fb21c651e98df25u

#define STRIPE 64
#define SECRET_SIZE 192
#define BLOCK_STRIPES ((SECRET_SIZE - STRIPE) / 8) /* the secret moves 8 bytes per stripe */
#define BLOCK (BLOCK_STRIPES * STRIPE)

static const uint8_t secret[SECRET_SIZE] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

/* ---- mixing -------------------------------------------------------------------------- */

static inline uint64_t rotate(uint64_t v, int bits) {
    return v << bits | v >> (64 - bits);
}

static inline uint64_t avalanche(uint64_t h) {
    h = (h ^ h >> 37) * PRIME_MX1;
    return h ^ h >> 32;
}

/* The stronger end of the older XXH64, kept for the shortest inputs. */
static inline uint64_t avalanche64(uint64_t h) {
    h = (h ^ h >> 33) * PRIME64_2;
    h = (h ^ h >> 29) * PRIME64_3;
    return h ^ h >> 32;
}

static inline uint64_t multiply_fold(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t mix16(const uint8_t *in, const uint8_t *key) {
    return multiply_fold(om_get_le64(in) ^ om_get_le64(key), om_get_le64(in + 8) ^ om_get_le64(key + 8));
}

/* ---- up to 240 bytes ----------------------------------------------------------------- */

static uint64_t hash_0_to_16(const uint8_t *in, size_t len) {
    if (len > 8) {
        uint64_t low = om_get_le64(in) ^ om_get_le64(secret + 24) ^ om_get_le64(secret + 32);
        uint64_t high = om_get_le64(in + len - 8) ^ om_get_le64(secret + 40) ^ om_get_le64(secret + 48);
        return avalanche(len + __builtin_bswap64(low) + high + multiply_fold(low, high));
    }
    if (len >= 4) {
        uint64_t both = om_get_le32(in + len - 4) + ((uint64_t)om_get_le32(in) << 32);
        uint64_t h = both ^ om_get_le64(secret + 8) ^ om_get_le64(secret + 16);
        h = (h ^ rotate(h, 49) ^ rotate(h, 24)) * PRIME_MX2;
        h = (h ^ ((h >> 35) + len)) * PRIME_MX2;
        return h ^ h >> 28;
    }
    if (len > 0) {
        uint32_t bytes = (uint32_t)in[0] << 16 | (uint32_t)in[len >> 1] << 24 | in[len - 1] | (uint32_t)len << 8;
        return avalanche64(bytes ^ om_get_le32(secret) ^ om_get_le32(secret + 4));
    }
    return avalanche64(om_get_le64(secret + 56) ^ om_get_le64(secret + 64));
}

/* Pairs of 16 bytes from both ends towards the middle; the two may overlap there. */
static uint64_t hash_17_to_128(const uint8_t *in, size_t len) {
    uint64_t acc = len * PRIME64_1;
    for (size_t i = (len - 1) / 32 + 1; i-- > 0;)
        acc += mix16(in + 16 * i, secret + 32 * i) + mix16(in + len - 16 * (i + 1), secret + 32 * i + 16);
    return avalanche(acc);
}

static uint64_t hash_129_to_240(const uint8_t *in, size_t len) {
    uint64_t acc = len * PRIME64_1;
    size_t rounds = len / 16;
    for (size_t i = 0; i < 8; i++)
        acc += mix16(in + 16 * i, secret + 16 * i);
    acc = avalanche(acc);
    for (size_t i = 8; i < rounds; i++)
        acc += mix16(in + 16 * i, secret + 16 * (i - 8) + 3);
    return avalanche(acc + mix16(in + len - 16, secret + 136 - 17));
}

/* ---- 241 bytes and more -------------------------------------------------------------- */

static inline void accumulate(uint64_t acc[8], const uint8_t *in, const uint8_t *key) {
    for (int i = 0; i < 8; i++) {
        uint64_t value = om_get_le64(in + 8 * i);
        uint64_t keyed = value ^ om_get_le64(key + 8 * i);
        acc[i ^ 1] += value;
        acc[i] += (keyed & 0xffffffff) * (keyed >> 32);
    }
}

static inline void scramble(uint64_t acc[8]) {
    for (int i = 0; i < 8; i++) {
        uint64_t v = acc[i] ^ acc[i] >> 47;
        acc[i] = (v ^ om_get_le64(secret + SECRET_SIZE - STRIPE + 8 * i)) * PRIME32_1;
    }
}

static uint64_t hash_long(const uint8_t *in, size_t len) {
    uint64_t acc[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    const uint8_t *last = in + len - STRIPE;
    /* The last stripe is always hashed apart, so a block counts only if a byte follows it. */
    size_t left = len;
    for (; left > BLOCK; in += BLOCK, left -= BLOCK) {
        for (size_t i = 0; i < BLOCK_STRIPES; i++)
            accumulate(acc, in + i * STRIPE, secret + 8 * i);
        scramble(acc);
    }
    for (size_t i = 0; i < (left - 1) / STRIPE; i++)
        accumulate(acc, in + i * STRIPE, secret + 8 * i);
    accumulate(acc, last, secret + SECRET_SIZE - STRIPE - 7);

    uint64_t h = len * PRIME64_1;
    for (int i = 0; i < 4; i++)
        h += multiply_fold(acc[2 * i] ^ om_get_le64(secret + 11 + 16 * i),
                           acc[2 * i + 1] ^ om_get_le64(secret + 11 + 16 * i + 8));
    return avalanche(h);
}

uint64_t om_xxh3(const void *data, size_t len) {
    if (len <= 16)
        return hash_0_to_16(data, len);
    if (len <= 128)
        return hash_17_to_128(data, len);
    if (len <= 240)
        return hash_129_to_240(data, len);
    return hash_long(data, len);
}
