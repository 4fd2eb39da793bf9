/* blob.h -- bytes that grow as they are written, later a file. Start with {0}; free(blob.data). */
#ifndef OM_BLOB_H
#define OM_BLOB_H
#include <stddef.h>
#include <stdint.h>

typedef struct om_blob {
    uint8_t *data;
    size_t len, cap;
} om_blob;

int om_blob_put(om_blob *blob, const void *data, size_t len); /* OM_OK, OM_E_NO_MEMORY */
#endif
