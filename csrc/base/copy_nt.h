/* copy_nt.h -- a copy that goes past the cache. */
#ifndef OM_COPY_NT_H
#define OM_COPY_NT_H
#include <stddef.h>
#include <stdint.h>

/* memcpy, for bytes that won't be looked at again soon; returns their CRC-32C, begun with crc. */
uint32_t om_copy_nt(uint32_t crc, uint8_t *to, const uint8_t *from, size_t len);
#endif
