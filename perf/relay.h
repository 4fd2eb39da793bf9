/* relay.h -- what the parts of the relay share.
 *
 *   amqp_relay.c      main: peers, cutting, passing on
 *   relay_methods.c   the handshake, declares and the like: all that isn't a message
 *   relay_commit.c    the durable half
 */
#ifndef RELAY_H
#define RELAY_H

#include "amqp_wire.h"

#include <stdlib.h>

void die(const char *what);

/* ---- bytes on their way out: appended at the end, sent from the start ---- */

typedef struct {
    uint8_t *bytes;
    size_t start, end, room;
} buffer;

static inline uint8_t *buffer_reserve(buffer *buf, size_t len) {
    if (buf->room - buf->end < len) {
        size_t used = buf->end - buf->start;
        if (buf->start >= used && buf->room - used >= len) {
            memcpy(buf->bytes, buf->bytes + buf->start, used);
        } else {
            size_t room = buf->room ? buf->room : 64u << 10;
            while (room < used + len)
                room *= 2;
            uint8_t *bytes = malloc(room);
            if (!bytes)
                die("malloc");
            memcpy(bytes, buf->bytes ? buf->bytes + buf->start : bytes, used);
            free(buf->bytes);
            buf->bytes = bytes;
            buf->room = room;
        }
        buf->start = 0;
        buf->end = used;
    }
    return buf->bytes + buf->end;
}

static inline void buffer_append(buffer *buf, const void *bytes, size_t len) {
    memcpy(buffer_reserve(buf, len), bytes, len);
    buf->end += len;
}

static inline size_t buffer_used(const buffer *buf) {
    return buf->end - buf->start;
}

/* ---- what there is ---- */

typedef struct peer peer;

typedef struct {
    char name[256];
    buffer out;
    uint64_t tag;
    peer *consumer;
    unsigned channel;
} queue;

typedef struct {
    char name[256];
    queue **bound;
    int count;
} exchange;

struct peer {
    int fd;
    int index; /* in peers[] */
    int armed_out, paused;
    uint8_t *in;
    size_t in_len, in_room;
    buffer replies; /* all but deliveries */
    queue *consumes;
    unsigned confirm_channel;
    uint64_t published, confirmed, committing;
    /* the route of the last publish: names repeat */
    uint8_t key[520];
    size_t key_len;
    queue **route;
    int route_count;
    queue *single;
};

queue *queue_named(const uint8_t *name, size_t len);
exchange *exchange_named(const uint8_t *name, size_t len);
void queue_empty(queue *it);
void reply_start(peer *it);
void peer_reply(peer *it, const wire *out);
void peer_method(peer *it, unsigned channel, const uint8_t *payload);

/* Opens the file and starts the thread; the event it returns tells that a group is on disk. */
int commit_open(const char *path, int direct);
int commit_full(size_t more);
void commit_add(const uint8_t *bytes, size_t len);
/* What was gathered goes to the disk if the disk is free. 1: it does. */
int commit_begin(void);
/* 1: the group that went to the disk is there. */
int commit_done(void);

#endif
