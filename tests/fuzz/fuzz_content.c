/* fuzz_content.c -- properties from strangers, and records that claim to be AMQP messages.
 *
 * An input's first byte tells what the rest is: a property part (0), the body of a record behind
 * its length (1), or the records of a batch (2). What is promised is checked: properties that
 * parse survive every rewriting and the way through a record; whatever a record holds, what a client
 * would be sent parses; a batch that is valid is read to its end, each message at its offset.
 */
#include "base/bytes.h"
#include "format/batch.h"
#include "format/content.h"
#include <stdlib.h>

#define SCRATCH 256

#define PROMISE(holds)                                                                                                 \
    do {                                                                                                               \
        if (!(holds))                                                                                                  \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const om_span NAME = {(const uint8_t *)"work", 4};

static uint8_t *room(size_t size) {
    uint8_t *at = malloc(size > 0 ? size : 1);
    PROMISE(at != NULL);
    return at;
}

static int same(const om_span *span, const void *data, size_t len) {
    return span->len >= 0 && (size_t)span->len == len && memcmp(span->data, data, len) == 0;
}

/* What a client is sent must be right, and all of it there to be read. */
static void check_content(const om_content *content) {
    om_properties properties;
    PROMISE(content->exchange.len >= 0 && content->exchange.len <= 255);
    PROMISE(content->routing_key.len >= 0 && content->routing_key.len <= 255);
    PROMISE(content->body.len >= 0);
    PROMISE(om_properties_parse(content->properties.data, (size_t)content->properties.len, &properties) == OM_OK);
    om_crc32c(0, content->body.data, (size_t)content->body.len);
    om_crc32c(0, content->routing_key.data, (size_t)content->routing_key.len);
    om_crc32c(0, content->exchange.data, (size_t)content->exchange.len);
}

/* ---- a property part ------------------------------------------------------------------ */

static void through_a_record(const om_properties *in) {
    size_t bound = om_content_headers_bound(NAME, in);
    uint8_t *tail = room(bound);
    int64_t tail_len = om_content_template(tail, bound, NAME, in);
    PROMISE(tail_len > 0);
    om_content_mark_died(tail);
    size_t cap = OM_CONTENT_RECORD_OVERHEAD + 8 + (size_t)tail_len;
    uint8_t *record = room(cap), scratch[SCRATCH];
    int64_t len = om_content_record(record, cap, -3, 5, NAME, NAME, (om_span){tail, (int32_t)tail_len}, NULL);
    PROMISE(len > 0);

    om_content content;
    om_batch_info batch = {.base_offset = 7, .last_offset_delta = 9, .base_timestamp = 1000, .max_timestamp = 2000};
    int32_t length;
    const uint8_t *body = om_get_varint(record, record + len, &length);
    PROMISE(body != NULL && body + length == record + len);
    PROMISE(om_content_read(body, (size_t)length, &batch, scratch, SCRATCH, NULL, &content) == OM_OK);
    check_content(&content);
    PROMISE(!content.foreign && content.died && content.offset == 12 && content.timestamp == 997);
    PROMISE(same(&content.exchange, "work", 4) && same(&content.routing_key, "work", 4));
    PROMISE(same(&content.body, "work", 4) && same(&content.properties, in->data, in->len));
    free(record);
    free(tail);
}

/* Two deaths: the second finds what the first wrote. */
static void dies(const om_properties *in) {
    om_x_death death = {.queue = NAME, .exchange = NAME, .routing_key = NAME, .now_s = 1};
    for (death.reason = OM_DEATH_EXPIRED; death.reason <= OM_DEATH_DELIVERY_LIMIT; death.reason++) {
        om_properties once, twice;
        size_t bound = om_x_death_bound(in, &death);
        uint8_t *first = room(bound);
        int64_t len = om_x_death_rewrite(first, bound, in, &death);
        PROMISE(len > 0 && om_properties_parse(first, (size_t)len, &once) == OM_OK);
        PROMISE(om_x_death_cycle(&once, NAME) == (death.reason != OM_DEATH_REJECTED));
        bound = om_x_death_bound(&once, &death);
        uint8_t *second = room(bound);
        len = om_x_death_rewrite(second, bound, &once, &death);
        PROMISE(len > 0 && om_properties_parse(second, (size_t)len, &twice) == OM_OK);
        PROMISE(twice.expiration.len < 0);
        free(second);
        free(first);
    }
}

static void is_rewritten(const om_properties *in) {
    static const char *const names[] = {"BCC", "x-delay"};
    om_extra extras[] = {{.name = "x-delivery-count", .type = 'l', .number = 3},
                         {.name = "text", .type = 'S', .text = NAME},
                         {.name = "BCC"}};
    om_properties found;
    om_field field;
    int64_t number;
    size_t bound = om_headers_bound(in, extras, 3);
    uint8_t *out = room(bound);
    int64_t len = om_headers_with(out, bound, in, extras, 3);
    PROMISE(len > 0 && om_properties_parse(out, (size_t)len, &found) == OM_OK);
    PROMISE(om_table_get(found.headers.data, (size_t)found.headers.len, "x-delivery-count", &field) == OM_OK);
    PROMISE(om_field_integer(&field, &number) == OM_OK && number == 3);
    PROMISE(om_table_get(found.headers.data, (size_t)found.headers.len, "BCC", &field) == OM_END);
    free(out);

    bound = om_headers_bound(in, NULL, 0);
    out = room(bound);
    len = om_headers_without(out, bound, in, names, 2);
    PROMISE(len > 0 && om_properties_parse(out, (size_t)len, &found) == OM_OK);
    PROMISE(om_delay_ms(&found, &number) == OM_END);
    len = om_headers_delayed(out, bound, in);
    PROMISE(len > 0 && om_properties_parse(out, (size_t)len, &found) == OM_OK);
    free(out);
}

static void try_properties(const uint8_t *data, size_t len) {
    om_properties properties;
    int64_t expiration;
    om_span cc, bcc;
    if (om_properties_parse(data, len, &properties) != OM_OK)
        return;
    if (om_expiration_ms(properties.expiration, &expiration) == OM_OK)
        PROMISE(expiration >= 0 && expiration <= 315360000000);
    om_properties_copies(&properties, &cc, &bcc);
    om_x_death_cycle(&properties, NAME);
    through_a_record(&properties);
    dies(&properties);
    is_rewritten(&properties);
}

/* ---- records -------------------------------------------------------------------------- */

static void try_record(const uint8_t *data, size_t len) {
    om_batch_info batch = {.base_offset = 100, .last_offset_delta = 50, .base_timestamp = 1000, .max_timestamp = 2000};
    uint8_t scratch[SCRATCH];
    om_content content;
    om_span checked = {NULL, -1};
    for (int again = 0; again < 2; again++)
        if (om_content_read(data, len, &batch, scratch, SCRATCH, &checked, &content) == OM_OK)
            check_content(&content);
}

static void try_batch(const uint8_t *data, size_t size) {
    size_t len = OM_BATCH_OVERHEAD + size - 1;
    uint8_t *batch = calloc(1, len), scratch[SCRATCH];
    PROMISE(batch != NULL && size > 0);
    om_put_be32(batch + 8, (uint32_t)len - 12);
    batch[16] = OM_BATCH_MAGIC;
    om_put_be32(batch + 23, 60);
    om_put_be32(batch + 57, data[0] % 16);
    memcpy(batch + OM_BATCH_OVERHEAD, data + 1, size - 1);
    om_put_be32(batch + 17, om_crc32c(0, batch + 21, len - 21));

    om_batch_info info;
    om_content_iter iter;
    om_content content;
    int valid = om_batch_validate(batch, len, 1, &info) == OM_OK;
    int result = om_content_iter_init(&iter, batch, len, scratch, SCRATCH);
    int64_t last = -1;
    int32_t count = 0;
    while (result == OM_OK) {
        result = om_content_next(&iter, &content);
        if (result != OM_OK)
            break;
        check_content(&content);
        PROMISE(content.offset > last);
        last = content.offset;
        count++;
    }
    PROMISE(!valid || (result == OM_END && count == info.record_count));
    if (valid && count > 0) {
        PROMISE(om_content_iter_init(&iter, batch, len, scratch, SCRATCH) == OM_OK);
        PROMISE(om_content_seek(&iter, last) == OM_OK && om_content_next(&iter, &content) == OM_OK);
        PROMISE(content.offset == last && om_content_next(&iter, &content) == OM_END);
    }
    free(batch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    /* A copy of exactly this size, so that the sanitizer sees a read one byte past it. */
    uint8_t *copy = room(size - 1);
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 3 == 0)
        try_properties(copy, size - 1);
    else if (data[0] % 3 == 1)
        try_record(copy, size - 1);
    else
        try_batch(copy, size - 1);
    free(copy);
    return 0;
}
