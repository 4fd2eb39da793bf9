/* no_memory.c -- a publisher with confirms while memory is refused: what is confirmed is there.
 *
 * Built by test_no_memory.py with malloc and its like wrapped. Each round publishes to a queue and to a fan-out,
 * a large message in many frames among them, and one allocation on the way fails (or that one and all behind it): the first in
 * the first round, the second in the next, until a round needs no more of them. A publisher may be
 * refused or lose its connection. It must not wait for ever, nor be told a lie.
 */
#include "mini_server.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#define PUBLISHES 5
#define LARGE 70000
#define FRAME 8000  /* the little server allows no more */
#define PATIENCE 60 /* seconds */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
int __real_posix_memalign(void **block, size_t alignment, size_t size);

static __thread long countdown = -1; /* that many are given, then one is refused; -1: all are given */
static __thread int for_good;        /* ... and so are all behind it */
static __thread long refused;

static int fails(void) {
    if (countdown < 0)
        return 0;
    if (countdown > 0) {
        countdown--;
        return 0;
    }
    refused++;
    if (!for_good)
        countdown = -1;
    return 1;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size) {
    return fails() ? NULL : __real_realloc(block, size);
}

int __wrap_posix_memalign(void **block, size_t alignment, size_t size) {
    return fails() ? ENOMEM : __real_posix_memalign(block, alignment, size);
}

/* ---- frames ---- */

static size_t put_frame(uint8_t *at, int type, const void *payload, size_t len) {
    at[0] = (uint8_t)type;
    om_put_be16(at + 1, 1);
    om_put_be32(at + 3, (uint32_t)len);
    memcpy(at + 7, payload, len);
    at[7 + len] = 0xCE;
    return len + 8;
}

/* The text, and blanks up to that length; a large one in many frames. */
static size_t put_body(uint8_t *at, const char *text, size_t len) {
    static uint8_t body[LARGE];
    size_t put = 0;
    memset(body, ' ', sizeof body);
    memcpy(body, text, strlen(text));
    for (size_t done = 0; done < len; done += FRAME)
        put += put_frame(at + put, 3, body + done, len - done < FRAME ? len - done : FRAME);
    return put;
}

static size_t put_publish(uint8_t *at, const char *exchange, const char *key, const char *text, size_t body_len) {
    uint8_t method[64], header[15];
    size_t n = 0, e = strlen(exchange), k = strlen(key);
    om_put_be32(method, 60u << 16 | 40);
    om_put_be16(method + 4, 0);
    n = 6;
    method[n++] = (uint8_t)e;
    memcpy(method + n, exchange, e);
    n += e;
    method[n++] = (uint8_t)k;
    memcpy(method + n, key, k);
    n += k;
    method[n++] = 0;
    om_put_be32(header, 60u << 16);
    om_put_be64(header + 4, body_len);
    om_put_be16(header + 12, 0x1000); /* delivery-mode ... */
    header[14] = 2;                   /* ... persistent */
    size_t len = put_frame(at, 1, method, n);
    len += put_frame(at + len, 2, header, sizeof header);
    return len + put_body(at + len, text, body_len);
}

static size_t put_get(uint8_t *at) {
    static const uint8_t get[] = {0, 60, 0, 70, 0, 0, 1, 'a', 1};
    return put_frame(at, 1, get, sizeof get);
}

/* ---- a client ---- */

typedef struct client {
    mini_server *server;
    uint64_t conn;
    uint8_t held[2 * LARGE];
    size_t len;
    uint64_t answered; /* all up to this tag */
    uint8_t good[64];  /* by tag: it was acked */
    char body[64];     /* of the last get, its beginning */
    uint64_t left;     /* ... and so much of it is still to come */
    int got;           /* 1: that, 2: there is none */
} client;

static void feed(client *client, const uint8_t *data, size_t len) {
    while (len) {
        int64_t taken = om_conn_feed(client->server->engine, client->conn, data, len);
        if (taken < 0)
            return;
        data += taken;
        len -= (size_t)taken;
        if (!taken && !answer_events(client->server))
            usleep(1000);
    }
}

static void take_verdict(client *client, const uint8_t *args, int good) {
    uint64_t tag = om_get_be64(args);
    PROMISE(tag < sizeof client->good);
    for (uint64_t t = args[8] & 1 ? client->answered + 1 : tag; t <= tag; t++)
        client->good[t] |= good ? 1 : 2;
    while (client->good[client->answered + 1])
        client->answered++;
}

static void take_frame(client *client, const uint8_t *frame, size_t len) {
    uint32_t method = frame[0] == 1 ? om_get_be32(frame + 7) : 0;
    if (method == (60u << 16 | 80) || method == (60u << 16 | 120))
        take_verdict(client, frame + 11, method == (60u << 16 | 80));
    else if (method == (60u << 16 | 72))
        client->got = 2;
    else if (frame[0] == 2) { /* the body's first frame tells who it is, its last one that it is all here */
        client->left = om_get_be64(frame + 7 + 4);
        client->body[0] = 0;
    } else if (frame[0] == 3) {
        size_t head = len - 8 < sizeof client->body ? len - 8 : sizeof client->body - 1;
        if (!client->body[0]) {
            memcpy(client->body, frame + 7, head);
            client->body[head] = 0;
        }
        client->left -= len - 8;
        client->got = client->left == 0;
    }
}

/* Returns 0 when the connection is gone. */
static int listen_to(client *client) {
    answer_events(client->server);
    if (client->server->sent_away == client->conn)
        om_conn_close(client->server->engine, client->conn, NULL, 0);
    int64_t got = om_conn_drain(client->server->engine, client->conn, client->held + client->len,
                                sizeof client->held - client->len);
    if (got < 0)
        return 0;
    client->len += (size_t)got;
    size_t at = 0;
    while (client->len - at >= 8) {
        size_t len = 8 + (size_t)om_get_be32(client->held + at + 3);
        if (client->len - at < len)
            break;
        take_frame(client, client->held + at, len);
        at += len;
    }
    memmove(client->held, client->held + at, client->len -= at);
    if (!got)
        usleep(200);
    return 1;
}

/* Until all up to that tag are answered. Returns 0 when the connection is gone. */
static int wait_for(client *client, uint64_t tag) {
    time_t limit = time(NULL) + PATIENCE;
    while (client->answered < tag) {
        if (!listen_to(client))
            return 0;
        PROMISE(time(NULL) < limit);
    }
    return 1;
}

static client *come(mini_server *server) {
    client *came = __real_calloc(1, sizeof *came);
    came->server = server;
    came->conn = connect_to(server);
    om_channel_confirm(server->engine, came->conn, 1);
    return came;
}

static void go(client *client) {
    om_conn_close(client->server->engine, client->conn, NULL, 0);
    time_t limit = time(NULL) + PATIENCE;
    while (listen_to(client))
        PROMISE(time(NULL) < limit);
    free(client);
}

/* Everything out of the first queue: who is there? */
static void look(client *reader, int round, uint8_t *there) {
    uint8_t get[64];
    size_t len = put_get(get);
    for (;;) {
        int number, of;
        reader->got = 0;
        feed(reader, get, len);
        time_t limit = time(NULL) + PATIENCE;
        while (!reader->got) {
            PROMISE(listen_to(reader));
            PROMISE(time(NULL) < limit);
        }
        if (reader->got == 2)
            return;
        PROMISE(sscanf(reader->body, "%d %d", &of, &number) == 2 && of == round);
        there[number] = 1;
    }
}

static const char *const PLACES[PUBLISHES][2] = {{"", "a"}, {"x", "afa"}, {"", "a"}, {"x", "afa"}, {"", "a"}};

/* Returns how many allocations were refused. */
static long play(mini_server *server, client *reader, int round, long after, int all) {
    static uint8_t data[2 * LARGE];
    size_t len = 0;
    uint8_t there[2 + PUBLISHES + 1] = {0};
    client *sender = come(server);
    /* Routes and permissions are Python's business: known before it counts. */
    len += put_publish(data + len, "", "a", "0 0", 3);
    len += put_publish(data + len, "x", "afa", "0 0", 3);
    feed(sender, data, len);
    PROMISE(wait_for(sender, 2));
    om_queue_purge(server->engine, 1, &(uint64_t){0});
    len = 0;
    for (int i = 0; i < PUBLISHES; i++) {
        char body[32];
        snprintf(body, sizeof body, "%d %d", round, i + 3);
        len += put_publish(data + len, PLACES[i][0], PLACES[i][1], body, i == 2 ? LARGE : strlen(body));
    }
    refused = 0;
    for_good = all;
    countdown = after;
    int64_t taken = om_conn_feed(server->engine, sender->conn, data, len);
    countdown = -1;
    if (taken >= 0 && (size_t)taken < len)
        feed(sender, data + taken, len - (size_t)taken);
    long failed = refused;
    int stays = wait_for(sender, 2 + PUBLISHES);
    look(reader, round, there);
    for (uint64_t tag = 3; tag <= 2 + PUBLISHES; tag++)
        PROMISE(sender->good[tag] != 1 || there[tag]);
    if (stays)
        go(sender);
    else
        free(sender);
    return failed;
}

int main(int argc, char **argv) {
    mini_server server;
    long total = 0;
    PROMISE(argc == 2);
    start_server(&server, argv[1]);
    client *reader = come(&server);
    int round = 1;
    for (int all = 0; all < 2; all++)
        for (long after = 0;; after++, round++) {
            long failed = play(&server, reader, round, after, all);
            total += failed;
            if (!failed)
                break;
        }
    go(reader);
    stop_server(&server);
    printf("%ld refused\n", total);
    return 0;
}
