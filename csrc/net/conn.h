/* conn.h -- a connection, with a socket or without one (TLS). */
#ifndef OM_CONN_H
#define OM_CONN_H

#include "net/output.h"
#include "net/unauth.h"
#include "om_engine.h"
#include "store/store.h"

typedef struct om_channel om_channel;
typedef struct om_conn om_conn;
typedef struct om_kafka_conn om_kafka_conn;

enum om_conn_state {
    OM_CONN_GREETING = 1, /* waits for the protocol header */
    OM_CONN_HANDSHAKE = 2,
    OM_CONN_OPEN = 3,
    OM_CONN_CLOSING = 4,  /* close was sent: all but close and close-ok is dropped */
    OM_CONN_FLUSHING = 5, /* nothing is read any more; ends when its output is out */
    OM_CONN_PARTING = 6,  /* our last word is out; what still comes is read and dropped */
};

/* Exchanges this connection may write to. */
typedef struct om_allowed {
    uint8_t len;
    uint8_t by_event;
    uint32_t salt;
    uint64_t permissions;
    uint8_t name[255];
} om_allowed;

#define OM_ALLOWED_MAX 64

struct om_conn {
    om_engine *engine;
    uint64_t id;
    int fd; /* -1: without a socket */
    int protocol;
    uint8_t state, paused, stalled, reading, writing, flushed, blocked, told_output, wants_room, throttled, clogged;
    uint8_t held_back;     /* stalled because no publish is taken now */
    uint8_t broken;        /* to be closed at the end of the tick */
    uint8_t has_last_word; /* something was said with the close: see part() in conn.c */
    const char *why;       /* ... and how it came to that */
    uint32_t flags, vhost;
    char peer[64];
    uint8_t user_len;
    char user[256];
    uint32_t frame_max, channel_max;
    uint32_t heartbeat_ms;
    int64_t last_in, last_out; /* ms */
    int64_t opened_ms;

    uint8_t *in; /* what isn't cut into frames yet */
    uint32_t in_len, in_cap;
    om_output out;
    om_channel **channels;
    uint32_t channel_cap, channel_count;
    om_allowed *allowed;
    uint32_t allowed_count, allowed_next;
    uint64_t *gets; /* queues it may basic.get from */
    uint32_t gets_count;
    uint64_t gets_permissions;
    uint64_t get_queue; /* a basic.get that waits for the disk; 0: none */
    uint16_t get_channel;
    uint8_t get_no_ack;

    uint64_t received_bytes, sent_bytes, published, delivered, acked;
    om_conn *next_dirty, *next_stalled;
    uint8_t on_dirty, on_stalled;
    uint8_t is_stranger; /* it hasn't logged in, and must */
    uint16_t place;      /* ... one of those from around its address */
    om_age ages[OM_AGE_ROWS];
    om_kafka_conn *kafka; /* NULL: it speaks AMQP */
};

om_conn *om_conn_find(om_engine *engine, uint64_t id);
void om_conn_dirty(om_conn *conn); /* has output to be flushed this tick */
uint8_t *om_conn_put(om_conn *conn,
                     size_t len); /* om_output_put, and dirty; breaks the connection when out of memory */
void om_conn_put_bytes(om_conn *conn, const void *data, size_t len);
void om_conn_break(om_conn *conn, const char *why); /* closed without a word at the end of the tick */
void om_conn_bury(om_conn *conn);                   /* that end: OM_EV_CLOSED, and it is gone */
void om_conn_drop_contents(om_conn *conn);
void om_conn_read(om_conn *conn);
void om_conn_heard(om_conn *conn, size_t len); /* it has brought that much */
void om_conn_continue(om_conn *conn);          /* frames that are there already */
void om_conn_flush(om_conn *conn);
void om_conn_watch(om_conn *conn); /* epoll: as paused, stalled and output say */
om_conn *om_conn_new(om_engine *engine, int fd, int protocol, const char *peer);
void om_conn_stall(om_conn *conn);
void om_conn_take(om_conn *conn, const uint8_t *data, size_t len); /* bytes that didn't come by a socket */
void om_conn_drained(om_conn *conn, uint64_t len);                 /* ... and that left without one */
void om_conn_check_time(om_conn *conn, int64_t now_ms);

#endif
