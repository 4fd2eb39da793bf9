/* fuzz_batch.c -- record batches from strangers: peek, check, validate, iterate.
 *
 * An input is the bytes of a batch. Few mutations survive a CRC, so each input is tried three
 * times: as it is, with the CRC it should have, and with length and magic set right as well.
 * What is promised is checked, not only that nothing crashes: each depth of checking implies
 * the ones above it, a valid batch can be walked to its end, and its records, written again,
 * read the same.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I csrc tests/fuzz/fuzz_batch.c csrc/[a-z]*.c
 */
#include "base/bytes.h"
#include "format/batch.h"
#include <stdlib.h>

#define HEADERS 64

#define PROMISE(holds)                                                                                                 \
    do {                                                                                                               \
        if (!(holds))                                                                                                  \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int same_span(const om_span *a, const om_span *b) {
    return a->len == b->len && (a->len <= 0 || memcmp(a->data, b->data, (size_t)a->len) == 0);
}

/* Both hold the same records; the second was built from the first. */
static void compare(const uint8_t *data, size_t len, const uint8_t *again, size_t again_len) {
    om_record_iter left, right;
    om_record a, b;
    om_header a_headers[HEADERS], b_headers[HEADERS];
    PROMISE(om_record_iter_init(&left, data, len) == OM_OK);
    PROMISE(om_record_iter_init(&right, again, again_len) == OM_OK);
    while (om_record_next(&left, &a, a_headers, HEADERS) == OM_OK) {
        PROMISE(om_record_next(&right, &b, b_headers, HEADERS) == OM_OK);
        PROMISE(a.offset == b.offset && a.timestamp == b.timestamp);
        PROMISE(same_span(&a.key, &b.key) && same_span(&a.value, &b.value));
        PROMISE(a.header_count == b.header_count);
        for (int32_t i = 0; i < a.header_count; i++)
            PROMISE(same_span(&a_headers[i].key, &b_headers[i].key) &&
                    same_span(&a_headers[i].value, &b_headers[i].value));
    }
    PROMISE(om_record_next(&right, &b, b_headers, HEADERS) == OM_END);
}

static void write_again(const uint8_t *data, size_t len, const om_batch_info *info) {
    om_record_iter iter;
    om_record record;
    om_header headers[HEADERS];
    om_build build;
    om_build_init(&build);
    PROMISE(om_record_iter_init(&iter, data, len) == OM_OK);
    while (om_record_next(&iter, &record, headers, HEADERS) == OM_OK) {
        /* Refused: timestamps too far apart, since the base is now the first record's. */
        if (record.header_count > HEADERS || om_build_add(&build, &record) != OM_OK) {
            om_build_free(&build);
            return;
        }
    }
    om_batch_info written = {.base_offset = info->base_offset, .producer_id = -1};
    om_batch_info found;
    om_buffer *bytes = om_build_take(&build, &written);
    PROMISE(bytes != NULL);
    PROMISE(om_batch_validate(bytes->data, bytes->len, 0, &found) == OM_OK);
    PROMISE(found.size == written.size && found.crc == written.crc);
    compare(data, len, bytes->data, bytes->len);
    om_buffer_unref(bytes);
}

static void touch_span(const om_span *span) {
    if (span->len > 0)
        om_crc32c(0, span->data, (size_t)span->len);
}

/* Looks at every byte a record claims as its own: the sanitizer knows which are not. */
static void touch(const om_record *record) {
    touch_span(&record->key);
    touch_span(&record->value);
    for (int32_t i = 0; i < record->header_count && i < HEADERS; i++) {
        touch_span(&record->headers[i].key);
        touch_span(&record->headers[i].value);
    }
}

static void try(const uint8_t *data, size_t len) {
    om_batch_info info;
    int peeked = om_batch_peek(data, len, &info);
    int checked = om_batch_check(data, len, &info);
    int compacted = om_batch_validate(data, len, 1, &info);
    int valid = om_batch_validate(data, len, 0, &info);
    PROMISE(checked != OM_OK || peeked == OM_OK);
    PROMISE(compacted != OM_OK || checked == OM_OK);
    PROMISE(valid != OM_OK || compacted == OM_OK);
    PROMISE(checked != OM_E_SHORT || (compacted == OM_E_SHORT && valid == OM_E_SHORT));

    om_record_iter iter;
    om_record record;
    om_header headers[HEADERS];
    int32_t count = 0;
    int result = om_record_iter_init(&iter, data, len);
    int compressed = result == OM_E_COMPRESSED;
    while (result == OM_OK) {
        result = om_record_next(&iter, &record, headers, HEADERS);
        if (result == OM_OK) {
            touch(&record);
            count++;
        }
    }
    if (compacted == OM_OK && !compressed)
        PROMISE(result == OM_END && count == info.record_count);
    if (valid == OM_OK && !compressed)
        write_again(data, len, &info);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try(data, size);
    if (size < OM_BATCH_OVERHEAD)
        return 0;
    /* A copy of exactly this size, so that the sanitizer sees a read one byte past it. */
    uint8_t *copy = malloc(size);
    PROMISE(copy != NULL);
    memcpy(copy, data, size);
    om_put_be32(copy + 17, om_crc32c(0, copy + 21, size - 21));
    try(copy, size);
    om_put_be32(copy + 8, (uint32_t)size - 12);
    copy[0] &= 0x7f;
    copy[16] = OM_BATCH_MAGIC;
    try(copy, size);
    free(copy);
    return 0;
}
