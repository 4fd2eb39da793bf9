/* batch.h -- building record batches in place. See om_base.h for decoding.
 *
 *   0        8       12      16   17    21     23       27        35        43
 *   | base   | batch | leader| ma | crc | attr | last   | base    | max     |
 *   | offset | length| epoch | gic| 32C | ibs  | delta  | timest. | timest. |
 *   43          51       53       57       61
 *   | producer  | prod.  | base   | record | records: varint length, attributes,
 *   | id        | epoch  | seq.   | count  | ts delta, offset delta, key, value, headers
 *
 * The CRC covers everything from `attributes` on: base offset and leader epoch can be
 * patched in place without touching it. That is what makes a fan-out one batch for all.
 */
#ifndef OM_BATCH_H
#define OM_BATCH_H
#include "base/buffer.h"
#include "om_base.h"

#define OM_BATCH_MAGIC 2
#define OM_BATCH_CRC 17      /* where it stands */
#define OM_BATCH_CRC_FROM 21 /* and what it covers */

#define OM_ATTR_DECOMPRESSED 0x4000 /* only in memory: a compressed batch without its codec (decompressed.c) */

/* A batch that grows: a tick's messages for one log. The bytes may move with each om_build_add;
 * om_build_take hands them over. All zero is an empty build. */
typedef struct om_build {
    om_buffer *bytes; /* NULL before the first record */
    size_t len;       /* of the whole batch, header included; 0 while empty */
    size_t crc_end;   /* CRC-32C of the records up to there; 0: of none yet */
    uint32_t crc;
    int64_t base_timestamp, max_timestamp;
    int32_t count;
} om_build;

void om_build_init(om_build *build);
void om_build_free(om_build *build);
/* Adds one record (its offset delta is the count so far). OM_E_NO_MEMORY; OM_E_INVALID: lengths
 * out of range, or the batch would pass INT32_MAX bytes. The build is then as before. */
int om_build_add(om_build *build, const om_record *record);
/* The same for an AMQP message, its record headers made before (om_content_template). */
int om_build_add_content(om_build *build, int64_t timestamp, om_span key, om_span body, om_span tail);
/* The same for the first one, whose body is still to come: it begins at *body_at. Nothing can be added or
 * taken before om_build_fill. */
int om_build_make_room(om_build *build, om_span key, int32_t body_len, om_span tail, size_t *body_at);
void om_build_put(om_build *build, size_t at, om_span part); /* the next piece of it goes there */
void om_build_fill(om_build *build, int64_t timestamp);      /* that was the last one */
/* The batch with its header (offset and leader epoch may be patched later) and CRC, and without what it
 * has grown beyond its length, which would otherwise be held but not counted. The build is empty
 * again. info as for om_batch_encode; NULL for a build without records, and with a delete horizon, which must be
 * known before the first record: use om_batch_make. */
om_buffer *om_build_take(om_build *build, om_batch_info *info);

/* Encode a whole batch into out. info gives attributes, offsets, leader epoch and producer
 * fields; timestamps, counts, size and crc are worked out and written back. What only the
 * caller can know is taken from info: max_timestamp with OM_ATTR_LOG_APPEND_TIME (when the
 * batch was appended), base_timestamp with OM_ATTR_DELETE_HORIZON (the horizon), and for an
 * empty batch both timestamps and last_offset_delta. The codec bits and those without a name
 * must be 0 (a compressed batch is kept as its producer sent it). Returns the size or OM_E_*;
 * OM_E_SHORT when cap is too small (om_batch_size_bound says what is enough). */
int64_t om_batch_size_bound(const om_record *records, int32_t count);
int64_t om_batch_encode(om_batch_info *info, const om_record *records, int32_t count, uint8_t *out, size_t cap);
/* om_batch_encode into bytes of its own. */
int om_batch_make(om_buffer **out, om_batch_info *info, const om_record *records, int32_t count);

/* What the CRC doesn't cover: base offset, length, leader epoch, magic. The header behind the batch (data lies
 * at the batch, whose file goes on for `left` bytes) has a say. OM_E_SHORT: it isn't here yet; OM_END: there is
 * none. */
int om_batch_peek_behind(const om_batch_info *batch, const uint8_t *data, size_t len, uint64_t left,
                         om_batch_info *behind);
/* It might have begun at `least`, leaves a gap, and reaches past the one behind it, which left room for it. */
int om_batch_is_astray(const om_batch_info *batch, int64_t least, const om_batch_info *behind);
/* Patch these. */
void om_batch_patch(uint8_t *batch, int64_t base_offset, int32_t leader_epoch);
int64_t om_batch_weight(const uint8_t *data, size_t len); /* what its values weigh together; compressed: its size */
#endif
