/* kafka_load_link.c -- a connection to a Kafka broker, as far as a load generator needs one. */
#define _GNU_SOURCE
#include "kafka_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE 60 /* seconds for a topic to come up */

/* ---- bytes ---- */

void put(buffer *out, const void *bytes, size_t len) {
    if (out->len + len > out->cap) {
        out->cap = (out->len + len) * 2;
        out->bytes = need(realloc(out->bytes, out->cap));
    }
    memcpy(out->bytes + out->len, bytes, len);
    out->len += len;
}

static void set_number(uint8_t *at, int64_t value, int width) {
    for (int i = width; i--; value >>= 8)
        at[i] = (uint8_t)value;
}

void put_number(buffer *out, int64_t value, int width) {
    uint8_t bytes[8];
    set_number(bytes, value, width);
    put(out, bytes, (size_t)width);
}

void put_string(buffer *out, const char *text) {
    put_number(out, (int64_t)strlen(text), 2);
    put(out, text, strlen(text));
}

int64_t number(const uint8_t *at, int width) {
    int64_t value = (int8_t)at[0];
    for (int i = 1; i < width; i++)
        value = (int64_t)((uint64_t)value << 8 | at[i]);
    return value;
}

size_t request_begin(buffer *out, int api, int version) {
    size_t start = out->len;
    put_number(out, 0, 4);
    put_number(out, api, 2);
    put_number(out, version, 2);
    put_number(out, 7, 4); /* correlation: answers come in order anyway */
    put_string(out, "load");
    return start;
}

void request_end(buffer *out, size_t start) {
    set_number(out->bytes + start, (int64_t)(out->len - start - 4), 4);
}

/* ---- links ---- */

int link_open(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    inet_pton(AF_INET, options.host, &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect to %s:%d: %s", options.host, options.port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void link_send(int fd, const void *bytes, size_t len) {
    for (const uint8_t *at = bytes; len;) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);
        if (sent <= 0)
            fail("send: %s", strerror(errno));
        at += sent, len -= (size_t)sent;
    }
}

static void receive(int fd, uint8_t *at, size_t len) {
    while (len) {
        ssize_t got = recv(fd, at, len, MSG_WAITALL);
        if (got <= 0)
            fail("the broker closed the connection%s%s", got ? ": " : "", got ? strerror(errno) : "");
        at += got, len -= (size_t)got;
    }
}

uint8_t *link_answer(int fd, buffer *in, size_t *len) {
    uint8_t head[4];
    receive(fd, head, 4);
    int64_t size = number(head, 4);
    if (size < 4 || size > 256 << 20)
        fail("an answer of %ld bytes", (long)size);
    if ((size_t)size > in->cap) {
        in->cap = (size_t)size;
        in->bytes = need(realloc(in->bytes, in->cap));
    }
    receive(fd, in->bytes, (size_t)size);
    *len = (size_t)size;
    return in->bytes;
}

/* ---- topics ---- */

#define TOPIC_ALREADY_EXISTS 36
#define INVALID_REPLICATION_FACTOR 38
#define FENCED_TRIES 100 /* of 100 ms */

/* Kafka's error. */
static int64_t ask_for_topic(int fd, const buffer *request) {
    buffer in = {0};
    size_t len;
    link_send(fd, request->bytes, request->len);
    /* correlation 4, throttle 4, topics 4, name, error 2 */
    const uint8_t *answer = link_answer(fd, &in, &len);
    size_t at = 12 + 2 + strlen(options.topic);
    int64_t error = len >= at + 2 ? number(answer + at, 2) : -1;
    free(in.bytes);
    return error;
}

void topic_create(void) {
    buffer out = {0};
    size_t start = request_begin(&out, CREATE_TOPICS, 4);
    put_number(&out, 1, 4);
    put_string(&out, options.topic);
    put_number(&out, options.create, 4);
    put_number(&out, 1, 2); /* replicas */
    put_number(&out, 0, 4); /* assignments */
    put_number(&out, 0, 4); /* configs */
    put_number(&out, 30000, 4);
    put_number(&out, 0, 1);
    request_end(&out, start);
    int fd = link_open();
    int64_t error = ask_for_topic(fd, &out);
    /* A Kafka that stood still while others had their turn is fenced by its own controller until its
     * heart beats again: no node is left to have a replica. */
    for (int tries = 0; error == INVALID_REPLICATION_FACTOR && tries < FENCED_TRIES; tries++) {
        usleep(100000);
        error = ask_for_topic(fd, &out);
    }
    if (error && error != TOPIC_ALREADY_EXISTS)
        fail("creating %s: error %ld", options.topic, (long)error);
    close(fd);
    free(out.bytes);
}

void topic_delete(void) {
    buffer out = {0}, in = {0};
    size_t len, start = request_begin(&out, DELETE_TOPICS, 3);
    put_number(&out, 1, 4);
    put_string(&out, options.topic);
    put_number(&out, 30000, 4);
    request_end(&out, start);
    int fd = link_open();
    link_send(fd, out.bytes, out.len);
    link_answer(fd, &in, &len);
    close(fd);
    free(out.bytes);
    free(in.bytes);
}

/* Every partition answers a fetch without an error: its leader knows it. */
void topic_wait(void) {
    int64_t *offsets = need(calloc((size_t)options.partitions, sizeof *offsets));
    buffer out = {0}, in = {0};
    put_fetch(&out, offsets, 0, 1, 0);
    int fd = link_open();
    uint64_t limit = now_ns() + (uint64_t)PATIENCE * 1000000000u;
    for (int bad = 1; bad; usleep(50000)) {
        size_t len;
        link_send(fd, out.bytes, out.len);
        const uint8_t *answer = link_answer(fd, &in, &len);
        bad = (int)number(answer + 8, 2);
        size_t at = 4 + 4 + 2 + 4 + 4 + 2 + strlen(options.topic);
        int64_t count = at + 4 <= len ? number(answer + at, 4) : 0;
        at += 4;
        for (int64_t i = 0; i < count; i++) {
            bad |= (int)number(answer + at + 4, 2);
            int64_t aborted = number(answer + at + 30, 4);
            at += 34 + (aborted > 0 ? (size_t)aborted * 16 : 0) + 4;
            int64_t bytes = number(answer + at, 4);
            at += 4 + (bytes > 0 ? (size_t)bytes : 0);
        }
        if (count != options.partitions)
            bad = 3;
        if (bad && now_ns() > limit)
            fail("%s isn't there after %d s: error %d", options.topic, PATIENCE, bad);
    }
    close(fd);
    free(offsets);
    free(out.bytes);
    free(in.bytes);
}
