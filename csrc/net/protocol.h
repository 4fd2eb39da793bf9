/* protocol.h -- a protocol is a table of functions that each of its connections has.
 *
 *   om_amqp_protocol: amqp/amqp_conn.c      om_kafka_protocol: kafka/kafka_conn.c
 *
 * conn.c reads, sends and ends connections without knowing what is spoken on them. What a protocol keeps
 * of a connection lies in one block with it: a struct that begins with om_conn.
 */
#ifndef OM_PROTOCOL_H
#define OM_PROTOCOL_H

#include "om_engine.h"

#include <stddef.h>
#include <stdint.h>

typedef struct om_conn om_conn;

#define OM_PROTOCOLS 2 /* OM_PROTOCOL_* */

typedef struct om_protocol {
    size_t conn_size;                                             /* of the struct that begins with om_conn */
    void (*begin)(om_conn *conn);                                 /* a new one: its own part is zero */
    void (*read)(om_conn *conn);                                  /* its socket has input */
    void (*take)(om_conn *conn, const uint8_t *data, size_t len); /* input that didn't come by a socket */
    void (*resume)(om_conn *conn);  /* acts on the input that is there already, unless the connection is held */
    void (*drained)(om_conn *conn); /* its output was over the limit, and no longer is */
    void (*release)(om_conn *conn); /* returns what it holds of queues, for other consumers */
    void (*end)(om_conn *conn);     /* frees its own part */
    void (*check_time)(om_conn *conn, int64_t now_ms);     /* each sweep */
    void (*alarm)(om_conn *conn, const char *reason);      /* publishers are held back; NULL: no longer */
    uint64_t (*held_bytes)(const om_conn *conn);           /* messages in memory: output and unfinished bodies */
    void (*stat)(const om_conn *conn, om_conn_stat *stat); /* adds what only this protocol counts */
} om_protocol;

#endif
