/* recover.h -- the state of each log during recovery (recover.c describes the steps). */
#ifndef OM_RECOVER_H
#define OM_RECOVER_H

#include "store/log.h"
#include "wal/wal.h"

/* Offsets as sorted, joined ranges. */
typedef struct om_ranges {
    struct {
        int64_t first, last;
    } * items;
    uint32_t count, cap;
} om_ranges;
int om_ranges_add(om_ranges *ranges, int64_t first, int64_t last); /* at or after the last one, or anywhere */
int om_ranges_contain(const om_ranges *ranges, int64_t offset);
void om_ranges_cut(om_ranges *ranges, int64_t from);

/* A stretch below the recovery point that isn't what it should be. */
typedef struct om_damage {
    int64_t first, last;
    int64_t segment_base; /* its file, to be set aside; -1: there is none */
    const char *why;
    struct om_damage *next;
} om_damage;

/* A batch of a producer that lies past the recovery point (producer_recover.c). */
typedef struct om_seen {
    om_batch_info info;
    int32_t coordinator_epoch; /* of a marker */
    int commit, from_wal;
} om_seen;
typedef struct om_seen_list {
    om_seen *items;
    size_t count, cap;
} om_seen_list;

/* What recovery has found of one log so far. */
typedef struct om_log_recovery {
    om_log *log;
    uint64_t cursor_seq;
    int64_t saved_next;    /* the checkpoint's next offset */
    int64_t saved_end;     /* ... and its cursor's end: records from here on are weighed by the load */
    int64_t first_segment; /* ... and below which base offset it needs no file */
    int64_t trim_to;
    int64_t rebuild_from; /* a hole starts here: from here on all comes from the WAL; -1: none */
    om_ranges present;    /* records past the recovery point that are there */
    om_ranges control;    /* ... and those of them that no consumer is given */
    om_seen_list seen;
    om_ranges missing; /* in the WAL, not in the segments, though later ones are */
    struct {
        int64_t gap, base;
    } * doubts; /* a batch at `base` that left a gap nobody explains yet */
    uint32_t doubt_count;
    struct {
        uint64_t seq;
        int64_t offset;
    } * cuts; /* the truncations in the WAL */
    uint32_t cut_count;
    om_damage *damages;
} om_log_recovery;
int om_log_recovery_load(om_store *store, om_log_recovery *found); /* checkpoint entry and segments */

/* Its next sync is one of its folders too, up to the data folder. */
void om_segment_doubt_name(const om_store *store, const om_log *log, om_segment *segment);

typedef struct om_recovery {
    om_store *store;
    om_log_recovery *logs;
    size_t count;
    size_t next;  /* atomic: the next one to load */
    int result;   /* atomic */
    int pass;     /* over the WAL: 1, or 2 for what must be rebuilt */
    int has_hole; /* the WAL: what it doesn't know of may have been logged */
} om_recovery;

/* A log's producers (producer_recover.c). len: all of the batch. Batches without a producer are passed over. */
int om_seen_note(om_seen_list *list, const uint8_t *batch, size_t len, const om_batch_info *info, int from_wal);
void om_seen_cut(om_seen_list *list, int64_t offset, int keep_wal);
/* All has been seen: the checkpoint's knowledge is brought up to date. */
int om_producers_replay(om_log *log, om_seen_list *list);

int om_recover(om_store *store, om_wal_tail *tail, char *err, size_t err_len);
/* All that the WAL has, applied (recover_replay.c). In the second pass only what must be rebuilt. */
int om_replay(om_recovery *recovery, om_wal_tail *tail, char *err, size_t err_len);
/* The files of segments that were cut off. */
int om_replay_remove_cut(om_store *store, int rule);
#endif
