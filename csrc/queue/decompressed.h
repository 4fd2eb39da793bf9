/* decompressed.h -- the decompressed form of compressed batches, for readers that need single messages.
 *
 * A Kafka client's batch is kept and fetched as it was sent. An AMQP reader needs what is in it:
 * Python decompresses it, in a thread and within limits (OM_EV_DECOMPRESS, om_batch_decompressed), and the plain
 * batch is kept here for as long as it is read. A batch that can't be decompressed is remembered as such: readers
 * pass over it, and it blocks no queue.
 */
#ifndef OM_DECOMPRESSED_H
#define OM_DECOMPRESSED_H

#include "base/buffer.h"
#include "format/batch.h"
#include "om_engine.h"

#define OM_DECOMPRESSED_SLOTS 64
#define OM_DECOMPRESSED_BYTES (64u << 20) /* of all that are kept, without the newest */

typedef struct om_decompressed {
    struct om_decompressed_slot {
        uint64_t log;
        int64_t base_offset;
        uint64_t used;    /* by the count of uses; 0: free */
        om_buffer *bytes; /* NULL: asked for, or can't be decompressed */
        uint8_t asked;
        uint8_t head[OM_BATCH_OVERHEAD];
    } slots[OM_DECOMPRESSED_SLOTS];
    uint64_t uses, bytes;
} om_decompressed;

/* The plain batch for this compressed one (not held). OM_E_NOT_RESIDENT: Python was asked, look again
 * when the queue is woken; OM_E_UNREADABLE: it can't be decompressed. */
int om_decompressed_get(om_engine *engine, uint64_t log, int64_t base_offset, const uint8_t *batch, size_t len,
                        om_buffer **out);
/* The answer. len -1: it can't be decompressed. OM_E_CORRUPT: then, or when these can't be its records. OM_E_GONE:
 * nobody has asked. */
int om_decompressed_put(om_engine *engine, uint64_t log, int64_t base_offset, const uint8_t *records, int64_t len);
void om_decompressed_free(om_engine *engine);

#endif
