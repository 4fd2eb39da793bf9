/* shared.h -- bytes that several hold: hot batches of a fan-out, readers, the WAL, sockets. */
#ifndef OM_SHARED_H
#define OM_SHARED_H
#include <stdint.h>

typedef struct om_bytes {
    int refs;                /* atomic: readers let go without the lock */
    uint32_t len;
    uint8_t *data;
    uint32_t crc_from, crc;  /* CRC-32C of all from there on; 0: not known */
} om_bytes;

om_bytes *om_bytes_new(uint8_t *data, uint32_t len); /* takes over data (malloc'ed) */
void om_bytes_ref(om_bytes *bytes);
void om_bytes_unref(om_bytes *bytes);
#endif
