/* om_store.h -- the log of the broker: one store, its logs, one WAL.
 *
 *   om_store_open -> om_store_add, once per log -> om_store_recover -> om_store_start
 *     -> om_log_append ... om_store_wait -> om_log_read
 *   om_store_close
 *
 * Called by wal/. An append is answered with a sequence; it is durable once the durable sequence
 * has reached it. Any thread may call; what blocks says so. docs/wal.md, docs/log-format.md.
 */
#ifndef OTTERMQ_STORE_H
#define OTTERMQ_STORE_H

#include "om_base.h"

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
    uint64_t hot_buffer_size; /* batches held in memory before appends get FULL */
    uint64_t mmap_cache_size;
    uint32_t open_files;
    uint64_t low_space_limit;        /* appends refused when the disk has less left */
    uint32_t checkpoint_interval_ms; /* 0: only when the WAL fills, and at close */
    uint32_t recovery_threads;       /* 0: one per core */
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
/* OM_E_INTERRUPTED: by om_store_interrupt (any thread, also before it; no effect once it is over);
 * close the store then, the next start recovers all the same. Until om_store_start nothing of what
 * it read has been let go. */
int om_store_recover(om_store *store, char *err, size_t err_len);
/* Logs that recovery met in the checkpoint or the WAL and that nobody had added. How many it wrote;
 * most 0: how many there are. */
enum om_unknown_log_flags {
    OM_UNKNOWN_NAMED = 1,  /* the catalogue had named it */
    OM_UNKNOWN_DELETED = 2 /* ... and its deletion is in the WAL */
};
typedef struct om_unknown_log {
    uint64_t id;
    uint32_t flags;
} om_unknown_log;
uint64_t om_store_unknown_logs(const om_store *store, om_unknown_log *out, uint64_t most);
/* The committer, writer, reader, checkpoint and news threads; recovery first, unless it is done. */
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
    /* Records that removals are judged by: */
    OM_RULE_LIFE = 17,   /* a life begins: holds that still stand are recorded again */
    OM_RULE_HOLD = 18,   /* a legal hold stands on the log ... */
    OM_RULE_LIFTED = 19, /* ... and stands no more */
    OM_RULE_SKIPPED = 20 /* offsets that no record has: an unclean stop */
};
typedef struct om_removal {
    uint64_t log_id;
    const char *folder; /* of the log, below the data folder */
    const char *name;
    int64_t segment;                        /* base offset of the file; -1: no file */
    int64_t first, next;                    /* offsets from first up to, not with, next */
    uint64_t bytes;                         /* that the file had */
    uint64_t left;                          /* ... and has now; 0: it is gone */
    int64_t first_timestamp, max_timestamp; /* -1: not known */
    int rule;
} om_removal;
/* Recorded with the next checkpoint, before removals after it: OM_RULE_HOLD, OM_RULE_LIFTED. */
void om_log_note(om_log *log, int rule);
/* Record a removal that is about to be done outside the store; on disk when it returns. Blocks. */
int om_store_note_removed(om_store *store, const om_removal *items, size_t count);

/* Reports, one by one, oldest first: corruption found, segments set aside, syncs that
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
    OM_REPORT_STALLED = 14,      /* accepted records not written for 10 s: publishers are held back */
    OM_REPORT_GOES_ON = 15       /* writing succeeds again */
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
/* Are publishes accepted now? OM_OK, OM_E_FULL, OM_E_NO_SPACE, OM_E_FENCED. */
int om_store_admits(om_store *store);
/* Ends a fence: starts a new WAL file and epoch. */
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

/* The worst write failure now; STALLED: it lasts so long that publishers are held back. out: why. */
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
/* Append a batch as its producer sent it (validated; base offset and epoch are patched). OM_DUPLICATE:
 * it is here already, at first_offset; OM_E_REFUSED: `error` says why. */
int om_log_append_raw(om_log *log, const uint8_t *batch, size_t len, int flags, int32_t epoch, om_appended *out);
/* One batch to many logs, written to the WAL once. out: one entry per log. */
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
/* Which of these logs have segments or settled records? One call per tick instead of one per log. */
void om_store_used(om_store *store, om_log *const *logs, uint8_t *used, size_t count);

/* Whole batches from the one that holds `offset` on, at least one, then up to max_bytes, up
 * to `end` (the high watermark for streams, readable_end for queues). Nothing is copied: spans
 * point into the hot tail or a mapping, held until om_read_free. OM_END: nothing there yet.
 * OM_E_RANGE: below the start or past the end. OM_E_UNREADABLE: out->next_offset says where
 * reading may go on. With OM_READ_NOWAIT: OM_E_NOT_RESIDENT when a page isn't in memory; the
 * reader thread has been asked, and the event fd becomes readable when it is there. */
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
/* Copy the spans out, guarded, every batch's CRC checked: it ends before the first that is wrong. Returns the bytes
 * or OM_E_*; OM_E_UNREADABLE: the first one is, and read->next_offset says where reading may go on.
 * OM_E_NOT_RESIDENT: that is being found out. */
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
/* Another reference, for a caller that uses the log in a thread while other references may be released. */
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

/* ---- a log's producers (producer*.c): sequences and transactions of Kafka clients --------- */

/* Those that reach into [from, to): fills at most cap, returns how many. */
int64_t om_log_aborted_in(om_log *log, int64_t from, int64_t to, om_aborted *out, int64_t cap);

/* End this producer's transaction here: a marker is appended, through the WAL whatever the log's flush
 * mode. An epoch above the producer's own fences it. OM_E_REFUSED with an error (47, 52): not this producer's epoch any
 * more, or not by this coordinator. */
int om_log_marker(om_log *log, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int commit,
                  om_appended *out);
/* Adds this log to the producer's transaction: without that, transactional batches are refused. Lasts until the
 * marker; repeat after a restart. OM_E_STALE_EPOCH. */
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

/* ---- a sealed segment is replaced (segment_swap.c) ---------------------------------------- */

typedef struct om_rewritten {
    uint64_t size;
    int64_t first_timestamp, max_timestamp;
    int64_t next_offset; /* of the last of the segments that it takes the place of */
} om_rewritten;
/* Another file for a sealed segment before the recovery point, or for several that follow each other: to be written
 * by the caller, with the same last offset. OM_E_GONE: no such segments, one is gone or damaged, or the store closes.
 * Commit and abort take the descriptor over. Block. */
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

#endif
