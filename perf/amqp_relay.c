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
#include "amqp_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_SIZE (256u << 10)
#define OUT_FULL (4u << 20)     /* a queue's buffer with a consumer at its end */
#define STAGE_SIZE (16u << 20)
#define LOG_SIZE (64u << 20)
#define BLOCK 4096u

static void die(const char *what) {
    fprintf(stderr, "amqp_relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- bytes on their way out: appended at the end, sent from the start ---- */

typedef struct {
    uint8_t *bytes;
    size_t start, end, room;
} buffer;

static uint8_t *buffer_reserve(buffer *buf, size_t len) {
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

static void buffer_append(buffer *buf, const void *bytes, size_t len) {
    memcpy(buffer_reserve(buf, len), bytes, len);
    buf->end += len;
}

static size_t buffer_used(const buffer *buf) {
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
    int index;              /* in peers[] */
    int armed_out, paused;
    uint8_t *in;
    size_t in_len, in_room;
    buffer replies;         /* all but deliveries */
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

static int poller;
static peer **peers;
static int peer_count, peer_room;
static queue **queues;
static int queue_count;
static exchange **exchanges;
static int exchange_count;
static uint64_t hold = 64u << 20;

/* ---- the durable half: one group gathers while the other is written ---- */

static struct {
    int on, fd, event;
    uint8_t *stages[2];
    size_t len[2];
    int gathering;          /* the stage that takes new messages */
    uint64_t at;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int go;                 /* the other stage is the committer's */
    int busy;               /* until its event was seen here: only then may confirms follow */
} commit = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void *committer(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&commit.lock);
        while (!commit.go)
            pthread_cond_wait(&commit.wake, &commit.lock);
        commit.go = 0;
        int mine = !commit.gathering;
        pthread_mutex_unlock(&commit.lock);
        size_t len = (commit.len[mine] + BLOCK - 1) / BLOCK * BLOCK;
        if (commit.at + len > LOG_SIZE)
            commit.at = 0;
        if (pwrite(commit.fd, commit.stages[mine], len, (off_t)commit.at) != (ssize_t)len || fdatasync(commit.fd) != 0)
            die("write");
        commit.at += len;
        commit.len[mine] = 0;
        uint64_t one = 1;
        if (write(commit.event, &one, sizeof one) != sizeof one)
            die("eventfd");
    }
    return NULL;
}

static void commit_open(const char *path, int direct) {
    commit.on = 1;
    commit.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | (direct ? O_DIRECT : 0), 0644);
    if (commit.fd < 0 && direct)
        commit.fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (commit.fd < 0)
        die(path);
    for (int i = 0; i < 2; i++) {
        commit.stages[i] = aligned_alloc(BLOCK, STAGE_SIZE);
        if (!commit.stages[i])
            die("malloc");
        memset(commit.stages[i], 'x', STAGE_SIZE);
    }
    /* Written once, so that a later write changes no metadata. */
    for (uint64_t at = 0; at < LOG_SIZE; at += STAGE_SIZE)
        if (pwrite(commit.fd, commit.stages[0], STAGE_SIZE, (off_t)at) != STAGE_SIZE)
            die("fill");
    if (fsync(commit.fd) != 0)
        die("fsync");
    commit.event = eventfd(0, EFD_NONBLOCK);
    pthread_t thread;
    if (commit.event < 0 || pthread_create(&thread, NULL, committer, NULL) != 0)
        die("committer");
}

static int commit_full(size_t more) {
    return commit.on && commit.len[commit.gathering] + more > STAGE_SIZE;
}

static void commit_add(const uint8_t *bytes, size_t len) {
    memcpy(commit.stages[commit.gathering] + commit.len[commit.gathering], bytes, len);
    commit.len[commit.gathering] += len;
}

/* What was gathered goes to the disk if the disk is free. */
static void commit_begin(void) {
    if (commit.busy || !commit.len[commit.gathering])
        return;
    for (int i = 0; i < peer_count; i++)
        peers[i]->committing = peers[i]->published;
    pthread_mutex_lock(&commit.lock);
    commit.gathering = !commit.gathering;
    commit.busy = commit.go = 1;
    pthread_cond_signal(&commit.wake);
    pthread_mutex_unlock(&commit.lock);
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
static void peer_reply(peer *it, const wire *out) {
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

/* ---- the few methods there are ---- */

static queue *queue_named(const uint8_t *name, size_t len) {
    for (int i = 0; i < queue_count; i++)
        if (strlen(queues[i]->name) == len && !memcmp(queues[i]->name, name, len))
            return queues[i];
    queue *it = calloc(1, sizeof *it);
    queues = realloc(queues, sizeof *queues * (size_t)(queue_count + 1));
    if (!it || !queues)
        die("malloc");
    memcpy(it->name, name, len);
    return queues[queue_count++] = it;
}

static exchange *exchange_named(const uint8_t *name, size_t len) {
    for (int i = 0; i < exchange_count; i++)
        if (strlen(exchanges[i]->name) == len && !memcmp(exchanges[i]->name, name, len))
            return exchanges[i];
    exchange *it = calloc(1, sizeof *it);
    exchanges = realloc(exchanges, sizeof *exchanges * (size_t)(exchange_count + 1));
    if (!it || !exchanges)
        die("malloc");
    memcpy(it->name, name, len);
    return exchanges[exchange_count++] = it;
}

static void queue_empty(queue *it) {
    it->out.start = it->out.end = 0;
    it->tag = 0;
}

static void reply_start(buffer *out) {
    wire it = {.len = 0};
    size_t start = wire_method(&it, 0, CONNECTION_START);
    wire_u8(&it, 0), wire_u8(&it, 9);
    wire_u32(&it, 0);
    wire_longstr(&it, "PLAIN", 5);
    wire_longstr(&it, "en_US", 5);
    wire_end(&it, start);
    buffer_append(out, it.bytes, it.len);
}

static void peer_method(peer *it, unsigned channel, const uint8_t *payload) {
    uint32_t method = get32(payload);
    const uint8_t *arguments = payload + 4;
    wire out = {.len = 0};
    /* every reply but three is its method + 1, with at most a few zeros */
    size_t start = wire_method(&out, channel, method + 1);
    switch (method) {
    case CONNECTION_START_OK:
        out.len = 0;
        start = wire_method(&out, 0, CONNECTION_TUNE);
        wire_u16(&out, 2047), wire_u32(&out, FRAME_MAX), wire_u16(&out, 0);
        break;
    case CONNECTION_TUNE_OK:
    case BASIC_ACK:
    case BASIC_NACK:
    case CONNECTION_CLOSE_OK:
    case CHANNEL_CLOSE_OK:
        return;
    case CONNECTION_OPEN:
        wire_u8(&out, 0);
        break;
    case CHANNEL_OPEN:
        wire_u32(&out, 0);
        break;
    case QUEUE_DECLARE:
    case QUEUE_PURGE:
    case QUEUE_DELETE: {
        queue *named = queue_named(arguments + 3, arguments[2]);
        if (method == QUEUE_DECLARE)
            wire_shortstr(&out, named->name), wire_u32(&out, 0), wire_u32(&out, 0);
        else
            queue_empty(named), wire_u32(&out, 0);
        break;
    }
    case EXCHANGE_DECLARE:
    case EXCHANGE_DELETE:
        exchange_named(arguments + 3, arguments[2])->count = 0;
        break;
    case QUEUE_BIND: {
        queue *named = queue_named(arguments + 3, arguments[2]);
        const uint8_t *source = arguments + 3 + arguments[2];
        exchange *from = exchange_named(source + 1, source[0]);
        from->bound = realloc(from->bound, sizeof *from->bound * (size_t)(from->count + 1));
        if (!from->bound)
            die("malloc");
        from->bound[from->count++] = named;
        break;
    }
    case BASIC_CONSUME:
        wire_shortstr(&out, "c");
        wire_end(&out, start);
        peer_reply(it, &out);
        it->consumes = queue_named(arguments + 3, arguments[2]);
        it->consumes->consumer = it;
        it->consumes->channel = channel;
        return;
    case CONFIRM_SELECT:
        it->confirm_channel = channel;
        break;
    case CONNECTION_CLOSE:
    case CHANNEL_CLOSE:
    case BASIC_QOS:
        break;
    default:
        fprintf(stderr, "amqp_relay: method %u.%u isn't known here\n", method >> 16, method & 0xffff);
        exit(1);
    }
    wire_end(&out, start);
    peer_reply(it, &out);
}

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
    if (commit_full(it->in_room))
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
        reply_start(&it->replies);
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
    if (commit.on && first_publish)
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
    if (!commit.on)
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
    uint64_t count;
    if (read(commit.event, &count, sizeof count) < 0)
        return;
    commit.busy = 0;
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
    if (bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, 1024) != 0)
        die("listen");
    getsockname(fd, (struct sockaddr *)&address, &len);
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    int direct = 1;
    const char *durable = NULL;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--durable") && i + 1 < argc)
            durable = argv[++i];
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
    if (durable)
        commit_open(durable, direct);
    int listener = listen_on(atoi(argv[1]));
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) != 0)
        die("epoll_ctl");
    event.data.ptr = &commit;
    if (commit.on && epoll_ctl(poller, EPOLL_CTL_ADD, commit.event, &event) != 0)
        die("epoll_ctl");
    for (;;) {
        struct epoll_event events[256];
        int count = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < count; i++) {
            void *what = events[i].data.ptr;
            if (!what)
                accept_peer(listener);
            else if (what == &commit)
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
        if (commit.on)
            commit_begin();
        for (int i = 0; i < peer_count; i++)
            if (peers[i]->paused && !peer_blocked(peers[i])) {
                peers[i]->paused = 0;
                peer_arm(peers[i], peers[i]->armed_out);
            }
    }
}
