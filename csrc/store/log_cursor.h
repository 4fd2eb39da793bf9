/* log_cursor.h -- a log's cursor, and how its changes reach the WAL. Under the store's lock.
 *
 * A change is made at once and noted; the end of the tick writes a tick's notes as one record (om_log_log_ops).
 * What is settled or returned must have been admitted.
 */
#ifndef OM_LOG_CURSOR_H
#define OM_LOG_CURSOR_H
#include "cursor/cursor.h"
#include "om_store.h"

int om_log_admit_settle(om_log *log);
int om_log_acquire_one(om_log *log, int64_t offset, int64_t bytes);
int64_t om_log_settle_run(om_log *log, int64_t first, int64_t last, int64_t bytes);
int om_log_return_one(om_log *log, int64_t offset, int64_t bytes, int counted);
int64_t om_log_purge_ready(om_log *log);
void om_log_pass(om_log *log, int64_t next); /* recovery: all below was given out */
int om_log_apply_op(om_log *log, const om_cursor_op *op);
void om_log_log_ops(om_log *log); /* the tick's cursor changes into the WAL */

/* ---- how far settling is on disk ---- */
void om_log_note_floor(om_log *log, uint64_t seq); /* a record with that sequence moved the cursor */
int64_t om_log_durable_floor(om_log *log);
/* Later records that moved it were refused: a later sequence must not speak for them. */
void om_log_forget_floors(om_log *log, uint64_t durable);
/* The log was cut there: what is appended next is not what was settled before. */
void om_log_lower_floors(om_log *log, int64_t offset);

#endif
