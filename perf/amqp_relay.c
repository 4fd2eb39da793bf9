/* amqp_relay.c -- the ceiling: what a broker could do if it only cut frames and passed them on.
 *
 *   amqp_relay PORT [--durable FILE] [--hold BYTES]
 *
 * A publish becomes a delivery: a new method frame, and the header and body frames as they came.
 * No storage, no routing (a queue is a name and a buffer, an exchange a list of queues), no credit,
 * one consumer a queue. Port 0 takes a free one; `ready PORT` is printed once it listens.
 *
 * With --durable each group of confirms waits for one write + fdatasync of a recycled file, done
 * by a thread of its own while the next group gathers: the durable ceiling. Deliveries don't wait.
 *
 *   publisher's socket -> in -> queue's out -> consumer's socket
 *                          \-> staged -> file -> confirm
 *
 * A full buffer stops the reading of publishers, so that TCP slows them; messages without a
 * consumer gather up to --hold bytes (a backlog to deliver from memory).
 */
#define _GNU_SOURCE
#include "relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_SIZE (256u << 10)
#define OUT_FULL (4u << 20) /* a queue's buffer with a consumer at its end */

static int poller;
static peer **peers;
static int peer_count, peer_room;
static uint64_t hold = 64u << 20;
static int durable;

void die(const char *what) {
    fprintf(stderr, "amqp_relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- sending ---- */

static void peer_arm(peer *it, int out) {
    struct epoll_event event = {.events = (it->paused ? 0 : EPOLLIN) | (out ? EPOLLOUT : 0), .data.ptr = it};
    it->armed_out = out;
    if (epoll_ctl(poller, EPOLL_CTL_MOD, it->fd, &event) != 0)
        die("epoll_ctl");
}

/* 0: all is gone; 1: the socket is full; -1: the peer is gone. */
static int buffer_send(buffer *buf, int fd) {
    while (buf->start < buf->end) {
        size_t len = buf->end - buf->start;
        ssize_t sent = send(fd, buf->bytes + buf->start, len < 1u << 20 ? len : 1u << 20, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR ? 1 : -1;
        buf->start += (size_t)sent;
    }
    buf->start = buf->end = 0;
    return 0;
}

static void peer_send(peer *it) {
    int full = buffer_send(&it->replies, it->fd);
    if (full == 0 && it->consumes)
        full = buffer_send(&it->consumes->out, it->fd);
    if (full >= 0 && full != it->armed_out)
        peer_arm(it, full);
}

/* Behind the deliveries of a consumer: one of them may be half sent. */
void peer_reply(peer *it, const wire *out) {
    buffer_append(it->consumes ? &it->consumes->out : &it->replies, out->bytes, out->len);
}

static void peer_confirm(peer *it, uint64_t to) {
    if (!it->confirm_channel || it->confirmed >= to)
        return;
    wire out = {.len = 0};
    size_t start = wire_method(&out, it->confirm_channel, BASIC_ACK);
    wire_u64(&out, to);
    wire_u8(&out, to > it->confirmed + 1);
    wire_end(&out, start);
    peer_reply(it, &out);
    it->confirmed = to;
}

/* ---- messages ---- */

/* The queues of a publish; `names` is the exchange and the routing key as short strings. */
static void peer_route(peer *it, const uint8_t *names, size_t len) {
    if (it->key_len == len && !memcmp(it->key, names, len))
        return;
    memcpy(it->key, names, len);
    it->key_len = len;
    if (names[0]) {
        exchange *from = exchange_named(names + 1, names[0]);
        it->route = from->bound;
        it->route_count = from->count;
    } else {
        it->single = queue_named(names + 2, names[1]);
        it->route = &it->single;
        it->route_count = 1;
    }
}

static void queue_take(queue *it, const uint8_t *names, size_t names_len, const uint8_t *content, size_t len) {
    size_t arguments = 4 + 2 + 8 + 1 + names_len;
    uint8_t *at = buffer_reserve(&it->out, FRAME_AROUND + arguments + len);
    at[0] = FRAME_METHOD, at[1] = (uint8_t)(it->channel >> 8), at[2] = (uint8_t)it->channel;
    set32(at + 3, (uint32_t)arguments);
    set32(at + 7, BASIC_DELIVER);
    at[11] = 1, at[12] = 'c';
    set64(at + 13, ++it->tag);
    at[21] = 0;
    memcpy(at + 22, names, names_len);
    at[22 + names_len] = FRAME_END;
    memcpy(at + 23 + names_len, content, len);
    it->out.end += FRAME_AROUND + arguments + len;
}

/* A whole message at `at`: publish, header, bodies. Its length; 0: there's more to come. */
static size_t peer_publish(peer *it, const uint8_t *at, const uint8_t *end) {
    const uint8_t *header = at + FRAME_AROUND + get32(at + 3);
    if (header + 7 + 14 > end)
        return 0;
    uint64_t body = get64(header + 7 + 4);
    const uint8_t *next = header + FRAME_AROUND + get32(header + 3);
    while (body) {
        if (next + 7 > end)
            return 0;
        uint32_t size = get32(next + 3);
        body -= size;
        next += FRAME_AROUND + size;
    }
    if (next > end)
        return 0;
    const uint8_t *names = at + 7 + 4 + 2;
    size_t names_len = 2u + names[0] + names[1 + names[0]];
    peer_route(it, names, names_len);
    for (int i = 0; i < it->route_count; i++)
        queue_take(it->route[i], names, names_len, header, (size_t)(next - header));
    it->published++;
    return (size_t)(next - at);
}

static int peer_blocked(peer *it) {
    if (durable && commit_full(it->in_room))
        return 1;
    for (int i = 0; i < it->route_count; i++) {
        queue *to = it->route[i];
        if (buffer_used(&to->out) > (to->consumer ? OUT_FULL : hold))
            return 1;
    }
    return 0;
}

/* Cuts what has come. 0: gone wrong. */
static int peer_cut(peer *it) {
    uint8_t *at = it->in, *end = it->in + it->in_len;
    const uint8_t *first_publish = NULL;
    if (it->in_len >= 8 && !memcmp(at, "AMQP", 4)) {
        reply_start(it);
        at += 8;
    }
    while (at + 7 <= end) {
        size_t len = FRAME_AROUND + (size_t)get32(at + 3);
        if (at + len > end)
            break;
        if (at[0] == FRAME_METHOD && get32(at + 7) == BASIC_PUBLISH) {
            if (!(len = peer_publish(it, at, end)))
                break;
            if (!first_publish)
                first_publish = at;
        } else if (at[0] == FRAME_METHOD) {
            peer_method(it, get16(at + 1), at + 7);
        } else if (at[0] != FRAME_HEARTBEAT) {
            return 0;
        }
        at += len;
    }
    if (durable && first_publish)
        commit_add(first_publish, (size_t)(at - first_publish));
    it->in_len = (size_t)(end - at);
    memmove(it->in, at, it->in_len);
    return 1;
}

static void peer_gone(peer *it) {
    close(it->fd);
    if (it->consumes) {
        queue_empty(it->consumes);
        it->consumes->consumer = NULL;
    }
    peers[it->index] = peers[--peer_count];
    peers[it->index]->index = it->index;
    free(it->in);
    free(it->replies.bytes);
    free(it);
}

static void peer_readable(peer *it) {
    if (peer_blocked(it)) {
        it->paused = 1;
        peer_arm(it, it->armed_out);
        return;
    }
    if (it->in_len == it->in_room) {
        it->in_room = it->in_room ? it->in_room * 2 : IN_SIZE;
        if (!(it->in = realloc(it->in, it->in_room)))
            die("malloc");
    }
    ssize_t got = recv(it->fd, it->in + it->in_len, it->in_room - it->in_len, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        peer_gone(it);
        return;
    }
    it->in_len += (size_t)got;
    uint64_t published = it->published;
    if (!peer_cut(it)) {
        peer_gone(it);
        return;
    }
    if (it->published > published)
        for (int i = 0; i < it->route_count; i++)
            if (it->route[i]->consumer && !it->route[i]->consumer->armed_out)
                peer_send(it->route[i]->consumer);
    if (!durable)
        peer_confirm(it, it->published);
    if (buffer_used(&it->replies) || it->consumes)
        peer_send(it);
}

static void accept_peer(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    peer *it = calloc(1, sizeof *it);
    if (peer_count == peer_room)
        peers = realloc(peers, sizeof *peers * (size_t)(peer_room = peer_room ? peer_room * 2 : 64));
    if (!it || !peers)
        die("malloc");
    it->fd = fd;
    it->index = peer_count;
    peers[peer_count++] = it;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0)
        die("epoll_ctl");
}

static void committed(void) {
    if (!commit_done())
        return;
    for (int i = 0; i < peer_count; i++)
        if (peers[i]->committing > peers[i]->confirmed) {
            peer_confirm(peers[i], peers[i]->committing);
            peer_send(peers[i]);
        }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* Not paced (csrc/net/socket.c): what the kernel's timers slow down is no ceiling. */
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    if (bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, 1024) != 0)
        die("listen");
    getsockname(fd, (struct sockaddr *)&address, &len);
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    int direct = 1;
    const char *file = NULL;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--durable") && i + 1 < argc)
            file = argv[++i];
        else if (!strcmp(argv[i], "--hold") && i + 1 < argc)
            hold = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--buffered"))
            direct = 0;
        else
            argc = 1;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: amqp_relay PORT [--durable FILE] [--buffered] [--hold BYTES]\n");
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    durable = file != NULL;
    int on_disk = durable ? commit_open(file, direct) : -1;
    int listener = listen_on(atoi(argv[1]));
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) != 0)
        die("epoll_ctl");
    event.data.ptr = &durable;
    if (durable && epoll_ctl(poller, EPOLL_CTL_ADD, on_disk, &event) != 0)
        die("epoll_ctl");
    for (;;) {
        struct epoll_event events[256];
        int count = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < count; i++) {
            void *what = events[i].data.ptr;
            if (!what)
                accept_peer(listener);
            else if (what == &durable)
                committed();
            else if (events[i].events & (EPOLLHUP | EPOLLERR))
                peer_gone(what);
            else {
                if (events[i].events & EPOLLOUT)
                    peer_send(what);
                if (events[i].events & EPOLLIN)
                    peer_readable(what);
            }
        }
        if (durable && commit_begin())
            for (int i = 0; i < peer_count; i++)
                peers[i]->committing = peers[i]->published;
        for (int i = 0; i < peer_count; i++)
            if (peers[i]->paused && !peer_blocked(peers[i])) {
                peers[i]->paused = 0;
                peer_arm(peers[i], peers[i]->armed_out);
            }
    }
}
