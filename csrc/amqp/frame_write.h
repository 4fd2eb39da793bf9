/* frame_write.h -- frames as C writes them: heads, methods, short strings, ends. */
#ifndef OM_FRAME_WRITE_H
#define OM_FRAME_WRITE_H

#include "amqp/frame.h"
#include "base/bytes.h"
#include "om_base.h"

#include <string.h>

#define OM_FRAME_HEAD 7
#define OM_METHOD_HEAD (OM_FRAME_HEAD + 4) /* with class and method id */

/* Each returns where to go on. */
static inline uint8_t *om_put_frame_head(uint8_t *at, int type, int channel, size_t payload_len) {
    at[0] = (uint8_t)type;
    om_put_be16(at + 1, (uint16_t)channel);
    om_put_be32(at + 3, (uint32_t)payload_len);
    return at + OM_FRAME_HEAD;
}

static inline uint8_t *om_put_method_head(uint8_t *at, int channel, uint32_t method, size_t args_len) {
    at = om_put_frame_head(at, OM_FRAME_METHOD, channel, 4 + args_len);
    om_put_be32(at, method);
    return at + 4;
}

static inline uint8_t *om_put_shortstr(uint8_t *at, om_span text) {
    *at++ = (uint8_t)text.len;
    memcpy(at, text.data, (size_t)text.len);
    return at + text.len;
}

static inline uint8_t *om_put_frame_end(uint8_t *at) {
    *at++ = OM_FRAME_END;
    return at;
}

/* All of a method's frame: OM_METHOD_HEAD + args_len + 1 bytes. */
static inline uint8_t *om_put_method(uint8_t *at, int channel, uint32_t method, const uint8_t *args, size_t args_len) {
    at = om_put_method_head(at, channel, method, args_len);
    memcpy(at, args, args_len);
    return om_put_frame_end(at + args_len);
}

#endif
