/* load_publish.c -- blocks of publishes, their window and their confirms.
 *
 * All messages of a connection are the same bytes, many in a block; where the next send begins is
 * the number of bytes sent modulo one message:
 *
 *   | message | message | message | ...      block
 *        ^ sent % message_len, up to what the window, the rate or the run's end permit
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define SENDS_A_TURN 4

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

void publisher_open(client *it) {
    client_open(it);
    it->message_len = build_message(it, NULL);
    size_t wanted = options.rate > 0 ? 4096 : options.publishers > 16 ? 32u << 10 : 128u << 10;
    size_t count = wanted / it->message_len < 2 ? 2 : wanted / it->message_len;
    it->block_len = count * it->message_len;
    it->block_fd = -1;
    if (options.size >= LARGE) {
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

void publish(worker *self, client *it, uint64_t now) {
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

void confirm(client *it, uint64_t tag, int multiple, uint64_t now) {
    uint64_t sent = (it->sent + it->message_len - 1) / it->message_len;
    if (tag > sent || (!multiple && (tag < it->lowest || it->out_of_turn[tag & it->mask])))
        fail("publisher %d: a confirm for %lu, with %lu sent and %lu the lowest open", it->number, (unsigned long)tag,
             (unsigned long)sent, (unsigned long)it->lowest);
    uint64_t count = 0;
    for (uint64_t open = multiple ? it->lowest : tag; open <= tag; open++) {
        uint8_t *done = &it->out_of_turn[open & it->mask];
        if (!*done) {
            count++;
            if (it->interval > 0 && atomic_load_explicit(&measuring, memory_order_relaxed))
                latency_add(now - it->due[open & it->mask]);
        }
        *done = 1;
    }
    while (it->lowest <= sent && it->out_of_turn[it->lowest & it->mask])
        it->out_of_turn[it->lowest++ & it->mask] = 0;
    atomic_fetch_add_explicit(&confirmed, count, memory_order_relaxed);
}
