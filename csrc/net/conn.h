/* conn.h -- a connection, with a socket or without one (TLS). */
#ifndef OM_CONN_H
#define OM_CONN_H

#include "net/output.h"
#include "net/protocol.h"
#include "net/unauth.h"
#include "om_engine.h"
#include "store/store.h"

typedef struct om_conn om_conn;

#define OM_READ_BUDGET (256u << 10) /* bytes read per connection and tick */

enum om_conn_state {
    OM_CONN_GREETING = 1, /* waits for the protocol header */
    OM_CONN_HANDSHAKE = 2,
    OM_CONN_OPEN = 3,
    OM_CONN_CLOSING = 4,     /* close was sent: all but close and close-ok is dropped */
    OM_CONN_FLUSHING = 5,    /* nothing is read any more; ends when its output is out */
    OM_CONN_HALF_CLOSED = 6, /* our final output is out; what still comes is read and dropped */
};

struct om_conn {
    om_engine *engine;
    const om_protocol *ops;
    uint64_t id;
    int fd; /* -1: without a socket */
    int protocol;
    uint8_t state, paused, stalled, reading, writing, blocked, output_announced, wants_room, throttled;
    uint8_t output_over_limit; /* ... and so its requests wait */
    uint8_t held_back;         /* stalled because no publish is taken now */
    uint8_t broken;            /* to be closed at the end of the tick */
    uint8_t has_final_output;  /* something was said with the close: see half_close() in conn.c */
    const char *why;           /* ... and how it came to that */
    char peer[64];
    uint8_t user_len;
    char user[256];
    int64_t last_in, last_out; /* ms */
    int64_t opened_ms;

    uint8_t *in; /* what isn't cut into frames or requests yet */
    uint32_t in_len, in_cap;
    om_output out;

    uint64_t received_bytes, sent_bytes, published, delivered, acked;
    om_conn *next_dirty, *next_stalled;
    uint8_t on_dirty, on_stalled;
    uint8_t is_unauth; /* it hasn't logged in, and must */
    uint16_t bucket;   /* ... of its address: unauth.h */
    om_age ages[OM_AGE_LISTS];
};

/* Nothing of its input is acted on now. */
static inline int om_conn_is_held(const om_conn *conn) {
    return conn->paused || conn->stalled || conn->broken || conn->state >= OM_CONN_FLUSHING;
}

/* Stop reading requests from a client that does not drain its replies. */
static inline int om_conn_is_over_output_limit(om_conn *conn) {
    if (conn->out.bytes < OM_OUTPUT_HARD_LIMIT)
        return 0;
    conn->output_over_limit = 1;
    return 1;
}

om_conn *om_conn_find(om_engine *engine, uint64_t id);
void om_conn_dirty(om_conn *conn); /* has output to be flushed this tick */
/* om_output_put, and dirty; breaks the connection when out of memory */
uint8_t *om_conn_put(om_conn *conn, size_t len);
void om_conn_put_bytes(om_conn *conn, const void *data, size_t len);
void om_conn_break(om_conn *conn, const char *why); /* closed at the end of the tick, with no final output */
void om_conn_remove(om_conn *conn);                 /* that end: OM_EV_CLOSED, and it is gone */
void om_conn_read(om_conn *conn);
size_t om_conn_read_most(const om_conn *conn); /* bytes of its input to take at once */
void om_conn_heard(om_conn *conn, size_t len); /* it has brought that much */
void om_conn_continue(om_conn *conn);          /* acts on input that is there already */
void om_conn_flush(om_conn *conn);
void om_conn_watch(om_conn *conn); /* epoll: as paused, stalled and output say */
om_conn *om_conn_new(om_engine *engine, int fd, int protocol, const char *peer);
void om_conn_stall(om_conn *conn);
void om_conn_drained(om_conn *conn, uint64_t len); /* output that left without a socket */
void om_conn_check_time(om_conn *conn, int64_t now_ms);

#endif
