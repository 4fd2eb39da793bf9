/* blob.c -- bytes that grow as they are written. */
#include "base/blob.h"

#include "om_base.h"

#include <stdlib.h>
#include <string.h>

int om_blob_put(om_blob *blob, const void *data, size_t len) {
    if (blob->cap - blob->len < len) {
        size_t cap = blob->cap ? blob->cap : 4096;
        while (cap - blob->len < len)
            cap *= 2;
        uint8_t *grown = realloc(blob->data, cap);
        if (!grown)
            return OM_E_NO_MEMORY;
        blob->data = grown;
        blob->cap = cap;
    }
    memcpy(blob->data + blob->len, data, len);
    blob->len += len;
    return OM_OK;
}
