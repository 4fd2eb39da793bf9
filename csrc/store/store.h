/* store.h -- the storage engine's inside: store, log, hot tail, and who may touch what.
 *
 *   append -> open batch -> seal: hot tail + WAL buffer -> committer: durable
 *                                     |                        |
 *   read <---- hot tail <-------------+        writer: place, pwritev, drop from the hot tail
 *   read <---- mapped segment <----------------------+
 *                                        checkpoint: sync, checkpoint file, recycle the WAL
 *
 * One lock (om_ticket_lock) guards everything in here unless a line says otherwise. Its holder never
 * touches a file: the writer, the reader and the checkpoint take what they need under it, let
 * go, do the slow thing, and come back for a moment to note the result.
 */
#ifndef OM_STORE_H
#define OM_STORE_H

#include "base/blob.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/ticket_lock.h"
#include "cursor/cursor.h"
#include "format/batch.h"
#include "segment/segment.h"
#include "store/removal_journal.h"
#include "wal/wal.h"

/* What the store writes into the WAL (1 is OM_WAL_PART). Payloads, little-endian:
 *   BATCH     the batch, base offset and leader epoch patched in
 *   FANOUT    count u32, zero u32, count x (log id u64, base offset i64, epoch i32, zero u32), batch
 *   ATOMIC    sub-records: len u32, type u8, zero u24, log id u64, payload, padding to 8
 *   LEASE     end i64, epoch i32
 *   CURSOR    ops of 32 bytes, see om_cursor_op
 *   TRIM      start i64
 *   TRUNCATE  offset i64, new epoch i32
 *   DELETE    nothing
 *   START     nothing: a life begins, and all that was in flight before has returned
 */
enum om_record_type {
    OM_REC_BATCH = 2,
    OM_REC_FANOUT = 3,
    OM_REC_ATOMIC = 4,
    OM_REC_LEASE = 5,
    OM_REC_CURSOR = 6,
    OM_REC_TRIM = 7,
    OM_REC_TRUNCATE = 8,
    OM_REC_DELETE = 9,
    OM_REC_START = 10,
    OM_REC_NAMED = 11,
};

/* A batch is closed when it has grown to this, so that a reader that asks for little gets
 * little, and Kafka consumers with their default limits (1 MiB) are never asked for more. */
#define OM_BATCH_TARGET (256 * 1024)
/* So many offsets are leased ahead: as many as were given lately, within these. */
#define OM_LEASE_LEAST 32
#define OM_LEASE_MOST 65536
#define OM_FANOUT_ENTRY 24
#define OM_ATOMIC_HEADER 16

/* A sealed batch in memory. The first 16 bytes (base offset, length, leader epoch) are its own;
 * the rest may be shared with other logs. */
#define OM_BATCH_HEAD 16
typedef struct om_hot {
    om_buffer *bytes;
    int64_t base_offset;
    int64_t last_offset;
    int64_t max_timestamp;
    uint64_t seq;        /* of its WAL record; unlogged: of the log's last logged one */
    om_segment *segment; /* its place, once decided; a write that failed keeps it */
    uint64_t position;
    int32_t leader_epoch;
    uint8_t shared; /* its bytes carry another log's head */
} om_hot;

/* A ring of them in offset order; no memory while empty. */
typedef struct om_hot_ring {
    om_hot *slots;
    uint32_t head, count, cap;
} om_hot_ring;

/* This tick's batch for several logs, each of which points here (fanout.c). */
typedef struct om_fanout {
    om_build build;
    int64_t weight; /* bytes of the values in it */
    uint8_t unlogged;
    int32_t log_count;
    om_log *logs[];
} om_fanout;

struct om_log_recovery;
typedef struct om_delivered_mark om_delivered_mark;
typedef struct om_delivered_mark_slot om_delivered_mark_slot;

struct om_log {
    om_store *store;
    uint64_t id;
    char *folder;
    char *name;
    int refs; /* atomic: the table, each handle, the writer while it writes */
    om_log_options options;

    int64_t start_offset;
    int64_t next_offset;
    int64_t gap_start, gap_end; /* offsets that the last start skipped: none of them is a record; 0, 0: none */
    int64_t lease_from;         /* the next offset when a checkpoint last found the log quiet */
    int64_t lease_end;          /* offsets below may be given */
    int64_t lease_durable;      /* ... and below this one, seen */
    uint64_t lease_seq;
    uint64_t last_logged_seq;
    int32_t leader_epoch;
    uint8_t deleted;
    uint8_t frozen;        /* a truncate is under way: appends are told FULL */
    uint8_t open_unlogged; /* the kind of the open batch */
    uint8_t staged;        /* on the store's staged list */
    uint8_t queued;        /* on the writer's list */
    uint8_t prompted;      /* on its list of those that can't wait: unlogged batches */
    uint8_t leased;        /* on the list of leases under way */
    uint8_t touched;       /* written since the last checkpoint: on the sync list */
    uint8_t syncing;       /* a checkpoint has it in hand: its files stay, deleted or not */
    uint8_t manifest_stale;
    uint8_t folder_synced; /* its directory entry is known to be on disk */
    uint8_t has_files;     /* recovery: the folder was there */
    uint8_t handing;       /* this tick gave something out */
    uint8_t has_snapshots; /* of producers, written by this life; those of earlier ones are gone */
    uint8_t damaged;       /* one of its segments has stretches that can't be read */
    uint8_t trim_rule;     /* why it starts where it does: enum om_rule */
    uint8_t unnamed;       /* the catalogue's row may not be on disk yet */
    uint32_t writing;      /* hot batches at the head that the writer holds now */

    om_build *open;                     /* this tick's batch, NULL while there is none ... */
    om_fanout *fanout;                  /* ... or it is one that others share */
    int64_t open_base;                  /* its first offset */
    int64_t open_weight;                /* bytes of the values in it */
    int64_t atomic_count, atomic_bytes; /* messages that an atomic record under way will bring */
    om_hot_ring hot;
    om_segment **segments; /* in offset order; the last one may be active */
    uint32_t segment_count, segment_cap;
    int64_t lost;                   /* given out to nobody: they can't be read (log_damage.c) */
    int64_t missing;                /* offsets past the last segment that hold no record (log_count.c) */
    om_cursor *cursor;              /* NULL for streams and topics */
    struct om_producers *producers; /* NULL until one with an id has written here (producer.h) */
    /* How far settling is on disk: the floor that goes with a sequence under way, and with the
     * newest one. A batch is left unwritten only when a crash can't bring it back to life. */
    struct {
        uint64_t seq;
        int64_t floor;
    } floor_pending, floor_latest;
    int64_t durable_floor;
    om_delivered_mark_slot *handed; /* where its mark is; NULL until something was given out */
    om_cursor_op *ops;              /* this tick's cursor changes */
    uint32_t op_count, op_cap;

    int64_t recovery_point;                                   /* synced up to this offset ... */
    int64_t recovery_base;                                    /* ... which lies in this segment ... */
    uint64_t recovery_position;                               /* ... at this position */
    int64_t recovery_first_timestamp, recovery_max_timestamp; /* of that segment; recovery only */
    om_log *next_staged, *next_queued, *next_prompted, *next_touched, *next_lease;
    om_log *next_in_table;
    struct om_log_waiter *waiters; /* readers that wait for more, ... */
    int64_t waiters_told;          /* ... and the high watermark that they know */
    uint8_t to_wake;               /* on the list of logs with news for them */
    om_log *next_to_wake;
    struct om_log_recovery *patient; /* recovery only */
};

typedef struct om_list {
    om_log *head, *tail;
    uint64_t count;
} om_list;

/* A segment in some list: to be sealed by the writer, or to go once a checkpoint no longer
 * needs its file. */
typedef struct om_segment_node {
    om_log *log; /* both held */
    om_segment *segment;
    struct om_segment_node *next;
    int at_once;      /* its name may be wanted again */
    uint8_t rule;     /* why it goes */
    uint8_t recorded; /* ... and that is on disk */
} om_segment_node;

/* Something else that the record of what is gone is to say: records went, but no file yet. */
typedef struct om_removal_note {
    om_log *log; /* held */
    om_removal_journal removed;
    struct om_removal_note *next;
} om_removal_note;

typedef struct om_report_node {
    om_report report;
    struct om_report_node *next;
} om_report_node;

/* A folder of a deleted log, removed once its DELETE record is durable. */
typedef struct om_deleted_log {
    om_log *log;
    uint64_t seq;
    struct om_deleted_log *next;
} om_deleted_log;

/* What a transaction settled, until its record is durable: if that is refused, nothing of it may
 * stay. (An ack of a consumer may: the consumer has the message.) */
typedef struct om_undo {
    om_log *log; /* held */
    uint64_t seq;
    int64_t first, last;
    struct om_undo *next;
} om_undo;

/* A view the reader thread is asked to fault in, or a segment to survey. */
typedef struct om_fetch {
    om_log *log; /* held */
    om_view view;
    om_segment *survey; /* held */
    uint64_t suspect;
    struct om_fetch *next;
} om_fetch;

/* Logs that nobody added (unknown_logs.c). */
typedef struct om_unknown_logs {
    om_stranger *slots;
    uint32_t size, count;
} om_unknown_logs;
int om_unknown_logs_note(om_unknown_logs *set, uint64_t id, uint32_t flags);
void om_unknown_logs_free(om_unknown_logs *set);

/* What can't be put down on the disk (trouble.c). All times by om_now_ns; 0: all is well. */
typedef struct om_trouble {
    uint64_t writer_since_ns, checkpoint_since_ns, still_since_ns;
    uint64_t looked_ns, durable; /* at the last look at the WAL */
    int alarm;                   /* for too long: publishers are held back */
    char checkpoint[320];        /* why the last checkpoint failed */
    char why[320];               /* of the alarm */
} om_trouble;

struct om_store {
    om_ticket_lock turn;
    om_clock clock;
    char *dir;
    int dir_fd;
    om_store_options options;
    om_file_cache *files;
    om_wal *wal;  /* NULL until recovery is over */
    int event_fd; /* Python's */
    int news_fd;  /* whoever serves the store sleeps on it (news.c) */

    om_log **table; /* by id: a chained hash */
    uint32_t table_size;
    uint64_t log_count;

    om_list staged;  /* logs with an open batch or cursor ops this tick */
    int urgent;      /* this tick appended something that wants a sync now */
    int refused;     /* ... or couldn't append what it had taken: the fence, no memory */
    om_list leases;  /* logs whose lease isn't durable yet */
    om_list to_wake; /* logs (held) that got something while readers wait for it */
    uint64_t hot_bytes, hot_batches;
    int told_full; /* somebody was, by the hot tail: the writer says when there is room */
    uint64_t written_bytes, skipped_bytes;
    int fence_handled;
    int told_starved;            /* the last that was reported of the WAL */
    om_undo *undos, *undos_tail; /* in sequence order */
    om_delivered_mark *handed;   /* NULL: its file can't be had */

    /* writer */
    om_list queued;         /* logs with batches to write, oldest first */
    om_list prompted;       /* logs whose batches are in no WAL: to the page cache at once */
    om_segment_node *seals; /* full segments whose files are to be finished */
    struct om_round *round; /* the writer's working space */
    uint64_t flush_left;    /* a flush is under way: so many logs of the queue to go */
    int flushing;           /* somebody waits for it; guarded by writer_mutex, as is its result */
    int flush_result;
    om_deleted_log *graves;       /* deleted logs whose files are still there */
    om_deleted_log *emptied;      /* ... and those that a list still names. Nobody is woken for these: the
                                queue of what is to be written may not move until a checkpoint */
    pthread_mutex_t writer_mutex; /* pairs with the conditions; taken after the turn, never before */
    pthread_cond_t writer_wake, writer_done;
    int writer_kick;
    int writer_stuck;       /* atomic: the last round met an error and will be tried again */
    char writer_error[320]; /* ... and which, where */

    /* checkpoint */
    om_list touched;
    om_segment_node *doomed;          /* until a checkpoint no longer names them */
    om_segment_node *leaving;         /* no longer named: removed bit by bit */
    uint64_t removal_after;           /* not before this; the checkpoint's thread only */
    om_removal_note *notes;           /* recorded with the next checkpoint */
    om_removal_journal_file *removed; /* the record of what is gone */
    int record_failed;                /* atomic: and it has been said */
    pthread_mutex_t checkpoint_mutex; /* one checkpoint at a time */
    pthread_mutex_t checkpoint_timer; /* pairs with the condition */
    pthread_cond_t checkpoint_wake;
    int checkpoint_kick;
    uint64_t checkpoint_seq; /* recovery starts after this */
    uint64_t checkpoints, checkpoint_ns, segments_rewritten;
    om_trouble trouble;
    int low_space, no_space; /* atomic */

    /* reader */
    pthread_mutex_t survey_mutex; /* one survey at a time; taken before the turn, never under it */
    pthread_mutex_t reader_mutex;
    pthread_cond_t reader_wake;
    om_fetch *fetches, *fetches_tail;
    uint32_t fetch_count;

    om_report_node *reports, *reports_tail;
    om_progress progress;      /* atomics, relaxed */
    struct om_saved *saved;    /* the checkpoint file as read at open, until recovery has used it */
    om_unknown_logs strangers; /* what recovery read of logs that nobody added */
    om_wal_tail tail;          /* where recovery found the WAL's end */
    int recovered, fresh;      /* fresh: there was no record of what is gone */
    int snapshotting;          /* the table must keep its shape while a checkpoint walks it */
    int closing;               /* no more appends */

    int called_off; /* atomic: recovery is to end where it is */
    int stopping;   /* atomic */
    pthread_t writer, checkpointer, reader;
    int threads_running;
    pthread_t news;
    int news_running, news_stopping; /* stopping: atomic */
};

/* ---- store.c ---- */
/* A session under the lock; leaving it ends the tick: open batches are sealed, cursor changes
 * logged, the committer told. Returns the last sequence the store has given. */
void om_store_enter(om_store *store);
uint64_t om_store_leave(om_store *store);
/* The same in two halves, for who has more to do once the tick is logged. */
uint64_t om_store_end_tick(om_store *store);
void om_store_let_go(om_store *store);
int om_store_takes(om_store *store); /* om_store_admits, under the lock */
om_log *om_store_find(om_store *store, uint64_t id);
void om_store_forget(om_store *store, om_log *log);
void om_store_tell_disk(const om_store *store, char *text, size_t text_len);
void om_store_add_report(om_store *store, int kind, const om_log *log, int64_t first, int64_t last, const char *format,
                         ...) __attribute__((format(printf, 6, 7)));
void om_store_tell(om_store *store);       /* write the event fd */
int om_store_hot_is_full(om_store *store); /* under the lock; who was told will be told of room */
/* A recovery that stops half-way is a crash like any other: what it changed so far is what the
 * next one would do too. */
static inline int om_store_called_off(const om_store *store) {
    return __atomic_load_n(&store->called_off, __ATOMIC_RELAXED);
}
static inline int om_store_short_of_space(const om_store *store) {
    return __atomic_load_n(&store->low_space, __ATOMIC_RELAXED) ||
           __atomic_load_n(&store->no_space, __ATOMIC_RELAXED) || om_wal_starved(store->wal);
}
void om_list_push(om_list *list, om_log *log, size_t link);
om_log *om_list_pop(om_list *list, size_t link);
#define OM_LINK(field) offsetof(om_log, field)
void om_log_ref(om_log *log);

/* ---- log.c: under the lock ---- */
/* May this log take an append now? */
int om_log_admit(om_log *log, int32_t epoch);
void om_log_raise_epoch(om_log *log, int32_t epoch);
int om_log_stage(om_log *log, const om_record *records, int32_t count, int unlogged, int64_t *first);
/* One AMQP message; tail: its record headers (om_content_template). */
int om_log_stage_content(om_log *log, int64_t now_ms, om_span key, om_span body, om_span tail, int unlogged);
/* The same for a message that lies in a batch of its own already (om_build_make_room), which is taken over. */
int om_log_stage_landed(om_log *log, int64_t now_ms, om_build *landed, int64_t weight, int unlogged);
void om_log_seal(om_log *log);                     /* the open batch, if any */
void om_log_log_ops(om_log *log);                  /* the tick's cursor changes into the WAL */
void om_log_note_floor(om_log *log, uint64_t seq); /* a record with that sequence moved the cursor */
int64_t om_log_durable_floor(om_log *log);
/* Later records that moved it were refused: a later sequence must not speak for them. */
void om_log_forget_floors(om_log *log, uint64_t durable);
/* The log was cut there: what is appended next is not what was settled before. */
void om_log_lower_floors(om_log *log, int64_t offset);
void om_log_mark_staged(om_log *log);
/* Give offsets [next, next + count), extending the lease. */
int64_t om_log_claim(om_log *log, int64_t count);
int om_log_extend_lease(om_log *log);
void om_log_shorten_lease(om_log *log);
/* A whole and valid batch, the last of iov, into the WAL, which makes use of the CRC that it carries. */
uint64_t om_batch_log(om_store *store, uint8_t type, uint64_t log_id, const struct iovec *iov, int iovcnt,
                      om_buffer *batch);
/* Give a batch its place in the log, log it, put it into the hot tail. Takes over bytes; info gets the
 * offset. The batch was validated, the log admits it, and so do its producers. */
int om_log_append_bytes(om_log *log, om_buffer *bytes, om_batch_info *info, int flags);
/* A sealed batch enters the hot tail. Takes over one reference of bytes. weight: what its
 * values weigh; -1: not known yet. */
int om_log_push(om_log *log, om_buffer *bytes, const om_batch_info *info, uint64_t seq, int unlogged, int64_t weight);
void om_log_drop_hot(om_log *log, uint32_t count); /* from the head */
#define OM_WEIGHT_UNKNOWN -1
#define OM_WEIGHT_COUNTED -2                              /* the cursor knows these records already */
int64_t om_batch_weight(const uint8_t *data, size_t len); /* what its values weigh together */
int64_t om_log_high_watermark(const om_log *log);
int64_t om_log_readable_end(const om_log *log);
int64_t om_log_written_offset(const om_log *log);
int om_log_uses_wal(const om_log *log);
int om_log_is_logged(const om_log *log, int unlogged);
int om_log_apply_op(om_log *log, const om_cursor_op *op);
/* A log's cursor, under the lock. What is settled or returned must have been admitted. */
int om_log_admit_settle(om_log *log);
int om_log_acquire_one(om_log *log, int64_t offset, int64_t bytes);
int64_t om_log_settle_run(om_log *log, int64_t first, int64_t last, int64_t bytes);
int om_log_return_one(om_log *log, int64_t offset, int64_t bytes, int counted);
int64_t om_log_purge_ready(om_log *log);
void om_log_pass(om_log *log, int64_t next); /* recovery: all below was given out */
/* om_log_read of what is in a segment, under the lock: never waits (OM_E_NOT_RESIDENT). OM_END: it
 * is in the hot tail, or not there. */
int om_log_read_mapped(om_log *log, int64_t offset, uint64_t max_bytes, om_read *out);
/* The same as a stretch of a file, up to `end`; the segment is held. */
typedef struct om_stretch {
    om_segment *segment;
    uint64_t position, len;
    int64_t next_offset; /* behind it; with OM_E_UNREADABLE: where reading may go on */
} om_stretch;
int om_log_locate(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, om_stretch *out);
/* Are they what they were when they were written? Every batch's CRC, guarded, nothing copied. For
 * who sends straight from the mapping and has reason to doubt (a segment that was cold). The read then
 * ends before the first that isn't; OM_E_UNREADABLE: it is the first, and read->next_offset tells where
 * reading may go on. OM_E_NOT_RESIDENT: that is being found out. */
int om_read_check(om_read *read);
/* Guarded access to such a read's bytes: OM_E_UNREADABLE when they couldn't be had. */
/* Of a mapped read: the reader thread brings what comes behind it, and maps it, before anybody asks. */
void om_read_ahead(const om_read *read, uint64_t bytes);
void om_read_guard(const om_read *read);
/* The segment (not held) such a read looks into, and where in its file the bytes start. */
om_segment *om_read_segment(const om_read *read, uint64_t *position);
int om_read_unguard(const om_read *read);
void om_log_refuse_after(om_log *log, uint64_t durable); /* a fence: what isn't durable is gone */
om_segment *om_log_active(om_log *log);
int om_log_add_segment(om_log *log, om_segment *segment);
/* The first segment whose records reach past offset; segment_count when there is none. */
uint32_t om_log_segment_for(const om_log *log, int64_t offset);
void om_log_start_at(om_log *log, int64_t offset); /* the trim itself, without its record */
int64_t om_log_record_end(const om_log *log);      /* one past the last record; logs without a cursor */
int64_t om_log_record_count(const om_log *log);
void om_log_note_missing(om_log *log);                       /* offsets at its end were skipped, or are passed now */
void om_log_cut(om_log *log, int64_t offset, int32_t epoch); /* the truncation itself */
void om_log_limits(const om_log *log, om_segment_limits *out);

/* ---- log_waiters.c: readers that wait until a log's high watermark moves ---- */
typedef struct om_log_waiter {
    struct om_log_waiter *next, **link; /* link NULL: it doesn't wait */
    om_log *log;                        /* held */
} om_log_waiter;
void om_log_add_waiter(om_log *log, om_log_waiter *waiter);
void om_log_remove_waiter(om_log_waiter *waiter);
void om_log_wake_waiters(om_log *log); /* at the end of the tick, if the high watermark has moved by then */
void om_log_wake_due(om_store *store, void (*wake)(om_log_waiter *waiter)); /* that end */
void om_log_forget_to_wake(om_store *store);

/* ---- hot.c ---- */
int om_hot_push(om_hot_ring *ring, const om_hot *hot);
om_hot *om_hot_at(const om_hot_ring *ring, uint32_t index);
void om_hot_drop_head(om_hot_ring *ring, uint32_t count); /* slots only: the caller frees */
void om_hot_drop_tail(om_hot_ring *ring, uint32_t count);
/* The first batch whose last offset >= offset; count when there is none. */
uint32_t om_hot_find(const om_hot_ring *ring, int64_t offset);
/* How many at the head have seq <= durable. */
uint32_t om_hot_durable(const om_hot_ring *ring, uint64_t durable);
void om_hot_put_head(const om_hot *hot, uint8_t head[OM_BATCH_HEAD]);

/* ---- fanout.c ---- */
/* One AMQP message to several logs, which agree on whether it is logged. OM_END: one of them has
 * something else open, so it is to be staged one by one; OM_E_*: nobody has it. */
int om_fanout_stage_content(om_log *const *logs, int32_t log_count, int64_t now_ms, om_span key, om_span body,
                            om_span tail, int unlogged);
void om_fanout_seal(om_fanout *fanout);

/* ---- atomic.c: what is settled but not for certain ---- */
/* One AMQP message more; those for one log gather in one batch. */
int om_atomic_stage_content(om_atomic *atomic, om_log *log, int64_t now_ms, om_span key, om_span body, om_span tail);
int om_atomic_commit_held(om_atomic *atomic, uint64_t *seq); /* om_atomic_commit, under the lock */
void om_undo_forget(om_store *store, uint64_t durable);      /* of records that are durable */
void om_undo_all(om_store *store);                           /* the rest was refused */

/* ---- news.c: who serves the store ---- */
int om_news_start(om_store *store);    /* a thread of the store's own does; OM_E_NO_MEMORY */
void om_news_stop(om_store *store);    /* ... no more: the caller's does */
void om_news_ring(om_store *store);    /* there is something to look at */
int om_news_take(om_store *store);     /* was there a ring since the last time? */
void om_news_look(om_store *store);    /* under the lock: the fence, a starving WAL */
void om_news_pass_on(om_store *store); /* without it, after a ring: to the checkpoint and to Python */

/* ---- threads ---- */
void *om_writer_main(void *store);
void *om_checkpoint_main(void *store);
void *om_reader_main(void *store);
/* Write what may be written now, in the calling thread (the writer's, or recovery before it
 * runs). Called without the lock. Returns how many batches were written or OM_E_*. */
int64_t om_writer_round(om_store *store);
int om_writer_init(om_store *store);
void om_writer_wake(om_store *store);
/* Write everything that is durable now into segments; wait for it. */
int om_writer_flush(om_store *store);
int om_writer_wants(const om_store *store);     /* is there a reason to write now? Under the lock. */
void om_reader_ask(om_log *log, om_view *view); /* takes over the view */
/* Something in the segment isn't right, and the caller must not wait: OM_E_NOT_RESIDENT. */
int om_reader_survey(om_log *log, om_segment *segment, uint64_t suspect);

/* ---- log_damage.c ---- */
#define OM_SURVEYED 2
/* Under the lock. What is in the segment's file for certain: [0, *end), offsets below *limit. */
void om_log_written_part(const om_log *log, const om_segment *segment, uint64_t *end, int64_t *limit);
/* Find out which stretches of the segment can't be read, and tell. Blocks. OM_SURVEYED: look again. */
int om_log_survey(om_log *log, om_segment *segment, uint64_t suspect);
/* What isn't among the known ones becomes a report of that kind. */
void om_log_tell_damage(om_log *log, const om_segment *segment, const om_damages *known, const om_survey *survey,
                        int kind);
/* Under the lock. The bad stretch that holds offset; NULL: none does that is known. */
const om_bad *om_log_bad_for(const om_log *log, int64_t offset);
/* Of these, what is ready can't be given to anybody. How many. */
int64_t om_log_lose(om_log *log, int64_t first, int64_t last);
int64_t om_log_lost_ahead(const om_log *log); /* that count as ready still; logs with a cursor */

/* ---- checkpoint.c ---- */
int om_checkpoint_run(om_store *store, int closing);
/* For who must change a log's past and have it recorded before anything else is: truncate. */
void om_checkpoint_lock(om_store *store);
int om_checkpoint_run_locked(om_store *store, int closing);
void om_checkpoint_unlock(om_store *store);
void om_checkpoint_wake(om_store *store);
int om_checkpoint_is_asked_for(om_store *store); /* or the thread is to stop */

/* ---- segment_delete.c ---- */
om_segment_node *om_segment_node_new(om_log *log, om_segment *segment); /* takes over the segment */
void om_segment_node_free(om_segment_node *node);
void om_segment_nodes_free(om_segment_node *list);
void om_segment_node_remove(om_segment_node *node); /* its file, and the node */
/* A checkpoint no longer names them. */
void om_removal_release(om_store *store, om_segment_node *doomed);
void om_removal_some(om_store *store); /* as many as may go now */
void om_removal_all(om_store *store);
/* On disk: that these (not yet recorded ones) and all that was noted will go. Before any file does. */
int om_removal_record(om_store *store, om_segment_node *doomed);
int om_removal_record_deleted(om_store *store, const om_deleted_log *graves);
/* These files give way to one of `left` bytes under the first one's name. */
int om_removal_record_merged(om_log *log, om_segment *const *segments, uint32_t count, uint64_t left);
/* A part of a log, or a file that stays in part. NULL segment: no file. Blocks. */
int om_removal_record_one(om_log *log, const om_segment *segment, int rule, int64_t first, int64_t next, uint64_t left);
/* Records went, under the lock: said with the next checkpoint. */
void om_removal_note_range(om_log *log, int rule, int64_t first, int64_t next);
/* The same of files that go now, because there is no space to record them first. */
void om_removal_note_later(om_store *store, const om_segment_node *nodes);
void om_removal_notes_free(om_removal_note *list);
/* The first time that there is a record: what is gone already. */
int om_removal_baseline(om_store *store);

/* ---- checkpoint_file.c ---- */
int om_saved_load(om_store *store, char *err, size_t err_len);
void om_saved_free(om_store *store);
/* What the checkpoint knew of this log goes into it. OM_END: nothing. */
int om_saved_note_strangers(om_store *store); /* entries of logs that nobody added */
int om_saved_restore(om_store *store, om_log *log, uint64_t *cursor_seq, int64_t *first_segment);
int om_saved_put(om_blob *blob, om_log *log, uint64_t cursor_seq, int closing);
int om_saved_write(om_store *store, const om_blob *entries, uint64_t count, uint64_t seq);
/* Space for the next one, while there is some. */
void om_saved_reserve(om_store *store);

/* ---- manifest.c ---- */
typedef struct om_manifest_entry {
    int64_t base_offset, next_offset;
    uint64_t size;
    int64_t first_timestamp, max_timestamp;
} om_manifest_entry;
typedef struct om_manifest {
    om_manifest_entry *entries;
    uint32_t count;
} om_manifest;
int om_manifest_text(const om_log *log, om_blob *out);
/* Only segments that begin before `end`, and not in [from, to). */
int om_manifest_text_but(const om_log *log, int64_t end, int64_t from, int64_t to, om_blob *out);
int om_manifest_load(const char *folder, om_manifest *out);
const om_manifest_entry *om_manifest_find(const om_manifest *manifest, int64_t base_offset);

/* ---- trouble.c: under the lock ---- */
void om_trouble_look(om_store *store);
int om_trouble_is_alarm(const om_store *store);

/* ---- segment_swap.c ---- */
/* What a crash left of segments that were to become one. Before the folder is looked at. */
int om_log_finish_merges(const om_log *log);

/* ---- recover.c ---- */
/* Its next sync is one of its folders too, up to the data folder. */
void om_segment_doubt_name(const om_store *store, const om_log *log, om_segment *segment);
int om_recover(om_store *store, om_wal_tail *tail, char *err, size_t err_len);

/* ---- delivered_mark.c: what was given out, for a process that is killed ---- */
/* At the start, when all logs are known: each finds its mark again. */
void om_delivered_mark_open(om_store *store);
void om_delivered_mark_close(om_store *store);
/* The rest under the lock, but for growing, which is the writer's. */
void om_delivered_mark_note(om_log *log);   /* as far as its cursor has given out by now */
void om_delivered_mark_recall(om_log *log); /* recovery: what was noted counts as given out */
void om_delivered_mark_let_go(om_log *log);
int om_delivered_mark_wants_more(const om_store *store);
void om_delivered_mark_grow(om_store *store);

/* ---- segment_rebuild.c: a segment whose sync failed is made again from the WAL ---- */
/* *segment (held) becomes the new one. */
int om_segment_redo(om_store *store, om_log *log, om_segment **segment);
#endif
