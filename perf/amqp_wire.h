/* amqp_wire.h -- as much of AMQP 0-9-1's bytes as a load generator and a relay share.
 *
 *   frame   | type 1 | channel 2 | size 4 | payload ... | 0xCE |      all numbers big-endian
 *   method  | class 2 | method 2 | arguments ... |                    the payload of type 1
 *   header  | class 2 | weight 2 | body size 8 | flags 2 | ... |      the payload of type 2
 */
#ifndef AMQP_WIRE_H
#define AMQP_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FRAME_METHOD 1
#define FRAME_HEADER 2
#define FRAME_BODY 3
#define FRAME_HEARTBEAT 8
#define FRAME_END 0xCE
#define FRAME_AROUND 8 /* bytes of a frame that aren't payload */
#define FRAME_MAX 131072

#define PROTOCOL_HEADER "AMQP\0\0\x09\x01"

#define METHOD(class_id, method_id) ((uint32_t)(class_id) << 16 | (method_id))
#define CONNECTION_START METHOD(10, 10)
#define CONNECTION_START_OK METHOD(10, 11)
#define CONNECTION_TUNE METHOD(10, 30)
#define CONNECTION_TUNE_OK METHOD(10, 31)
#define CONNECTION_OPEN METHOD(10, 40)
#define CONNECTION_OPEN_OK METHOD(10, 41)
#define CONNECTION_CLOSE METHOD(10, 50)
#define CONNECTION_CLOSE_OK METHOD(10, 51)
#define CHANNEL_OPEN METHOD(20, 10)
#define CHANNEL_OPEN_OK METHOD(20, 11)
#define CHANNEL_FLOW METHOD(20, 20)
#define CHANNEL_CLOSE METHOD(20, 40)
#define CHANNEL_CLOSE_OK METHOD(20, 41)
#define EXCHANGE_DECLARE METHOD(40, 10)
#define EXCHANGE_DECLARE_OK METHOD(40, 11)
#define EXCHANGE_DELETE METHOD(40, 20)
#define EXCHANGE_DELETE_OK METHOD(40, 21)
#define QUEUE_DECLARE METHOD(50, 10)
#define QUEUE_DECLARE_OK METHOD(50, 11)
#define QUEUE_BIND METHOD(50, 20)
#define QUEUE_BIND_OK METHOD(50, 21)
#define QUEUE_PURGE METHOD(50, 30)
#define QUEUE_PURGE_OK METHOD(50, 31)
#define QUEUE_DELETE METHOD(50, 40)
#define QUEUE_DELETE_OK METHOD(50, 41)
#define BASIC_QOS METHOD(60, 10)
#define BASIC_QOS_OK METHOD(60, 11)
#define BASIC_CONSUME METHOD(60, 20)
#define BASIC_CONSUME_OK METHOD(60, 21)
#define BASIC_PUBLISH METHOD(60, 40)
#define BASIC_DELIVER METHOD(60, 60)
#define BASIC_ACK METHOD(60, 80)
#define BASIC_NACK METHOD(60, 120)
#define CONFIRM_SELECT METHOD(85, 10)
#define CONFIRM_SELECT_OK METHOD(85, 11)

static inline uint16_t get16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static inline uint64_t get64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

static inline void set32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

static inline void set64(uint8_t *at, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
}

/* A frame in the making: small methods only. */
typedef struct {
    uint8_t bytes[4096];
    size_t len;
} wire;

static inline void wire_u8(wire *out, unsigned value) {
    out->bytes[out->len++] = (uint8_t)value;
}

static inline void wire_u16(wire *out, unsigned value) {
    wire_u8(out, value >> 8);
    wire_u8(out, value & 0xff);
}

static inline void wire_u32(wire *out, uint32_t value) {
    set32(out->bytes + out->len, value);
    out->len += 4;
}

static inline void wire_u64(wire *out, uint64_t value) {
    set64(out->bytes + out->len, value);
    out->len += 8;
}

static inline void wire_bytes(wire *out, const void *bytes, size_t len) {
    memcpy(out->bytes + out->len, bytes, len);
    out->len += len;
}

static inline void wire_shortstr(wire *out, const char *text) {
    wire_u8(out, (unsigned)strlen(text));
    wire_bytes(out, text, strlen(text));
}

static inline void wire_longstr(wire *out, const void *bytes, size_t len) {
    wire_u32(out, (uint32_t)len);
    wire_bytes(out, bytes, len);
}

/* Begins a method frame; wire_end() closes it. Several may follow one another in `out`. */
static inline size_t wire_method(wire *out, unsigned channel, uint32_t method) {
    size_t start = out->len;
    wire_u8(out, FRAME_METHOD);
    wire_u16(out, channel);
    wire_u32(out, 0);
    wire_u32(out, method);
    return start;
}

static inline void wire_end(wire *out, size_t start) {
    set32(out->bytes + start + 3, (uint32_t)(out->len - start - 7));
    wire_u8(out, FRAME_END);
}

#endif
