/* om_base.h -- the common part: results, checksums, record batches, cursors.
 *
 * Nothing here knows a store: these functions work on memory of the caller, take no lock and keep
 * nothing between two calls. Any thread may call them; an om_cursor or om_cleaner belongs to one
 * thread at a time.
 *
 * Apache Kafka's batch format is the format on disk and in the protocol: docs/log-format.md.
 */
#ifndef OTTERMQ_BASE_H
#define OTTERMQ_BASE_H

#include <stddef.h>
#include <stdint.h>

/* The result of a call: OM_OK or a count, or one of these. Each means one thing; a header lists a call's
 * results, and explains them only where that isn't plain from here. */
enum om_result {
    OM_OK = 0,
    OM_END = 1,              /* nothing more to read, or nothing to do here */
    OM_DUPLICATE = 2,        /* the producer's batch was appended before, and keeps its offset */
    OM_E_SHORT = -1,         /* a buffer is too short: more bytes to read, or more room to write, are needed */
    OM_E_CORRUPT = -2,       /* bytes that can't be what they claim: CRC, magic, bounds */
    OM_E_INVALID = -3,       /* an argument, or a field in it, isn't what the call takes */
    OM_E_NO_MEMORY = -4,     /* malloc failed */
    OM_E_IO = -5,            /* a system call failed; the error text says which */
    OM_E_NO_SPACE = -6,      /* the disk is full, or below the low-space limit */
    OM_E_FENCED = -7,        /* a WAL sync failed: durable appends are refused until it is unfenced */
    OM_E_FULL = -8,          /* no room now (WAL, hot tail, queue, output, what the caller gives to be filled): a
                              * state, not an error; come back when there is room */
    OM_E_STALE_EPOCH = -9,   /* a leader's or producer's epoch that is older than the log's */
    OM_E_RANGE = -10,        /* an offset below the start or beyond the end, or out of order */
    OM_E_DELETED = -11,      /* the log, or the file of its segment, was deleted */
    OM_E_NOT_RESIDENT = -12, /* not at hand: it was asked for (read from the disk, decompressed); come back */
    OM_E_TIMEOUT = -13,      /* it didn't happen in the time given */
    OM_E_UNREADABLE = -14,   /* damaged, cut or unreadable: a part of a segment, or all of it */
    OM_E_GONE = -15,         /* what the call names isn't there: connection, channel, queue, segment, open request */
    OM_E_EXISTS = -16,       /* the name or number is in use */
    OM_E_LOCKED = -17,       /* held exclusively */
    OM_E_STALE = -18,        /* computed before a change: compute again */
    OM_E_LIMIT = -19,        /* more than a limit allows: waiting doesn't help */
    OM_E_COMPRESSED = -20,   /* the batch is compressed: the caller decompresses it first */
    OM_E_REFUSED = -21,      /* the producer may not write this now: a Kafka error code comes with it */
    OM_E_UNSUPPORTED = -22,  /* another version's format, or what the file system can't do */
    OM_E_INTERRUPTED = -23   /* interrupted (om_store_interrupt) */
};
const char *om_result_text(int result);

/* ---- the process (secrecy.c) ---------------------------------------------------------- */

int om_forbid_dumps(void); /* OM_OK, OM_E_IO: the kernel refuses */

/* ---- checksums (crc32c.c) ------------------------------------------------------------- */

uint32_t om_crc32c(uint32_t crc, const void *data, size_t len); /* best for this CPU; start with 0 */

/* ---- record batches (batch.c, batch_decode.c): Apache Kafka's format v2, byte for byte -- */

typedef struct om_span {
    const uint8_t *data;
    int32_t len; /* -1: null */
} om_span;

typedef struct om_header {
    om_span key;
    om_span value;
} om_header;

typedef struct om_record {
    int64_t offset;    /* decoding only */
    int64_t timestamp; /* ms since the epoch */
    om_span key;
    om_span value;
    const om_header *headers;
    int32_t header_count;
} om_record;

#define OM_BATCH_OVERHEAD 61
#define OM_ATTR_CODEC_MASK 7
#define OM_ATTR_LOG_APPEND_TIME 8
#define OM_ATTR_TRANSACTIONAL 16
#define OM_ATTR_CONTROL 32
#define OM_ATTR_DELETE_HORIZON 64

typedef struct om_batch_info {
    int64_t base_offset;
    int32_t size; /* the whole batch in bytes: 12 + batchLength */
    int32_t leader_epoch;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp; /* the delete horizon when OM_ATTR_DELETE_HORIZON is set */
    int64_t max_timestamp;
    int64_t producer_id; /* -1: none */
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t record_count;
} om_batch_info;

/* Read and check a batch header: lengths, magic, counts. OM_E_SHORT: need more bytes than
 * len (info->size is set once 12 bytes are there). Doesn't touch the CRC. */
int om_batch_peek(const uint8_t *data, size_t len, om_batch_info *info);
/* The same, and the whole batch must be there with a right CRC. */
int om_batch_check(const uint8_t *data, size_t len, om_batch_info *info);
/* The same, and every record of an uncompressed batch must lie within its bounds, with
 * offset deltas 0..n-1 (gaps allowed when `compacted`) -- what a client's batch must pass.
 * Of a compressed batch only the header and the codec can be checked. */
int om_batch_validate(const uint8_t *data, size_t len, int compacted, om_batch_info *info);

/* Walk the records of an uncompressed, checked batch (else OM_E_COMPRESSED). Then
 * OM_OK, OM_END, or OM_E_CORRUPT: bounds are checked all the same. headers point into `headers`,
 * at most header_cap of them are stored (header_count says how many there are). */
typedef struct om_record_iter {
    om_batch_info batch;
    const uint8_t *at;
    const uint8_t *end;
    int64_t next_delta; /* the lowest offset delta the next record may have */
    int32_t left;
} om_record_iter;
int om_record_iter_init(om_record_iter *iter, const uint8_t *data, size_t len);
int om_record_next(om_record_iter *iter, om_record *record, om_header *headers, int32_t header_cap);
/* Reads all records: first and last timestamp, how many begin with the AMQP header. OM_E_INVALID: a record without
 * a key, though `keyed`; OM_E_CORRUPT: records outside their bounds, or more or fewer than the batch header says. */
typedef struct om_records_seen {
    int64_t first_time, last_time;
    int32_t named_amqp;
} om_records_seen;
int om_records_survey(const uint8_t *data, size_t len, int keyed, om_records_seen *out);
/* The first record at or after `from` with timestamp >= `wanted`. OM_END: none. */
int om_records_find_time(const uint8_t *data, size_t len, int64_t from, int64_t wanted, int64_t *offset, int64_t *time);

/* An aborted transaction: its records lie in [first_offset, last_offset), its marker at
 * last_offset. last_stable: of the log, when it ended. */
typedef struct om_aborted {
    int64_t producer_id;
    int64_t first_offset, last_offset;
    int64_t last_stable;
} om_aborted;

/* ---- compaction (compact.c): the last record of each key stays --------------------------- */

typedef struct om_cleaner om_cleaner;
om_cleaner *om_cleaner_new(size_t most); /* keys it takes before it is OM_E_FULL */
void om_cleaner_free(om_cleaner *keys);
/* Where each key of this batch (checked, uncompressed) stands last. OM_E_FULL: only in part. */
int om_cleaner_learn(om_cleaner *keys, const uint8_t *batch, size_t len);

typedef struct om_cleaner_stats {
    int64_t now_ms;
    int64_t delete_retention_ms;       /* how long tombstones stay from the first time on */
    int32_t kept, dropped, tombstones; /* of this batch; tombstones that are kept */
} om_cleaner_stats;
/* A batch (checked, uncompressed) without the records that go, with the same first and last offset. Returns its size;
 * 0: all of it stays as it is; with kept == 0 it is one without records. cap: len + 11 per record. */
int64_t om_cleaner_filter(const om_cleaner *keys, const uint8_t *batch, size_t len, om_cleaner_stats *stats,
                          uint8_t *out, size_t cap);

/* ---- cursors (cursor.c): what is settled, in flight, to be given out again ----------- */

typedef struct om_cursor om_cursor;

typedef struct om_cursor_stat {
    int64_t floor;       /* everything below is settled */
    int64_t next;        /* the next offset never given out */
    int64_t end;         /* one past the last offset appended or skipped */
    int64_t ready_count; /* records that can be given out now */
    int64_t ready_bytes;
    int64_t unacked_count; /* given out, neither settled nor returned */
    int64_t unacked_bytes;
    int64_t returned_count; /* of the ready ones: returned, to be given out again */
    int64_t memory;         /* bytes of heap this cursor holds */
} om_cursor_stat;

/* Offsets are 0 .. INT64_MAX - 1. OM_E_RANGE: an offset at or past `end`, or a start out of
 * bounds (NULL); OM_E_INVALID: an offset that isn't in the state the call needs, bytes below 0.
 * Bytes are what the callers say, never below 0, and 0 when the count is. */
om_cursor *om_cursor_new(int64_t start);
void om_cursor_free(om_cursor *cursor);
/* Records [first, first+count) of `bytes` bytes in all were appended; a gap between `end`
 * and first counts as settled. OM_E_RANGE: first lies below `end`. */
int om_cursor_appended(om_cursor *cursor, int64_t first, int64_t count, int64_t bytes);
int om_cursor_is_settled(const om_cursor *cursor, int64_t offset);
/* Settle every unsettled offset in [first, last]; `bytes` is what they weigh together, -1: not
 * known, their average is taken. Returns how many became settled (0 when all were already, or
 * are past `end`). In-flight and ready ones both. */
int64_t om_cursor_settle(om_cursor *cursor, int64_t first, int64_t last, int64_t bytes);
/* After a crash or when all consumers are gone: whatever is in flight returns. Returns how
 * many. They come out again in offset order, with acquired counts that say redelivered. */
int64_t om_cursor_return_all(om_cursor *cursor, int counted);
void om_cursor_stat_get(const om_cursor *cursor, om_cursor_stat *out);
/* Serialise: returns the size, and writes nothing when cap is less (call with cap 0 to ask);
 * restore from such bytes. They come from a checksummed file but are still checked:
 * OM_E_CORRUPT, never a crash. */
int64_t om_cursor_encode(const om_cursor *cursor, uint8_t *out, size_t cap);
int om_cursor_decode(om_cursor **out, const uint8_t *data, size_t len);
/* Apply a cursor record of the WAL. OM_E_CORRUPT: not a cursor record. */
int om_cursor_replay(om_cursor *cursor, const uint8_t *ops, size_t len);

#endif
