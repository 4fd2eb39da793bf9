/* ottermq.h -- everything Python may call, and nothing else.
 *
 * The cffi definitions are made from this very file (build_core.py drops the preprocessor
 * lines other than plain integer #defines), so it holds plain declarations only.
 *
 * Conventions: `om_` + module + verb, object first. Functions that can fail return an
 * om_result (0 or more is success, below 0 is one of OM_E_*). A call releases the GIL;
 * whatever takes an om_store is safe from any thread.
 */
#ifndef OTTERMQ_H
#define OTTERMQ_H

#include <stddef.h>
#include <stdint.h>

enum om_result {
    OM_OK = 0,
    OM_END = 1,              /* nothing more to read */
    OM_E_SHORT = -1,         /* fewer bytes than the structure needs: need more */
    OM_E_CORRUPT = -2,       /* bytes that can't be what they claim: CRC, magic, bounds */
    OM_E_INVALID = -3,       /* an argument out of range */
    OM_E_NO_MEMORY = -4,
    OM_E_IO = -5,            /* a system call failed; the error text says which */
    OM_E_NO_SPACE = -6,      /* the disk is full, or below the low-space limit */
    OM_E_FENCED = -7,        /* a WAL sync failed: durable appends refused until an operator acts */
    OM_E_FULL = -8,          /* WAL or hot tail full: a state, not an error; come back later */
    OM_E_STALE_EPOCH = -9,   /* an append with an older leader epoch */
    OM_E_RANGE = -10,        /* an offset below the start or beyond the end */
    OM_E_DELETED = -11,      /* the log is gone */
    OM_E_NOT_RESIDENT = -12, /* not in memory: the reader thread has been asked for it */
    OM_E_TIMEOUT = -13,
    OM_E_UNREADABLE = -14    /* the segment is fenced: damaged, cut or unreadable under us */
};
const char *om_result_text(int result);

/* ---- checksums (crc32c.c, xxh3.c) --------------------------------------------------- */

uint32_t om_crc32c(uint32_t crc, const void *data, size_t len); /* best for this CPU; start with 0 */
uint32_t om_crc32c_portable(uint32_t crc, const void *data, size_t len);
int om_crc32c_is_hardware(void);
uint64_t om_xxh3(const void *data, size_t len); /* XXH3 64 bits, seed 0: same as xxhash.xxh3_64 */

/* ---- record batches (batch.c): Apache Kafka's format v2, byte for byte --------------- */

typedef struct om_span {
    const uint8_t *data;
    int32_t len;             /* -1: null */
} om_span;

typedef struct om_header {
    om_span key;
    om_span value;
} om_header;

typedef struct om_record {
    int64_t offset;          /* decoding only */
    int64_t timestamp;       /* ms since the epoch */
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
    int32_t size;            /* the whole batch in bytes: 12 + batchLength */
    int32_t leader_epoch;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;  /* the delete horizon when OM_ATTR_DELETE_HORIZON is set */
    int64_t max_timestamp;
    int64_t producer_id;     /* -1: none */
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t record_count;
} om_batch_info;

/* Encode a whole batch into out. info gives attributes, offsets, leader epoch and producer
 * fields; timestamps, counts, size and crc are worked out and written back. The codec bits
 * must be 0 (a compressed batch is kept as its producer sent it). Returns the size or OM_E_*;
 * OM_E_SHORT when cap is too small (om_batch_size_bound tells what is enough). */
int64_t om_batch_size_bound(const om_record *records, int32_t count);
int64_t om_batch_encode(om_batch_info *info, const om_record *records, int32_t count,
                        uint8_t *out, size_t cap);

/* Read and check a batch header: lengths, magic, counts. OM_E_SHORT: need more bytes than
 * len (info->size is set once 12 bytes are there). Doesn't touch the CRC. */
int om_batch_peek(const uint8_t *data, size_t len, om_batch_info *info);
/* The same, and the whole batch must be there with a right CRC. */
int om_batch_check(const uint8_t *data, size_t len, om_batch_info *info);
/* The same, and every record of an uncompressed batch must lie within its bounds, with
 * offset deltas 0..n-1 (gaps allowed when `compacted`) -- what a stranger's batch must pass. */
int om_batch_validate(const uint8_t *data, size_t len, int compacted, om_batch_info *info);

/* Walk the records of an uncompressed, checked batch. headers point into `headers`, at most
 * header_cap of them are stored (header_count tells how many there are). */
typedef struct om_record_iter {
    om_batch_info batch;
    const uint8_t *at;
    const uint8_t *end;
    int32_t left;
} om_record_iter;
int om_record_iter_init(om_record_iter *iter, const uint8_t *data, size_t len);
int om_record_next(om_record_iter *iter, om_record *record, om_header *headers, int32_t header_cap);

/* ---- cursors (cursor.c): what is settled, in flight, to be given out again ----------- */

typedef struct om_cursor om_cursor;

typedef struct om_cursor_stat {
    int64_t floor;           /* everything below is settled */
    int64_t next;            /* the next offset never given out */
    int64_t end;             /* one past the last offset appended or skipped */
    int64_t ready_count;     /* records that can be given out now */
    int64_t ready_bytes;
    int64_t unacked_count;   /* given out, neither settled nor returned */
    int64_t unacked_bytes;
    int64_t returned_count;  /* of the ready ones: returned, to be given out again */
    int64_t memory;          /* bytes of heap this cursor holds */
} om_cursor_stat;

om_cursor *om_cursor_new(int64_t start);
void om_cursor_free(om_cursor *cursor);
/* Records [first, first+count) of `bytes` bytes in all were appended; a gap between `end`
 * and first counts as settled. */
int om_cursor_appended(om_cursor *cursor, int64_t first, int64_t count, int64_t bytes);
/* Offsets [first, last] hold no record to give out (gap, control, aborted, compacted). */
int om_cursor_skip(om_cursor *cursor, int64_t first, int64_t last);
/* The offset to give out next, lowest returned one first; -1: none. Doesn't move. */
int64_t om_cursor_peek(const om_cursor *cursor);
/* Give out one ready offset of that many bytes. */
int om_cursor_acquire(om_cursor *cursor, int64_t offset, int64_t bytes);
/* Was it ever given out before (redelivered), how often acquired, how often delivered in
 * vain (counted returns)? */
int om_cursor_counts(const om_cursor *cursor, int64_t offset, int32_t *acquired, int32_t *delivered);
int om_cursor_is_settled(const om_cursor *cursor, int64_t offset);
/* Back to its place; `counted`: the return counts against the delivery limit. */
int om_cursor_return(om_cursor *cursor, int64_t offset, int64_t bytes, int counted);
/* Settle every unsettled offset in [first, last]; `bytes` is what they weigh together.
 * Returns how many became settled (0 when all were already). In-flight and ready ones both. */
int64_t om_cursor_settle(om_cursor *cursor, int64_t first, int64_t last, int64_t bytes);
/* Settle all that is ready, leave what is in flight (queue.purge). Returns how many. */
int64_t om_cursor_purge(om_cursor *cursor);
/* After a crash or when all consumers are gone: whatever is in flight returns. Returns how
 * many. They come out again in offset order, with acquired counts that say redelivered. */
int64_t om_cursor_return_all(om_cursor *cursor, int counted);
void om_cursor_stat_get(const om_cursor *cursor, om_cursor_stat *out);
/* Serialise: returns the size (call with cap 0 to ask for it); restore from such bytes.
 * The bytes come from a checksummed file but are still checked: OM_E_CORRUPT, never a crash. */
int64_t om_cursor_encode(const om_cursor *cursor, uint8_t *out, size_t cap);
int om_cursor_decode(om_cursor **out, const uint8_t *data, size_t len);

#endif
