/* fuzz_wal.c -- recovery from WAL files that anything may have happened to.
 *
 * An input is a compact picture of one or two files, unfolded into a folder in memory:
 *
 *   | mode u8 | after_seq u8 | file | file |
 *   file: | header, 48 bytes | chunks u8 | chunk: len u16, bytes; each on a fresh 4 KiB block |
 *   mode: 1 headers get their CRCs, 2 records get epoch, sequence, mark and chained CRC,
 *         4 a fence ends epoch 1 at sequence 2, 8 the last file is cut behind its last byte
 *
 * Few mutations survive a chained CRC: the modes let those that are left alone go deep. What is
 * promised is checked: sequences grow, payloads lie in memory that is theirs and are no longer
 * than the files together, and reading again gives the same.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I csrc tests/fuzz/fuzz_wal.c csrc/[a-z]*.c
 */
#include "base/bytes.h"
#include "wal/wal_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 2
#define BLOCKS 16

static const char *const NAMES[FILES] = {"1.wal", "2.wal"};

enum mode { FIX_HEADERS = 1, FIX_RECORDS = 2, WITH_FENCE = 4, CUT_SHORT = 8 };

#define PROMISE(holds)                                                                                                 \
    do {                                                                                                               \
        if (!(holds))                                                                                                  \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static size_t take(input *input, uint8_t *to, size_t len) {
    size_t got = len < input->left ? len : input->left;
    memcpy(to, input->at, got);
    memset(to + got, 0, len - got);
    input->at += got;
    input->left -= got;
    return got;
}

static uint8_t take_byte(input *input) {
    uint8_t byte;
    take(input, &byte, 1);
    return byte;
}

typedef struct image {
    uint8_t bytes[(BLOCKS + 1) * OM_WAL_BLOCK];
    size_t starts[BLOCKS]; /* of chunks */
    size_t ends[BLOCKS];
    size_t chunks;
    size_t len;
} image;

static void unfold(input *input, image *image) {
    memset(image, 0, sizeof *image);
    take(input, image->bytes, OM_WAL_HEADER_LEN);
    image->len = OM_WAL_BLOCK;
    size_t count = take_byte(input);
    while (image->chunks < count && image->chunks < BLOCKS && input->left > 0) {
        uint8_t prefix[2];
        take(input, prefix, 2);
        size_t start = om_wal_round(image->len, OM_WAL_BLOCK);
        size_t room = sizeof image->bytes - start;
        size_t len = om_get_le16(prefix);
        if (len > room)
            break;
        image->starts[image->chunks] = start;
        image->len = start + take(input, image->bytes + start, len);
        image->ends[image->chunks++] = image->len;
    }
}

static void fix_header(image *image) {
    memcpy(image->bytes, OM_WAL_MAGIC, 8);
    om_put_le32(image->bytes + 8, OM_WAL_VERSION);
    om_put_le32(image->bytes + 44, om_crc32c(0, image->bytes, 44));
    memcpy(image->bytes + OM_WAL_HEADER_COPY, image->bytes, OM_WAL_HEADER_LEN);
}

/* Lengths, types, flags other than the group's, log ids and payloads stay as they are. */
static void fix_records(image *image) {
    om_wal_header header;
    if (om_wal_header_decode(image->bytes, &header) != OM_OK)
        return;
    uint32_t chain = header.seed;
    uint64_t seq = header.first_seq;
    for (size_t chunk = 0; chunk < image->chunks; chunk++) {
        for (size_t at = image->starts[chunk]; at + OM_WAL_RECORD_HEADER <= image->ends[chunk];) {
            uint8_t *record = image->bytes + at;
            uint32_t len = om_get_le32(record);
            if (len < OM_WAL_RECORD_HEADER || len > image->ends[chunk] - at)
                break;
            if (at == image->starts[chunk]) {
                record[OM_WAL_AT_FLAGS] |= OM_WAL_GROUP_START;
                om_put_le16(record + OM_WAL_AT_MARK, om_wal_group_mark(&header, seq, at));
            }
            om_put_le32(record + OM_WAL_AT_EPOCH, header.epoch);
            om_put_le64(record + OM_WAL_AT_SEQ, seq++);
            om_put_le32(record + OM_WAL_AT_CRC, 0);
            chain = om_crc32c(chain, record, len);
            om_put_le32(record + OM_WAL_AT_CRC, chain);
            at += om_wal_round(len, 8);
        }
    }
}

static void write_file(int dir_fd, const char *name, const uint8_t *bytes, size_t len) {
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    PROMISE(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
}

typedef struct outcome {
    int opened, result;
    uint64_t records, bytes, sum;
    om_wal_tail tail;
} outcome;

static void read_log(const char *dir, uint64_t after_seq, size_t total, outcome *outcome) {
    char err[256];
    uint64_t progress;
    om_wal_record record;
    memset(outcome, 0, sizeof *outcome);
    om_wal_reader *reader = om_wal_reader_open(dir, after_seq, err, sizeof err);
    if (reader == NULL)
        return;
    outcome->opened = 1;
    uint64_t last = after_seq;
    while ((outcome->result = om_wal_reader_next(reader, &record)) == OM_OK) {
        PROMISE(record.seq > last && record.type > OM_WAL_PART);
        last = record.seq;
        outcome->records++;
        outcome->bytes += record.len;
        for (size_t i = 0; i < record.len; i++)
            outcome->sum = outcome->sum * 31 + record.payload[i];
        PROMISE(om_wal_reader_bytes(reader, &progress) <= progress);
    }
    om_wal_reader_tail(reader, &outcome->tail);
    PROMISE(outcome->result == OM_END || outcome->result == OM_E_CORRUPT);
    PROMISE((outcome->result == OM_E_CORRUPT) == (om_wal_reader_error(reader)[0] != 0));
    PROMISE(outcome->records == 0 || outcome->tail.last_seq >= last);
    PROMISE(outcome->bytes <= total);
    om_wal_reader_close(reader);
}

/* A folder in memory; each input leaves it as it found it. */
static int open_folder(char *path, size_t len) {
    snprintf(path, len, "%s/ottermq-fuzz-wal-%d", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (int)getpid());
    mkdir(path, 0755);
    return open(path, O_RDONLY | O_DIRECTORY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[PATH_MAX];
    input input = {.at = data, .left = size};
    uint8_t mode = take_byte(&input);
    uint64_t after_seq = take_byte(&input);
    size_t total = 0;
    image *image = malloc(sizeof *image);
    int dir_fd = open_folder(path, sizeof path);
    PROMISE(image != NULL && dir_fd >= 0);
    for (int i = 0; i < FILES; i++) {
        unlinkat(dir_fd, NAMES[i], 0);
        if (i > 0 && input.left == 0)
            break;
        unfold(&input, image);
        if (mode & FIX_HEADERS)
            fix_header(image);
        if (mode & FIX_RECORDS)
            fix_records(image);
        size_t len = mode & CUT_SHORT ? image->len : om_wal_round(image->len, OM_WAL_BLOCK);
        write_file(dir_fd, NAMES[i], image->bytes, len);
        total += len;
    }
    unlinkat(dir_fd, "fence", 0);
    if (mode & WITH_FENCE) {
        om_wal_fence fence = {.epoch = 1, .last_seq = 2};
        PROMISE(om_wal_fence_write(dir_fd, &fence) == OM_OK);
    }
    outcome once, twice;
    read_log(path, after_seq, total, &once);
    read_log(path, after_seq, total, &twice);
    PROMISE(memcmp(&once, &twice, sizeof once) == 0);
    for (int i = 0; i < FILES; i++)
        unlinkat(dir_fd, NAMES[i], 0);
    unlinkat(dir_fd, "fence", 0);
    close(dir_fd);
    rmdir(path);
    free(image);
    return 0;
}
