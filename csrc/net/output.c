/* output.c -- a connection's output: queued, then sent.
 *
 * Small things are copied one behind the other into chunks. The body of a large message is only referred to, in the
 * hot tail or in its segment's file, and goes from there to the socket without a copy here. MSG_MORE tells the kernel
 * that a part of a file follows, so that frame heads and body leave together.
 */
#include "net/output.h"
#include "net/socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHUNK_FIRST 4000 /* idle connections send little: a heartbeat, an answer */
#define CHUNK_MORE (64u << 10)
#define GATHER 64
#define SPARES_MAX 512

/* ---- chunks ---- */

/* Many connections with a few bytes each would otherwise allocate a chunk each, per tick. */
static om_piece *take_spare(om_spares *spares) {
    om_piece *chunk = spares->first;
    if (chunk) {
        spares->first = chunk->next;
        spares->count--;
    }
    return chunk;
}

void om_spares_clear(om_spares *spares) {
    for (om_piece *chunk; (chunk = take_spare(spares));)
        free(chunk);
}

static om_piece *add_chunk(om_output *output, enum om_piece_kind kind, size_t room) {
    om_piece *chunk = room == CHUNK_FIRST ? take_spare(output->spares) : NULL;
    if (!chunk)
        chunk = malloc(sizeof *chunk + room);
    if (!chunk)
        return NULL;
    chunk->next = NULL;
    chunk->kind = kind;
    chunk->cap = (uint32_t)room;
    chunk->sent = chunk->len = 0;
    if (output->tail)
        output->tail->next = chunk;
    else
        output->head = chunk;
    output->tail = chunk;
    return chunk;
}

uint8_t *om_output_put(om_output *output, size_t len) {
    om_piece *chunk = output->tail;
    if (!chunk || chunk->kind != OM_PIECE_OWN || chunk->cap - chunk->len < len) {
        size_t usual = chunk ? CHUNK_MORE : CHUNK_FIRST;
        chunk = add_chunk(output, OM_PIECE_OWN, len > usual ? len : usual);
        if (!chunk)
            return NULL;
    }
    uint8_t *at = chunk->own + chunk->len;
    chunk->len += len;
    output->bytes += len;
    return at;
}

void om_output_unput(om_output *output, size_t len) {
    output->tail->len -= len;
    output->bytes -= len;
}

int om_output_bytes(om_output *output, om_buffer *bytes, const uint8_t *data, size_t len) {
    om_piece *chunk = add_chunk(output, OM_PIECE_BYTES, 0);
    if (!chunk)
        return OM_E_NO_MEMORY;
    om_buffer_ref(bytes);
    chunk->from.ref.bytes = bytes;
    chunk->from.ref.data = data;
    chunk->len = len;
    output->bytes += len;
    return OM_OK;
}

om_backing *om_backing_open(om_segment *segment) {
    om_backing *backing = malloc(sizeof *backing);
    if (!backing)
        return NULL;
    if (om_range_open(segment, &backing->fd) != OM_OK) {
        free(backing);
        return NULL;
    }
    backing->refs = 1;
    backing->segment = segment;
    return backing;
}

void om_backing_unref(om_backing *backing) {
    if (--backing->refs)
        return;
    om_range_release(backing->segment, backing->fd);
    free(backing);
}

int om_output_file(om_output *output, om_backing *backing, uint64_t position, size_t len) {
    om_piece *chunk = add_chunk(output, OM_PIECE_FILE, 0);
    if (!chunk)
        return OM_E_NO_MEMORY;
    backing->refs++;
    chunk->from.file.backing = backing;
    chunk->from.file.position = position;
    chunk->len = len;
    output->bytes += len;
    output->files++;
    return OM_OK;
}

static void free_chunk(om_output *output, om_piece *chunk) {
    om_spares *spares = output->spares;
    if (chunk->kind == OM_PIECE_BYTES) {
        om_buffer_unref(chunk->from.ref.bytes);
    } else if (chunk->kind == OM_PIECE_FILE) {
        om_backing_unref(chunk->from.file.backing);
        output->files--;
    }
    if (chunk->cap == CHUNK_FIRST && spares->count < SPARES_MAX) {
        chunk->next = spares->first;
        spares->first = chunk;
        spares->count++;
        return;
    }
    free(chunk);
}

void om_output_clear(om_output *output) {
    while (output->head) {
        om_piece *chunk = output->head;
        output->head = chunk->next;
        free_chunk(output, chunk);
    }
    output->tail = NULL;
    output->bytes = 0;
}

static void advance(om_output *output, uint64_t sent) {
    output->bytes -= sent;
    while (output->head) {
        om_piece *chunk = output->head;
        uint64_t left = chunk->len - chunk->sent;
        uint64_t take = sent < left ? sent : left;
        chunk->sent += take;
        sent -= take;
        if (chunk->sent < chunk->len)
            return;
        output->head = chunk->next;
        if (!output->head)
            output->tail = NULL;
        free_chunk(output, chunk);
    }
}

static const uint8_t *chunk_data(const om_piece *chunk) {
    return (chunk->kind == OM_PIECE_OWN ? chunk->own : chunk->from.ref.data) + chunk->sent;
}

static ssize_t send_memory(const om_output *output, int fd) {
    struct iovec iov[GATHER];
    int count = 0;
    const om_piece *chunk = output->head;
    for (; chunk && chunk->kind != OM_PIECE_FILE && count < GATHER; chunk = chunk->next)
        iov[count++] = (struct iovec){(void *)chunk_data(chunk), chunk->len - chunk->sent};
    int flags = MSG_NOSIGNAL | (chunk ? MSG_MORE : 0);
    if (count == 1) /* a confirm, mostly: the kernel has less to copy and to check */
        return send(fd, iov->iov_base, iov->iov_len, flags);
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    return sendmsg(fd, &message, flags);
}

static ssize_t send_file(const om_output *output, int fd) {
    const om_piece *chunk = output->head;
    off_t at = (off_t)(chunk->from.file.position + chunk->sent);
    ssize_t sent = sendfile(fd, chunk->from.file.backing->fd, &at, chunk->len - chunk->sent);
    if (sent > 0 || (sent < 0 && errno != EIO))
        return sent;
    /* A bad sector, or the file was cut under us. The frame can't be completed; the next read of
     * the message must not come here again. */
    __atomic_store_n(&chunk->from.file.backing->segment->doubtful, 1, __ATOMIC_RELEASE);
    errno = EIO;
    return -1;
}

static int flush(om_output *output, int fd, uint64_t *sent) {
    while (output->head) {
        ssize_t took = output->head->kind == OM_PIECE_FILE ? send_file(output, fd) : send_memory(output, fd);
        if (took >= 0) {
            *sent += (uint64_t)took;
            advance(output, (uint64_t)took);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return OM_E_FULL;
        } else if (errno != EINTR) {
            return OM_E_IO;
        }
    }
    return OM_OK;
}

/* Each sendfile sends what it has at once: a body that is a little longer than a packet is two of them. */
int om_output_flush(om_output *output, int fd, uint64_t *sent) {
    if (output->files < 2)
        return flush(output, fd, sent);
    om_socket_hold(fd, 1);
    int result = flush(output, fd, sent);
    om_socket_hold(fd, 0);
    return result;
}

static ssize_t read_file(const om_piece *chunk, uint8_t *out, size_t len) {
    ssize_t got;
    do
        got = pread(chunk->from.file.backing->fd, out, len, (off_t)(chunk->from.file.position + chunk->sent));
    while (got < 0 && errno == EINTR);
    return got;
}

int64_t om_output_drain(om_output *output, uint8_t *out, size_t cap) {
    size_t taken = 0;
    while (output->head && taken < cap) {
        om_piece *chunk = output->head;
        uint64_t left = chunk->len - chunk->sent;
        size_t len = left < cap - taken ? (size_t)left : cap - taken;
        if (chunk->kind == OM_PIECE_FILE) {
            ssize_t got = read_file(chunk, out + taken, len);
            if (got <= 0) {
                __atomic_store_n(&chunk->from.file.backing->segment->doubtful, 1, __ATOMIC_RELEASE);
                return OM_E_IO;
            }
            len = (size_t)got;
        } else {
            memcpy(out + taken, chunk_data(chunk), len);
        }
        taken += len;
        advance(output, len);
    }
    return (int64_t)taken;
}
