/* amqp_conn.h -- an AMQP connection: what it negotiated, its channels, what it may do. */
#ifndef OM_AMQP_CONN_H
#define OM_AMQP_CONN_H

#include "amqp/frame.h"
#include "net/conn.h"
#include "net/protocol.h"

typedef struct om_channel om_channel;

/* Exchanges this connection may write to. */
typedef struct om_allowed {
    uint8_t len;
    uint8_t by_event;
    uint32_t salt;
    uint64_t permissions;
    uint8_t name[255];
} om_allowed;

#define OM_ALLOWED_MAX 64

typedef struct om_amqp_conn {
    om_conn conn;
    uint32_t flags, vhost; /* flags: OM_CONN_* */
    uint32_t frame_max, channel_max, heartbeat_ms;
    om_channel **channels;    /* a hash by number: channel.c */
    om_channel *last_channel; /* whose frame came last: frames of one channel come in runs */
    uint32_t channel_cap, channel_count;
    om_allowed *allowed;
    uint32_t allowed_count, allowed_next;
    uint64_t *gets; /* queues it may basic.get from */
    uint32_t gets_count;
    uint64_t gets_permissions;
    uint64_t get_queue; /* a basic.get that waits for the disk; 0: none */
    uint16_t get_channel;
    uint8_t get_no_ack;
} om_amqp_conn;

extern const om_protocol om_amqp_protocol;

static inline om_amqp_conn *om_amqp_of(const om_conn *conn) {
    return (om_amqp_conn *)conn;
}

om_amqp_conn *om_amqp_find(om_engine *engine, uint64_t id); /* NULL: it is gone, or speaks something else */
/* A protocol error: the connection is paused until Python has closed it, or the channel. */
enum om_verdict om_amqp_error(om_conn *conn, int channel, int code, uint32_t method, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
