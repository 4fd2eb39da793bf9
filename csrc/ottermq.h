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
    OM_END = 1,        /* nothing more to read */
    OM_E_SHORT = -1,   /* fewer bytes than the structure needs: need more */
    OM_E_CORRUPT = -2, /* bytes that can't be what they claim: CRC, magic, bounds */
    OM_E_INVALID = -3, /* an argument out of range */
    OM_E_NO_MEMORY = -4,
    OM_E_IO = -5,            /* a system call failed; the error text says which */
    OM_E_NO_SPACE = -6,      /* the disk is full, or below the low-space limit */
    OM_E_FENCED = -7,        /* a WAL sync failed: durable appends refused until it is unfenced */
    OM_E_FULL = -8,          /* WAL or hot tail full: a state, not an error; come back later */
    OM_E_STALE_EPOCH = -9,   /* an append with an older leader epoch */
    OM_E_RANGE = -10,        /* an offset below the start or beyond the end */
    OM_E_DELETED = -11,      /* the log is gone */
    OM_E_NOT_RESIDENT = -12, /* not in memory: the reader thread has been asked for it */
    OM_E_TIMEOUT = -13,
    OM_E_UNREADABLE = -14 /* damaged, cut or unreadable: a stretch of a segment, or all of it */
};
const char *om_result_text(int result);

/* ---- the process (secrecy.c) ---------------------------------------------------------- */

int om_forbid_dumps(void); /* OM_OK, OM_E_IO: the kernel refuses */

/* ---- checksums (crc32c.c, xxh3.c) --------------------------------------------------- */

uint32_t om_crc32c(uint32_t crc, const void *data, size_t len); /* best for this CPU; start with 0 */
uint32_t om_crc32c_portable(uint32_t crc, const void *data, size_t len);
int om_crc32c_is_hardware(void);
/* Of two pieces, one behind the other, of which each is known: no byte is looked at again. */
uint32_t om_crc32c_join(uint32_t left, uint32_t right, uint32_t right_len);
uint64_t om_xxh3(const void *data, size_t len); /* XXH3 64 bits, seed 0: same as xxhash.xxh3_64 */

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
#define OM_ATTR_OPENED 0x4000 /* only in memory: a compressed batch without its codec (decompressed.c) */

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

/* Encode a whole batch into out. info gives attributes, offsets, leader epoch and producer
 * fields; timestamps, counts, size and crc are worked out and written back. What only the
 * caller can know is taken from info: max_timestamp with OM_ATTR_LOG_APPEND_TIME (when the
 * batch was appended), base_timestamp with OM_ATTR_DELETE_HORIZON (the horizon), and for an
 * empty batch both timestamps and last_offset_delta. The codec bits and those without a name
 * must be 0 (a compressed batch is kept as its producer sent it). Returns the size or OM_E_*;
 * OM_E_SHORT when cap is too small (om_batch_size_bound tells what is enough). */
int64_t om_batch_size_bound(const om_record *records, int32_t count);
int64_t om_batch_encode(om_batch_info *info, const om_record *records, int32_t count, uint8_t *out, size_t cap);

/* Read and check a batch header: lengths, magic, counts. OM_E_SHORT: need more bytes than
 * len (info->size is set once 12 bytes are there). Doesn't touch the CRC. */
int om_batch_peek(const uint8_t *data, size_t len, om_batch_info *info);
/* The same, and the whole batch must be there with a right CRC. */
int om_batch_check(const uint8_t *data, size_t len, om_batch_info *info);
/* The same, and every record of an uncompressed batch must lie within its bounds, with
 * offset deltas 0..n-1 (gaps allowed when `compacted`) -- what a stranger's batch must pass.
 * Of a compressed batch only the header and the codec can be checked. */
int om_batch_validate(const uint8_t *data, size_t len, int compacted, om_batch_info *info);

/* Walk the records of an uncompressed, checked batch (OM_E_INVALID for a compressed one). Then
 * OM_OK, OM_END, or OM_E_CORRUPT: bounds are checked all the same. headers point into `headers`,
 * at most header_cap of them are stored (header_count tells how many there are). */
typedef struct om_record_iter {
    om_batch_info batch;
    const uint8_t *at;
    const uint8_t *end;
    int64_t next_delta; /* the lowest offset delta the next record may have */
    int32_t left;
} om_record_iter;
int om_record_iter_init(om_record_iter *iter, const uint8_t *data, size_t len);
int om_record_next(om_record_iter *iter, om_record *record, om_header *headers, int32_t header_cap);
/* All records of such a batch: when was the first and the last of them, and how many have a first header of the
 * name that AMQP messages have? OM_E_INVALID: one has no key, though `keyed`; OM_E_CORRUPT: they don't lie within
 * their bounds, or are more or fewer than the header says. */
typedef struct om_records_seen {
    int64_t first_time, last_time;
    int32_t named_amqp;
} om_records_seen;
int om_records_survey(const uint8_t *data, size_t len, int keyed, om_records_seen *out);
/* The first record of it at `from` or behind that is of the time `wanted` or later; OM_END: there is none. */
int om_records_find_time(const uint8_t *data, size_t len, int64_t from, int64_t wanted, int64_t *offset, int64_t *time);

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
/* Offsets [first, last] hold no record to give out (gap, control, aborted, compacted): settled,
 * past `end` too, which then moves to last + 1. */
int om_cursor_skip(om_cursor *cursor, int64_t first, int64_t last);
/* The log was cut: nothing at or past offset was ever there; `end` goes back to it, `next` and
 * `floor` too if they lie beyond. */
int om_cursor_truncate(om_cursor *cursor, int64_t offset);
/* The offset to give out next, lowest returned one first; -1: none. Doesn't move. */
int64_t om_cursor_peek(const om_cursor *cursor);
/* Give out one offset of that many bytes: `next`, or any returned one. */
int om_cursor_acquire(om_cursor *cursor, int64_t offset, int64_t bytes);
/* Recovery: an offset past `next` was given out, so all below it had been, or were never there. As
 * nobody knows which, they count as in flight. They weigh `bytes` together, or what their like weigh
 * on average when that is below 0. Returns how many. */
int64_t om_cursor_pass(om_cursor *cursor, int64_t offset, int64_t bytes);
/* How often acquired, how often delivered in vain (counted returns)? Returns 1 if it was given
 * out before (asked ahead of om_cursor_acquire: redelivered), 0 if not; 0/0 once settled. */
int om_cursor_counts(const om_cursor *cursor, int64_t offset, int32_t *acquired, int32_t *delivered);
int om_cursor_is_settled(const om_cursor *cursor, int64_t offset);
/* Back to its place; `counted`: the return counts against the delivery limit. */
int om_cursor_return(om_cursor *cursor, int64_t offset, int64_t bytes, int counted);
/* Settle every unsettled offset in [first, last]; `bytes` is what they weigh together, -1: not
 * known, their average is taken. Returns how many became settled (0 when all were already, or
 * are past `end`). In-flight and ready ones both. */
int64_t om_cursor_settle(om_cursor *cursor, int64_t first, int64_t last, int64_t bytes);
/* Take a settle back: offsets in [first, last] that are settled are ready again, as returned ones.
 * Only for what was settled a moment ago: a gap would come to life too. Returns how many. */
int64_t om_cursor_unsettle(om_cursor *cursor, int64_t first, int64_t last);
/* Settle all that is ready below `before`, leave what is in flight (queue.purge). Returns how
 * many. */
int64_t om_cursor_purge(om_cursor *cursor, int64_t before);
/* After a crash or when all consumers are gone: whatever is in flight returns. Returns how
 * many. They come out again in offset order, with acquired counts that say redelivered. */
int64_t om_cursor_return_all(om_cursor *cursor, int counted);
void om_cursor_stat_get(const om_cursor *cursor, om_cursor_stat *out);
/* Serialise: returns the size, and writes nothing when cap is less (call with cap 0 to ask);
 * restore from such bytes. They come from a checksummed file but are still checked:
 * OM_E_CORRUPT, never a crash. */
int64_t om_cursor_encode(const om_cursor *cursor, uint8_t *out, size_t cap);
int om_cursor_decode(om_cursor **out, const uint8_t *data, size_t len);
/* Do again what a cursor record of the WAL says. OM_E_CORRUPT: it is none. */
int om_cursor_replay(om_cursor *cursor, const uint8_t *ops, size_t len);

/* ---- the store (store.c and friends): every log of the broker, one WAL -------------- */

typedef struct om_store om_store;
typedef struct om_log om_log;

enum om_flush_mode { OM_FLUSH_BATCH = 0, OM_FLUSH_IMMEDIATE = 1, OM_FLUSH_ASYNC = 2 };

typedef struct om_store_options {
    uint64_t wal_file_size, wal_max_size;
    uint64_t batch_max_size;
    uint32_t batch_max_wait_us;
    int flush_immediate;      /* broker-wide flush_mode: immediate */
    int direct_io;            /* 0 off, 1 on, 2 measure and choose */
    uint64_t hot_buffer_size; /* batches held in memory before appends are told FULL */
    uint64_t mmap_cache_size;
    uint32_t open_files;
    uint64_t low_space_limit;        /* appends refused when the disk has less left */
    uint32_t checkpoint_interval_ms; /* 0: only when the WAL fills, and at close */
    uint32_t recovery_threads;       /* 0: one a core */
    uint64_t removals_file_size;     /* of one file of the record of what was removed; 0: 8 MiB */
} om_store_options;

#define OM_LOG_SCRATCH 1      /* not durable: never touches the WAL, gone at the next start */
#define OM_LOG_NO_CURSOR 2    /* a stream or topic: readers keep their own places */
#define OM_LOG_KEEP_SETTLED 4 /* write settled records to segments all the same */

typedef struct om_log_options {
    uint32_t flags;
    int flush_mode;
    uint64_t segment_size;
    int64_t segment_max_age_ms;
    int pre_allocate;
} om_log_options;

/* Opens the folder: checkpoint file read, no log known, no thread running yet. Then
 * om_store_add for every log of the catalogue, then om_store_recover and om_store_start once. */
om_store *om_store_open(const char *dir, const om_store_options *options, char *err, size_t err_len);
/* folder: of the log, below the store's. has_files: the folder exists. A known id is an error. */
om_log *om_store_add(om_store *store, uint64_t id, const char *folder, const char *name, int has_files,
                     const om_log_options *options);
/* OM_END: called off by om_store_interrupt (any thread, also before it; no effect once it is over);
 * close the store then, the next start recovers all the same. Until om_store_start nothing of what
 * it read has been let go. */
int om_store_recover(om_store *store, char *err, size_t err_len);
/* Logs that recovery met in the checkpoint or the WAL and that nobody had added. How many it wrote;
 * most 0: how many there are. */
enum om_stranger_flags {
    OM_STRANGER_NAMED = 1,  /* the catalogue had named it */
    OM_STRANGER_DELETED = 2 /* ... and its deletion is in the WAL */
};
typedef struct om_stranger {
    uint64_t id;
    uint32_t flags;
} om_stranger;
uint64_t om_store_strangers(const om_store *store, om_stranger *out, uint64_t most);
/* The engine, committer, writer, reader and checkpoint threads; recovery first, unless it is done. */
int om_store_start(om_store *store, char *err, size_t err_len);
/* The catalogue names these logs now, on disk: what recovery finds of them is more than a leftover. */
void om_store_named(om_store *store, om_log *const *logs, size_t count);
void om_store_interrupt(om_store *store);

typedef struct om_progress {
    uint64_t done, total; /* bytes of segments and WAL looked at */
    uint64_t logs_done, logs_total;
    uint64_t replayed; /* WAL records applied */
} om_progress;
void om_store_progress(om_store *store, om_progress *out); /* during om_store_recover, any thread */

/* Flush, checkpoint, stop the threads, free. OM_OK, or what kept it from being clean. */
int om_store_close(om_store *store);

/* Why something went. The numbers are on disk (removal_journal.h): never give one twice. */
enum om_rule {
    OM_RULE_UNKNOWN = 0, /* a trim of a version that didn't note it */
    OM_RULE_SETTLED = 1, /* every record in it is settled */
    OM_RULE_MAX_AGE = 2,
    OM_RULE_MAX_SIZE = 3,
    OM_RULE_PURGE = 4,          /* no file: these records were purged, and go by SETTLED */
    OM_RULE_DELETE = 5,         /* the queue or topic was deleted */
    OM_RULE_DELETE_RECORDS = 6, /* a Kafka client asked for it */
    OM_RULE_COMPACTION = 7,     /* a smaller file took its place */
    OM_RULE_TRUNCATE = 8,
    OM_RULE_TAIL_CUT = 9,   /* recovery: bytes behind the last good batch, never synced */
    OM_RULE_REBUILT = 10,   /* recovery: made again from the WAL */
    OM_RULE_SET_ASIDE = 11, /* recovery: damaged; the file stays under another name */
    OM_RULE_MISSING = 12,   /* recovery: it wasn't there. Nobody here removed it */
    OM_RULE_SNAPSHOT = 13,  /* the broker's own state: all that counts was written again behind it */
    OM_RULE_ORPHAN = 14,    /* a folder that the catalogue doesn't name: a deletion cut short */
    OM_RULE_BEFORE = 15,    /* no file: it went before there was a record */
    OM_RULE_DROPPED = 16,   /* no file: the oldest records; first and next are their sequences */
    /* What is told beside removals, so that they can be judged: */
    OM_RULE_LIFE = 17,   /* a life begins: holds that still stand are told again */
    OM_RULE_HOLD = 18,   /* a legal hold stands on the log ... */
    OM_RULE_LIFTED = 19, /* ... and stands no more */
    OM_RULE_SKIPPED = 20 /* offsets that no record has: an unclean stop */
};
typedef struct om_removal_journal {
    uint64_t log_id;
    const char *folder; /* of the log, below the data folder */
    const char *name;
    int64_t segment;                        /* base offset of the file; -1: no file */
    int64_t first, next;                    /* offsets from first up to, not with, next */
    uint64_t bytes;                         /* that the file had */
    uint64_t left;                          /* ... and has now; 0: it is gone */
    int64_t first_timestamp, max_timestamp; /* -1: not known */
    int rule;
} om_removal_journal;
/* Told with the next checkpoint, before what goes after it: OM_RULE_HOLD, OM_RULE_LIFTED. */
void om_log_note(om_log *log, int rule);
/* Say what is about to be removed from outside; on disk when it returns. Blocks. */
int om_store_note_removed(om_store *store, const om_removal_journal *items, size_t count);

/* What went wrong, one by one, oldest first: corruption found, segments set aside, syncs that
 * failed. OM_END when there is no more. */
enum om_report_kind {
    OM_REPORT_CORRUPT = 1,  /* records below the recovery point are lost or unreadable */
    OM_REPORT_TAIL_CUT = 2, /* bytes after the recovery point were cut: normal after a crash */
    OM_REPORT_WAL_HOLE = 3,
    OM_REPORT_FENCED = 4,
    OM_REPORT_SEGMENT_REWRITTEN = 5,
    OM_REPORT_NO_SPACE = 6,
    OM_REPORT_SPACE_BACK = 7,
    OM_REPORT_CHECKPOINT_FAILED = 8,
    OM_REPORT_UNREADABLE = 9,    /* records turned out to be unreadable while running */
    OM_REPORT_WRITE_FAILED = 10, /* a segment can't be written: tried again, the WAL has it */
    OM_REPORT_DELETED = 11,      /* recovery finished a deletion: drop it from the catalogue */
    OM_REPORT_CLOCK_BEHIND = 12, /* the system's time is earlier than that of the last life */
    OM_REPORT_ORPHANED = 13,     /* logs that no row names were set aside */
    OM_REPORT_STALLED = 14,      /* for 10 s what was taken can't be put down: publishers have to wait */
    OM_REPORT_GOES_ON = 15       /* what couldn't be written can be now */
};
typedef struct om_report {
    int kind;
    uint64_t log_id;
    int64_t first_offset, last_offset;
    char text[256];
} om_report;
int om_store_report(om_store *store, om_report *out);

/* Becomes readable when the durable sequence moves, a report or a resident read is ready. */
int om_store_event_fd(om_store *store);
uint64_t om_store_durable_seq(om_store *store);
/* Block until that sequence is durable (not for the engine's thread). */
int om_store_wait(om_store *store, uint64_t seq, int timeout_ms);
/* May publishers be read? OM_OK, OM_E_FULL, OM_E_NO_SPACE, OM_E_FENCED. */
int om_store_admits(om_store *store);
/* The operator acted after a fence: a new WAL file and epoch. */
int om_store_unfence(om_store *store, char *err, size_t err_len);
/* Run a checkpoint now and wait for it. */
int om_store_checkpoint(om_store *store);

typedef struct om_store_stat {
    uint64_t logs, hot_bytes, hot_batches;
    uint64_t wal_used, wal_groups, wal_bytes, wal_sync_ns, wal_files;
    uint64_t checkpoints, checkpoint_ns, segments_rewritten;
    uint64_t open_files, mappings, mapped_bytes;
    uint64_t written_bytes; /* into segments */
    uint64_t skipped_bytes; /* settled before they had to be written */
    int fenced;
    int fence_kept; /* what the fence refused can't come back after a restart */
    int no_space, wal_direct_io;
    int writer_stuck, checkpoint_failing, stalled; /* trouble.c */
} om_store_stat;
void om_store_stat_get(om_store *store, om_store_stat *out);

/* What can't be written now, the worst of it: STALLED: for so long that publishers are held back. out: why. */
enum om_trouble_kind { OM_TROUBLE_NONE = 0, OM_TROUBLE_CHECKPOINT = 1, OM_TROUBLE_WRITER = 2, OM_TROUBLE_STALLED = 3 };
int om_store_trouble(om_store *store, char *out, size_t len);
/* The time by which messages are stamped and expire: ms since 1970, never back, no jumps (clock.c). */
int64_t om_store_now_ms(om_store *store);

/* ---- a log (log.c, log_read.c) ------------------------------------------------------- */

#define OM_APPEND_UNLOGGED 1 /* transient: page cache only, not in the WAL */
#define OM_ANY_EPOCH -1

typedef struct om_appended {
    int64_t first_offset;
    uint64_t seq; /* durable once the durable sequence has reached it */
    int error;    /* why a producer's batch or marker is refused: Kafka's code, else 0 */
} om_appended;

/* Append records as one batch; offsets are given at once. epoch: the leader epoch the
 * caller believes in, or OM_ANY_EPOCH. */
int om_log_append(om_log *log, const om_record *records, int32_t count, int flags, int32_t epoch, om_appended *out);
/* Append a batch as its producer sent it (validated; base offset and epoch are patched). OM_END: it
 * is here already, at first_offset; OM_E_INVALID with an error: not what its producer may send now. */
int om_log_append_raw(om_log *log, const uint8_t *batch, size_t len, int flags, int32_t epoch, om_appended *out);
/* One batch to many logs, written to the WAL once. out: one entry a log. */
int om_store_fanout(om_store *store, om_log **logs, int32_t log_count, const om_record *records, int32_t count,
                    int flags, om_appended *out);

typedef struct om_log_stat {
    uint64_t id;
    int64_t start_offset, next_offset, high_watermark, readable_end;
    int64_t last_stable;    /* below it no transaction is open; never past the high watermark */
    int64_t oldest_open;    /* the producer whose transaction it waits for; -1: none is open */
    int64_t written_offset; /* everything below is in a segment file or settled */
    int64_t recovery_point; /* everything below is synced in its segment */
    int64_t lease_end;
    uint64_t size_bytes; /* segments and hot tail */
    uint32_t segments, hot_batches;
    int32_t leader_epoch;
    int64_t memory;        /* bytes of heap, the cursor included */
    uint64_t segment_size; /* bytes that a segment may have */
} om_log_stat;
void om_log_stat_get(om_log *log, om_log_stat *out);

typedef struct om_segment_stat {
    int64_t base_offset, next_offset;
    uint64_t size;
    int64_t first_timestamp, max_timestamp;
    int sealed, fenced;
} om_segment_stat;
/* Fills at most cap; returns how many there are. */
int64_t om_log_segments(om_log *log, om_segment_stat *out, int64_t cap);
/* Which of these logs have segments, or anything settled? Under load each call waits for a tick:
 * this is one for all of them. */
void om_store_used(om_store *store, om_log *const *logs, uint8_t *used, size_t count);

/* Whole batches from the one that holds `offset` on, at least one, then up to max_bytes, up
 * to `end` (the high watermark for streams, readable_end for queues). Nothing is copied: spans
 * point into the hot tail or a mapping, held until om_read_free. OM_END: nothing there yet.
 * OM_E_RANGE: below the start or past the end. OM_E_UNREADABLE: out->next_offset tells where
 * reading may go on. With OM_READ_NOWAIT: OM_E_NOT_RESIDENT when a page isn't in memory; the
 * reader thread has been asked and the event fd will tell. */
#define OM_READ_NOWAIT 1
#define OM_READ_MAX_SPANS 64
typedef struct om_read {
    om_span spans[OM_READ_MAX_SPANS]; /* in order; concatenated they are whole batches */
    int32_t span_count;
    int64_t first_offset, next_offset;
    uint64_t bytes;
    void *pins;
} om_read;
int om_log_read(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, int flags, om_read *out);
/* Are they what they were when they were written? Every batch's CRC, guarded, nothing copied. For
 * who sends straight from the mapping and has reason to doubt (a segment that was cold). The read then
 * ends before the first that isn't; OM_E_UNREADABLE: it is the first, and read->next_offset tells where
 * reading may go on. OM_E_NOT_RESIDENT: that is being found out. */
int om_read_check(om_read *read);
/* Copy the spans out, guarded, every batch's CRC checked in the same way. Returns the bytes or OM_E_*. */
int64_t om_read_copy(om_read *read, uint8_t *out, size_t cap);
void om_read_free(om_read *read);

/* The same as a file range for sendfile; only for what is in a segment (OM_END otherwise). */
typedef struct om_range {
    int fd;
    uint64_t position, len;
    int64_t first_offset, next_offset;
    void *pins;
} om_range;
int om_log_range(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, om_range *out);
void om_range_free(om_range *range);

/* The first record with timestamp >= ts; OM_END: none. */
int om_log_find_time(om_log *log, int64_t timestamp, int64_t *offset, int64_t *found_timestamp);

/* Everything below offset is no longer needed: whole segments go, in the background. rule: why, for
 * the record (enum om_rule). */
int om_log_trim(om_log *log, int64_t offset, int rule, uint64_t *seq);
/* Remove everything from offset on; the leader epoch goes up. May block: control path only.
 * OM_E_INVALID: the offset lies inside a batch, and only whole ones can go. */
int om_log_truncate(om_log *log, int64_t offset);
/* The leader epoch goes up (fencing older appenders); returns the new one. */
int32_t om_log_bump_epoch(om_log *log);
/* Gone for good, files included; the handle answers OM_E_DELETED from now on. */
int om_log_delete(om_log *log, uint64_t *seq);
/* Another handle, for who works on it in a thread while others may let theirs go. */
om_log *om_log_hold(om_log *log);
/* Forget the handle; the log itself stays unless deleted. */
void om_log_release(om_log *log);
/* OM_LOG_KEEP_SETTLED alone, on or off. */
void om_log_keep_settled(om_log *log, int keep);
void om_log_set_options(om_log *log, const om_log_options *options);

/* ---- a log's cursor: changes are logged, synced with the next group or within a second -- */

int om_log_cursor_stat(om_log *log, om_cursor_stat *out);
/* Give out up to max ready offsets (readable_end bounds them); fills offsets, returns how many. */
int64_t om_log_acquire(om_log *log, int64_t *offsets, int64_t max, int64_t bytes_each);
int om_log_counts(om_log *log, int64_t offset, int32_t *acquired, int32_t *delivered);
int64_t om_log_settle(om_log *log, int64_t first, int64_t last, int64_t bytes, uint64_t *seq);
int om_log_return(om_log *log, int64_t offset, int64_t bytes, int counted);
int64_t om_log_purge(om_log *log, uint64_t *seq);

/* ---- a log's producers (producer*.c): who wrote what, transactions of Kafka clients ------- */

/* A transaction that was given up: its records lie in [first_offset, last_offset), its marker at
 * last_offset. last_stable: of the log, when it ended. */
typedef struct om_aborted {
    int64_t producer_id;
    int64_t first_offset, last_offset;
    int64_t last_stable;
} om_aborted;
/* Those that reach into [from, to): fills at most cap, returns how many. */
int64_t om_log_aborted_in(om_log *log, int64_t from, int64_t to, om_aborted *out, int64_t cap);

/* End this producer's transaction here: a marker is appended, through the WAL whatever the log's flush
 * mode. An epoch above the producer's own fences it. OM_E_INVALID with an error (47, 52): not this producer's epoch any
 * more, or not by this coordinator. */
int om_log_marker(om_log *log, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int commit,
                  om_appended *out);
/* The coordinator knows that this log is in the producer's transaction: without that, transactional
 * batches are refused. Until the marker; to be said again after a restart. OM_E_STALE_EPOCH. */
int om_log_enlist(om_log *log, int64_t producer_id, int16_t epoch);

typedef struct om_producer_stat {
    int64_t producer_id;
    int16_t epoch;
    int32_t last_sequence; /* -1: none */
    int64_t last_timestamp;
    int32_t coordinator_epoch;
    int64_t first_open; /* the open transaction's first offset, -1: none */
    int enlisted;
} om_producer_stat;
int64_t om_log_producers(om_log *log, om_producer_stat *out, int64_t cap);

/* ---- compaction (compact.c, segment_swap.c): the last record of each key stays ------------- */

typedef struct om_cleaner om_cleaner;
om_cleaner *om_cleaner_new(size_t most); /* keys it takes before it is OM_E_FULL */
void om_cleaner_free(om_cleaner *keys);
size_t om_cleaner_count(const om_cleaner *keys);
/* Where each key of this batch (checked, uncompressed) stands last. OM_E_FULL: only in part. */
int om_cleaner_learn(om_cleaner *keys, const uint8_t *batch, size_t len);

typedef struct om_cleaner_stats {
    int64_t now_ms;
    int64_t delete_retention_ms;       /* how long tombstones stay from the first time on */
    int32_t kept, dropped, tombstones; /* of this batch; tombstones that are kept */
} om_cleaner_stats;
/* What stays of a batch (checked, uncompressed), as a batch with the same first and last offset. Returns its size;
 * 0: all of it stays as it is; with kept == 0 it is one without records. cap: len + 11 a record. */
int64_t om_cleaner_filter(const om_cleaner *keys, const uint8_t *batch, size_t len, om_cleaner_stats *sieve,
                          uint8_t *out, size_t cap);

typedef struct om_rewritten {
    uint64_t size;
    int64_t first_timestamp, max_timestamp;
    int64_t next_offset; /* of the last of the segments that it takes the place of */
} om_rewritten;
/* Another file for a sealed segment before the recovery point, or for several that follow each other: to be written
 * by the caller, with the same last offset. OM_E_RANGE: no such segments, or one is gone or damaged. Commit and
 * abort take the descriptor over. Block. */
int om_log_rewrite_begin(om_log *log, int64_t base_offset, int *fd);
int om_log_rewrite_commit(om_log *log, int64_t base_offset, int fd, const om_rewritten *rewritten);
void om_log_rewrite_abort(om_log *log, int64_t base_offset, int fd);

/* ---- transactions (atomic.c): appends and settles over many logs, all or nothing ------ */

typedef struct om_atomic om_atomic;
om_atomic *om_atomic_new(om_store *store);
int om_atomic_append(om_atomic *atomic, om_log *log, const om_record *records, int32_t count);
int om_atomic_settle(om_atomic *atomic, om_log *log, int64_t first, int64_t last, int64_t bytes);
/* Assigns offsets, writes one WAL record (in parts when long). Frees the object either way. */
int om_atomic_commit(om_atomic *atomic, uint64_t *seq);
void om_atomic_abandon(om_atomic *atomic);

/* ---- the engine (engine.h): sockets, frames, routes, queues, deliveries ---------------
 *
 * What happens once a message happens in the engine's thread. What it can't decide becomes an
 * event: the connection's input stands still until Python has answered (om_conn_resume), so
 * nothing overtakes a control method. Calls come in between two ticks.
 *
 * A connection is named by a number that is never given twice; calls that name one that is gone
 * answer OM_E_RANGE and do nothing. The same goes for queues, whose numbers Python gives.
 */

typedef struct om_engine om_engine;

typedef struct om_engine_options {
    uint32_t frame_max;            /* offered; a connection's own comes with om_conn_tune */
    uint32_t handshake_timeout_ms; /* from accept to connection.open-ok */
    uint64_t max_message_size;
    uint64_t memory_limit;  /* messages under way above this: publishers are blocked */
    uint32_t zero_copy_min; /* bodies from this size on go by sendfile; 0: none */
    uint32_t route_cache;   /* entries */
    uint32_t max_connections;
    uint32_t consumers_per_channel; /* 0: any number */
    uint32_t nacks_count;           /* a nack with requeue counts towards x-delivery-limit */
    uint32_t strangers_per_address; /* connections that haven't logged in; of more, the oldest goes. 0: any */
    uint32_t kafka_max_request;     /* bytes; a request that claims more ends its connection */
    uint32_t kafka_patience_ms;     /* how long a half request may stand still */
    uint32_t kafka_idle_ms;         /* how long a connection may be silent; 0: for ever */
} om_engine_options;

/* The store must have been started; one engine a store. It is paused: what its queues hold from before
 * neither expires nor dies, is dropped, comes due or is delivered ... */
om_engine *om_engine_new(om_store *store, const om_engine_options *options);
/* ... until all of them are added, with all that they go by. Else a message whose time has passed finds
 * no dead-letter target, though there is one. */
void om_engine_start(om_engine *engine);
/* Closes every socket as it is. Before om_store_close. */
void om_engine_free(om_engine *engine);
#define OM_DOOR_AMQP 0
#define OM_DOOR_KAFKA 1
/* Accept from this listening socket (dup'ed; non-blocking). `door`: which protocol is spoken there;
 * it comes back in every event of its connections. */
int om_engine_listen(om_engine *engine, int fd, int door);
void om_engine_stop_listening(om_engine *engine);
/* Two of the options, from now on. */
void om_engine_set_limits(om_engine *engine, uint64_t memory_limit, uint64_t max_message_size);

enum om_event_kind {
    OM_EV_OPENED = 1,            /* a client has sent our protocol header: connection.start is due. text: its
                              * address. Paused like a method. Kafka: its first request is here, and comes
                              * as the next event; header: our own address as it sees it, "host:port" */
    OM_EV_METHOD = 2,            /* a method C doesn't handle: payload = class id, method id, arguments */
    OM_EV_ROUTE = 3,             /* a publish whose route or permission isn't known: exchange, key, header
                              * (= property flags and values), code = bits of basic.publish
                              * (1 mandatory, 2 immediate). Answer with om_publish_route or close the channel. */
    OM_EV_ERROR = 4,             /* a rule was broken that C checks: code = AMQP reply code, text, method =
                              * class id << 16 | method id. channel 0 or a code that is fatal for the
                              * connection: close it; else close that channel. */
    OM_EV_CLOSED = 5,            /* the connection is gone: its queues and consumers were let go already. text: how */
    OM_EV_DEAD_ROUTE = 6,        /* like ROUTE for messages that die in (or wait their delay in) `queue` */
    OM_EV_OUTPUT = 7,            /* a connection without a socket has output (om_conn_drain) */
    OM_EV_ROOM = 8,              /* ... takes input again (om_conn_feed) */
    OM_EV_QUEUE_IDLE = 9,        /* `queue` lost its last consumer (auto-delete, expires); count = how many it had */
    OM_EV_CONSUMER_TIMEOUT = 10, /* a delivery was not acked in time on that channel: close it (406).
                              * count: the time it had, in ms */
    OM_EV_ALARM = 11,            /* code 1: publishers are held back (text: why), 0: over */
    OM_EV_BAD_HEADER = 12,       /* not our protocol: header sent, socket closed. text: what came, peer */
    OM_EV_REFUSED_CONN = 13,     /* too many connections. text: peer */
    OM_EV_ACTIVE = 14,           /* single active consumer: key = consumer tag became active on `queue` */
    OM_EV_KAFKA_REQUEST = 15,    /* a request C doesn't answer: payload = header and body, code = API key,
                              * method = API version, count = slot. Paused until om_kafka_answer. */
    OM_EV_OPEN = 17,             /* an AMQP reader needs a compressed batch: payload = its records, code = codec,
                              * queue = log id, count = base offset. Answer with om_batch_opened. */
    OM_EV_KAFKA_BATCHES = 18,    /* batches of a Produce that can't be appended as they are: payload = each of them
                              * behind its place u32, the codec it is to have i8 (OM_KAFKA_AS_SENT: its own),
                              * whether its records need keys u8, the codec's level i32, its length u32
                              * (big-endian). Answer with om_kafka_batches_repacked. */
    OM_EV_KAFKA_TOPICS = 16      /* a Produce or Fetch wants topics whose rights aren't known: key = their names,
                              * each behind its length u16 (big-endian); code, method as above. Answer with
                              * om_kafka_permit for each, then om_kafka_retry. */
};

typedef struct om_event {
    int kind;
    int door; /* OM_DOOR_* of its connection */
    int channel;
    int code;
    uint32_t method;
    uint64_t conn;
    uint64_t queue;
    int64_t count;
    om_span payload; /* these point into the event itself: valid until om_event_free */
    om_span exchange, key, header;
    om_span text;
} om_event;

int om_engine_event_fd(om_engine *engine);
/* The oldest one, or NULL. Free each with om_event_free. */
om_event *om_engine_next_event(om_engine *engine);
void om_event_free(om_event *event);

/* -- connections -- */

#define OM_CONN_BLOCKED_CAPABLE 1 /* announced connection.blocked */
#define OM_CONN_CANCEL_CAPABLE 2  /* announced consumer_cancel_notify */
#define OM_CONN_MAY_IMPERSONATE 4 /* user-id isn't checked */

/* A connection without a socket (TLS): starts before the protocol header. 0: no memory. */
uint64_t om_conn_virtual(om_engine *engine, int door, const char *peer);
/* Bytes in: how many were taken (0: come back at OM_EV_ROOM). Bytes out. OM_E_RANGE: gone. */
int64_t om_conn_feed(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);
int64_t om_conn_drain(om_engine *engine, uint64_t conn, uint8_t *out, size_t cap);

/* Finished frames, sent in order with what C sends. */
int om_conn_send(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);
/* Go on reading after an event. `data` (may be empty) is sent first: an answer and its resume in one. */
int om_conn_resume(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);
int om_conn_tune(om_engine *engine, uint64_t conn, uint32_t frame_max, uint32_t channel_max, uint32_t heartbeat_s);
/* connection.open-ok is due: channels may be opened. */
int om_conn_open(om_engine *engine, uint64_t conn, uint32_t vhost, const char *user, uint32_t flags);
/* connection.close was sent: from now on only connection.close and close-ok come as events, all
 * else is dropped; channels, consumers and unacked messages are let go now. Reading goes on. */
int om_conn_closing(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);
/* Send what is left (and `data`), then close the socket. OM_EV_CLOSED follows. */
int om_conn_close(om_engine *engine, uint64_t conn, const uint8_t *data, size_t len);

typedef struct om_conn_stat {
    uint64_t received_bytes, sent_bytes, published, delivered, acked;
    uint64_t output_bytes; /* waiting to be sent */
    uint32_t channels, consumers, unacked;
    int state, blocked;
    uint64_t produced_bytes, fetched_bytes; /* Kafka: of record batches */
} om_conn_stat;
int om_conn_stat_get(om_engine *engine, uint64_t conn, om_conn_stat *out);

/* -- channels -- */

int om_channel_open(om_engine *engine, uint64_t conn, int channel);
/* Consumers go, unacked messages return to their places, a half message is dropped. closing: we
 * sent channel.close: all but channel.close and close-ok is dropped until om_channel_close
 * (.., 0). */
int om_channel_close(om_engine *engine, uint64_t conn, int channel, int closing);
int om_channel_confirm(om_engine *engine, uint64_t conn, int channel);
/* basic.qos global: how many unacked for the whole channel, 0: no limit. */
int om_channel_limit(om_engine *engine, uint64_t conn, int channel, uint32_t prefetch);
/* basic.recover: unacked ones go back to their places, but for those that a transaction has settled. */
int om_channel_recover(om_engine *engine, uint64_t conn, int channel);
int om_channel_tx_select(om_engine *engine, uint64_t conn, int channel);
/* `ok` (the commit-ok frame) is sent when it is on disk. < 0: nothing of it happened. OM_TX_PARTIAL:
 * all of it but what full queues refused, and `ok` isn't sent. */
#define OM_TX_PARTIAL 1
int om_channel_tx_commit(om_engine *engine, uint64_t conn, int channel, const uint8_t *ok, size_t len);
int om_channel_tx_rollback(om_engine *engine, uint64_t conn, int channel);

/* -- publishing -- */

/* This connection may write to this exchange. salt: 0, or the user's number when topic
 * permissions must be asked for each key. Forgotten at the next om_engine_forget_permissions. */
#define OM_EXCHANGE_BY_EVENT 1 /* each message asks for its route: headers, random, ... */
int om_conn_may_publish(om_engine *engine, uint64_t conn, const uint8_t *exchange, size_t len, uint32_t salt,
                        uint32_t flags);
#define OM_ROUTE_CACHE 1 /* good for every message with this exchange and key */
/* Queue ids[0] is a delay log: keep it there for x-delay ms first; those behind it take what has no delay. */
#define OM_ROUTE_DELAY 2
/* The answer to OM_EV_ROUTE: publish the message that waits on that channel to these queues.
 * generation: om_route_generation when the route was worked out; OM_E_STALE_EPOCH: too old, work
 * it out again. Resumes the connection. */
int om_publish_route(om_engine *engine, uint64_t conn, int channel, const uint64_t *queues, int32_t count,
                     uint32_t flags, uint64_t generation);
/* The answer to OM_EV_DEAD_ROUTE. */
int om_dead_letter_route(om_engine *engine, uint64_t queue, const uint64_t *queues, int32_t count, uint32_t flags,
                         uint64_t generation);
uint64_t om_route_generation(om_engine *engine);
/* Bindings of this exchange (or of one behind it) changed: its routes are forgotten. NULL: of all. */
void om_route_forget(om_engine *engine, uint32_t vhost, const uint8_t *exchange, size_t len);
void om_engine_forget_permissions(om_engine *engine);

/* The answer to OM_EV_OPEN: the batch's records, plain; len -1: they can't be had. OM_E_CORRUPT: then,
 * or when these can't be its records; the batch is passed over. */
int om_batch_opened(om_engine *engine, uint64_t log, int64_t base_offset, const uint8_t *records, int64_t len);

/* -- queues -- */

#define OM_QUEUE_STREAM 1
#define OM_QUEUE_QUORUM 2 /* x-delivery-count; delivery limit counts as quorum queues do */
#define OM_QUEUE_SINGLE_ACTIVE 4
#define OM_QUEUE_REJECT_PUBLISH 8 /* overflow: nack instead of dropping the head */
#define OM_QUEUE_REJECT_DLX 16    /* ... and dead-letter what is refused */
#define OM_QUEUE_DURABLE 32
#define OM_QUEUE_DELAY 64          /* holds messages of a delayed exchange; no consumers */
#define OM_QUEUE_AT_LEAST_ONCE 128 /* a dead letter stays until all its targets take it */

typedef struct om_queue_options {
    uint32_t flags;
    int64_t message_ttl_ms; /* -1: none, for this and all below */
    int64_t max_length, max_length_bytes;
    int64_t delivery_limit;
    int64_t consumer_timeout_ms;
    int has_dlx, has_dlrk;
    om_span dlx, dlrk;
} om_queue_options;

/* logs: one, or one a priority, lowest first. The queue holds them until it is removed. */
int om_queue_add(om_engine *engine, uint64_t queue, uint32_t vhost, const uint8_t *name, size_t len, om_log **logs,
                 int32_t log_count, const om_queue_options *options);
int om_queue_set(om_engine *engine, uint64_t queue, const om_queue_options *options);
/* Consumers are gone (Python has told them), unacked deliveries are forgotten, routes too. */
int om_queue_remove(om_engine *engine, uint64_t queue);
int64_t om_queue_purge(om_engine *engine, uint64_t queue, uint64_t *seq);
typedef struct om_queue_stat {
    int64_t ready, unacked, ready_bytes, unacked_bytes;
    int64_t consumers, active_consumers;
    int64_t published, delivered, acked, redelivered, expired, dead_lettered, dropped;
    int64_t first_offset, next_offset;
    int64_t head_timestamp; /* ms, -1: empty */
    int64_t idle_ms;        /* since its last consumer, get or (re)declaration */
} om_queue_stat;
int om_queue_stat_get(om_engine *engine, uint64_t queue, om_queue_stat *out);
void om_queue_touch(om_engine *engine, uint64_t queue); /* redeclared: it isn't idle */

/* -- consuming -- */

#define OM_CONSUME_NO_ACK 1
#define OM_CONSUME_EXCLUSIVE 2
enum om_stream_start {
    OM_STREAM_NEXT = 0,
    OM_STREAM_FIRST = 1,
    OM_STREAM_LAST = 2,
    OM_STREAM_OFFSET = 3,
    OM_STREAM_TIME = 4
};
typedef struct om_consume {
    uint64_t queue;
    om_span tag;
    uint32_t flags;
    uint32_t prefetch; /* 0: no limit */
    int32_t priority;
    int start;           /* streams: enum om_stream_start */
    int64_t start_value; /* offset, or ms since the epoch */
    om_span filter;      /* streams: x-stream-filter, values each behind its length u8; empty: none */
    int match_unfiltered;
    int64_t timeout_ms; /* x-consumer-timeout; 0: the queue's */
} om_consume;
/* `ok` (consume-ok) is sent before the first delivery. OM_E_INVALID: the tag is in use;
 * OM_E_FENCED: exclusive use is in the way. */
int om_consumer_add(om_engine *engine, uint64_t conn, int channel, const om_consume *consume, const uint8_t *ok,
                    size_t len);
/* `ok` (cancel-ok) is sent behind the last delivery. */
int om_consumer_cancel(om_engine *engine, uint64_t conn, int channel, const uint8_t *tag, size_t tag_len,
                       const uint8_t *ok, size_t len);
/* Who consumes from it: fills at most cap, returns how many there are. */
typedef struct om_consumer_info {
    uint64_t conn;
    int channel;
    uint32_t flags, prefetch;
    int32_t priority;
    uint32_t unacked;
    int active;
    uint8_t tag_len;
    uint8_t tag[255];
} om_consumer_info;
int64_t om_queue_consumers(om_engine *engine, uint64_t queue, om_consumer_info *out, int64_t cap);
/* basic.get of a queue this connection may read: answers get-ok or get-empty by itself. From now
 * on C answers gets of this queue on this connection without asking. Resumes it. */
int om_basic_get(om_engine *engine, uint64_t conn, int channel, uint64_t queue, int no_ack);
/* Direct reply-to: deliveries for this channel's pseudo queue. The reply address is
 * "amq.rabbitmq.reply-to." + what C makes; C rewrites it in publishes and delivers replies. */
int om_consumer_add_reply_to(om_engine *engine, uint64_t conn, int channel, const uint8_t *tag, size_t tag_len,
                             const uint8_t *ok, size_t len);

/* Does anybody still wait for replies at this address? */
int om_reply_to_exists(om_engine *engine, const uint8_t *address, size_t len);

/* -- Kafka (kafka.h): C cuts requests and answers Produce and Fetch; the rest are events -- */

/* The answer to a Kafka client's OM_EV_OPENED. trusted: it needs no login, and its requests may be as large
 * as anybody's before it is let in. */
int om_kafka_trust(om_engine *engine, uint64_t conn, int trusted);
/* The client may be served: from now on Produce and Fetch are C's. Before that every request is an
 * event; one of those two waits for om_kafka_retry (serve it now) or om_kafka_answer. */
int om_kafka_open(om_engine *engine, uint64_t conn, const char *user);
/* The answer to OM_EV_KAFKA_REQUEST: a whole response, size and header included; len 0: none is due.
 * Reading goes on. OM_E_RANGE: not the slot that waits. */
int om_kafka_answer(om_engine *engine, uint64_t conn, int64_t slot, const uint8_t *data, size_t len);

#define OM_KAFKA_READ 1
#define OM_KAFKA_WRITE 2
/* What this connection may do with a topic; 0: nothing, and it won't be asked again. Holds until the
 * next om_engine_forget_permissions. Unknown names are forgotten at once. */
int om_kafka_permit(om_engine *engine, uint64_t conn, const uint8_t *name, size_t len, uint32_t rights);
/* This connection may produce under this transactional id; the same promises. */
int om_kafka_permit_producer(om_engine *engine, uint64_t conn, const uint8_t *id, size_t len, int allowed);
/* Go on with the request that asked (OM_EV_KAFKA_TOPICS): what is still unknown gets its error. */
int om_kafka_retry(om_engine *engine, uint64_t conn);
/* What became of a batch of OM_EV_KAFKA_BATCHES. */
typedef struct om_kafka_repacked {
    uint32_t place;      /* as the event had it */
    int error;           /* Kafka's code: it is refused */
    const uint8_t *data; /* the batch as it is to be kept; NULL: as it was sent */
    size_t len;
    int64_t first_time, last_time; /* of its records */
} om_kafka_repacked;
/* Of all of them, in their order: the request goes on. */
int om_kafka_batches_repacked(om_engine *engine, uint64_t conn, const om_kafka_repacked *batches, uint32_t count);
/* Responses tell the client to keep away so long, and its requests wait as long. Used up by the next
 * Produce or Fetch answer. */
int om_kafka_throttle(om_engine *engine, uint64_t conn, uint32_t ms);

#define OM_KAFKA_COMPACTED 1       /* records without a key are refused */
#define OM_KAFKA_LOG_APPEND_TIME 2 /* records get the time of their arrival */
#define OM_KAFKA_ASYNC 4           /* acks=all doesn't wait for the disk */
#define OM_KAFKA_INTERNAL 8        /* clients don't write to it */
typedef struct om_kafka_partition {
    uint64_t queue;
    int32_t lane;
} om_kafka_partition;
#define OM_KAFKA_AS_SENT -1
typedef struct om_kafka_topic_options {
    uint32_t flags;
    int32_t codec;             /* that batches are kept in; OM_KAFKA_AS_SENT: their producer's */
    int32_t level;             /* for whoever compresses */
    int64_t max_message_bytes; /* of a batch */
    int64_t timestamp_before_max_ms, timestamp_after_max_ms; /* INT64_MAX: any */
} om_kafka_topic_options;
/* Make a topic known, or change it. A partition whose queue isn't there (yet) is unknown to clients. */
int om_kafka_topic_set(om_engine *engine, const uint8_t *name, size_t len, const uint8_t *id,
                       const om_kafka_partition *partitions, int32_t count, const om_kafka_topic_options *options);
int om_kafka_topic_remove(om_engine *engine, const uint8_t *name, size_t len);

typedef struct om_engine_stat {
    uint64_t connections, channels, consumers, queues, routes;
    uint64_t ticks, published, confirmed, delivered, acked, returned, route_misses;
    uint64_t received_bytes, sent_bytes, output_bytes, message_bytes;
    int blocked;
} om_engine_stat;
void om_engine_stat_get(om_engine *engine, om_engine_stat *out);

/* ---- inspection (inspect.c): files as they lie there, for tools ------------------------- */

/* Offsets that no batch has: [first, end), with the leader epochs of the batches around them. */
typedef struct om_gap {
    int64_t first, end;
    int32_t epoch_before, epoch_after;
} om_gap;

typedef struct om_walk {
    int64_t base_offset;
    uint64_t position;                      /* where the next batch starts */
    int64_t next_offset;                    /* the lowest offset it may have */
    int32_t epoch;                          /* the lowest leader epoch it may have */
    int64_t first_timestamp, max_timestamp; /* of the first batch, of all; start with -1 */
    int64_t max_timestamp_offset;           /* the last offset of the batch that brought it; -1 */
    uint64_t batches, records;
    const uint8_t *offsets, *times; /* the entries of .index and .timeindex, or NULL */
    uint32_t offset_count, time_count;
    uint32_t offset_at, time_at;      /* the next one to look at */
    int64_t wrong_offset, wrong_time; /* the first entry that is wrong; start with -1 */
    int32_t first_epoch;              /* of the first batch */
    uint64_t left_out;                /* offsets within batches that no record has: compacted ones */
    om_gap *gaps;                     /* between batches; NULL: they aren't asked for */
    uint32_t gap_room, gap_count;
} om_walk;
/* Walk over batches, up to position `stop` or beyond it: CRCs right, offsets growing, epochs not
 * going down; index entries are looked at on the way. data lies at walk->position. OM_E_SHORT:
 * the next batch isn't all there. OM_E_FULL: no room for another gap. OM_E_CORRUPT, OM_E_RANGE
 * (offset), OM_E_STALE_EPOCH: the next batch is wrong; walk stands before it. */
int om_walk_batches(om_walk *walk, const uint8_t *data, size_t len, uint64_t stop);

/* Bytes [position, end) of a segment that are no batches, or wrong ones, or that the disk can't give, and
 * the offsets they may have held. */
typedef struct om_bad {
    uint64_t position, end;
    int64_t first, last;
} om_bad;
typedef struct om_survey {
    om_bad *items;
    uint32_t count, cap;
    uint64_t size;            /* of the file */
    int64_t next_offset;      /* one past the last offset */
    int64_t batches, records; /* that are whole and right; their timestamps, -1: none */
    int64_t first_timestamp, max_timestamp;
} om_survey;
/* Each batch of a segment's file, up to `end` (UINT64_MAX: all of it), offsets below limit. Sectors that
 * can't be read are bad stretches too. OM_OK, OM_E_IO, OM_E_NO_MEMORY. */
int om_survey_file(const char *path, int64_t base_offset, uint64_t end, int64_t limit, om_survey *survey);
void om_survey_free(om_survey *survey);

typedef struct om_wal_summary {
    uint64_t records, bytes, first_seq, last_seq;
    uint32_t epoch;
    char error[320];
} om_wal_summary;
/* Read the WAL in that folder as recovery would. OM_OK, or OM_E_* with a line in `error`. */
int om_wal_survey(const char *dir, uint64_t after_seq, om_wal_summary *out);

typedef struct om_wal_reader om_wal_reader;
typedef struct om_wal_record {
    uint64_t seq;
    uint64_t log_id;
    const uint8_t *payload; /* valid until the next call */
    size_t len;
    uint32_t epoch;
    uint8_t type;
} om_wal_record;
/* Records after after_seq, which a checkpoint made needless. A folder that doesn't exist is an
 * empty log; NULL: it can't be listed, or the fence file or a version can't be read. */
om_wal_reader *om_wal_reader_open(const char *dir, uint64_t after_seq, char *err, size_t err_len);
/* OM_OK, OM_END, OM_E_CORRUPT: a hole (the error text says which sequences are missing), OM_E_IO:
 * a read failed, OM_E_NO_MEMORY. Once it isn't OM_OK it stays so. */
int om_wal_reader_next(om_wal_reader *reader, om_wal_record *record);
const char *om_wal_reader_error(const om_wal_reader *reader);
void om_wal_reader_close(om_wal_reader *reader);

/* ---- columns (columns.c, columns_read.c): records in bulk, laid out as Arrow has them ------------------- */

enum om_column {
    OM_COL_OFFSET,         /* int64, always there */
    OM_COL_TIMESTAMP,      /* int64: microseconds */
    OM_COL_SIZE,           /* int32: of the record; of a damaged stretch, its bytes */
    OM_COL_POSITION,       /* int64: of the batch */
    OM_COL_BATCH_BASE,     /* int64 */
    OM_COL_CODEC,          /* int8 */
    OM_COL_PRODUCER_ID,    /* int64 */
    OM_COL_PRODUCER_EPOCH, /* int32 */
    OM_COL_BASE_SEQUENCE,  /* int32 */
    OM_COL_LEADER_EPOCH,   /* int32 */
    OM_COL_DELIVERIES,     /* int32: how often given out; null: settled, or no cursor */
    OM_COL_CRC_OK,         /* these are bits */
    OM_COL_TRANSACTIONAL,
    OM_COL_CONTROL,
    OM_COL_ABORTED, /* null: the transaction is open */
    OM_COL_SETTLED, /* null: no cursor */
    OM_COL_KEY,     /* these are bytes with int32 ends */
    OM_COL_BODY,
    OM_COL_HEADERS, /* a list of the next two, which come with it */
    OM_COL_HEADER_KEY,
    OM_COL_HEADER_VALUE,
    OM_COLUMN_COUNT
};
enum om_column_part { OM_PART_VALID, OM_PART_ENDS, OM_PART_VALUES };

typedef struct om_columns om_columns;

/* Where the reading of a segment is, and what it is for. */
typedef struct om_reading {
    uint64_t position;              /* where the next batch starts */
    int64_t next_offset;            /* the lowest offset it may have */
    int64_t from, to;               /* rows wanted: from <= offset < to */
    int64_t since, until;           /* since <= timestamp < until, in ms */
    const om_cursor *cursor;        /* tells what is settled and what was given out; NULL: nothing does */
    const om_aborted *transactions; /* aborted ones; open ones end at INT64_MAX */
    uint32_t transaction_count;
} om_reading;

/* wanted: a bit (1 << OM_COL_*) a column. NULL: no memory. */
om_columns *om_columns_new(uint32_t wanted, int64_t row_limit);
void om_columns_free(om_columns *columns);
/* Add batches up to position `stop`; data lies at reading->position. OM_OK: there. The reading stands
 * before a batch that isn't all here (OM_E_SHORT), is damaged (OM_E_CORRUPT), has offsets that go
 * back (OM_E_RANGE), is compressed and to be opened by the caller (OM_E_INVALID), or finds no room
 * (OM_E_FULL: take the rows, go on with a new om_columns). OM_E_NO_MEMORY. */
int om_columns_read(om_columns *columns, om_reading *reading, const uint8_t *data, size_t len, uint64_t stop);
/* The batch that the reading stands before, its records opened. header: its first 61 bytes, checked. */
int om_columns_opened(om_columns *columns, om_reading *reading, const uint8_t *header, const uint8_t *records,
                      size_t len);
/* Step over that many bytes that are not what should be there: a row that says so. */
int om_columns_damaged(om_columns *columns, om_reading *reading, uint64_t size);
int64_t om_columns_rows(const om_columns *columns);
int64_t om_columns_items(const om_columns *columns); /* headers of all rows */
/* A buffer and its length, as Arrow wants it; VALID has none (0) when nothing is null. */
const void *om_columns_part(const om_columns *columns, int column, int part, size_t *len);

#endif
