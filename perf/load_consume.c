/* load_consume.c -- what comes: deliveries are checked and acked, confirms counted, closes told.
 *
 * Frames are cut where they were read. Only a frame that a read cut off waits in `carry`, and never
 * a body: of that only the number of missing bytes is kept, and a large rest is thrown away by the
 * kernel (MSG_TRUNC).
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <sys/socket.h>

void consumer_open(client *it) {
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

void acknowledge(worker *self, client *it) {
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
        ssize_t sent =
            send(it->fd, it->half_ack + it->half_at, it->half_len - it->half_at, MSG_NOSIGNAL | MSG_DONTWAIT);
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

void readable(worker *self, client *it) {
    int large = options.size >= LARGE && !it->publisher;
    for (int turn = 0; turn < (large ? 64 : 1); turn++) {
        int skipping = it->skip >= LARGE / 4;
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
