/* wal_write.c -- a sealed group on its way to the file, with as few copies as the file allows.
 *
 * Through the page cache all of it is one pwritev. O_DIRECT wants memory, lengths and places in the file in
 * whole blocks, and records lie anywhere, so they go through a staging buffer. All but the large ones: where
 * bytes are as far from a page in memory as they will be from a block in the file, the disk takes them from
 * where they are, and only what is left of a block before and behind them is staged:
 *
 *   memory   | om_buffer |......... data .............................|
 *            ^ page                ^ page            ^ page
 *   file     |  header  |......... data .............................|pad| next record
 *            ^ block    '- staged -'---- lent -------'---- staged ---...
 *
 * To make it so, such a record begins on a fresh block. The zeros before it are what readers know as the end
 * of a group: they go on at the next block, and there the chain goes on. */
#define _GNU_SOURCE
#include "wal/wal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

_Static_assert(sizeof(om_buffer) == OM_WAL_RECORD_HEADER, "data lies as far from a page as a payload from a block");
_Static_assert(OM_BUFFER_PAGE % OM_WAL_BLOCK == 0 && OM_BUFFER_LARGE <= OM_WAL_LOAN_MIN, "and what is lent is large");

#define PIECES 256 /* of one direct write */
#define GATHERED (OM_WAL_RANGES + 2 + 4 * OM_WAL_GROUP_LOANS)

/* ---- where records lie ---- */

uint64_t om_wal_place(const om_wal_group *group, const om_wal_loan *loan, uint64_t at) {
    if (!group->direct || loan == NULL)
        return at;
    uintptr_t start = (uintptr_t)loan->data - (loan->at - loan->record); /* if the whole record lay there */
    return start % OM_WAL_BLOCK == 0 ? om_wal_round(at, OM_WAL_BLOCK) : at;
}

/* ---- past the page cache ---- */

typedef struct direct {
    om_wal *wal;
    uint64_t offset; /* in the file: of what is gathered here */
    uint64_t len;    /* ... so much of it, whole blocks but for what is staged last */
    size_t staged;   /* bytes of the staging buffer in use */
    size_t piece;    /* where the last piece in it begins */
    int count;
    struct iovec pieces[PIECES];
} direct;

static void end_piece(direct *it) {
    if (it->staged > it->piece)
        it->pieces[it->count++] =
            (struct iovec){.iov_base = it->wal->staging + it->piece, .iov_len = it->staged - it->piece};
    it->piece = it->staged;
}

static int flush(direct *it) {
    end_piece(it);
    if (it->count > 0 && om_wal_file_write(it->wal->head_file->fd, it->pieces, it->count, it->offset) != OM_OK)
        return OM_E_IO;
    it->offset += it->len;
    it->len = it->staged = it->piece = 0;
    it->count = 0;
    return OM_OK;
}

static int stage(direct *it, const uint8_t *from, size_t len) {
    while (len > 0) {
        size_t room = OM_WAL_STAGING - it->staged;
        size_t part = len < room ? len : room;
        memcpy(it->wal->staging + it->staged, from, part);
        it->staged += part;
        it->len += part;
        from += part;
        len -= part;
        if (it->staged == OM_WAL_STAGING && flush(it) != OM_OK)
            return OM_E_IO;
    }
    return OM_OK;
}

/* Whole blocks, from a place in memory to one in the file. */
static int lend(direct *it, const uint8_t *from, size_t len) {
    end_piece(it);
    it->pieces[it->count++] = (struct iovec){.iov_base = (void *)from, .iov_len = len};
    it->len += len;
    return it->count + 2 > PIECES ? flush(it) : OM_OK;
}

static int write_direct(om_wal *wal, const struct iovec *iov, int iovcnt, uint64_t offset) {
    direct it = {.wal = wal, .offset = offset};
    int result = OM_OK;
    for (int i = 0; i < iovcnt && result == OM_OK; i++) {
        const uint8_t *from = iov[i].iov_base;
        size_t len = iov[i].iov_len;
        size_t head = (size_t) - (uintptr_t)from % OM_WAL_BLOCK;
        int fits = ((uintptr_t)from - (it.offset + it.len)) % OM_WAL_BLOCK == 0;
        if (fits && len >= head + OM_WAL_LOAN_MIN / 2) {
            size_t whole = (len - head) / OM_WAL_BLOCK * OM_WAL_BLOCK;
            result = stage(&it, from, head);
            if (result == OM_OK)
                result = lend(&it, from + head, whole);
            from += head + whole;
            len -= head + whole;
        }
        if (result == OM_OK)
            result = stage(&it, from, len);
    }
    return result == OM_OK ? flush(&it) : result;
}

/* ---- through it ---- */

/* A large group goes in slices: while we copy one, the disk has the one before. */
static int write_cached(om_wal *wal, struct iovec *iov, int iovcnt, uint64_t offset) {
    int fd = wal->head_file->fd;
    for (int next = 0; next < iovcnt;) {
        int first = next;
        uint64_t len = 0;
        while (next < iovcnt && len < OM_WAL_SLICE)
            len += iov[next++].iov_len;
        if (om_wal_file_write(fd, iov + first, next - first, offset) != OM_OK)
            return OM_E_IO;
        if (next < iovcnt) /* only begun: the sync that follows is what counts */
            sync_file_range(fd, (off_t)offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
        offset += len;
    }
    return OM_OK;
}

/* ---- the group ---- */

static const uint8_t zeros[OM_WAL_BLOCK];

/* Where its bytes are; `size` is how far into the group they begin, and end. */
static int gather(const om_wal_group *group, const om_wal_range *range, struct iovec *iov, uint64_t *size) {
    int count = 0;
    const uint8_t *data = range->buffer->data;
    uint32_t at = range->start;
    for (uint32_t i = range->loan; i < range->loans_end; i++) {
        const om_wal_loan *loan = &range->buffer->loans[i];
        uint64_t before = *size + (loan->record - at);
        uint64_t place = om_wal_place(group, loan, before);
        if (place > before) {
            if (loan->record > at)
                iov[count++] = (struct iovec){.iov_base = (void *)(data + at), .iov_len = loan->record - at};
            iov[count++] = (struct iovec){.iov_base = (void *)zeros, .iov_len = place - before};
            at = loan->record;
        }
        iov[count++] = (struct iovec){.iov_base = (void *)(data + at), .iov_len = loan->at - at};
        iov[count++] = (struct iovec){.iov_base = (void *)loan->data, .iov_len = loan->len};
        at = loan->at;
        *size = place + (loan->at - loan->record) + loan->len;
    }
    if (at < range->end)
        iov[count++] = (struct iovec){.iov_base = (void *)(data + at), .iov_len = range->end - at};
    *size += range->end - at;
    return count;
}

int om_wal_write_group(om_wal *wal, const om_wal_group *group) {
    uint8_t header[OM_WAL_BLOCK];
    struct iovec iov[GATHERED];
    int count = 0;
    uint64_t offset = wal->position, size = 0;
    if (wal->header_pending) { /* only this thread changes it now */
        om_wal_header_encode(&wal->head_file->header, header);
        iov[count++] = (struct iovec){.iov_base = header, .iov_len = sizeof header};
        offset = 0;
    }
    for (int i = 0; i < group->count; i++)
        count += gather(group, &group->ranges[i], iov + count, &size);
    if (size % OM_WAL_BLOCK != 0)
        iov[count++] = (struct iovec){.iov_base = (void *)zeros, .iov_len = OM_WAL_BLOCK - size % OM_WAL_BLOCK};
    if (group->direct) {
        int result = write_direct(wal, iov, count, offset);
        if (result == OM_OK || errno != EINVAL)
            return result;
        /* This file system took the flag and not the write. */
        atomic_store(&wal->direct, 0);
        om_wal_direct_set(wal->head_file->fd, 0);
    }
    return write_cached(wal, iov, count, offset);
}
