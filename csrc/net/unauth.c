/* unauth.c -- connections that haven't logged in: how many an address may have, what all may hold.
 *
 * Anybody may connect. What strangers send is never weighed as messages, which would hold back publishers;
 * so it is bounded here. Where a bound is met, the oldest goes: a client that means well is through
 * its login by then, and one that sits and waits isn't. A newcomer is never turned away for them.
 */
#include "net/unauth.h"
#include "base/checksum.h"
#include "net/engine_core.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define STRANGERS_INPUT (32u << 20) /* bytes that all of them may hold */
#define PREFIX_V6 8                 /* who has one address there has its whole /64 */

om_unauth *om_unauth_new(void) {
    om_unauth *strangers = calloc(1, sizeof *strangers);
    if (strangers && getrandom(&strangers->secret, sizeof strangers->secret, 0) != (ssize_t)sizeof strangers->secret) {
        free(strangers);
        return NULL;
    }
    return strangers;
}

/* ---- rows ---- */

static void push(om_ages *row, om_conn *conn, int which) {
    om_age *age = &conn->ages[which];
    *age = (om_age){.older = row->newest};
    if (row->newest)
        row->newest->ages[which].newer = conn;
    else
        row->oldest = conn;
    row->newest = conn;
    row->count++;
}

static void take_out(om_ages *row, om_conn *conn, int which) {
    om_age *age = &conn->ages[which];
    if (age->older)
        age->older->ages[which].newer = age->newer;
    else
        row->oldest = age->newer;
    if (age->newer)
        age->newer->ages[which].older = age->older;
    else
        row->newest = age->older;
    *age = (om_age){NULL, NULL};
    row->count--;
}

/* ---- who ---- */

/* peer: 10.0.0.1:5672, [fe80::1%2]:5672, or whatever else. */
static uint16_t place_of(const om_unauth *strangers, const char *peer) {
    char text[64];
    uint8_t key[sizeof strangers->secret + sizeof text], *own = key + sizeof strangers->secret, v6[16];
    const char *port = strrchr(peer, ':');
    size_t len = port ? (size_t)(port - peer) : strlen(peer);
    if (len >= sizeof text)
        len = sizeof text - 1;
    memcpy(text, peer, len);
    text[len] = 0;
    memcpy(key, &strangers->secret, sizeof strangers->secret);
    memcpy(own, text, len);
    if (text[0] == '[') {
        text[strcspn(text, "]%")] = 0;
        if (inet_pton(AF_INET6, text + 1, v6) == 1) {
            memcpy(own, v6, PREFIX_V6);
            len = PREFIX_V6;
        }
    }
    return (uint16_t)(om_xxh3(key, sizeof strangers->secret + len) % OM_STRANGER_PLACES);
}

void om_unauth_add(om_conn *conn) {
    om_engine *engine = conn->engine;
    om_unauth *strangers = engine->unauth;
    conn->place = place_of(strangers, conn->peer);
    om_ages *place = &strangers->places[conn->place];
    push(&strangers->all, conn, OM_AGE_ALL);
    push(place, conn, OM_AGE_PLACE);
    conn->is_stranger = 1;
    uint32_t most = engine->options.strangers_per_address;
    if (most && place->count > most) {
        om_conn *oldest = place->oldest;
        om_unauth_remove(oldest); /* so that the next newcomer meets another one */
        om_conn_break(oldest, "too many unauthenticated connections from its address");
    }
}

void om_unauth_remove(om_conn *conn) {
    om_unauth *strangers = conn->engine->unauth;
    if (!conn->is_stranger)
        return;
    conn->is_stranger = 0;
    take_out(&strangers->all, conn, OM_AGE_ALL);
    take_out(&strangers->places[conn->place], conn, OM_AGE_PLACE);
}

/* ---- what they hold ---- */

size_t om_conn_read_most(const om_conn *conn) {
    return conn->is_stranger ? OM_STRANGER_INPUT : OM_READ_BUDGET;
}

void om_unauth_weigh(om_engine *engine) {
    uint64_t bytes = 0;
    for (om_conn *conn = engine->unauth->all.oldest; conn; conn = conn->ages[OM_AGE_ALL].newer)
        bytes += conn->in_cap + conn->out.bytes;
    for (om_conn *conn = engine->unauth->all.oldest, *newer; conn && bytes > STRANGERS_INPUT; conn = newer) {
        uint64_t own = conn->in_cap + conn->out.bytes;
        newer = conn->ages[OM_AGE_ALL].newer;
        if (!own || conn->broken)
            continue;
        bytes -= own;
        om_conn_break(conn, "unauthenticated connections use too much memory");
    }
}
