/* unauth.c -- connections that haven't logged in: how many an address may have, how much memory all may use.
 *
 * Anybody may connect. Their input isn't counted as messages, which would block publishers, so it is bounded here. At
 * a bound the oldest connection is closed: an honest client has logged in by then. A new connection is never rejected
 * for them.
 */
#include "net/unauth.h"
#include "base/checksum.h"
#include "net/engine_core.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define UNAUTH_INPUT_MAX (32u << 20) /* bytes that all of them may hold */
#define PREFIX_V6 8                  /* the owner of one address has its whole /64 */

om_unauth *om_unauth_new(void) {
    om_unauth *unauth = calloc(1, sizeof *unauth);
    if (unauth && getrandom(&unauth->secret, sizeof unauth->secret, 0) != (ssize_t)sizeof unauth->secret) {
        free(unauth);
        return NULL;
    }
    return unauth;
}

/* ---- rows ---- */

static void push(om_ages *list, om_conn *conn, int which) {
    om_age *age = &conn->ages[which];
    *age = (om_age){.older = list->newest};
    if (list->newest)
        list->newest->ages[which].newer = conn;
    else
        list->oldest = conn;
    list->newest = conn;
    list->count++;
}

static void take_out(om_ages *list, om_conn *conn, int which) {
    om_age *age = &conn->ages[which];
    if (age->older)
        age->older->ages[which].newer = age->newer;
    else
        list->oldest = age->newer;
    if (age->newer)
        age->newer->ages[which].older = age->older;
    else
        list->newest = age->older;
    *age = (om_age){NULL, NULL};
    list->count--;
}

/* ---- by address ---- */

/* peer: 10.0.0.1:5672, [fe80::1%2]:5672, or whatever else. */
static uint16_t bucket_of(const om_unauth *unauth, const char *peer) {
    char text[64];
    uint8_t key[sizeof unauth->secret + sizeof text], *own = key + sizeof unauth->secret, v6[16];
    const char *port = strrchr(peer, ':');
    size_t len = port ? (size_t)(port - peer) : strlen(peer);
    if (len >= sizeof text)
        len = sizeof text - 1;
    memcpy(text, peer, len);
    text[len] = 0;
    memcpy(key, &unauth->secret, sizeof unauth->secret);
    memcpy(own, text, len);
    if (text[0] == '[') {
        text[strcspn(text, "]%")] = 0;
        if (inet_pton(AF_INET6, text + 1, v6) == 1) {
            memcpy(own, v6, PREFIX_V6);
            len = PREFIX_V6;
        }
    }
    return (uint16_t)(om_xxh3(key, sizeof unauth->secret + len) % OM_UNAUTH_BUCKETS);
}

void om_unauth_add(om_conn *conn) {
    om_engine *engine = conn->engine;
    om_unauth *unauth = engine->unauth;
    conn->bucket = bucket_of(unauth, conn->peer);
    om_ages *bucket = &unauth->buckets[conn->bucket];
    push(&unauth->all, conn, OM_AGE_ALL);
    push(bucket, conn, OM_AGE_BUCKET);
    conn->is_unauth = 1;
    uint32_t most = engine->options.unauthenticated_per_address;
    if (most && bucket->count > most) {
        om_conn *oldest = bucket->oldest;
        om_unauth_remove(oldest); /* so that the next newcomer meets another one */
        om_conn_break(oldest, "too many unauthenticated connections from its address");
    }
}

void om_unauth_remove(om_conn *conn) {
    om_unauth *unauth = conn->engine->unauth;
    if (!conn->is_unauth)
        return;
    conn->is_unauth = 0;
    take_out(&unauth->all, conn, OM_AGE_ALL);
    take_out(&unauth->buckets[conn->bucket], conn, OM_AGE_BUCKET);
}

/* ---- what they hold ---- */

void om_unauth_weigh(om_engine *engine) {
    uint64_t bytes = 0;
    for (om_conn *conn = engine->unauth->all.oldest; conn; conn = conn->ages[OM_AGE_ALL].newer)
        bytes += conn->in_cap + conn->out.bytes;
    for (om_conn *conn = engine->unauth->all.oldest, *newer; conn && bytes > UNAUTH_INPUT_MAX; conn = newer) {
        uint64_t own = conn->in_cap + conn->out.bytes;
        newer = conn->ages[OM_AGE_ALL].newer;
        if (!own || conn->broken)
            continue;
        bytes -= own;
        om_conn_break(conn, "unauthenticated connections use too much memory");
    }
}
