/* load_client.c -- a connection up to its open channel, and what ends a run.
 *
 * Set-up blocks and reads exactly the frame it waits for, so that a delivery that follows at once is
 * still in the socket when the threads begin.
 */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static void send_all(int fd, const void *bytes, size_t len) {
    for (const uint8_t *at = bytes; len;) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);
        if (sent <= 0)
            fail("send: %s", strerror(errno));
        at += sent, len -= (size_t)sent;
    }
}

static void receive_all(int fd, void *bytes, size_t len) {
    for (uint8_t *at = bytes; len;) {
        ssize_t got = recv(fd, at, len, 0);
        if (got <= 0)
            fail("the broker closed the connection during set-up%s%s", got ? ": " : "", got ? strerror(errno) : "");
        at += got, len -= (size_t)got;
    }
}

__attribute__((noreturn)) void closed_by_broker(const client *it, const uint8_t *payload) {
    const char *what = get32(payload) == CONNECTION_CLOSE ? "connection" : "channel";
    fail("the broker closed the %s of %s %d (%s): %u %.*s", what, it->publisher ? "publisher" : "consumer", it->number,
         it->queue, get16(payload + 4), payload[6], (const char *)payload + 7);
}

/* Waits for one method; only while nothing else can come. */
static void expect(const client *it, uint32_t method, uint8_t *payload, size_t room) {
    uint8_t head[7];
    do {
        receive_all(it->fd, head, 7);
        if (!memcmp(head, "AMQP", 4))
            fail("the broker doesn't speak AMQP 0-9-1: it answers with a protocol header");
        if (get32(head + 3) + 1 > room)
            fail("a frame of %u bytes during set-up", get32(head + 3));
        receive_all(it->fd, payload, get32(head + 3) + 1);
    } while (head[0] == FRAME_HEARTBEAT);
    uint32_t got = get32(payload);
    if (got == CONNECTION_CLOSE || got == CHANNEL_CLOSE)
        closed_by_broker(it, payload);
    if (head[0] != FRAME_METHOD || got != method)
        fail("method %u.%u came instead of %u.%u", got >> 16, got & 0xffff, method >> 16, method & 0xffff);
}

void call(const client *it, wire *out, uint32_t answer) {
    uint8_t payload[CARRY_SIZE];
    send_all(it->fd, out->bytes, out->len);
    expect(it, answer, payload, sizeof payload);
    out->len = 0;
}

void client_open(client *it) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    inet_pton(AF_INET, options.host, &address.sin_addr);
    it->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(it->fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect to %s:%d: %s", options.host, options.port, strerror(errno));
    int one = 1;
    setsockopt(it->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    uint8_t payload[CARRY_SIZE];
    wire out = {.len = 0};
    send_all(it->fd, PROTOCOL_HEADER, 8);
    expect(it, CONNECTION_START, payload, sizeof payload);
    size_t start = wire_method(&out, 0, CONNECTION_START_OK);
    wire_u32(&out, 0); /* client properties */
    wire_shortstr(&out, "PLAIN");
    wire_longstr(&out, "\0guest\0guest", 12);
    wire_shortstr(&out, "en_US");
    wire_end(&out, start);
    send_all(it->fd, out.bytes, out.len);
    expect(it, CONNECTION_TUNE, payload, sizeof payload);
    uint32_t offered = get32(payload + 6);
    it->frame_max = offered && offered < FRAME_MAX ? offered : FRAME_MAX;
    out.len = 0;
    start = wire_method(&out, 0, CONNECTION_TUNE_OK);
    wire_u16(&out, get16(payload + 4)), wire_u32(&out, it->frame_max), wire_u16(&out, 0);
    wire_end(&out, start);
    start = wire_method(&out, 0, CONNECTION_OPEN);
    wire_shortstr(&out, "/"), wire_u8(&out, 0), wire_u8(&out, 0);
    wire_end(&out, start);
    call(it, &out, CONNECTION_OPEN_OK);
    start = wire_method(&out, CHANNEL, CHANNEL_OPEN);
    wire_u8(&out, 0);
    wire_end(&out, start);
    call(it, &out, CHANNEL_OPEN_OK);
}

void client_arm(worker *self, client *it, int out) {
    if (it->armed == out)
        return;
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = it};
    if (epoll_ctl(self->poller, EPOLL_CTL_MOD, it->fd, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
    it->armed = out;
}
