/* checksum.h -- CRC-32C in pieces and XXH3; om_crc32c itself is in om_base.h. */
#ifndef OM_CHECKSUM_H
#define OM_CHECKSUM_H
#include "om_base.h"

uint32_t om_crc32c_portable(uint32_t crc, const void *data, size_t len);
int om_crc32c_is_hardware(void);
/* Of two pieces, one behind the other, of which each is known: no byte is looked at again. */
uint32_t om_crc32c_join(uint32_t left, uint32_t right, uint32_t right_len);
uint64_t om_xxh3(const void *data, size_t len); /* XXH3 64 bits, seed 0: same as xxhash.xxh3_64 */
#endif
