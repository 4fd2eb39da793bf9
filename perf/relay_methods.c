/* relay_methods.c -- the handshake, declares and the like: all that isn't a message. */
#define _GNU_SOURCE
#include "relay.h"

#include <stdio.h>

static queue **queues;
static int queue_count;
static exchange **exchanges;
static int exchange_count;

queue *queue_named(const uint8_t *name, size_t len) {
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

exchange *exchange_named(const uint8_t *name, size_t len) {
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

void queue_empty(queue *it) {
    it->out.start = it->out.end = 0;
    it->tag = 0;
}

void reply_start(peer *to) {
    wire it = {.len = 0};
    size_t start = wire_method(&it, 0, CONNECTION_START);
    wire_u8(&it, 0), wire_u8(&it, 9);
    wire_u32(&it, 0);
    wire_longstr(&it, "PLAIN", 5);
    wire_longstr(&it, "en_US", 5);
    wire_end(&it, start);
    peer_reply(to, &it);
}

void peer_method(peer *it, unsigned channel, const uint8_t *payload) {
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
