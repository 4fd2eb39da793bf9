/* frame.h -- frames and the methods that C knows. */
#ifndef OM_FRAME_H
#define OM_FRAME_H

#include "net/conn.h"

#define OM_FRAME_METHOD 1
#define OM_FRAME_HEADER 2
#define OM_FRAME_BODY 3
#define OM_FRAME_HEARTBEAT 8
#define OM_FRAME_END 0xCE
#define OM_FRAME_OVERHEAD 8
#define OM_FRAME_MIN 4096
#define OM_FRAME_UNAUTH 8192     /* before tune-ok; as RabbitMQ 4.x */
#define OM_CONTENT_HEADER_MIN 14 /* class, weight, size, property flags */

/* The result for a frame. */
enum om_verdict {
    OM_GO_ON = 0,
    OM_PAUSE = 1, /* taken; nothing more until Python resumes */
    OM_STALL = 2, /* not taken: the same frame again later */
};
/* Cut and act on as many frames as there are; returns the bytes used. */
size_t om_frames(om_conn *conn, const uint8_t *data, size_t len);

/* The error of a frame (frame_error.c): why it is malformed, or NULL; a frame on the wrong channel; a method
 * with malformed arguments. */
enum om_verdict om_frame_error(om_conn *conn, int type, const uint8_t *payload, size_t len, const char *why);
enum om_verdict om_frame_unexpected(om_conn *conn, int type, const uint8_t *payload, size_t len);
enum om_verdict om_frame_undecodable(om_conn *conn, uint32_t method, const uint8_t *args, size_t len);

enum om_method_id { /* class << 16 | method */
                    OM_CONNECTION_CLOSE = 10 << 16 | 50,
                    OM_CONNECTION_CLOSE_OK = 10 << 16 | 51,
                    OM_CONNECTION_BLOCKED = 10 << 16 | 60,
                    OM_CONNECTION_UNBLOCKED = 10 << 16 | 61,
                    OM_CHANNEL_OPEN = 20 << 16 | 10,
                    OM_CHANNEL_CLOSE = 20 << 16 | 40,
                    OM_CHANNEL_CLOSE_OK = 20 << 16 | 41,
                    OM_BASIC_PUBLISH = 60 << 16 | 40,
                    OM_BASIC_RETURN = 60 << 16 | 50,
                    OM_BASIC_DELIVER = 60 << 16 | 60,
                    OM_BASIC_GET = 60 << 16 | 70,
                    OM_BASIC_GET_OK = 60 << 16 | 71,
                    OM_BASIC_GET_EMPTY = 60 << 16 | 72,
                    OM_BASIC_ACK = 60 << 16 | 80,
                    OM_BASIC_REJECT = 60 << 16 | 90,
                    OM_BASIC_NACK = 60 << 16 | 120,
};

#endif
