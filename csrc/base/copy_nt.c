/* copy_nt.c -- a copy that goes past the cache, and its checksum on the way.
 *
 * For bytes that are many and not needed here again soon: a large body on its way into its batch, which
 * the disk and a consumer's socket will read. An ordinary store first fetches the line that it is going to
 * overwrite, and where the disk's side has just read that memory it fetches it from another core's
 * cache: 12 µs for 64 KiB where this takes 5 (docs/notes/performance.md). What is in the cache already,
 * the source, is read twice, a piece at a time: once for the checksum, once for the copy.
 */
#include "base/copy_nt.h"
#include "om_base.h"

#include <string.h>

#define PIECE 3072 /* fits the nearest cache, and is what the checksum takes at once */

#if defined(__x86_64__)
#include <emmintrin.h>

#define LINE 64

static void copy_lines(uint8_t *to, const uint8_t *from, size_t len) {
    for (; len >= LINE; to += LINE, from += LINE, len -= LINE) {
        for (size_t i = 0; i < LINE; i += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
    }
    memcpy(to, from, len);
}

/* Other threads will read it: these stores come in any order. */
static void let_others_see(void) {
    _mm_sfence();
}

#else

#define LINE 1

static void copy_lines(uint8_t *to, const uint8_t *from, size_t len) {
    memcpy(to, from, len);
}

static void let_others_see(void) {
}

#endif

uint32_t om_copy_nt(uint32_t crc, uint8_t *to, const uint8_t *from, size_t len) {
    size_t head = (size_t) - (uintptr_t)to % LINE;
    head = head < len ? head : len;
    crc = om_crc32c(crc, from, head);
    memcpy(to, from, head);
    for (size_t at = head; at < len; at += PIECE) {
        size_t piece = len - at < PIECE ? len - at : PIECE;
        crc = om_crc32c(crc, from + at, piece);
        copy_lines(to + at, from + at, piece);
    }
    let_others_see();
    return crc;
}
