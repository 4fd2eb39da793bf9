/* load_topology.c -- the queues and exchanges a run declares at its start and deletes at its end. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <stdlib.h>

void queue_name(char *name, size_t room, int number, int dead_letters) {
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

void declare_all(const client *control) {
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

void delete_all(const client *control) {
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
