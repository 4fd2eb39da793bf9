/* batch.h -- building record batches in place. See ottermq.h for decoding.
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
#include "ottermq.h"

/* A batch that grows: a tick's messages for one log. The bytes are malloc'ed and may move
 * until om_build_finish; om_build_take hands them over. */
typedef struct om_build {
    uint8_t *data;
    size_t len, cap;
    int64_t base_timestamp, max_timestamp;
    int32_t count;
} om_build;

void om_build_init(om_build *build);
void om_build_free(om_build *build);
/* Adds one record (its offset delta is the count so far). OM_E_NO_MEMORY or OM_E_INVALID. */
int om_build_add(om_build *build, const om_record *record);
/* Writes the header (offset and leader epoch may be patched later) and the CRC. */
int om_build_finish(om_build *build, om_batch_info *info);

/* Patch what the CRC doesn't cover. */
void om_batch_patch(uint8_t *batch, int64_t base_offset, int32_t leader_epoch);
#endif
