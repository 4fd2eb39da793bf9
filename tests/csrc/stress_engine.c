/* stress_engine.c -- the engine's thread, callers as Python's threads are, and real sockets at once,
 * for ThreadSanitizer to watch.
 *
 *   stress_engine DIR SECONDS
 *
 * One thread answers events, as the server does; some feed and drain connections without a socket; some
 * talk through sockets; one asks for statistics, forgets routes, purges and checkpoints. Connections
 * break at any moment. Ends with an error when a call answers what it never may.
 */
#define _GNU_SOURCE
#include "../engine/mini_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct stress {
    mini_server server;
    uint16_t port;
    int stop;        /* atomic */
    uint64_t rounds; /* atomic */
} stress;

typedef struct worker {
    stress *stress;
    unsigned seed;
    pthread_t thread;
} worker;

static int draw(worker *worker, int below) {
    return (int)((unsigned)rand_r(&worker->seed) % (unsigned)below);
}

static int is_running(const worker *worker) {
    return !__atomic_load_n(&worker->stress->stop, __ATOMIC_RELAXED);
}

/* ---- what clients say ---- */

static uint8_t *put_frame(uint8_t *at, int type, int channel, const void *load, size_t len) {
    at[0] = (uint8_t)type;
    om_put_be16(at + 1, (uint16_t)channel);
    om_put_be32(at + 3, (uint32_t)len);
    memcpy(at + 7, load, len);
    at[7 + len] = 0xCE;
    return at + 8 + len;
}

static uint8_t *put_publish(uint8_t *at, worker *worker, int channel) {
    static const uint8_t body[512];
    uint8_t method[] = {
        0, 60, 0, 40, 0, 0, 2, 'e', 'x', 2, (uint8_t)('a' + draw(worker, 8)), (uint8_t)('a' + draw(worker, 8)), 1};
    uint8_t header[] = {0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 2};
    size_t len = (size_t)draw(worker, (int)sizeof body);
    if (draw(worker, 2)) { /* straight to a queue */
        static const uint8_t direct[] = {0, 60, 0, 40, 0, 0, 0, 1, 0, 0};
        memcpy(method, direct, sizeof direct);
        method[8] = (uint8_t)('a' + draw(worker, 8));
        at = put_frame(at, 1, channel, method, sizeof direct);
    } else {
        at = put_frame(at, 1, channel, method, sizeof method);
    }
    om_put_be64(header + 4, len);
    at = put_frame(at, 2, channel, header, sizeof header);
    return len ? put_frame(at, 3, channel, body, len) : at;
}

static uint8_t *put_method(uint8_t *at, worker *worker, int channel) {
    uint8_t name = (uint8_t)('a' + draw(worker, 8));
    uint8_t consume[] = {0, 60, 0, 20, 0, 0, 1, name, 0, (uint8_t)draw(worker, 256)};
    uint8_t get[] = {0, 60, 0, 70, 0, 0, 1, name, (uint8_t)draw(worker, 2)};
    uint8_t ack[] = {0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    uint8_t nack[] = {0, 60, 0, 120, 0, 0, 0, 0, 0, 0, 0, 0, (uint8_t)(1 | draw(worker, 2) << 1)};
    uint8_t recover[] = {0, 60, 0, 110, 1};
    uint8_t commit[] = {0, 90, 0, 20};
    uint8_t select[] = {0, 85, 0, 10, 0};
    switch (draw(worker, 12)) {
    case 0:
        return put_frame(at, 1, channel, consume, sizeof consume);
    case 1:
    case 2:
        return put_frame(at, 1, channel, get, sizeof get);
    case 3:
    case 4:
    case 5:
        return put_frame(at, 1, channel, ack, sizeof ack);
    case 6:
        return put_frame(at, 1, channel, nack, sizeof nack);
    case 7:
        return put_frame(at, 1, channel, recover, sizeof recover);
    case 8:
        return put_frame(at, 1, 2, commit, sizeof commit);
    case 9:
        return put_frame(at, 1, 1, select, sizeof select);
    default:
        return put_publish(at, worker, channel);
    }
}

static size_t say_something(worker *worker, uint8_t *out) {
    uint8_t *at = out;
    for (int i = draw(worker, 20); i >= 0; i--)
        at = draw(worker, 3) ? put_publish(at, worker, 1 + draw(worker, 2))
                             : put_method(at, worker, 1 + draw(worker, 2));
    return (size_t)(at - out);
}

/* ---- threads ---- */

static void *answer_loop(void *arg) {
    worker *worker = arg;
    while (is_running(worker))
        if (!answer_events(&worker->stress->server))
            usleep(200);
    return NULL;
}

static void open_conn(stress *stress, uint64_t conn) {
    om_engine *engine = stress->server.engine;
    om_conn_tune(engine, conn, 8192, 100, 0);
    om_conn_open(engine, conn, VHOST, "guest", 0);
    om_channel_open(engine, conn, 1);
    om_channel_open(engine, conn, 2);
    om_channel_tx_select(engine, conn, 2);
    om_conn_may_publish(engine, conn, (const uint8_t *)"", 0, 0, 0);
}

static void *without_socket(void *arg) {
    worker *worker = arg;
    om_engine *engine = worker->stress->server.engine;
    uint8_t *words = malloc(1 << 16);
    while (is_running(worker)) {
        uint64_t conn = om_conn_virtual(engine, 0, "virtual");
        frame_check check = {0};
        PROMISE(conn && om_conn_feed(engine, conn, (const uint8_t *)"AMQP\0\0\x09\x01", 8) == 8);
        open_conn(worker->stress, conn);
        int alive = 1;
        for (int rounds = draw(worker, 30); rounds > 0 && alive && is_running(worker); rounds--) {
            size_t len = say_something(worker, words), at = 0;
            for (int idle = 0; at < len && alive && idle < 100; idle++) {
                int64_t taken = om_conn_feed(engine, conn, words + at, len - at);
                PROMISE(taken >= 0 || taken == OM_E_GONE);
                at += taken > 0 ? (size_t)taken : 0;
                idle = taken > 0 ? 0 : idle;
                alive = taken >= 0 && drain_some(&worker->stress->server, conn, &check);
                if (taken == 0)
                    usleep(100);
            }
            __atomic_add_fetch(&worker->stress->rounds, 1, __ATOMIC_RELAXED);
        }
        om_conn_close(engine, conn, NULL, 0);
        while (drain_some(&worker->stress->server, conn, &check))
            continue;
    }
    free(words);
    return NULL;
}

/* By a socket the server doesn't open it: what it says is heard, answered with errors, and cut off. */
static void *with_socket(void *arg) {
    worker *worker = arg;
    uint8_t *words = malloc(1 << 16);
    while (is_running(worker)) {
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_port = worker->stress->port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        PROMISE(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
        send(fd, "AMQP\0\0\x09\x01", 8, MSG_NOSIGNAL);
        for (int rounds = draw(worker, 10); rounds > 0; rounds--) {
            size_t len = say_something(worker, words);
            if (send(fd, words, len, MSG_NOSIGNAL) < 0)
                break;
            recv(fd, words, 1 << 16, MSG_DONTWAIT);
            usleep(500);
        }
        close(fd);
        __atomic_add_fetch(&worker->stress->rounds, 1, __ATOMIC_RELAXED);
    }
    free(words);
    return NULL;
}

static void *onlooker(void *arg) {
    worker *worker = arg;
    om_engine *engine = worker->stress->server.engine;
    while (is_running(worker)) {
        om_engine_stat stat;
        om_queue_stat queue;
        om_consumer_info consumers[8];
        uint64_t seq, id = (uint64_t)draw(worker, QUEUE_COUNT) + 1;
        om_engine_stat_get(engine, &stat);
        PROMISE(om_queue_stat_get(engine, id, &queue) == OM_OK || queue.ready >= 0);
        om_queue_consumers(engine, id, consumers, 8);
        if (draw(worker, 20) == 0)
            om_route_forget(engine, VHOST, draw(worker, 2) ? (const uint8_t *)"ex" : NULL, 2);
        if (draw(worker, 50) == 0)
            om_engine_forget_permissions(engine);
        if (draw(worker, 50) == 0 && !(QUEUES[id - 1].flags & OM_QUEUE_STREAM))
            om_queue_purge(engine, id, &seq);
        if (draw(worker, 100) == 0)
            om_store_checkpoint(worker->stress->server.store);
        usleep(1000);
    }
    return NULL;
}

static int listen_somewhere(stress *stress) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    PROMISE(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 100) == 0);
    PROMISE(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    stress->port = address.sin_port;
    PROMISE(om_engine_listen(stress->server.engine, fd, 0) == OM_OK);
    return fd;
}

int main(int argc, char **argv) {
    static stress stress;
    PROMISE(argc == 3);
    start_server(&stress.server, argv[1]);
    int listener = listen_somewhere(&stress);
    void *(*const jobs[])(void *) = {answer_loop, without_socket, without_socket, with_socket, onlooker};
    enum { WORKERS = sizeof jobs / sizeof *jobs };
    worker workers[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.stress = &stress, .seed = i + 1};
        pthread_create(&workers[i].thread, NULL, jobs[i], &workers[i]);
    }
    sleep((unsigned)atoi(argv[2]));
    __atomic_store_n(&stress.stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    om_engine_stat stat;
    om_engine_stat_get(stress.server.engine, &stat);
    close(listener);
    stop_server(&stress.server);
    printf("rounds %llu published %llu delivered %llu\n", (unsigned long long)stress.rounds,
           (unsigned long long)stat.published, (unsigned long long)stat.delivered);
    return 0;
}
