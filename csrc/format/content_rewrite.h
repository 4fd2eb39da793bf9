/* content_rewrite.h -- writing a property part anew with another headers table.
 *
 *   | flags | content-type, -encoding | length, headers table | the other properties |
 *             copied                    entry by entry          copied
 *
 * om_rewrite_begin, then the table's entries, then om_rewrite_end. Room is looked at with each
 * piece; once there was too little, nothing more is written and the end says OM_E_SHORT.
 */
#ifndef OM_CONTENT_REWRITE_H
#define OM_CONTENT_REWRITE_H
#include "base/bytes.h"
#include "format/content.h"

typedef struct om_rewrite {
    const om_properties *in;
    uint8_t *out;
    size_t len, cap;
    size_t table_at; /* where the headers table's length lies */
    int full;
} om_rewrite;

void om_rewrite_begin(om_rewrite *to, uint8_t *out, size_t cap, const om_properties *in);
/* without_expiration: that property is left out. */
int64_t om_rewrite_end(om_rewrite *to, int without_expiration);

static inline void om_rewrite_bytes(om_rewrite *to, const void *data, size_t len) {
    if (to->full || len > to->cap - to->len) {
        to->full = 1;
        return;
    }
    if (len > 0)
        memcpy(to->out + to->len, data, len);
    to->len += len;
}

/* The type of an array's entry, which has no name. */
static inline void om_rewrite_type(om_rewrite *to, uint8_t type) {
    om_rewrite_bytes(to, &type, 1);
}

static inline void om_rewrite_name(om_rewrite *to, const char *name, uint8_t type) {
    uint8_t len = (uint8_t)strlen(name);
    om_rewrite_bytes(to, &len, 1);
    om_rewrite_bytes(to, name, len);
    om_rewrite_type(to, type);
}

/* A string's, table's or array's length, known only at its end: open gives where it lies. */
static inline size_t om_rewrite_open(om_rewrite *to) {
    size_t at = to->len;
    om_rewrite_bytes(to, "\0\0\0", 4);
    return at;
}

static inline void om_rewrite_close(om_rewrite *to, size_t at) {
    if (!to->full)
        om_put_be32(to->out + at, (uint32_t)(to->len - at - 4));
}

static inline void om_rewrite_text(om_rewrite *to, om_span text) {
    size_t at = om_rewrite_open(to);
    om_rewrite_bytes(to, text.data, text.len > 0 ? (size_t)text.len : 0);
    om_rewrite_close(to, at);
}

static inline void om_rewrite_long(om_rewrite *to, int64_t number) {
    uint8_t bytes[8];
    om_put_be64(bytes, (uint64_t)number);
    om_rewrite_bytes(to, bytes, sizeof bytes);
}

static inline int om_span_is(const om_span *span, const char *text) {
    size_t len = strlen(text);
    return span->len >= 0 && (size_t)span->len == len && memcmp(span->data, text, len) == 0;
}
#endif
