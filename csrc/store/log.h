/* log.h -- one log: what is known of it in memory, its life, and whether it takes an append.
 *
 *   offsets   start .. recovery point .. written .. durable .. readable .. next .. lease end
 *   batches   segments (files)        | hot tail (memory)      | open batch
 *
 * All of it under the store's lock unless a line says otherwise. Who writes which part:
 *
 *   offsets, lease               log_offsets.c
 *   open batch, hot tail         log_append.c (in), log_hot.c (out)
 *   segments                     log_segments.c, writer.c (new ones), segment_swap.c, segment_rebuild.c
 *   cursor, floors, ops          log_cursor.c
 *   recovery point               checkpoint.c, log_control.c (when it is cut)
 *   everything, before it serves recover*.c
 */
#ifndef OM_LOG_H
#define OM_LOG_H
#include "cursor/cursor.h"
#include "format/batch.h"
#include "om_store.h"
#include "segment/segment.h"
#include "store/hot.h"

struct om_delivered_mark_slot;
struct om_fanout;
struct om_log_recovery;
struct om_log_waiter;
struct om_producers;

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
    uint8_t frozen;          /* a truncate is under way: appends are told FULL */
    uint8_t open_unlogged;   /* the kind of the open batch */
    uint8_t staged;          /* on the store's staged list */
    uint8_t queued;          /* on the writer's list */
    uint8_t wants_write_now; /* on the writer's list of those that can't wait: unlogged batches */
    uint8_t leased;          /* on the list of leases under way */
    uint8_t touched;         /* written since the last checkpoint: on its list */
    uint8_t syncing;         /* a checkpoint works on it: its files stay, deleted or not */
    uint8_t manifest_stale;
    uint8_t folder_synced; /* its directory entry is known to be on disk */
    uint8_t has_files;     /* recovery: the folder was there */
    uint8_t delivered;     /* this tick gave something out */
    uint8_t has_snapshots; /* of producers, written by this life; those of earlier ones are gone */
    uint8_t damaged;       /* one of its segments may have parts that can't be read */
    uint8_t trim_rule;     /* why it starts where it does: enum om_rule */
    uint8_t unnamed;       /* the catalogue's row may not be on disk yet */
    uint32_t writing;      /* hot batches at the head that the writer writes now */

    om_build *open;                     /* this tick's batch, NULL while there is none ... */
    struct om_fanout *fanout;           /* ... or it is one that others share */
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
    struct om_delivered_mark_slot *delivered_mark; /* where its mark is; NULL until something was given out */
    om_cursor_op *ops;                             /* this tick's cursor changes */
    uint32_t op_count, op_cap;

    int64_t recovery_point;                                   /* synced up to this offset ... */
    int64_t recovery_base;                                    /* ... which lies in this segment ... */
    uint64_t recovery_position;                               /* ... at this position */
    int64_t recovery_first_timestamp, recovery_max_timestamp; /* of that segment; recovery only */
    om_log *next_staged, *next_queued, *next_write_now, *next_touched, *next_lease, *next_to_wake;
    om_log *next_in_table;
    struct om_log_waiter *waiters;    /* readers that wait for more, ... */
    int64_t waiters_know;             /* ... and the high watermark that they know */
    uint8_t to_wake;                  /* on the list of logs with news for them */
    struct om_log_recovery *recovery; /* recovery only */
};

om_log *om_log_new(om_store *store, uint64_t id, const char *folder, const char *name, const om_log_options *options);
void om_log_ref(om_log *log); /* any thread */

/* Both are asked per message. */
static inline int om_log_uses_wal(const om_log *log) {
    return !(log->options.flags & OM_LOG_SCRATCH);
}

static inline int om_log_is_logged(const om_log *log, int unlogged) {
    return !unlogged && !(log->options.flags & OM_LOG_SCRATCH) && log->options.flush_mode != OM_FLUSH_ASYNC;
}

/* May this log take an append now? */
int om_log_admit(om_log *log, int32_t epoch);

#endif
