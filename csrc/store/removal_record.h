/* removal_record.h -- each removal is recorded first, with its reason, in the journal (removal_journal.h). */
#ifndef OM_REMOVAL_RECORD_H
#define OM_REMOVAL_RECORD_H
#include "store/log_delete.h"
#include "store/removal_journal.h"
#include "store/segment_node.h"

/* Something else that the journal is to say: records went, but no file yet. */
typedef struct om_removal_note {
    om_log *log; /* held */
    om_removal removed;
    struct om_removal_note *next;
} om_removal_note;

typedef struct om_removal_records {
    om_removal_journal_file *journal;
    om_removal_note *notes; /* under the store's lock: written with the next checkpoint */
    int failed;             /* atomic: and it has been reported */
} om_removal_records;

/* On disk: that these (not yet recorded ones) and all that was noted will go. Before any file does. */
int om_removal_record(om_store *store, om_segment_node *nodes);
int om_removal_record_deleted(om_store *store, const om_deleted_log *logs);
/* These files give way to one of `left` bytes under the first one's name. */
int om_removal_record_merged(om_log *log, om_segment *const *segments, uint32_t count, uint64_t left);
/* A part of a log, or a file that stays in part. NULL segment: no file. Blocks. */
int om_removal_record_one(om_log *log, const om_segment *segment, int rule, int64_t first, int64_t next, uint64_t left);
/* The first time that there is a journal: what is gone already. */
int om_removal_record_baseline(om_store *store);

/* ---- under the store's lock: said with the next checkpoint ---- */
void om_removal_note_range(om_log *log, int rule, int64_t first, int64_t next); /* records went */
/* Files that go now, because there is no space to record them first. */
void om_removal_note_later(om_store *store, const om_segment_node *nodes);
void om_removal_notes_free(om_removal_note *list);

#endif
