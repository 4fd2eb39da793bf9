/* crc32c.c -- CRC-32C (Castagnoli), as record batches and the WAL carry it.
 *
 * Promise: the same number from every path, for every length and alignment. The processor is
 * asked at each call (one load and a branch that is always predicted), so there is no pointer
 * to set up, no start-up order to get right and no state.
 *
 * The crc32 instruction takes 3 cycles but can start every cycle. One stream would use a
 * third of it, so three blocks that lie side by side go at once:
 *
 *     | a: BLOCK bytes | b: BLOCK bytes | c: BLOCK bytes |
 *
 *     crc(abc) = crc(a) * x^(16 BLOCK)  +  crc(b) * x^(8 BLOCK)  +  crc(c)      (mod P)
 *
 * A carry-less multiplication does each product. Bits are reflected, so its result reads as
 * v * k * x, and the crc32 instruction that reduces it to 32 bits multiplies by x^32: hence
 * the constants below are x^(n - 33) mod P for a shift by n bits.
 */
#include "base/bytes.h"
#include "base/checksum.h"

/* ---- portable: slicing by 8 ---------------------------------------------------------- */

/* Table k maps a byte followed by k zero bytes to its CRC. The map is linear: eight numbers,
 * for the eight single bits, make all 256, and the compiler does the work. */
#define ENTRY(n, a, b, c, d, e, f, g, h)                                                                               \
    (((n)&1 ? a : 0u) ^ ((n)&2 ? b : 0u) ^ ((n)&4 ? c : 0u) ^ ((n)&8 ? d : 0u) ^ ((n)&16 ? e : 0u) ^                   \
     ((n)&32 ? f : 0u) ^ ((n)&64 ? g : 0u) ^ ((n)&128 ? h : 0u))
#define ENTRIES4(n, ...)                                                                                               \
    ENTRY(n, __VA_ARGS__), ENTRY(n + 1, __VA_ARGS__), ENTRY(n + 2, __VA_ARGS__), ENTRY(n + 3, __VA_ARGS__)
#define ENTRIES16(n, ...)                                                                                              \
    ENTRIES4(n, __VA_ARGS__), ENTRIES4(n + 4, __VA_ARGS__), ENTRIES4(n + 8, __VA_ARGS__), ENTRIES4(n + 12, __VA_ARGS__)
#define ENTRIES64(n, ...)                                                                                              \
    ENTRIES16(n, __VA_ARGS__), ENTRIES16(n + 16, __VA_ARGS__), ENTRIES16(n + 32, __VA_ARGS__),                         \
        ENTRIES16(n + 48, __VA_ARGS__)
#define TABLE(...)                                                                                                     \
    { ENTRIES64(0, __VA_ARGS__), ENTRIES64(64, __VA_ARGS__), ENTRIES64(128, __VA_ARGS__), ENTRIES64(192, __VA_ARGS__) }

static const uint32_t tables[8][256] = {
    TABLE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
    TABLE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
    TABLE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
    TABLE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
    TABLE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
    TABLE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
    TABLE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
    TABLE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};

uint32_t om_crc32c_portable(uint32_t crc, const void *data, size_t len) {
    const uint8_t *at = data;
    crc = ~crc;
    for (; len >= 8; at += 8, len -= 8) {
        uint64_t word = om_get_le64(at) ^ crc;
        crc = tables[7][word & 255] ^ tables[6][word >> 8 & 255] ^ tables[5][word >> 16 & 255] ^
              tables[4][word >> 24 & 255] ^ tables[3][word >> 32 & 255] ^ tables[2][word >> 40 & 255] ^
              tables[1][word >> 48 & 255] ^ tables[0][word >> 56];
    }
    for (; len > 0; at++, len--)
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    return ~crc;
}

/* ---- x86-64: three streams ----------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>

#define LONG_BLOCK 1024
#define LONG_SHIFT 0x170076fa       /* x^(8 * 1024 - 33) mod P */
#define LONG_SHIFT_TWICE 0xa51b6135 /* x^(16 * 1024 - 33) mod P */
#define SHORT_BLOCK 128
#define SHORT_SHIFT 0x0d3b6092       /* x^(8 * 128 - 33) mod P */
#define SHORT_SHIFT_TWICE 0xb9e02b86 /* x^(16 * 128 - 33) mod P */

#define OM_TARGET __attribute__((target("sse4.2,pclmul")))

OM_TARGET static inline uint64_t three_blocks(uint64_t crc, const uint8_t *at, size_t block, uint32_t shift,
                                              uint32_t shift_twice) {
    uint64_t a = crc, b = 0, c = 0;
    for (const uint8_t *end = at + block; at < end; at += 8) {
        a = _mm_crc32_u64(a, om_get_le64(at));
        b = _mm_crc32_u64(b, om_get_le64(at + block));
        c = _mm_crc32_u64(c, om_get_le64(at + 2 * block));
    }
    __m128i left = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), _mm_cvtsi64_si128(shift_twice), 0);
    __m128i middle = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)b), _mm_cvtsi64_si128(shift), 0);
    uint64_t product = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(left, middle));
    return _mm_crc32_u64(0, product) ^ c;
}

OM_TARGET static uint32_t hardware(uint32_t seed, const void *data, size_t len) {
    const uint8_t *at = data;
    uint64_t crc = ~seed;
    for (; len >= 3 * LONG_BLOCK; at += 3 * LONG_BLOCK, len -= 3 * LONG_BLOCK)
        crc = three_blocks(crc, at, LONG_BLOCK, LONG_SHIFT, LONG_SHIFT_TWICE);
    for (; len >= 3 * SHORT_BLOCK; at += 3 * SHORT_BLOCK, len -= 3 * SHORT_BLOCK)
        crc = three_blocks(crc, at, SHORT_BLOCK, SHORT_SHIFT, SHORT_SHIFT_TWICE);
    for (; len >= 8; at += 8, len -= 8)
        crc = _mm_crc32_u64(crc, om_get_le64(at));
    for (; len > 0; at++, len--)
        crc = _mm_crc32_u8((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}

int om_crc32c_is_hardware(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

/* ---- 64-bit ARM: one stream; the instruction is optional in ARMv8.0 ------------------ */

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

#define ARM_HWCAP_CRC32 (1 << 7)

static uint32_t hardware(uint32_t crc, const void *data, size_t len) {
    const uint8_t *at = data;
    crc = ~crc;
    for (; len >= 8; at += 8, len -= 8)
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(om_get_le64(at)));
    for (; len > 0; at++, len--)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*at));
    return ~crc;
}

int om_crc32c_is_hardware(void) {
    return (getauxval(AT_HWCAP) & ARM_HWCAP_CRC32) != 0;
}

#else

static uint32_t hardware(uint32_t crc, const void *data, size_t len) {
    return om_crc32c_portable(crc, data, len);
}

int om_crc32c_is_hardware(void) {
    return 0;
}

#endif

uint32_t om_crc32c(uint32_t crc, const void *data, size_t len) {
    return om_crc32c_is_hardware() ? hardware(crc, data, len) : om_crc32c_portable(crc, data, len);
}

/* ---- joining ---------------------------------------------------------------------------- */

/* x^(8 * 2^k) mod P, reflected: a shift by 2^k bytes. */
static const uint32_t shifts[32] = {
    0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
    0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
    0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc,
    0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000,
};

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b & 1 ? b >> 1 ^ 0x82f63b78 : b >> 1;
    }
    return product;
}

uint32_t om_crc32c_join(uint32_t left, uint32_t right, uint32_t right_len) {
    for (int k = 0; right_len; k++, right_len >>= 1)
        if (right_len & 1)
            left = multiply(left, shifts[k]);
    return left ^ right;
}
