/* chunk_reader.c -- see chunk_reader.h. */
#define _GNU_SOURCE
#include "segment/chunk_reader.h"

#include "base/file_util.h"
#include "segment/file_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fits the second-level cache: read there, checked there. */
#define CHUNK (256 * 1024)
#define CRC_FROM 21 /* the first byte of a batch that its CRC covers */
#define SECTOR 4096 /* the least that is given up for lost */

int om_chunk_reader_open(om_chunk_reader *chunks, int fd) {
    struct stat info;
    if (fstat(fd, &info) < 0)
        return om_errno_result();
    *chunks = (om_chunk_reader){.fd = fd, .size = (uint64_t)info.st_size};
    chunks->cap = chunks->size < CHUNK ? (size_t)chunks->size + 1 : CHUNK;
    chunks->data = malloc(chunks->cap);
    return chunks->data ? OM_OK : OM_E_NO_MEMORY;
}

void om_chunk_reader_close(om_chunk_reader *chunks) {
    free(chunks->data);
    free(chunks->lost);
}

/* ---- unreadable sectors ---------------------------------------------------------------- */

static uint32_t lost_from(const om_chunk_reader *chunks, uint64_t at) {
    uint32_t i = 0;
    while (i < chunks->lost_count && chunks->lost[i].to <= at)
        i++;
    return i;
}

static int is_lost(const om_chunk_reader *chunks, uint64_t from, uint64_t to) {
    uint32_t i = lost_from(chunks, from);
    return i < chunks->lost_count && chunks->lost[i].from < to;
}

static int note_lost(om_chunk_reader *chunks, uint64_t from, uint64_t to) {
    uint32_t i = lost_from(chunks, from);
    if (i < chunks->lost_count && chunks->lost[i].from <= from && chunks->lost[i].to >= to)
        return OM_OK;
    if (i && chunks->lost[i - 1].to == from) {
        chunks->lost[i - 1].to = to;
        return OM_OK;
    }
    if (chunks->lost_count == chunks->lost_cap) {
        uint32_t cap = chunks->lost_cap ? chunks->lost_cap * 2 : 8;
        om_lost *lost = realloc(chunks->lost, cap * sizeof *lost);
        if (!lost)
            return OM_E_NO_MEMORY;
        chunks->lost = lost;
        chunks->lost_cap = cap;
    }
    memmove(&chunks->lost[i + 1], &chunks->lost[i], (chunks->lost_count - i) * sizeof *chunks->lost);
    chunks->lost[i] = (om_lost){from, to};
    chunks->lost_count++;
    return OM_OK;
}

/* ---- reading --------------------------------------------------------------------------- */

/* Add up to `most` bytes at the end of the chunk. OM_END: the file ends here. */
static int read_some(om_chunk_reader *chunks, size_t most) {
    uint64_t at = chunks->start + chunks->len;
    ssize_t got;
    do
        got = pread(chunks->fd, chunks->data + chunks->len, most, (off_t)at);
    while (got < 0 && errno == EINTR);
    size_t sector = SECTOR - (size_t)(at % SECTOR);
    if (got < 0 && errno == EIO && chunks->tolerant && most > sector)
        return read_some(chunks, sector); /* only what is bad is lost */
    if (got < 0 && errno == EIO && chunks->tolerant) {
        memset(chunks->data + chunks->len, 0, most);
        int result = note_lost(chunks, at, at + most);
        chunks->len += most;
        return result;
    }
    if (got < 0)
        return om_errno_result();
    chunks->len += (size_t)got;
    return got ? OM_OK : OM_END;
}

int om_chunk_at(om_chunk_reader *chunks, uint64_t at, size_t need, const uint8_t **data, size_t *got) {
    size_t left = chunks->size - at < chunks->cap ? (size_t)(chunks->size - at) : chunks->cap;
    int inside = at >= chunks->start && at <= chunks->start + chunks->len;
    size_t have = inside ? (size_t)(chunks->start + chunks->len - at) : 0;
    if (have < need && have < left) {
        if (have)
            memmove(chunks->data, chunks->data + (at - chunks->start), have);
        chunks->start = at;
        chunks->len = have;
        while (chunks->len < left) {
            int result = read_some(chunks, left - chunks->len);
            if (result == OM_END) {
                chunks->size = at + chunks->len; /* cut while we read */
                break;
            }
            if (result != OM_OK)
                return result;
        }
        have = chunks->len;
    }
    *data = chunks->data + (at - chunks->start);
    *got = have;
    return OM_OK;
}

int om_chunk_reader_check(om_chunk_reader *chunks, uint64_t at, const om_batch_info *batch) {
    uint32_t crc = 0;
    uint64_t begin = at, end = at + (uint64_t)batch->size;
    for (at += CRC_FROM; at < end;) {
        const uint8_t *data;
        size_t got, want = end - at < chunks->cap ? (size_t)(end - at) : chunks->cap;
        int result = om_chunk_at(chunks, at, want, &data, &got);
        if (result != OM_OK)
            return result;
        if (got < want)
            return OM_E_SHORT;
        crc = om_crc32c(crc, data, want);
        at += want;
    }
    return crc == batch->crc && !is_lost(chunks, begin, end) ? OM_OK : OM_E_CORRUPT;
}
