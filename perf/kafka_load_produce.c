/* kafka_load_produce.c -- produce requests: the same bytes again and again, a window under way.
 *
 * Requests are built once, one after the other in a block that goes round the partitions; a sender
 * goes round the block. Every answer is looked at: an error in one of them ends the run.
 */
#define _GNU_SOURCE
#include "kafka_load.h"

#include "om_base.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define BLOCK (1u << 20) /* bytes of prebuilt requests, or one round of the partitions */
#define ANSWERS (256u << 10)
#define RECORD_MAX_OVERHEAD 20

/* ---- batches ---- */

static size_t varint(uint8_t *at, int64_t value) {
    uint64_t left = (uint64_t)(value << 1 ^ value >> 63);
    size_t len = 0;
    for (; left >= 0x80; left >>= 7)
        at[len++] = (uint8_t)(left | 0x80);
    at[len++] = (uint8_t)left;
    return len;
}

uint32_t records_a_batch(void) {
    uint32_t room = options.batch > OM_BATCH_OVERHEAD ? options.batch - OM_BATCH_OVERHEAD : 0;
    uint32_t count = room / (options.record + 9); /* about what a record costs beside its value */
    return count ? count : 1;
}

void put_batch(buffer *out, uint32_t count, int with_time) {
    size_t start = out->len;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t ms = wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    put_number(out, 0, 8);  /* base offset */
    put_number(out, 0, 4);  /* size: below */
    put_number(out, -1, 4); /* leader epoch */
    put_number(out, 2, 1);  /* magic */
    put_number(out, 0, 4);  /* CRC: below */
    put_number(out, 0, 2);  /* attributes */
    put_number(out, count - 1, 4);
    put_number(out, ms, 8);
    put_number(out, ms, 8);
    put_number(out, -1, 8); /* producer id, epoch, sequence */
    put_number(out, -1, 2);
    put_number(out, -1, 4);
    put_number(out, count, 4);
    uint8_t *value = need(calloc(1, options.record + 8));
    for (uint32_t i = 0; i < options.record; i++)
        value[i] = (uint8_t)('a' + i % 26);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t body[RECORD_MAX_OVERHEAD], head[10];
        size_t len = 0;
        body[len++] = 0;               /* attributes */
        len += varint(body + len, 0);  /* time delta */
        len += varint(body + len, i);  /* offset delta */
        len += varint(body + len, -1); /* no key */
        len += varint(body + len, options.record);
        if (with_time && options.record >= 8) {
            uint64_t now = now_ns();
            memcpy(value, &now, 8);
        }
        put(out, head, varint(head, (int64_t)(len + options.record + 1)));
        put(out, body, len);
        put(out, value, options.record);
        put_number(out, 0, 1); /* no headers */
    }
    free(value);
    buffer fix = {0};
    put_number(&fix, (int64_t)(out->len - start - 12), 4);
    put_number(&fix, om_crc32c(0, out->bytes + start + 21, out->len - start - 21), 4);
    memcpy(out->bytes + start + 8, fix.bytes, 4);
    memcpy(out->bytes + start + 17, fix.bytes + 4, 4);
    free(fix.bytes);
}

/* One request to `batches` partitions from `first` on. */
static void put_request(buffer *out, int first, int batches, uint32_t count, int with_time) {
    size_t start = request_begin(out, PRODUCE, 7);
    put_number(out, -1, 2); /* no transaction */
    put_number(out, options.acks, 2);
    put_number(out, 30000, 4);
    put_number(out, 1, 4);
    put_string(out, options.topic);
    put_number(out, batches, 4);
    for (int i = 0; i < batches; i++) {
        put_number(out, (first + i) % options.partitions, 4);
        buffer batch = {0};
        put_batch(&batch, count, with_time);
        put_number(out, (int64_t)batch.len, 4);
        put(out, batch.bytes, batch.len);
        free(batch.bytes);
    }
    request_end(out, start);
}

/* ---- answers ---- */

static void check_answer(const uint8_t *answer, size_t len) {
    size_t at = 4 + 4 + 2 + strlen(options.topic);
    int64_t count = at + 4 <= len ? number(answer + at, 4) : 0;
    at += 4;
    for (int64_t i = 0; i < count && at + 30 <= len; i++, at += 30)
        if (number(answer + at + 4, 2))
            fail("partition %ld: error %ld", (long)number(answer + at, 4), (long)number(answer + at + 4, 2));
    if (count != options.batches)
        fail("an answer for %ld partitions instead of %d", (long)count, options.batches);
}

typedef struct {
    int fd;
    uint8_t *bytes;
    size_t len;
} answers;

/* Whole answers that are there; how many. */
static uint64_t take_answers(answers *in) {
    ssize_t got = recv(in->fd, in->bytes + in->len, ANSWERS - in->len, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        fail("the broker closed a producer's connection%s%s", got ? ": " : "", got ? strerror(errno) : "");
    in->len += got > 0 ? (size_t)got : 0;
    uint64_t whole = 0;
    size_t at = 0;
    while (in->len - at >= 4) {
        int64_t size = number(in->bytes + at, 4);
        if (size < 4 || (size_t)size + 4 > ANSWERS)
            fail("an answer of %ld bytes to a produce", (long)size);
        if (in->len - at < 4 + (size_t)size)
            break;
        check_answer(in->bytes + at + 4, (size_t)size);
        at += 4 + (size_t)size;
        whole++;
    }
    memmove(in->bytes, in->bytes + at, in->len - at);
    in->len -= at;
    return whole;
}

static void count_up(uint64_t requests, uint64_t records, uint64_t bytes) {
    atomic_fetch_add_explicit(&produced, requests * records, memory_order_relaxed);
    atomic_fetch_add_explicit(&produced_bytes, requests * bytes, memory_order_relaxed);
}

/* ---- as fast as it goes ---- */

typedef struct {
    buffer block;
    size_t *ends; /* of each request in it */
    uint64_t count;
} requests;

static requests prebuild(int first) {
    requests all = {0};
    int round = (options.partitions + options.batches - 1) / options.batches;
    while (all.block.len < BLOCK || all.count % (uint64_t)round) {
        put_request(&all.block, first + (int)(all.count % (uint64_t)round) * options.batches, options.batches,
                    records_a_batch(), 0);
        all.ends = need(realloc(all.ends, (all.count + 1) * sizeof *all.ends));
        all.ends[all.count++] = all.block.len;
    }
    return all;
}

static void produce_freely(int fd, int first) {
    requests all = prebuild(first);
    answers in = {fd, need(malloc(ANSWERS)), 0};
    uint64_t records = (uint64_t)records_a_batch() * (uint64_t)options.batches;
    uint64_t bytes = all.block.len / all.count;
    uint64_t most =
        options.records ? (options.records / (uint64_t)options.producers + records - 1) / records : UINT64_MAX;
    uint64_t sent = 0, answered = 0; /* requests */
    size_t at = 0;                   /* in the block */
    for (;;) {
        int stop = atomic_load_explicit(&stopping, memory_order_relaxed);
        uint64_t allowed = options.acks ? answered + (uint64_t)options.window : UINT64_MAX;
        int half = at != 0 && at != all.ends[(sent + all.count - 1) % all.count];
        int may_send = half || (!stop && sent < most && sent < allowed);
        if (!may_send && (!options.acks || answered == sent))
            return;
        struct pollfd watch = {fd, (short)(POLLIN | (may_send ? POLLOUT : 0)), 0};
        poll(&watch, 1, 100);
        if (watch.revents & (POLLIN | POLLHUP | POLLERR)) {
            uint64_t whole = take_answers(&in);
            answered += whole;
            count_up(whole, records, bytes);
        }
        if (!(watch.revents & POLLOUT))
            continue;
        /* Up to the end of the block or of what the window, the count and the stop allow. */
        uint64_t index = sent % all.count, more = stop ? 0 : (allowed < most ? allowed : most) - sent;
        uint64_t last = more < all.count - index ? index + more : all.count;
        size_t end = last > index ? all.ends[last - 1] : all.ends[index];
        if (at == all.block.len)
            at = 0;
        ssize_t took = send(fd, all.block.bytes + at, end - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (took < 0 && errno != EAGAIN)
            fail("send: %s", strerror(errno));
        at += took > 0 ? (size_t)took : 0;
        uint64_t before = sent;
        while (sent % all.count < all.count && at >= all.ends[sent % all.count] && sent - before < all.count) {
            sent++;
            if (sent % all.count == 0)
                break;
        }
        if (!options.acks)
            count_up(sent - before, records, bytes);
    }
}

/* ---- some each millisecond ---- */

static void produce_paced(int fd, int first) {
    answers in = {fd, need(malloc(ANSWERS)), 0};
    buffer out = {0};
    double due = (double)now_ns(), step = 1e9 / options.rate;
    uint64_t sent = 0, answered = 0;
    while (!atomic_load(&stopping) || answered < sent) {
        double now = (double)now_ns();
        uint32_t count = now > due ? (uint32_t)((now - due) / step) : 0;
        if (count && !atomic_load(&stopping)) {
            due += count * step;
            out.len = 0;
            put_request(&out, first + (int)(sent % (uint64_t)options.partitions), 1, count, 1);
            link_send(fd, out.bytes, out.len);
            sent++;
            count_up(1, count, out.len);
        }
        struct pollfd watch = {fd, POLLIN, 0};
        struct timespec wait = {0, 1000000};
        if (ppoll(&watch, 1, &wait, NULL) > 0)
            answered += take_answers(&in);
    }
}

void *produce(void *which) {
    int first = (int)(intptr_t)which * options.batches % options.partitions;
    int fd = link_open();
    if (options.rate > 0)
        produce_paced(fd, first);
    else
        produce_freely(fd, first);
    return NULL;
}
