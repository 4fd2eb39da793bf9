/* buffer.c -- bytes that go when the last holder lets go. */
#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>

static om_buffer *allocate(size_t room) {
    void *memory;
    if (room < OM_BUFFER_LARGE)
        memory = malloc(sizeof(om_buffer) + room);
    else if (posix_memalign(&memory, OM_BUFFER_PAGE, sizeof(om_buffer) + room) != 0)
        memory = NULL;
    om_buffer *bytes = memory;
    if (bytes)
        *bytes = (om_buffer){.data = (uint8_t *)(bytes + 1), .room = room, .refs = 1};
    return bytes;
}

om_buffer *om_buffer_new(uint32_t len) {
    om_buffer *bytes = allocate(len);
    if (bytes)
        bytes->len = len;
    return bytes;
}

om_buffer *om_buffer_copy(const uint8_t *data, uint32_t len) {
    om_buffer *bytes = om_buffer_new(len);
    if (bytes && len)
        memcpy(bytes->data, data, len);
    return bytes;
}

/* realloc knows nothing of pages; but what it only shortens stays where it is. */
static om_buffer *move(om_buffer *bytes, size_t room) {
    om_buffer *moved = allocate(room);
    if (!moved)
        return NULL;
    memcpy(moved->data, bytes->data, bytes->len);
    moved->len = bytes->len;
    free(bytes);
    return moved;
}

om_buffer *om_buffer_resize(om_buffer *bytes, size_t room) {
    if (room > bytes->room && room >= OM_BUFFER_LARGE)
        return move(bytes, room);
    om_buffer *resized = realloc(bytes, sizeof(om_buffer) + room);
    if (resized) {
        resized->data = (uint8_t *)(resized + 1);
        resized->room = room;
    }
    return resized;
}

void om_buffer_ref(om_buffer *bytes) {
    __atomic_add_fetch(&bytes->refs, 1, __ATOMIC_RELAXED);
}

void om_buffer_unref(om_buffer *bytes) {
    if (__atomic_sub_fetch(&bytes->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(bytes);
}
