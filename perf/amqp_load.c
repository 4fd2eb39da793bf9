/* amqp_load.c -- load for an AMQP 0-9-1 broker, cheap enough never to be what limits it.
 *
 * All publishes of a connection are the same bytes, so they are built once, many in a block, and
 * sent by the block; deliveries are cut in place, large bodies thrown away inside the kernel
 * (MSG_TRUNC), acks and confirms counted by the group. One thread for publishers and one for
 * consumers, or one for both. `amqp_load --help` lists the options; one line of JSON is the answer.
 *
 * It believes nobody: the size of every message, the order of the tags, the number delivered and
 * confirmed are checked, and a connection or channel closed by the broker ends the run with the
 * broker's own words.
 *
 *   warm-up | the measured seconds | what is still under way arrives | counts are compared
 */
#define _GNU_SOURCE
#include "amqp_wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_SIZE (256u << 10)
#define CARRY_SIZE 8192      /* a frame cut off at the end of a read; bodies never wait */
#define SKIP_FROM 16384      /* from this size on a body's bytes aren't even copied to us */
#define SENDS_A_TURN 4
#define CHANNEL 1

static struct {
    char host[64];
    int port;
    int publishers, consumers, queues, threads;
    uint64_t size, window, messages, in_flight;
    unsigned prefetch, ack_every;
    int persistent, auto_ack, keep, leave_rest;
    double rate, seconds, warm_up, patience;
    const char *name, *type, *exchange;
    const char *arguments[16];
    int argument_count;
    long ttl, watch;
    uint64_t expect;
} options = {
    .host = "127.0.0.1", .port = 5672, .publishers = 1, .consumers = 1, .queues = 1, .threads = 1,
    .size = 1024, .ack_every = 1, .seconds = 5, .warm_up = 1, .patience = 60, .name = "load", .ttl = -1,
};

/* ---- what all threads see ---- */

static atomic_int stopping, quitting;
static _Atomic uint64_t published, confirmed, delivered, last_event;
static _Atomic uint64_t started; /* when; 0: not yet */

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "amqp_load: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(1);
}

static void *need(void *memory) {
    if (!memory)
        fail("out of memory");
    return memory;
}

/* ---- latencies: 32 steps a power of two, so within 3 % ---- */

#define STEPS 32
static _Atomic uint32_t histogram[64 * STEPS];
static _Atomic uint64_t slowest;
static atomic_int measuring;

static void latency_add(uint64_t ns) {
    if (!atomic_load_explicit(&measuring, memory_order_relaxed))
        return;
    if (ns > atomic_load_explicit(&slowest, memory_order_relaxed))
        atomic_store_explicit(&slowest, ns, memory_order_relaxed);
    int power = ns < STEPS ? 0 : 63 - __builtin_clzll(ns) - 4;
    size_t slot = power ? (size_t)power * STEPS + ((ns >> (power - 1)) & (STEPS - 1)) : ns;
    atomic_fetch_add_explicit(&histogram[slot], 1, memory_order_relaxed);
}

static double latency_at(double share) {
    uint64_t total = 0, seen = 0;
    for (size_t i = 0; i < 64 * STEPS; i++)
        total += histogram[i];
    for (size_t i = 0; i < 64 * STEPS; i++) {
        seen += histogram[i];
        if (total && (double)seen >= share * (double)total) {
            int power = (int)(i / STEPS);
            uint64_t low = power ? (STEPS + (i % STEPS)) << (power - 1) : i;
            return (double)low / 1e3;
        }
    }
    return 0;
}

/* ---- a connection ---- */

typedef struct {
    int fd, publisher, number;
    uint32_t frame_max;
    char queue[128];
    /* reading */
    uint8_t carry[CARRY_SIZE];
    size_t carried;
    uint64_t skip;          /* bytes of a body that are still to come */
    int end_due;            /* ... and then the byte that ends its frame */
    uint64_t body_left;
    /* publishing */
    uint8_t *block;
    int block_fd;           /* the block as a file, for sendfile; -1: send() it */
    size_t block_len, message_len;
    uint64_t sent;          /* bytes */
    uint64_t counted;       /* messages wholly sent */
    uint64_t limit;
    uint64_t granted;       /* messages whose time has come, at a fixed rate */
    uint64_t lowest;        /* the first tag without a confirm */
    uint8_t *out_of_turn;   /* confirmed before the lowest was; by tag & mask */
    uint64_t *due;          /* when a tag was to be sent; by tag & mask */
    uint64_t mask;
    double next_due, interval;
    int armed;
    /* consuming */
    uint64_t tag, whole, acked; /* the last that began, that came to its end, that was acked */
    uint8_t half_ack[32];   /* an ack the socket took only in part */
    size_t half_at, half_len;
} client;

typedef struct {
    int poller;
    client **clients;
    int count;
    uint8_t *buffer;
    pthread_t thread;
} worker;

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

__attribute__((noreturn)) static void closed_by_broker(const client *it, const uint8_t *payload) {
    const char *what = get32(payload) == CONNECTION_CLOSE ? "connection" : "channel";
    fail("the broker closed the %s of %s %d (%s): %u %.*s", what, it->publisher ? "publisher" : "consumer",
         it->number, it->queue, get16(payload + 4), payload[6], (const char *)payload + 7);
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

static void call(const client *it, wire *out, uint32_t answer) {
    uint8_t payload[CARRY_SIZE];
    send_all(it->fd, out->bytes, out->len);
    expect(it, answer, payload, sizeof payload);
    out->len = 0;
}

static void client_open(client *it) {
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

/* ---- what is declared ---- */

static void queue_name(char *name, size_t room, int number, int dead_letters) {
    snprintf(name, room, "%s.%d%s", options.name, number, dead_letters ? ".dead" : "");
}

static void argument_text(wire *out, const char *key, const char *value) {
    wire_shortstr(out, key);
    wire_u8(out, 'S');
    wire_longstr(out, value, strlen(value));
}

static void argument_number(wire *out, const char *key, long value) {
    wire_shortstr(out, key);
    wire_u8(out, 'l');
    wire_u64(out, (uint64_t)value);
}

static void declare_queue(const client *control, int number, int dead_letters) {
    char name[128], dead[128];
    queue_name(name, sizeof name, number, dead_letters);
    wire out = {.len = 0};
    size_t start = wire_method(&out, CHANNEL, QUEUE_DECLARE);
    wire_u16(&out, 0);
    wire_shortstr(&out, name);
    wire_u8(&out, 2); /* durable */
    size_t table = out.len;
    wire_u32(&out, 0);
    if (options.type)
        argument_text(&out, "x-queue-type", options.type);
    if (options.ttl >= 0 && !dead_letters) {
        queue_name(dead, sizeof dead, number, 1);
        argument_number(&out, "x-message-ttl", options.ttl);
        argument_text(&out, "x-dead-letter-exchange", "");
        argument_text(&out, "x-dead-letter-routing-key", dead);
    }
    for (int i = 0; i < options.argument_count; i++) {
        char key[128], *end;
        const char *value = strchr(options.arguments[i], '=');
        if (!value || value - options.arguments[i] > 100)
            fail("--argument takes KEY=VALUE");
        snprintf(key, sizeof key, "%.*s", (int)(value - options.arguments[i]), options.arguments[i]);
        long number_value = strtol(value + 1, &end, 10);
        if (*end || !value[1])
            argument_text(&out, key, value + 1);
        else
            argument_number(&out, key, number_value);
    }
    set32(out.bytes + table, (uint32_t)(out.len - table - 4));
    wire_end(&out, start);
    call(control, &out, QUEUE_DECLARE_OK);
    if (options.exchange && !dead_letters) {
        start = wire_method(&out, CHANNEL, QUEUE_BIND);
        wire_u16(&out, 0);
        wire_shortstr(&out, name), wire_shortstr(&out, options.name), wire_shortstr(&out, name);
        wire_u8(&out, 0), wire_u32(&out, 0);
        wire_end(&out, start);
        call(control, &out, QUEUE_BIND_OK);
    }
}

static void declare_all(const client *control) {
    if (options.exchange) {
        wire out = {.len = 0};
        size_t start = wire_method(&out, CHANNEL, EXCHANGE_DECLARE);
        wire_u16(&out, 0);
        wire_shortstr(&out, options.name), wire_shortstr(&out, options.exchange);
        wire_u8(&out, 2), wire_u32(&out, 0);
        wire_end(&out, start);
        call(control, &out, EXCHANGE_DECLARE_OK);
    }
    for (int i = 0; i < options.queues; i++) {
        if (options.ttl >= 0)
            declare_queue(control, i, 1);
        declare_queue(control, i, 0);
    }
}

static void delete_all(const client *control) {
    wire out = {.len = 0};
    char name[128];
    for (int i = 0; i < options.queues; i++)
        for (int dead = 0; dead <= (options.ttl >= 0); dead++) {
            queue_name(name, sizeof name, i, dead);
            size_t start = wire_method(&out, CHANNEL, QUEUE_DELETE);
            wire_u16(&out, 0), wire_shortstr(&out, name), wire_u8(&out, 0);
            wire_end(&out, start);
            call(control, &out, QUEUE_DELETE_OK);
        }
    if (options.exchange) {
        size_t start = wire_method(&out, CHANNEL, EXCHANGE_DELETE);
        wire_u16(&out, 0), wire_shortstr(&out, options.name), wire_u8(&out, 0);
        wire_end(&out, start);
        call(control, &out, EXCHANGE_DELETE_OK);
    }
    size_t start = wire_method(&out, 0, CONNECTION_CLOSE);
    wire_u16(&out, 200), wire_shortstr(&out, "done"), wire_u16(&out, 0), wire_u16(&out, 0);
    wire_end(&out, start);
    call(control, &out, CONNECTION_CLOSE_OK);
}

/* ---- publishing ---- */

static size_t build_message(client *it, uint8_t *at) {
    wire out = {.len = 0};
    size_t start = wire_method(&out, CHANNEL, BASIC_PUBLISH);
    wire_u16(&out, 0);
    wire_shortstr(&out, options.exchange ? options.name : "");
    wire_shortstr(&out, it->queue);
    wire_u8(&out, 0);
    wire_end(&out, start);
    size_t header = out.len;
    wire_u8(&out, FRAME_HEADER), wire_u16(&out, CHANNEL), wire_u32(&out, 0);
    wire_u16(&out, 60), wire_u16(&out, 0), wire_u64(&out, options.size);
    wire_u16(&out, 0x1000), wire_u8(&out, options.persistent ? 2 : 1); /* delivery-mode */
    wire_end(&out, header);
    size_t len = out.len;
    if (at)
        memcpy(at, out.bytes, out.len);
    for (uint64_t done = 0; done < options.size;) {
        uint64_t most = it->frame_max - FRAME_AROUND, part = options.size - done < most ? options.size - done : most;
        if (at) {
            at[len] = FRAME_BODY, at[len + 1] = 0, at[len + 2] = CHANNEL;
            set32(at + len + 3, (uint32_t)part);
            for (uint64_t i = 0; i < part; i++)
                at[len + 7 + i] = (uint8_t)('a' + (done + i) % 23);
            at[len + 7 + part] = FRAME_END;
        }
        len += FRAME_AROUND + part;
        done += part;
    }
    return len;
}

static void publisher_open(client *it) {
    client_open(it);
    it->message_len = build_message(it, NULL);
    size_t wanted = options.rate > 0 ? 4096 : options.publishers > 16 ? 32u << 10 : 128u << 10;
    size_t count = wanted / it->message_len < 2 ? 2 : wanted / it->message_len;
    it->block_len = count * it->message_len;
    it->block_fd = -1;
    if (options.size >= SKIP_FROM) {
        /* sendfile: the pages themselves go to the socket */
        it->block_fd = memfd_create("block", MFD_CLOEXEC);
        if (it->block_fd < 0 || ftruncate(it->block_fd, (off_t)it->block_len) != 0)
            fail("memfd: %s", strerror(errno));
        it->block = mmap(NULL, it->block_len, PROT_READ | PROT_WRITE, MAP_SHARED, it->block_fd, 0);
        if (it->block == MAP_FAILED)
            fail("mmap: %s", strerror(errno));
    } else {
        it->block = need(malloc(it->block_len));
    }
    for (size_t i = 0; i < count; i++)
        build_message(it, it->block + i * it->message_len);
    it->lowest = 1;
    it->limit = options.messages ? options.messages / (uint64_t)options.publishers : UINT64_MAX;
    if (options.messages && (uint64_t)it->number < options.messages % (uint64_t)options.publishers)
        it->limit++;
    if (options.rate > 0)
        it->interval = 1e9 / options.rate;
    if (!options.window)
        return;
    for (it->mask = 1; it->mask < options.window; it->mask *= 2)
        ;
    it->out_of_turn = need(calloc(it->mask, 1));
    it->due = need(calloc(it->mask, sizeof *it->due));
    it->mask--;
    wire out = {.len = 0};
    size_t start = wire_method(&out, CHANNEL, CONFIRM_SELECT);
    wire_u8(&out, 0);
    wire_end(&out, start);
    call(it, &out, CONFIRM_SELECT_OK);
}

static void client_arm(worker *self, client *it, int out) {
    if (it->armed == out)
        return;
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = it};
    if (epoll_ctl(self->poller, EPOLL_CTL_MOD, it->fd, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
    it->armed = out;
}

/* How many messages it may have sent by now, all together. */
static uint64_t permitted(client *it, uint64_t now) {
    uint64_t begun = (it->sent + it->message_len - 1) / it->message_len;
    if (atomic_load_explicit(&stopping, memory_order_relaxed))
        return begun; /* no message is left half sent */
    uint64_t most = it->limit;
    if (options.window && it->lowest - 1 + options.window < most)
        most = it->lowest - 1 + options.window;
    if (options.in_flight) {
        uint64_t under_way = atomic_load(&published) - atomic_load(&delivered);
        uint64_t more = under_way < options.in_flight ? options.in_flight - under_way : 0;
        if (begun + more < most)
            most = begun + more;
    }
    if (it->interval > 0) {
        while (it->granted < most && it->next_due <= (double)now) {
            it->granted++;
            if (it->due)
                it->due[it->granted & it->mask] = (uint64_t)it->next_due;
            it->next_due += it->interval;
        }
        most = it->granted;
    }
    return most > begun ? most : begun;
}

static void publish(worker *self, client *it, uint64_t now) {
    for (int turn = 0; turn < SENDS_A_TURN; turn++) {
        uint64_t target = permitted(it, now);
        uint64_t left = target > UINT64_MAX / it->message_len ? UINT64_MAX : target * it->message_len - it->sent;
        if (!left) {
            client_arm(self, it, 0);
            return;
        }
        size_t offset = it->sent % it->message_len;
        size_t len = left < it->block_len - offset ? left : it->block_len - offset;
        off_t from = (off_t)offset;
        ssize_t sent = it->block_fd >= 0 ? sendfile(it->fd, it->block_fd, &from, len)
                                         : send(it->fd, it->block + offset, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            /* Perhaps it told why before it hung up: the read finds out. */
            if (errno == EPIPE || errno == ECONNRESET)
                return;
            fail("send: %s", strerror(errno));
        }
        if (sent > 0) {
            it->sent += (uint64_t)sent;
            uint64_t count = it->sent / it->message_len;
            atomic_fetch_add_explicit(&published, count - it->counted, memory_order_relaxed);
            it->counted = count;
        }
        if (sent < (ssize_t)len) {
            client_arm(self, it, 1);
            return;
        }
    }
    /* Others have a turn; without confirms nothing else would wake us. */
    client_arm(self, it, 1);
}

static void confirm(client *it, uint64_t tag, int multiple, uint64_t now) {
    uint64_t sent = (it->sent + it->message_len - 1) / it->message_len;
    if (tag > sent || (!multiple && (tag < it->lowest || it->out_of_turn[tag & it->mask])))
        fail("publisher %d: a confirm for %lu, with %lu sent and %lu the lowest open", it->number,
             (unsigned long)tag, (unsigned long)sent, (unsigned long)it->lowest);
    uint64_t count = 0;
    for (uint64_t open = multiple ? it->lowest : tag; open <= tag; open++) {
        uint8_t *done = &it->out_of_turn[open & it->mask];
        if (!*done) {
            count++;
            if (it->interval > 0)
                latency_add(now - it->due[open & it->mask]);
        }
        *done = 1;
    }
    while (it->lowest <= sent && it->out_of_turn[it->lowest & it->mask])
        it->out_of_turn[it->lowest++ & it->mask] = 0;
    atomic_fetch_add_explicit(&confirmed, count, memory_order_relaxed);
}

/* ---- consuming ---- */

static void consumer_open(client *it) {
    client_open(it);
    wire out = {.len = 0};
    size_t start;
    if (options.prefetch) {
        start = wire_method(&out, CHANNEL, BASIC_QOS);
        wire_u32(&out, 0), wire_u16(&out, options.prefetch), wire_u8(&out, 0);
        wire_end(&out, start);
        call(it, &out, BASIC_QOS_OK);
    }
    start = wire_method(&out, CHANNEL, BASIC_CONSUME);
    wire_u16(&out, 0);
    wire_shortstr(&out, it->queue), wire_shortstr(&out, "c");
    wire_u8(&out, options.auto_ack ? 2 : 0), wire_u32(&out, 0);
    wire_end(&out, start);
    call(it, &out, BASIC_CONSUME_OK);
}

static void acknowledge(worker *self, client *it) {
    for (;;) {
        if (it->half_at == it->half_len) {
            uint64_t open = it->whole - it->acked;
            int all = options.ack_every <= 1 || atomic_load_explicit(&stopping, memory_order_relaxed);
            if (!open || (!all && open < options.ack_every))
                break;
            it->acked += open;
            wire out = {.len = 0};
            size_t start = wire_method(&out, CHANNEL, BASIC_ACK);
            wire_u64(&out, it->acked), wire_u8(&out, 1);
            wire_end(&out, start);
            memcpy(it->half_ack, out.bytes, it->half_len = out.len);
            it->half_at = 0;
        }
        ssize_t sent = send(it->fd, it->half_ack + it->half_at, it->half_len - it->half_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return;
        it->half_at += sent > 0 ? (size_t)sent : 0;
        if (it->half_at < it->half_len) {
            client_arm(self, it, 1);
            return;
        }
    }
    client_arm(self, it, 0);
}

/* ---- reading ---- */

static void method_came(client *it, const uint8_t *payload, uint32_t size, uint64_t now) {
    uint32_t method = get32(payload);
    switch (method) {
    case BASIC_DELIVER: {
        uint64_t tag = get64(payload + 5 + payload[4]);
        if (it->publisher || it->body_left || tag != it->tag + 1 || size < 16)
            fail("consumer %d: delivery %lu came after %lu", it->number, (unsigned long)tag, (unsigned long)it->tag);
        it->tag = tag;
        return;
    }
    case BASIC_ACK:
        confirm(it, get64(payload + 4), payload[12], now);
        return;
    case BASIC_NACK:
        fail("publisher %d: %lu was nacked", it->number, (unsigned long)get64(payload + 4));
    case CONNECTION_CLOSE:
    case CHANNEL_CLOSE:
        closed_by_broker(it, payload);
    default:
        fail("method %u.%u came for %s %d", method >> 16, method & 0xffff, it->publisher ? "publisher" : "consumer",
             it->number);
    }
}

/* Cuts what came; returns how much of it is used up. */
static size_t cut(client *it, const uint8_t *bytes, size_t len, uint64_t now) {
    const uint8_t *at = bytes, *end = bytes + len;
    uint64_t count = 0;
    while (at < end) {
        if (it->skip) {
            uint64_t part = it->skip < (uint64_t)(end - at) ? it->skip : (uint64_t)(end - at);
            it->skip -= part, at += part;
            continue;
        }
        if (it->end_due) {
            if (*at++ != FRAME_END)
                fail("consumer %d: a body frame doesn't end where it should", it->number);
            it->end_due = 0;
            count += !it->body_left;
            continue;
        }
        if (end - at < 7)
            break;
        uint32_t size = get32(at + 3);
        if (at[0] == FRAME_BODY) {
            if (size > it->body_left)
                fail("consumer %d: a body is longer than its header says", it->number);
            it->body_left -= size;
            at += 7;
            if ((uint64_t)(end - at) > size) {
                if (at[size] != FRAME_END)
                    fail("consumer %d: a body frame doesn't end where it should", it->number);
                at += size + 1;
                count += !it->body_left;
            } else {
                it->skip = size;
                it->end_due = 1;
            }
            continue;
        }
        if ((uint64_t)(end - at) < (uint64_t)size + FRAME_AROUND)
            break;
        if (at[7 + size] != FRAME_END)
            fail("a frame doesn't end where it should");
        if (at[0] == FRAME_HEADER) {
            it->body_left = get64(at + 11);
            if (it->body_left != options.size)
                fail("consumer %d: a message of %lu bytes, not %lu", it->number, (unsigned long)it->body_left,
                     (unsigned long)options.size);
            count += !it->body_left; /* empty bodies have no frame */
        } else if (at[0] == FRAME_METHOD) {
            method_came(it, at + 7, size, now);
        } else if (at[0] != FRAME_HEARTBEAT) {
            fail("a frame of type %u", at[0]);
        }
        at += size + FRAME_AROUND;
    }
    if (count)
        atomic_fetch_add_explicit(&delivered, count, memory_order_relaxed);
    it->whole += count;
    return (size_t)(at - bytes);
}

static void readable(worker *self, client *it) {
    int large = options.size >= SKIP_FROM && !it->publisher;
    for (int turn = 0; turn < (large ? 64 : 1); turn++) {
        int skipping = it->skip >= SKIP_FROM / 4;
        /* Between large bodies one small read takes a method, a header and the start of a body. */
        size_t room = skipping ? it->skip : large ? 512 : READ_SIZE - it->carried;
        memcpy(self->buffer, it->carry, it->carried);
        ssize_t got = recv(it->fd, self->buffer + it->carried, room, MSG_DONTWAIT | (skipping ? MSG_TRUNC : 0));
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (got <= 0)
            fail("the broker hung up on %s %d (%s)%s%s", it->publisher ? "publisher" : "consumer", it->number,
                 it->queue, got ? ": " : "", got ? strerror(errno) : "");
        uint64_t now = now_ns();
        atomic_store_explicit(&last_event, now, memory_order_relaxed);
        if (skipping) {
            it->skip -= (uint64_t)got;
            continue;
        }
        size_t len = it->carried + (size_t)got, used = cut(it, self->buffer, len, now);
        it->carried = len - used;
        if (it->carried > CARRY_SIZE)
            fail("a frame of more than %d bytes that isn't a body", CARRY_SIZE);
        memcpy(it->carry, self->buffer + used, it->carried);
    }
    if (!it->publisher && !options.auto_ack)
        acknowledge(self, it);
}

/* ---- threads ---- */

/* Publishers at a fixed rate wake for the next that is due; many of them together, twice a ms. */
static uint64_t wait_ns(const worker *self, uint64_t now) {
    if (options.in_flight)
        return 200000;
    if (options.rate <= 0)
        return 20000000;
    double next = (double)now + 20e6;
    for (int i = 0; i < self->count; i++)
        if (self->clients[i]->publisher && self->clients[i]->next_due < next)
            next = self->clients[i]->next_due;
    uint64_t left = next > (double)now ? (uint64_t)(next - (double)now) : 0;
    return options.publishers > 16 && left < 500000 ? 500000 : left;
}

static void *work(void *argument) {
    worker *self = argument;
    prctl(PR_SET_TIMERSLACK, 1);
    while (!atomic_load(&started))
        usleep(100);
    for (int i = 0; i < self->count; i++) {
        client *it = self->clients[i];
        it->next_due = (double)atomic_load(&started) + it->interval * it->number / options.publishers;
        if (it->publisher)
            publish(self, it, now_ns());
    }
    int told = 0;
    while (!atomic_load_explicit(&quitting, memory_order_relaxed)) {
        struct epoll_event events[256];
        uint64_t wait = wait_ns(self, now_ns());
        struct timespec timeout = {.tv_sec = 0, .tv_nsec = (long)wait};
        int count = epoll_pwait2(self->poller, events, 256, &timeout, NULL);
        uint64_t now = now_ns();
        for (int i = 0; i < count; i++) {
            client *it = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                readable(self, it);
            if (it->publisher)
                publish(self, it, now);
            else if (events[i].events & EPOLLOUT)
                acknowledge(self, it);
        }
        int stop = atomic_load(&stopping);
        for (int i = 0; i < self->count && (options.rate > 0 || options.in_flight || stop != told); i++)
            if (self->clients[i]->publisher)
                publish(self, self->clients[i], now);
            else if (!options.auto_ack)
                acknowledge(self, self->clients[i]);
        told = stop;
    }
    return NULL;
}

static void worker_add(worker *self, client *it) {
    self->clients = need(realloc(self->clients, sizeof *self->clients * (size_t)(self->count + 1)));
    self->clients[self->count++] = it;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(self->poller, EPOLL_CTL_ADD, it->fd, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
}

/* ---- the run ---- */

typedef struct {
    double time, cpu, watched;
    uint64_t published, confirmed, delivered;
} sample;

static sample samples[8192];
static int sample_count;

/* CPU seconds of the watched process group: all of the broker and nothing of us. */
static double watched_seconds(void) {
    DIR *all = options.watch ? opendir("/proc") : NULL;
    double ticks = 0;
    for (struct dirent *entry; all && (entry = readdir(all));) {
        char path[300], line[1024];
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        size_t len = file ? fread(line, 1, sizeof line - 1, file) : 0;
        if (file)
            fclose(file);
        line[len] = 0;
        const char *rest = strrchr(line, ')');
        long group;
        unsigned long user, system;
        if (rest && sscanf(rest + 1, " %*c %*d %ld %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &group, &user, &system) == 3 &&
            group == options.watch)
            ticks += (double)(user + system);
    }
    if (all)
        closedir(all);
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

static sample take_sample(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (sample){
        .time = (double)(now_ns() - atomic_load(&started)) / 1e9,
        .cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
        .published = atomic_load(&published),
        .confirmed = atomic_load(&confirmed),
        .delivered = atomic_load(&delivered),
    };
}

/* A sample each quarter of a second, for whoever wants to see how the rates went. */
static void nap(double seconds) {
    usleep((useconds_t)(seconds * 1e6));
    sample now = take_sample();
    if (sample_count < 8192 && (!sample_count || now.time - samples[sample_count - 1].time >= 0.25))
        samples[sample_count++] = now;
}

static uint64_t expected_deliveries(void) {
    if (!options.consumers)
        return 0;
    if (!options.publishers)
        return options.expect;
    int copies = options.exchange && !strcmp(options.exchange, "fanout") ? options.queues : 1;
    return atomic_load(&published) * (uint64_t)copies;
}

static int all_arrived(void) {
    if (options.messages && options.publishers && atomic_load(&published) < options.messages)
        return 0;
    if (options.window && options.publishers && atomic_load(&confirmed) < atomic_load(&published))
        return 0;
    return atomic_load(&delivered) >= expected_deliveries();
}

/* Until everything arrived; as long as something still moves, it may take its time. */
static void wait_for_all(void) {
    uint64_t seen = 0, sum;
    double since = take_sample().time;
    while (!all_arrived()) {
        nap(0.001);
        sample now = take_sample();
        if ((sum = now.published + now.confirmed + now.delivered) != seen)
            seen = sum, since = now.time;
        else if (now.time - since > options.patience)
            fail("nothing came for %g s: %lu published, %lu confirmed, %lu delivered", options.patience,
                 (unsigned long)now.published, (unsigned long)now.confirmed, (unsigned long)now.delivered);
    }
}

static void report(sample from, sample to, double all_seconds) {
    double took = to.time - from.time;
    printf("{\"seconds\": %.4f, \"published\": %lu, \"confirmed\": %lu, \"delivered\": %lu", took,
           (unsigned long)published, (unsigned long)confirmed, (unsigned long)delivered);
    printf(", \"published_rate\": %.1f, \"confirmed_rate\": %.1f, \"delivered_rate\": %.1f",
           (double)(to.published - from.published) / took, (double)(to.confirmed - from.confirmed) / took,
           (double)(to.delivered - from.delivered) / took);
    printf(", \"passed_rate\": %.1f, \"all_seconds\": %.4f", (double)delivered / all_seconds, all_seconds);
    printf(", \"cpu\": %.4f, \"watched_cpu\": %.4f", (to.cpu - from.cpu) / took, (to.watched - from.watched) / took);
    if (options.rate > 0 && options.window)
        printf(", \"confirm_us\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}",
               latency_at(0.5), latency_at(0.9), latency_at(0.99), latency_at(0.999), (double)slowest / 1e3);
    printf(", \"series\": [");
    for (int i = 0; i < sample_count; i++)
        printf("%s[%.3f, %lu, %lu, %lu]", i ? ", " : "", samples[i].time, (unsigned long)samples[i].published,
               (unsigned long)samples[i].confirmed, (unsigned long)samples[i].delivered);
    printf("]}\n");
}

static const char usage[] =
    "usage: amqp_load [options]\n"
    "  --address HOST:PORT     where the broker listens (127.0.0.1:5672), guest/guest, vhost /\n"
    "  --publishers N --consumers N --queues N     connections; publisher i goes to queue i % queues\n"
    "  --size BYTES            of a body (1024)\n"
    "  --persistent            delivery mode 2\n"
    "  --confirms WINDOW       publisher confirms, at most WINDOW open a connection\n"
    "  --auto-ack              consume without acks, else acks with multiple:\n"
    "  --ack-every N           ... after N messages (default: after each read)\n"
    "  --prefetch N            basic.qos for each consumer (default: none)\n"
    "  --rate R                messages a second and publisher; with confirms their latency is told\n"
    "  --in-flight N           publishers wait while N messages are published and not delivered\n"
    "  --seconds S --warm-up S how long (5 after 1), or:\n"
    "  --messages N            publish N in all; without publishers: consume N\n"
    "  --leave-rest            stop after the seconds: what is still queued doesn't matter\n"
    "  --name NAME             queues are NAME.0, NAME.1 ... (load)\n"
    "  --type TYPE             x-queue-type: classic, quorum\n"
    "  --argument KEY=VALUE    of the queues; may be repeated\n"
    "  --ttl MS                messages expire into NAME.n.dead, and consumers sit there\n"
    "  --exchange TYPE         publish to an exchange of that type to which all queues are bound\n"
    "  --keep                  leave the queues and their messages there\n"
    "  --threads 1|2           two: publishers and consumers apart\n"
    "  --watch GROUP           tell the cores that this process group took\n"
    "  --patience S            fail when nothing moved for that long (60)\n";

static void parse(int argc, char **argv) {
    enum { ADDRESS = 1, PUBLISHERS, CONSUMERS, QUEUES, SIZE, PERSISTENT, CONFIRMS, AUTO_ACK, ACK_EVERY, PREFETCH, RATE,
           IN_FLIGHT, SECONDS, WARM_UP, MESSAGES, LEAVE_REST, NAME, TYPE, ARGUMENT, TTL, EXCHANGE, KEEP, THREADS, WATCH, PATIENCE };
    static const struct option known[] = {
        {"address", 1, 0, ADDRESS}, {"publishers", 1, 0, PUBLISHERS}, {"consumers", 1, 0, CONSUMERS},
        {"queues", 1, 0, QUEUES}, {"size", 1, 0, SIZE}, {"persistent", 0, 0, PERSISTENT},
        {"confirms", 1, 0, CONFIRMS}, {"auto-ack", 0, 0, AUTO_ACK}, {"ack-every", 1, 0, ACK_EVERY},
        {"prefetch", 1, 0, PREFETCH}, {"rate", 1, 0, RATE}, {"in-flight", 1, 0, IN_FLIGHT},
        {"seconds", 1, 0, SECONDS}, {"warm-up", 1, 0, WARM_UP}, {"messages", 1, 0, MESSAGES},
        {"leave-rest", 0, 0, LEAVE_REST}, {"name", 1, 0, NAME}, {"type", 1, 0, TYPE}, {"argument", 1, 0, ARGUMENT},
        {"ttl", 1, 0, TTL}, {"exchange", 1, 0, EXCHANGE}, {"keep", 0, 0, KEEP}, {"threads", 1, 0, THREADS},
        {"watch", 1, 0, WATCH}, {"patience", 1, 0, PATIENCE}, {0, 0, 0, 0},
    };
    for (int which; (which = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (which) {
        case ADDRESS:
            if (sscanf(optarg, "%63[^:]:%d", options.host, &options.port) != 2)
                fail("--address takes HOST:PORT");
            break;
        case PUBLISHERS: options.publishers = atoi(optarg); break;
        case CONSUMERS: options.consumers = atoi(optarg); break;
        case QUEUES: options.queues = atoi(optarg); break;
        case SIZE: options.size = strtoull(optarg, NULL, 10); break;
        case PERSISTENT: options.persistent = 1; break;
        case CONFIRMS: options.window = strtoull(optarg, NULL, 10); break;
        case AUTO_ACK: options.auto_ack = 1; break;
        case ACK_EVERY: options.ack_every = (unsigned)atoi(optarg); break;
        case PREFETCH: options.prefetch = (unsigned)atoi(optarg); break;
        case RATE: options.rate = atof(optarg); break;
        case IN_FLIGHT: options.in_flight = strtoull(optarg, NULL, 10); break;
        case SECONDS: options.seconds = atof(optarg); break;
        case WARM_UP: options.warm_up = atof(optarg); break;
        case MESSAGES: options.messages = options.expect = strtoull(optarg, NULL, 10); break;
        case LEAVE_REST: options.leave_rest = 1; break;
        case NAME: options.name = optarg; break;
        case TYPE: options.type = optarg; break;
        case ARGUMENT:
            if (options.argument_count == 16)
                fail("too many arguments");
            options.arguments[options.argument_count++] = optarg;
            break;
        case TTL: options.ttl = atol(optarg); break;
        case EXCHANGE: options.exchange = optarg; break;
        case KEEP: options.keep = 1; break;
        case THREADS: options.threads = atoi(optarg) > 1 ? 2 : 1; break;
        case WATCH: options.watch = atol(optarg); break;
        case PATIENCE: options.patience = atof(optarg); break;
        default: fputs(usage, stderr); exit(2);
        }
    if (optind != argc || options.queues < 1 || strlen(options.name) > 80 || (!options.publishers && !options.messages)) {
        fputs(usage, stderr);
        exit(2);
    }
    /* An ack must come before the credit is used up. */
    if (options.prefetch && options.ack_every > options.prefetch / 2)
        options.ack_every = options.prefetch / 2;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    client control = {.queue = "control"};
    client_open(&control);
    declare_all(&control);
    worker workers[2] = {{0}};
    for (int i = 0; i < options.threads; i++) {
        workers[i].poller = epoll_create1(EPOLL_CLOEXEC);
        workers[i].buffer = need(malloc(READ_SIZE + CARRY_SIZE));
    }
    for (int i = 0; i < options.consumers; i++) {
        client *it = need(calloc(1, sizeof *it));
        it->number = i;
        queue_name(it->queue, sizeof it->queue, i % options.queues, options.ttl >= 0);
        consumer_open(it);
        worker_add(&workers[options.threads - 1], it);
    }
    for (int i = 0; i < options.publishers; i++) {
        client *it = need(calloc(1, sizeof *it));
        it->publisher = 1;
        it->number = i;
        queue_name(it->queue, sizeof it->queue, i % options.queues, 0);
        publisher_open(it);
        worker_add(&workers[0], it);
    }
    for (int i = 0; i < options.threads; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            fail("no thread");
    atomic_store(&last_event, now_ns());
    atomic_store(&started, now_ns());

    sample from = take_sample(), to;
    from.watched = watched_seconds();
    if (options.messages) {
        atomic_store(&measuring, 1);
        wait_for_all();
        to = take_sample();
        to.watched = watched_seconds();
        atomic_store(&stopping, 1);
        nap(options.auto_ack ? 0 : 0.05); /* for the last acks */
    } else {
        while (take_sample().time < options.warm_up)
            nap(0.01);
        from = take_sample();
        from.watched = watched_seconds();
        atomic_store(&measuring, 1);
        while (take_sample().time - from.time < options.seconds)
            nap(0.01);
        to = take_sample();
        to.watched = watched_seconds();
        atomic_store(&measuring, 0);
        atomic_store(&stopping, 1);
        if (!options.leave_rest) {
            nap(0.05); /* a message half sent is still finished */
            wait_for_all();
        }
    }
    double all_seconds = (double)(atomic_load(&last_event) - atomic_load(&started)) / 1e9;
    atomic_store(&quitting, 1);
    for (int i = 0; i < options.threads; i++)
        pthread_join(workers[i].thread, NULL);
    if (!options.leave_rest && atomic_load(&delivered) > expected_deliveries())
        fail("%lu delivered, and only %lu published", (unsigned long)delivered, (unsigned long)published);
    if (!options.keep)
        delete_all(&control);
    report(from, to, all_seconds);
    return 0;
}
