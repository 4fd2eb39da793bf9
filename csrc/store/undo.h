/* undo.h -- what transactions settled, until their records are durable. Under the store's lock.
 *
 * If the WAL refuses the record, nothing of the transaction may stay. (An ack of a consumer may: the
 * consumer has the message.)
 */
#ifndef OM_UNDO_H
#define OM_UNDO_H
#include "cursor/cursor.h"
#include "om_store.h"

typedef struct om_undo {
    om_log *log; /* held */
    uint64_t seq;
    int64_t first, last;
    struct om_undo *next;
} om_undo;

/* In sequence order. */
typedef struct om_undo_list {
    om_undo *first, *last;
} om_undo_list;

int om_undo_note(om_log *log, uint64_t seq, const om_cursor_op *settle); /* before it is settled */
void om_undo_forget(om_store *store, uint64_t durable);                  /* of records that are durable */
void om_undo_all(om_store *store);                                       /* the rest was refused */

#endif
