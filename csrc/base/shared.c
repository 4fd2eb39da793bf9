/* shared.c -- bytes that go when the last holder lets go. */
#include "base/shared.h"

#include <stdlib.h>
#include <string.h>

static om_bytes *allocate(size_t room) {
    void *memory;
    if (room < OM_BYTES_LARGE)
        memory = malloc(sizeof(om_bytes) + room);
    else if (posix_memalign(&memory, OM_BYTES_PAGE, sizeof(om_bytes) + room) != 0)
        memory = NULL;
    om_bytes *bytes = memory;
    if (bytes)
        *bytes = (om_bytes){.data = (uint8_t *)(bytes + 1), .room = room, .refs = 1};
    return bytes;
}

om_bytes *om_bytes_new(uint32_t len) {
    om_bytes *bytes = allocate(len);
    if (bytes)
        bytes->len = len;
    return bytes;
}

om_bytes *om_bytes_copy(const uint8_t *data, uint32_t len) {
    om_bytes *bytes = om_bytes_new(len);
    if (bytes && len)
        memcpy(bytes->data, data, len);
    return bytes;
}

/* realloc knows nothing of pages; but what it only shortens stays where it is. */
static om_bytes *move(om_bytes *bytes, size_t room) {
    om_bytes *moved = allocate(room);
    if (!moved)
        return NULL;
    memcpy(moved->data, bytes->data, bytes->len);
    moved->len = bytes->len;
    free(bytes);
    return moved;
}

om_bytes *om_bytes_resize(om_bytes *bytes, size_t room) {
    if (room > bytes->room && room >= OM_BYTES_LARGE)
        return move(bytes, room);
    om_bytes *resized = realloc(bytes, sizeof(om_bytes) + room);
    if (resized) {
        resized->data = (uint8_t *)(resized + 1);
        resized->room = room;
    }
    return resized;
}

void om_bytes_ref(om_bytes *bytes) {
    __atomic_add_fetch(&bytes->refs, 1, __ATOMIC_RELAXED);
}

void om_bytes_unref(om_bytes *bytes) {
    if (__atomic_sub_fetch(&bytes->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(bytes);
}
