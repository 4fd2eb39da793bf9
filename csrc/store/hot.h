/* hot.h -- a log's hot tail: sealed batches that still live in memory. Under the store's lock.
 *
 * A batch is in the WAL's buffer, or in no WAL at all, until the writer has put it into a segment. Readers
 * hold the bytes (om_buffer), never a slot of the ring.
 */
#ifndef OM_HOT_H
#define OM_HOT_H
#include "base/buffer.h"
#include "segment/segment.h"

/* A sealed batch in memory. The first 16 bytes (base offset, length, leader epoch) are its own;
 * the rest may be shared with other logs. */
#define OM_BATCH_HEAD 16
typedef struct om_hot {
    om_buffer *bytes;
    int64_t base_offset;
    int64_t last_offset;
    int64_t max_timestamp;
    uint64_t seq;        /* of its WAL record; unlogged: of the log's last logged one */
    om_segment *segment; /* its place, once decided; a write that failed keeps it */
    uint64_t position;
    int32_t leader_epoch;
    uint8_t shared; /* its bytes carry another log's head */
} om_hot;

/* A ring of them in offset order; no memory while empty. */
typedef struct om_hot_ring {
    om_hot *slots;
    uint32_t head, count, cap;
} om_hot_ring;

int om_hot_push(om_hot_ring *ring, const om_hot *hot);
om_hot *om_hot_at(const om_hot_ring *ring, uint32_t index);
void om_hot_drop_head(om_hot_ring *ring, uint32_t count); /* slots only: the caller frees */
void om_hot_drop_tail(om_hot_ring *ring, uint32_t count);
/* The first batch whose last offset >= offset; count when there is none. */
uint32_t om_hot_find(const om_hot_ring *ring, int64_t offset);
/* How many at the head have seq <= durable. */
uint32_t om_hot_durable(const om_hot_ring *ring, uint64_t durable);
void om_hot_put_head(const om_hot *hot, uint8_t head[OM_BATCH_HEAD]);

#endif
