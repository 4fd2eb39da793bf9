/* wal_reader.c -- recovery: every record after a sequence, in order, and nothing that wasn't
 * written as the next one.
 *
 * A record is believed when its length fits the file, its epoch is the file's, its sequence is
 * the next and its CRC continues the chain. The first that isn't ends the file. Then the question
 * is whether that is the log's end or a hole:
 *
 *   a later file exists             its prev_last_seq says how far this one went; short of that: a hole
 *   a fence names this epoch        it says how far the epoch went; the same
 *   a later group in the same file  was written after this one was synced: a hole
 *   the caller's after_seq          was durable once, so the log must reach it
 *   none of these                   a torn or unwritten end: the log ends here
 *
 * Sequences up to after_seq may be missing; nobody needs them. Files are read with plain reads
 * in large pieces: a bad sector is an error here, not a signal. */
#define _GNU_SOURCE
#include "base/bytes.h"
#include "wal/wal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WINDOW (2u << 20) /* at most: more than the longest record */
#define NO_BOUND UINT64_MAX

struct om_wal_reader {
    int dir_fd;
    om_wal_file **files; /* by number, those with a header only */
    size_t count;
    size_t index; /* the one being read; count: none left */
    uint64_t after_seq;
    uint64_t live_bound; /* of a log that is open: what was durable; else NO_BOUND */
    om_wal_fence fence;
    om_wal_tail tail;
    uint64_t most_seq; /* no file can hold a later one */
    uint64_t bytes, total;
    int state; /* OM_OK, or how it ended */
    char error[320];

    /* the current file */
    om_wal_file *file;
    uint64_t bound;    /* nothing later of it is believed */
    uint64_t position; /* of the next record */
    uint64_t next_seq;
    uint32_t chain;

    /* a window of its bytes */
    uint8_t *window;
    size_t window_cap;
    uint64_t window_at;
    size_t window_len;

    /* a record in parts */
    uint8_t *joined;
    size_t joined_len, joined_cap;
    uint64_t joined_log;
    int joining;
};

static int fail(om_wal_reader *reader, int result, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(reader->error, sizeof reader->error, format, args);
    va_end(args);
    reader->state = result;
    return result;
}

/* ---- opening ---- */

/* Nothing later than this of the file is believed. */
static uint64_t bound_of(const om_wal_reader *reader, size_t index) {
    uint64_t bound = reader->live_bound;
    if (index + 1 < reader->count)
        bound = reader->files[index + 1]->header.prev_last_seq;
    if (reader->files[index]->header.epoch == reader->fence.epoch && reader->fence.last_seq < bound)
        bound = reader->fence.last_seq;
    return bound;
}

/* No record in it can have a higher sequence: there isn't room for so many. */
static uint64_t most_seq(const om_wal_file *file) {
    uint64_t room = file->size / OM_WAL_RECORD_HEADER;
    return file->header.first_seq > UINT64_MAX - room ? UINT64_MAX : file->header.first_seq + room;
}

/* Keep the files that have a header, and start at the first with a record that is needed. */
static int survey(om_wal_reader *reader, char *err, size_t err_len) {
    size_t kept = 0;
    for (size_t i = 0; i < reader->count; i++) {
        om_wal_file *file = reader->files[i];
        reader->files[i] = NULL;
        if (file->header.number == 0) {
            free(file);
            continue;
        }
        if (kept > 0 && reader->files[kept - 1]->header.number == file->header.number) {
            snprintf(err, err_len, "%s and %s are both WAL file %" PRIu64, reader->files[kept - 1]->name, file->name,
                     file->header.number);
            free(file);
            reader->count = kept;
            return OM_E_CORRUPT;
        }
        if (file->header.epoch > reader->tail.epoch)
            reader->tail.epoch = file->header.epoch;
        reader->tail.last_number = file->header.number;
        if (most_seq(file) > reader->most_seq)
            reader->most_seq = most_seq(file);
        reader->files[kept++] = file;
    }
    reader->count = kept;
    while (reader->index + 1 < kept && bound_of(reader, reader->index) <= reader->after_seq)
        reader->index++;
    for (size_t i = reader->index; i < kept; i++) {
        uint64_t size = reader->files[i]->size;
        reader->total += size;
        if (size > reader->window_cap)
            reader->window_cap = size < WINDOW ? (size_t)size : WINDOW;
    }
    if (kept > 0 && (reader->window = malloc(reader->window_cap)) == NULL) {
        snprintf(err, err_len, "out of memory");
        return OM_E_NO_MEMORY;
    }
    if (kept > 0) {
        uint64_t before = reader->files[reader->index]->header.prev_last_seq;
        reader->tail.last_seq = before < reader->after_seq ? before : reader->after_seq;
    }
    return OM_OK;
}

static om_wal_reader *reader_new(uint64_t after_seq) {
    om_wal_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return NULL;
    reader->after_seq = reader->most_seq = after_seq;
    reader->live_bound = NO_BOUND;
    reader->dir_fd = -1;
    return reader;
}

om_wal_reader *om_wal_reader_open(const char *dir, uint64_t after_seq, char *err, size_t err_len) {
    om_wal_reader *reader = reader_new(after_seq);
    if (reader == NULL) {
        snprintf(err, err_len, "out of memory");
        return NULL;
    }
    reader->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (reader->dir_fd < 0 && errno == ENOENT)
        return reader;
    int result = OM_OK;
    if (reader->dir_fd < 0) {
        snprintf(err, err_len, "opening %s: %m", dir);
        result = OM_E_IO;
    }
    if (result == OM_OK)
        result = om_wal_files_list(reader->dir_fd, &reader->files, &reader->count, err, err_len);
    if (result == OM_OK)
        result = om_wal_fence_read(reader->dir_fd, &reader->fence, err, err_len);
    if (result == OM_OK || result == OM_END) {
        reader->tail.epoch = reader->fence.epoch;
        result = survey(reader, err, err_len);
    }
    if (result == OM_OK)
        return reader;
    om_wal_reader_close(reader);
    return NULL;
}

om_wal_reader *om_wal_reader_live(om_wal *wal, uint64_t after_seq, char *err, size_t err_len) {
    om_wal_reader *reader = reader_new(after_seq);
    if (reader != NULL && om_wal_files_in_use(wal, &reader->files, &reader->count, &reader->live_bound) == OM_OK) {
        reader->dir_fd = openat(om_wal_dir_fd(wal), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (reader->dir_fd < 0)
            snprintf(err, err_len, "opening the WAL's folder: %m");
        else if (survey(reader, err, err_len) == OM_OK)
            return reader;
    } else {
        snprintf(err, err_len, "out of memory");
    }
    om_wal_reader_close(reader);
    return NULL;
}

void om_wal_reader_close(om_wal_reader *reader) {
    if (reader == NULL)
        return;
    om_wal_files_free(reader->files, reader->count);
    if (reader->dir_fd >= 0)
        close(reader->dir_fd);
    free(reader->window);
    free(reader->joined);
    free(reader);
}

void om_wal_reader_tail(const om_wal_reader *reader, om_wal_tail *tail) {
    *tail = reader->tail;
    tail->hole = reader->state == OM_E_CORRUPT;
    tail->next_seq = (tail->hole ? reader->most_seq : tail->last_seq) + 1;
    if (!tail->hole)
        tail->good_number = tail->last_number;
}

const char *om_wal_reader_error(const om_wal_reader *reader) {
    return reader->error;
}

uint64_t om_wal_reader_bytes(const om_wal_reader *reader, uint64_t *total) {
    *total = reader->total;
    if (reader->file == NULL)
        return reader->bytes;
    /* Padding reaches beyond the end of a file that was cut. */
    uint64_t size = reader->file->size;
    return reader->bytes + (reader->position < size ? reader->position : size);
}

/* ---- bytes ---- */

/* `need` bytes at `position` of the current file, in the window. OM_END: the file is shorter, and
 * so is the window then. */
static int load(om_wal_reader *reader, uint64_t position, size_t need, uint8_t **at) {
    uint64_t end = reader->window_at + reader->window_len;
    if (position < reader->window_at || position > end) {
        reader->window_at = position;
        reader->window_len = 0;
    } else if (position + need > end) {
        size_t skip = (size_t)(position - reader->window_at);
        reader->window_len -= skip;
        memmove(reader->window, reader->window + skip, reader->window_len);
        reader->window_at = position;
    }
    while (reader->window_at + reader->window_len < position + need) {
        ssize_t got = pread(reader->file->fd, reader->window + reader->window_len,
                            reader->window_cap - reader->window_len, (off_t)(reader->window_at + reader->window_len));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(reader, OM_E_IO, "reading %s at %" PRIu64 ": %m", reader->file->name,
                        reader->window_at + reader->window_len);
        if (got == 0)
            return OM_END;
        reader->window_len += (size_t)got;
    }
    *at = reader->window + (position - reader->window_at);
    return OM_OK;
}

/* ---- one record ---- */

typedef struct found {
    const uint8_t *record;
    uint32_t len;
    uint32_t crc;
} found;

/* OM_OK; OM_END: what lies there isn't the next record; OM_E_IO. */
static int parse(om_wal_reader *reader, found *found) {
    const om_wal_header *header = &reader->file->header;
    uint8_t *at;
    int result = load(reader, reader->position, 8, &at);
    if (result != OM_OK)
        return result;
    if (om_get_le32(at) == 0 && reader->position % OM_WAL_BLOCK != 0) {
        /* A group's padding: the next one starts with the next block. */
        reader->position = om_wal_round(reader->position, OM_WAL_BLOCK);
        result = load(reader, reader->position, 8, &at);
        if (result != OM_OK)
            return result;
    }
    uint32_t len = om_get_le32(at);
    if (len < OM_WAL_RECORD_HEADER || len > OM_WAL_RECORD_HEADER + OM_WAL_RECORD_MAX)
        return OM_END;
    result = load(reader, reader->position, len, &at);
    if (result != OM_OK)
        return result;
    if (om_get_le32(at + OM_WAL_AT_EPOCH) != header->epoch || om_get_le64(at + OM_WAL_AT_SEQ) != reader->next_seq ||
        at[OM_WAL_AT_TYPE] == 0)
        return OM_END;
    uint32_t crc = om_get_le32(at + OM_WAL_AT_CRC);
    om_put_le32(at + OM_WAL_AT_CRC, 0); /* as it was when the CRC was made */
    if (crc != om_crc32c(reader->chain, at, len))
        return OM_END;
    found->record = at;
    found->len = len;
    found->crc = crc;
    return OM_OK;
}

static int join(om_wal_reader *reader, const uint8_t *payload, size_t len) {
    if (len > reader->joined_cap - reader->joined_len) {
        size_t cap = reader->joined_cap == 0 ? 2 * OM_WAL_RECORD_MAX : reader->joined_cap;
        while (cap - reader->joined_len < len)
            cap *= 2;
        uint8_t *grown = realloc(reader->joined, cap);
        if (grown == NULL)
            return fail(reader, OM_E_NO_MEMORY, "out of memory joining a record of %zu bytes",
                        reader->joined_len + len);
        reader->joined = grown;
        reader->joined_cap = cap;
    }
    if (len > 0)
        memcpy(reader->joined + reader->joined_len, payload, len);
    reader->joined_len += len;
    return OM_OK;
}

/* Turn a chained record into one to give out: OM_OK, OM_END: not (yet), or OM_E_*. */
static int deliver(om_wal_reader *reader, const found *found, om_wal_record *out) {
    const uint8_t *payload = found->record + OM_WAL_RECORD_HEADER;
    size_t len = found->len - OM_WAL_RECORD_HEADER;
    uint8_t type = found->record[OM_WAL_AT_TYPE];
    uint64_t log_id = om_get_le64(found->record + OM_WAL_AT_LOG_ID);
    uint64_t seq = reader->tail.last_seq;
    int continues = (found->record[OM_WAL_AT_FLAGS] & OM_WAL_CONTINUES) != 0;
    if (!continues) {
        reader->joining = type == OM_WAL_PART;
        reader->joined_len = 0;
        reader->joined_log = log_id;
    } else if (!reader->joining || reader->joined_log != log_id) {
        /* Its first parts lie in a file that is gone: fine only if nobody needs it. */
        if (type == OM_WAL_PART || seq <= reader->after_seq)
            return OM_END;
        return fail(reader, OM_E_CORRUPT, "WAL sequence %" PRIu64 " ends a record whose first parts are missing", seq);
    }
    if (reader->joining) {
        int result = join(reader, payload, len);
        if (result != OM_OK)
            return result;
        if (type == OM_WAL_PART)
            return OM_END;
        reader->joining = 0;
        payload = reader->joined;
        len = reader->joined_len;
    }
    if (seq <= reader->after_seq)
        return OM_END;
    *out = (om_wal_record){.seq = seq,
                           .log_id = log_id,
                           .payload = payload,
                           .len = len,
                           .epoch = reader->file->header.epoch,
                           .type = type};
    return OM_OK;
}

/* ---- from file to file ---- */

static int missing(om_wal_reader *reader, uint64_t last) {
    uint64_t first = reader->tail.last_seq;
    if (first < reader->after_seq)
        first = reader->after_seq;
    return fail(reader, OM_E_CORRUPT, "WAL sequences %" PRIu64 " to %" PRIu64 " are missing (%s)", first + 1, last,
                reader->file->name);
}

static int open_next(om_wal_reader *reader) {
    om_wal_file *file = reader->files[reader->index];
    const om_wal_header *header = &file->header;
    uint64_t before = reader->tail.last_seq;
    uint32_t epoch = reader->file != NULL ? reader->file->header.epoch : 0;
    reader->file = file;
    if (header->prev_last_seq < before || header->epoch < epoch)
        return fail(reader, OM_E_CORRUPT, "%s goes back behind the WAL file before it", file->name);
    if (header->prev_last_seq > before && header->prev_last_seq > reader->after_seq)
        return missing(reader, header->prev_last_seq);
    if (header->epoch != epoch || header->first_seq != before + 1)
        reader->joining = 0; /* the rest of it was never written */
    char err[256];
    int result = om_wal_file_open(reader->dir_fd, file, O_RDONLY, err, sizeof err);
    if (result != OM_OK)
        return fail(reader, OM_E_IO, "%s", err);
    posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    reader->bound = bound_of(reader, reader->index);
    reader->tail.last_seq = header->first_seq - 1;
    reader->tail.good_number = header->number;
    reader->position = OM_WAL_BLOCK;
    reader->next_seq = header->first_seq;
    reader->chain = header->seed;
    reader->window_at = reader->window_len = 0;
    return OM_OK;
}

/* The first sequence of a group that begins after the place where the chain broke; 0: none. */
static int later_group(om_wal_reader *reader, uint64_t *seq) {
    const om_wal_header *header = &reader->file->header;
    uint8_t *at;
    *seq = 0;
    for (uint64_t block = om_wal_round(reader->position, OM_WAL_BLOCK);; block += OM_WAL_BLOCK) {
        int result = load(reader, block, OM_WAL_RECORD_HEADER, &at);
        if (result != OM_OK)
            return result == OM_END ? OM_OK : result;
        uint64_t found = om_get_le64(at + OM_WAL_AT_SEQ);
        if ((at[OM_WAL_AT_FLAGS] & OM_WAL_GROUP_START) && found > reader->next_seq &&
            om_get_le32(at + OM_WAL_AT_EPOCH) == header->epoch &&
            om_get_le16(at + OM_WAL_AT_MARK) == om_wal_group_mark(header, found, block)) {
            *seq = found;
            return OM_OK;
        }
    }
}

/* The chain ended: is anything missing? OM_OK: go on with the next file. */
static int end_file(om_wal_reader *reader) {
    uint64_t last = reader->tail.last_seq;
    if (reader->bound != NO_BOUND && last < reader->bound && reader->bound > reader->after_seq)
        return missing(reader, reader->bound);
    if (reader->bound == NO_BOUND) {
        uint64_t group;
        int result = later_group(reader, &group);
        if (result != OM_OK)
            return result;
        if (group != 0)
            return missing(reader, group - 1);
    }
    om_wal_file_close(reader->file);
    reader->bytes += reader->file->size;
    reader->tail.good_end = om_wal_round(reader->position, OM_WAL_BLOCK);
    reader->position = 0;
    reader->index++;
    return OM_OK;
}

static int end_log(om_wal_reader *reader) {
    reader->file = NULL;
    if (reader->tail.last_seq >= reader->after_seq) {
        reader->state = OM_END;
        return OM_END;
    }
    return fail(reader, OM_E_CORRUPT,
                "the WAL ends at sequence %" PRIu64 ", but %" PRIu64 " was durable once: whatever "
                "came after it is missing",
                reader->tail.last_seq, reader->after_seq);
}

static int in_file(const om_wal_reader *reader) {
    return reader->index < reader->count && reader->file == reader->files[reader->index] && reader->file->fd >= 0;
}

int om_wal_reader_next(om_wal_reader *reader, om_wal_record *record) {
    while (reader->state == OM_OK) {
        if (reader->index == reader->count)
            return end_log(reader);
        if (!in_file(reader)) {
            open_next(reader);
            continue;
        }
        found found;
        int result = reader->tail.last_seq < reader->bound ? parse(reader, &found) : OM_END;
        if (result == OM_END) {
            end_file(reader);
            continue;
        }
        if (result != OM_OK)
            return result;
        reader->chain = found.crc;
        reader->tail.last_seq = reader->next_seq++;
        reader->position += om_wal_round(found.len, 8);
        result = deliver(reader, &found, record);
        if (result != OM_END)
            return result;
    }
    return reader->state;
}
