/* log_append.h -- every way into a log: staged messages, whole batches. Under the store's lock.
 *
 *   om_log_stage*  ->  open batch  --om_log_seal-->  .
 *   om_log_append_bytes (a producer's batch)  ------>|--> WAL buffer (om_batch_log) --> hot tail (om_log_push)
 *   fanout.c, atomic.c (batches for many logs) ----->'
 *
 * The caller has asked om_log_admit (log.h). Logs of a fan-out: fanout.h; of a transaction: atomic.h.
 */
#ifndef OM_LOG_APPEND_H
#define OM_LOG_APPEND_H
#include "base/buffer.h"
#include "format/batch.h"
#include "om_store.h"

#include <sys/uio.h>

/* A batch is closed when it has grown to this, so that a reader that asks for little gets
 * little, and Kafka consumers with their default limits (1 MiB) are never asked for more. */
#define OM_BATCH_TARGET (256 * 1024)

int om_log_stage(om_log *log, const om_record *records, int32_t count, int unlogged, int64_t *first);
/* One AMQP message; tail: its record headers (om_content_template). */
int om_log_stage_content(om_log *log, int64_t now_ms, om_span key, om_span body, om_span tail, int unlogged);
/* The same for a message that lies in a batch of its own already (om_build_make_room), which is taken over. */
int om_log_stage_built(om_log *log, int64_t now_ms, om_build *built, int64_t weight, int unlogged);
void om_log_mark_staged(om_log *log); /* the end of the tick has something to do for it */
void om_log_seal(om_log *log);        /* the open batch, if any */

/* A whole and valid batch, the last of iov, into the WAL, which makes use of the CRC that it carries. */
uint64_t om_batch_log(om_store *store, uint8_t type, uint64_t log_id, const struct iovec *iov, int iovcnt,
                      om_buffer *batch);
/* Give a batch its place in the log, log it, put it into the hot tail. Takes over bytes; info gets the
 * offset. The batch was validated, the log admits it, and so do its producers. */
int om_log_append_bytes(om_log *log, om_buffer *bytes, om_batch_info *info, int flags);
/* A sealed batch enters the hot tail. Takes over one reference of bytes. weight: what its
 * values weigh, or one of these. */
#define OM_WEIGHT_UNKNOWN -1
#define OM_WEIGHT_COUNTED -2 /* the cursor knows these records already */
int om_log_push(om_log *log, om_buffer *bytes, const om_batch_info *info, uint64_t seq, int unlogged, int64_t weight);

#endif
