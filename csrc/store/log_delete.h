/* log_delete.h -- deleted logs: their files go once the record of the deletion is durable. */
#ifndef OM_LOG_DELETE_H
#define OM_LOG_DELETE_H
#include "om_store.h"

typedef struct om_deleted_log {
    om_log *log; /* the table's reference */
    uint64_t seq;
    struct om_deleted_log *next;
} om_deleted_log;

/* Under the store's lock. */
typedef struct om_log_deletions {
    om_deleted_log *with_files;
    om_deleted_log *listed; /* the files are gone, but a list of the store still names the log. Nobody is woken for
                             * these: the writer's list may not move until a checkpoint */
} om_log_deletions;

/* The log leaves the table; seq: of the record, 0: none is due. Under the store's lock. Takes over `deleted`. */
void om_log_delete_add(om_log *log, om_deleted_log *deleted, uint64_t seq);
/* The writer's thread: the files that may go by now. Without the store's lock. */
void om_log_delete_some(om_store *store, uint64_t durable);

#endif
