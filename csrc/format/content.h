/* content.h -- an AMQP message's properties, and the message as a record of the log.
 *
 *   content header frame:  class u16 | weight u16 | body size u64 | property part
 *   property part:         flags u16 | the values whose flags are set, highest bit first
 *
 *   record:  key = routing key | value = body | timestamp = arrival | headers:
 *              "amqp"      version u8 = 1 (highest bit: has died here) | exchange shortstr |
 *                          property part, as it came
 *              "content-type", "message-id" ... and the string entries of the headers table, under
 *              their own names: for Kafka readers, who can't read the first one
 *
 * An AMQP reader looks at the first header only and gets back, byte for byte, what the publisher
 * sent. A record without it came from a Kafka producer: its properties are made up from its
 * headers. Pure functions, bytes in, bytes out: no memory is allocated, nothing is kept, no byte is
 * believed before its length was checked. Spans point into the bytes that were given.
 */
#ifndef OM_CONTENT_H
#define OM_CONTENT_H
#include "om_base.h"

/* ---- field tables (table.c) ---------------------------------------------------------- */

/* How deep tables and arrays may lie in each other. RabbitMQ has no limit; a client that needs
 * more than this has another aim. */
#define OM_TABLE_DEPTH 32

/* One entry of a table or array, as type letter and value bytes:
 *   t bool 1   b i8  B u8 1   s i16  u u16 2   I i32  i u32  f float 4   D scale u8 + i32 5
 *   l i64  L i64  d double  T time in seconds 8   V nothing 0
 *   S string   x bytes   A array   F table: the value without its u32 length */
typedef struct om_field {
    uint8_t type;
    om_span name; /* empty in an array */
    om_span value;
} om_field;

/* A name may come more than once: the first of them counts, as in RabbitMQ, for us and for Python
 * (amqp/tables.py); what takes a name out takes out all of them. */

/* Are these the bytes of a table, without its length, and right in every depth? OM_OK, OM_E_CORRUPT. */
int om_table_check(const uint8_t *table, size_t len);
/* Entry by entry: start with *at = 0. OM_OK, OM_END, OM_E_CORRUPT. Nested values are bounded, not
 * looked into. */
int om_table_next(const uint8_t *table, size_t len, size_t *at, om_field *out);
int om_array_next(const uint8_t *array, size_t len, size_t *at, om_field *out);
/* The first entry of that name: OM_OK, OM_END (none), OM_E_CORRUPT. A NULL table has none, so that
 * an absent headers property (NULL, -1) can be asked too. */
int om_table_get(const uint8_t *table, size_t len, const char *name, om_field *out);
/* Any of the integer types as a number; OM_E_INVALID for another type. */
int om_field_integer(const om_field *field, int64_t *out);

/* ---- properties (content.c) ---------------------------------------------------------- */

#define OM_HAS_CONTENT_TYPE 0x8000
#define OM_HAS_CONTENT_ENCODING 0x4000
#define OM_HAS_HEADERS 0x2000
#define OM_HAS_DELIVERY_MODE 0x1000
#define OM_HAS_PRIORITY 0x0800
#define OM_HAS_CORRELATION_ID 0x0400
#define OM_HAS_REPLY_TO 0x0200
#define OM_HAS_EXPIRATION 0x0100
#define OM_HAS_MESSAGE_ID 0x0080
#define OM_HAS_TIMESTAMP 0x0040
#define OM_HAS_TYPE 0x0020
#define OM_HAS_USER_ID 0x0010
#define OM_HAS_APP_ID 0x0008
#define OM_HAS_CLUSTER_ID 0x0004

/* Absent properties are 0, or {NULL, -1}. */
typedef struct om_properties {
    const uint8_t *data; /* the property part itself */
    uint32_t len;
    uint16_t flags; /* OM_HAS_* */
    uint8_t delivery_mode, priority;
    om_span headers; /* the table's bytes without its length: for om_table_get */
    om_span content_type, content_encoding, correlation_id, reply_to, expiration, message_id;
    om_span type, user_id, app_id, cluster_id;
    int64_t timestamp; /* seconds, as the publisher set it */
} om_properties;

/* data: from the flags on, to the end of the content header frame. OM_OK or OM_E_CORRUPT: a value
 * runs over the end, bytes are left over, a property nobody defined, a table that isn't one. */
int om_properties_parse(const uint8_t *data, size_t len, om_properties *out);
/* RabbitMQ's rules: a decimal number, with or without a sign, of at most ten years. OM_OK or OM_E_INVALID. */
int om_expiration_ms(om_span text, int64_t *out);

/* The arrays of further routing keys, for om_array_next; {NULL, -1} when absent. Entries that aren't
 * 'S' are no keys. OM_E_INVALID when one is there and no array: RabbitMQ refuses that message. */
int om_properties_copies(const om_properties *p, om_span *cc, om_span *bcc);

/* ---- the message as a record (content_record.c) -------------------------------------- */

/* What follows a record's value: `varint(header count) | headers`. The same for all messages with
 * the same exchange and property part: make it once, keep it by those, copy it behind each. */
#define OM_CONTENT_READABLE_MAX 4096 /* of it, at most so much is for Kafka readers */
size_t om_content_headers_bound(om_span exchange, const om_properties *p); /* is always enough */
/* The length, OM_E_SHORT (cap), OM_E_INVALID (exchange over 255 bytes). */
int64_t om_content_template(uint8_t *out, size_t cap, om_span exchange, const om_properties *p);
/* For a dead-lettered message: its x-death is the broker's own, not a publisher's invention. */
void om_content_mark_died(uint8_t *made);

/* A Kafka producer's batch (checked, uncompressed), before it is appended: what its records claim about themselves as
 * AMQP messages isn't ours. Returns how many were changed: the CRC is wrong then. Records of compressed batches
 * are a Kafka producer's in any case: OM_ATTR_DECOMPRESSED. */
int om_content_disown(uint8_t *batch, size_t len);

/* A whole record of a batch, length first, with such a template behind it. Deltas as in batch.h.
 * Returns the length, OM_E_SHORT (cap), OM_E_INVALID (over INT32_MAX). With body.data NULL the body's
 * body.len bytes are left as they are, for the caller to fill in: *body_at says where (may be
 * NULL). */
#define OM_CONTENT_RECORD_OVERHEAD 31 /* cap: this, key, body and template */
int64_t om_content_record(uint8_t *out, size_t cap, int64_t time_delta, int32_t offset_delta, om_span routing_key,
                          om_span body, om_span tail, size_t *body_at);

typedef struct om_content {
    om_span exchange;          /* never null, at most 255 bytes */
    om_span routing_key;       /* the same; empty for a Kafka key that can't be one (over 255 bytes, no
                              * UTF-8), which is then in the header x-kafka-key */
    om_span body;              /* never null */
    om_span properties;        /* flags and values, right, to be sent as they are */
    int64_t offset, timestamp; /* timestamp in milliseconds: of its arrival */
    int foreign;               /* came from Kafka: properties lie in the scratch buffer */
    int died;                  /* was dead-lettered by this broker before: for om_x_death.first */
} om_content;

/* One record: body is what follows its length, batch the batch it lies in. scratch is where the
 * properties of a Kafka producer's record are made; headers that don't fit there, or whose name
 * is over 255 bytes, are left out, so give as much as a frame may have: at least
 * OM_CONTENT_SCRATCH_MIN. checked (may be NULL): a property part that is known to be right, so that
 * equal bytes aren't looked at again; it is set to this record's. Let it start as {NULL, -1} and
 * live no longer than the bytes. OM_OK, OM_E_CORRUPT, OM_E_SHORT (scratch). */
#define OM_CONTENT_SCRATCH_MIN 64
int om_content_read(const uint8_t *body, size_t len, const om_batch_info *batch, uint8_t *scratch, size_t scratch_cap,
                    om_span *checked, om_content *out);

/* The same over a checked batch, record after record: OM_OK, OM_END, OM_E_CORRUPT (again each time).
 * Init: as om_record_iter_init, OM_E_COMPRESSED when it is compressed. A control batch (a transaction's
 * end) has no messages: OM_END at once. om_content_next's out holds until the next call (its made-up
 * properties, until scratch is used again). */
typedef struct om_content_iter {
    om_record_iter records;
    om_span checked;
    uint8_t *scratch;
    size_t scratch_cap;
} om_content_iter;
int om_content_iter_init(om_content_iter *iter, const uint8_t *batch, size_t len, uint8_t *scratch, size_t scratch_cap);
int om_content_next(om_content_iter *iter, om_content *out);
/* Steps over records below that offset by their lengths alone; the next one is the first at or
 * after it. OM_OK (then om_content_next, which may still say OM_END) or OM_E_CORRUPT. */
int om_content_seek(om_content_iter *iter, int64_t offset);

/* ---- rewriting (content_headers.c, x_death.c): a new property part ---------------------- */

/* All take parsed properties and return the length of the property part written to out (which
 * must not overlap the old one), or OM_E_SHORT when cap is too small. Always enough:
 * om_x_death_bound, om_headers_bound; for om_headers_without and _delayed the latter without extras. */

typedef struct om_extra {
    const char *name;
    uint8_t type; /* 'l' number, 'S' text, 't' number as a bool; 0: the entry is removed */
    int64_t number;
    om_span text;
} om_extra;
size_t om_headers_bound(const om_properties *in, const om_extra *extras, int32_t count);
/* Entries set: what had the name goes (all of that name), the new ones come last, in order.
 * OM_E_INVALID: a type that isn't one of those, a name over 255 bytes. */
int64_t om_headers_with(uint8_t *out, size_t cap, const om_properties *in, const om_extra *extras, int32_t count);
/* Entries removed, e.g. {"BCC"}; the headers property goes when nothing is left of it. */
int64_t om_headers_without(uint8_t *out, size_t cap, const om_properties *in, const char *const *names, int32_t count);
/* BCC is for the broker only: a stored or delivered message doesn't have it, whatever its type. *p is then
 * what was written to out, which must not overlap it and must live as long; else it stays. OM_OK, OM_E_SHORT. */
int om_properties_hide_bcc(om_properties *p, uint8_t *out, size_t cap);
/* x-delay as the delayed-message plugin reads it: an integer of any type, a float, or digits as
 * text. OM_OK, or OM_END when there is no such number. */
int om_delay_ms(const om_properties *in, int64_t *out);
/* As the plugin delivers: a delay above 0 negative, as 'l'; anything else is a plain copy. At most 7 bytes longer. */
int64_t om_headers_delayed(uint8_t *out, size_t cap, const om_properties *in);

enum om_x_death_reason {
    OM_DEATH_EXPIRED = 0,
    OM_DEATH_REJECTED = 1,
    OM_DEATH_MAXLEN = 2,
    OM_DEATH_DELIVERY_LIMIT = 3
};
typedef struct om_x_death {
    int reason;
    om_span queue;                 /* where it died */
    om_span exchange, routing_key; /* as it was published there */
    int64_t now_s;
    int drop_cc; /* the queue has a dead-letter-routing-key: CC goes with the old key */
    int first;   /* it never died here: an x-death that it has is its publisher's and is
                              * written over, as RabbitMQ 4 does; without this it is believed */
} om_x_death;
size_t om_x_death_bound(const om_properties *in, const om_x_death *death);
/* x-death with this death in front (one of the same queue and reason is counted up and moved there),
 * x-first-death-*, x-last-death-*; without BCC; without expiration, which x-death keeps. */
int64_t om_x_death_rewrite(uint8_t *out, size_t cap, const om_properties *in, const om_x_death *death);
/* Has it been in that queue and come back without anyone rejecting it on the way? Then RabbitMQ
 * drops it. in: what om_x_death_rewrite wrote, parsed. 1 or 0; always 0 after a rejection. */
int om_x_death_cycle(const om_properties *in, om_span queue);

/* What a content header, which is one frame whatever its size, has room for beside the frame's head and end, class and
 * body size. */
#define OM_HEADER_ROOM(frame_max) ((size_t)(frame_max)-20)

#endif
