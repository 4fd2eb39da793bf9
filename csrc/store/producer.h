/* producer.h -- what a log remembers of its idempotent and transactional producers.
 *
 *   log->producers (NULL until the first batch with a producer id comes)
 *     table     producer id -> om_producer: epoch, its last 5 batches, its open transaction
 *     oldest    open transactions in the order of their first offsets: the head's is the end of
 *               what is stable
 *     aborted   aborted transactions that are still in the log, by their markers' offsets
 *
 * A batch goes through here twice: om_producer_admit before it gets its offsets (is it next in its
 * producer's sequence, or one that we have?), om_producer_appended after. Nothing is allocated for
 * a batch, only for a producer. All of it under the store's lock; no system calls.
 */
#ifndef OM_PRODUCER_H
#define OM_PRODUCER_H
#include "cursor/offset_set.h"
#include "format/batch.h"
#include "om_store.h"
#include "segment/segment.h"

#define OM_PRODUCER_BATCHES 5 /* as many as a Kafka producer may have in flight */
#define OM_NO_TRANSACTION -1
#define OM_PRODUCER_EXPIRATION_MS (24 * 60 * 60 * 1000) /* producer.id.expiration.ms */

/* Kafka's error codes that a verdict may hold. */
enum om_producer_error {
    OM_KAFKA_OUT_OF_ORDER_SEQUENCE = 45,
    OM_KAFKA_INVALID_PRODUCER_EPOCH = 47,
    OM_KAFKA_INVALID_TXN_STATE = 48,
    OM_KAFKA_COORDINATOR_FENCED = 52,
    OM_KAFKA_INVALID_RECORD = 87,
};

typedef struct om_producer_verdict {
    int error;            /* Kafka's code; 0 when it may be appended, or was */
    int64_t first_offset; /* a duplicate's: where it went, when, and what must be durable before */
    int64_t timestamp;    /* its producer is told so */
    uint64_t seq;
} om_producer_verdict;

typedef struct om_producer_batch {
    int32_t first_sequence, last_sequence;
    int64_t first_offset;
    int64_t timestamp; /* the largest in it */
} om_producer_batch;

typedef struct om_producer om_producer;
struct om_producer {
    int64_t id;
    om_producer_batch batches[OM_PRODUCER_BATCHES]; /* oldest first */
    int64_t first_open;                             /* the open transaction's first offset */
    int64_t ended_first, ended_at; /* of the last one that ended: if its marker is lost, it is open again */
    int64_t heard_ms;
    om_producer *older, *newer; /* neighbours among the open transactions */
    om_offset_set hidden;       /* the open transaction's records in a work queue */
    int32_t coordinator_epoch;
    int16_t epoch;    /* -1: none known */
    int16_t enlisted; /* the epoch whose transaction may write here; -1: none */
    uint8_t count;    /* of batches */
};

typedef struct om_producers {
    om_producer **table; /* open addressing by id; cap is a power of two */
    uint32_t cap, count;
    om_producer *oldest, *newest;
    int64_t hidden; /* records of open transactions that are not settled: see producer_hidden.c */
    om_aborted *aborted;
    uint32_t aborted_count, aborted_cap;
} om_producers;

/* May this batch of a producer be appended? Batches without a producer id: OM_OK. OM_DUPLICATE:
 * the verdict says where it is; OM_E_REFUSED: verdict->error; OM_E_NO_MEMORY. */
int om_producer_admit(om_log *log, const om_batch_info *info, om_producer_verdict *verdict);
/* Where the oldest open transaction began; INT64_MAX: none is open. */
int64_t om_producers_first_open(const om_log *log);
/* It was, at info->base_offset. (Told twice, the second time is ignored.) */
void om_producer_appended(om_log *log, const om_batch_info *info);

/* Everything below is decided: committed, aborted, or of no transaction; and it is durable. */
int64_t om_log_last_stable(const om_log *log);
/* The same for a work queue's consumers, who don't wait for the disk. */
int64_t om_log_stable_end(const om_log *log);
/* The aborted transactions that reach into [from, to): fills at most cap, returns how many. */
int om_log_aborted(om_log *log, int64_t from, int64_t to, om_aborted *out, int cap);
/* Does this batch belong to one? */
int om_log_is_aborted(const om_log *log, const om_batch_info *info);

/* ---- the log's own ---- */
om_producer *om_producer_find(const om_log *log, int64_t id);
om_producer *om_producer_need(om_log *log, int64_t id); /* NULL: no memory */
/* A marker was appended there (or is found there again). */
int om_producer_marked(om_log *log, const om_batch_info *info, int32_t coordinator_epoch, int commit);
/* Of a control batch with its CRC right: what it says. OM_E_INVALID: no marker of ours or Kafka's. */
int om_marker_parse(const uint8_t *batch, size_t len, int32_t *coordinator_epoch, int *commit);
void om_producer_open(om_log *log, om_producer *producer, int64_t first); /* its transaction */
int om_producer_note_aborted(om_log *log, const om_aborted *aborted);
uint32_t om_aborted_from(const om_producers *producers,
                         int64_t offset);           /* the first whose marker lies there or behind */
void om_producers_cut(om_log *log, int64_t offset); /* the log was cut: what lies past it never was */
void om_producers_trim(om_log *log, int64_t start); /* aborted transactions below are of no interest */
/* Those without an open transaction that weren't heard of since. */
void om_producers_expire(om_log *log, int64_t before_ms);
void om_producers_free(om_log *log);
int64_t om_producers_memory(const om_log *log);

/* ---- producer_hidden.c: what consumers of a work queue don't see yet, and never will ---- */
void om_hidden_add(om_log *log, om_producer *producer, int64_t first, int64_t last);
void om_hidden_settle(om_log *log, om_producer *producer); /* its transaction is aborted */
void om_hidden_forget(om_producers *producers, om_producer *producer);
void om_hidden_prune(om_log *log); /* much was settled at once: what is left of them? */

/* ---- producer_codec.c ---- */
size_t om_producers_size(const om_log *log); /* 0: nothing worth keeping */
void om_producers_encode(const om_log *log, uint8_t *out);
/* Into a log that has none. The bytes are checked: OM_E_CORRUPT, never a crash. */
int om_producers_decode(om_log *log, const uint8_t *data, size_t len);

/* ---- producer_files.c ---- */
/* What Kafka's tools want to see, when that segment is full or is the last one at a clean stop.
 * Takes the store's lock for a moment, then writes. Nothing depends on it: failures are nobody's. */
void om_producers_save(om_log *log, om_segment *full);
void om_snapshots_remove(const char *folder);
#endif
