/* buffer.h -- bytes with several holders: hot batches of a fan-out, readers, the WAL, sockets.
 *
 *   | om_buffer, 32 bytes | data, `room` bytes: `len` in use |
 *   '-- a large one begins on a page
 *
 * A record of the WAL has a header of 32 bytes, too, and may begin on a block. So a large record, but for
 * its first and last piece of a block, lies in memory as it will lie in the file, and the disk can take it
 * from here (wal_write.c).
 */
#ifndef OM_BUFFER_H
#define OM_BUFFER_H
#include <stddef.h>
#include <stdint.h>

#define OM_BUFFER_PAGE 4096
#define OM_BUFFER_LARGE 32768

typedef struct om_buffer {
    uint8_t *data; /* right behind this */
    size_t room;
    int refs; /* atomic: readers let go without the lock */
    uint32_t len;
    uint32_t crc_from, crc; /* CRC-32C of all from there on; 0: not known */
} om_buffer;

om_buffer *om_buffer_new(uint32_t len); /* not filled; NULL: out of memory */
om_buffer *om_buffer_copy(const uint8_t *data, uint32_t len);
/* What `len` counts comes along. Only for the one holder there is; NULL: out of memory, and it is as before. */
om_buffer *om_buffer_resize(om_buffer *bytes, size_t room);
void om_buffer_ref(om_buffer *bytes);
void om_buffer_unref(om_buffer *bytes);
#endif
