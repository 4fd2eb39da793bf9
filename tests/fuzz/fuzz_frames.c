/* fuzz_frames.c -- bytes from strangers on a connection of a real engine over a real store.
 *
 *   | mode u8 | pace u8 | the rest |
 *   mode: 1 the rest are loose frames, | type u8 | channel u8 | len u8 | payload |, whose heads and
 *           ends are made right; else bytes as they come
 *         2 before the greeting; else past the handshake, with two channels
 *         4 confirms on channel 1
 *         8 nothing is read until the end
 *        16 the connection breaks at the end; else it is closed
 *   pace: bytes that are fed at once; 0: all
 *
 * The engine, its store and its queues live on from input to input. What is promised is checked:
 * what is sent is whole frames within the limit; when the connection is gone, so is all it held;
 * and another connection is served behind every input.
 */
#include "../engine/mini_server.h"
#include "by_hand.h"

#include <dirent.h>
#include <unistd.h>

#define INPUT_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static mini_server server;
static uint64_t other; /* the connection that must not notice */
static frame_check other_check;
static char folder[64];

static void remove_all(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char name[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR)
            remove_all(name);
        else
            unlink(name);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static void stop(void) {
    stop_server(&server);
    remove_all(folder);
}

static void start(void) {
    snprintf(folder, sizeof folder, "%s/fuzz_frames.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    PROMISE(mkdtemp(folder) != NULL);
    start_server(&server, folder);
    other = connect_to(&server);
    om_conn_may_publish(server.engine, other, (const uint8_t *)"", 0, 0, 0);
    atexit(stop);
}

/* ---- the input ---- */

static size_t unfold(const uint8_t *data, size_t size, uint8_t *out) {
    size_t len = 0;
    while (size >= 3 && len + 8 + 255 <= INPUT_MAX) {
        size_t load = data[2] < size - 3 ? data[2] : size - 3;
        out[len] = data[0] % 9;
        om_put_be16(out + len + 1, data[1] % 5);
        om_put_be32(out + len + 3, (uint32_t)load);
        memcpy(out + len + 7, data + 3, load);
        out[len + 7 + load] = 0xCE;
        len += 8 + load;
        data += 3 + load;
        size -= 3 + load;
    }
    return len;
}

static void feed(uint64_t conn, const uint8_t *data, size_t len, size_t pace, int reads, frame_check *check) {
    int idle = 0;
    while (len) {
        int64_t taken = om_conn_feed(server.engine, conn, data, len < pace ? len : pace);
        if (taken < 0)
            return;
        data += taken;
        len -= (size_t)taken;
        int busy = answer_events(&server);
        if (!taken)
            tick(server.engine);
        if (reads && !drain_some(&server, conn, check))
            return;
        /* Closed, waiting for its client's last word, or for the disk: not for ever. */
        idle = taken || busy ? 0 : idle + 1;
        if (idle == 50)
            return;
    }
}

/* ---- the others ---- */

static void serve_other(void) {
    static const uint8_t publish[] = "\x01\0\x01\0\0\0\x0a\0\x3c\0\x28\0\0\0\x01"
                                     "a\0\xce"
                                     "\x02\0\x01\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\x05\0\0\xce"
                                     "\x03\0\x01\0\0\0\x05hello\xce";
    om_queue_stat before, after;
    om_queue_stat_get(server.engine, 1, &before);
    PROMISE(om_conn_feed(server.engine, other, publish, sizeof publish - 1) == sizeof publish - 1);
    /* At once, unless the WAL is full: a checkpoint makes room. Dead letters may come, too. */
    for (int tries = 0;; tries++) {
        answer_events(&server);
        om_queue_stat_get(server.engine, 1, &after);
        if (after.published > before.published)
            break;
        PROMISE(tries < 20000);
        tick(server.engine);
        usleep(1000);
    }
    PROMISE(after.consumers == 0 && drain_some(&server, other, &other_check));
}

static void clear_queues(void) {
    static unsigned inputs;
    uint64_t seq;
    for (int i = 0; i < QUEUE_COUNT; i++) {
        om_queue_stat stat;
        PROMISE(om_queue_stat_get(server.engine, (uint64_t)i + 1, &stat) == OM_OK);
        PROMISE(stat.ready >= 0 && stat.unacked >= 0 && stat.consumers == 0);
        /* Those that die may still wait for the disk. */
        PROMISE(stat.unacked == 0 || QUEUES[i].dlx);
        if (!(QUEUES[i].flags & OM_QUEUE_STREAM))
            om_queue_purge(server.engine, (uint64_t)i + 1, &seq);
        else if (++inputs % 1000 == 0)
            om_log_trim(server.logs[i][0], stat.next_offset, OM_RULE_SETTLED, &seq);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t frames[INPUT_MAX];
    if (size < 3 || size > INPUT_MAX)
        return 0;
    if (!server.engine)
        start();
    int mode = data[0];
    size_t pace = data[1] ? data[1] : INPUT_MAX;
    size_t len = size - 2;
    if (mode & 1)
        len = unfold(data + 2, size - 2, frames);
    else
        memcpy(frames, data + 2, len);
    /* A copy of exactly this size, so that the sanitizer sees a read one byte past it. */
    uint8_t *copy = malloc(len ? len : 1);
    PROMISE(copy != NULL);
    memcpy(copy, frames, len);

    frame_check *check = calloc(1, sizeof *check);
    PROMISE(check != NULL);
    uint64_t conn = mode & 2 ? om_conn_virtual(server.engine, 0, "fuzz") : connect_to(&server);
    if (mode & 4)
        om_channel_confirm(server.engine, conn, 1);
    /* Before the greeting, what is sent may be our greeting, which is no frame. */
    feed(conn, copy, len, pace, !(mode & (2 | 8)), check);
    if (!(mode & (2 | 16)))
        drain_some(&server, conn, check);
    om_conn_close(server.engine, conn, NULL, 0);
    uint8_t room[16384];
    while (om_conn_drain(server.engine, conn, room, sizeof room) >= 0)
        answer_events(&server);
    tick(server.engine);
    answer_events(&server);
    serve_other();
    clear_queues();
    free(check);
    free(copy);
    return 0;
}
