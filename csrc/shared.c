/* shared.c -- bytes that go when the last holder lets go. */
#include "shared.h"

#include <stdlib.h>

om_bytes *om_bytes_new(uint8_t *data, uint32_t len) {
    om_bytes *bytes = malloc(sizeof *bytes);
    if (!bytes)
        return NULL;
    bytes->refs = 1;
    bytes->len = len;
    bytes->data = data;
    bytes->crc_from = bytes->crc = 0;
    return bytes;
}

void om_bytes_ref(om_bytes *bytes) {
    __atomic_add_fetch(&bytes->refs, 1, __ATOMIC_RELAXED);
}

void om_bytes_unref(om_bytes *bytes) {
    if (__atomic_sub_fetch(&bytes->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        free(bytes->data);
        free(bytes);
    }
}
