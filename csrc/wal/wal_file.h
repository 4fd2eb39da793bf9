/* wal_file.h -- the layout of a WAL file, and how files come, go round and go.
 *
 *   0      8         12      16       24              32          40     44    48
 *   | OTTERWAL | version | epoch | number | prev_last_seq | first_seq | seed | crc |  little-endian
 *
 * That is the header; it lies twice in the header block, at 0 and at 2048, so that one bad
 * sector doesn't take a file's identity. crc is CRC32C over the 44 bytes before it. Of two
 * valid copies that differ (a write torn between them) the one with the greater number counts.
 *
 * The name says nothing. A file is taken into use by renaming it and writing a header over the
 * old one; the two reach the disk in any order, or one of them only:
 *
 *   rename lost, header there   a file of the right number under an old name: believed
 *   rename there, header lost   still the file of the old number, long released: its records
 *                               lie below the checkpoint, or behind its successor's bound
 *   header there, group lost    an empty file at the end of the log
 *   group there, header lost    records of another epoch or number than the header's: not chained
 *
 * So a recycled file needs no sync of the directory. A new one does: it is filled under a
 * temporary name, synced, renamed to spare-*.wal and the directory synced, before anything is
 * written that must last. Left-over *.tmp files are removed at the next start.
 */
#ifndef OM_WAL_FILE_H
#define OM_WAL_FILE_H
#include "wal/wal.h"
#include <stdatomic.h>

#define OM_WAL_MAGIC "OTTERWAL"
#define OM_WAL_VERSION 1
#define OM_WAL_HEADER_LEN 48
#define OM_WAL_HEADER_COPY 2048
#define OM_WAL_MAKE_STEP (1u << 20)

/* A record's fields, and its flags. */
#define OM_WAL_AT_LEN 0
#define OM_WAL_AT_CRC 4
#define OM_WAL_AT_TYPE 8
#define OM_WAL_AT_FLAGS 9
#define OM_WAL_AT_MARK 10
#define OM_WAL_AT_EPOCH 12
#define OM_WAL_AT_SEQ 16
#define OM_WAL_AT_LOG_ID 24
#define OM_WAL_GROUP_START 1 /* the first record of a commit; its mark is set */
#define OM_WAL_CONTINUES 2   /* belongs to the part before it */

typedef struct om_wal_header {
    uint64_t number;        /* counts up from 1 */
    uint64_t prev_last_seq; /* nothing later of the files before is believed */
    uint64_t first_seq;     /* prev_last_seq + 1, or later when refused records lie between */
    uint32_t epoch;
    uint32_t seed; /* of the CRC chain; random, so that no other file's records fit */
} om_wal_header;

typedef struct om_wal_file {
    struct om_wal_file *next;
    om_wal_header header; /* number 0: never used */
    uint64_t last_seq;    /* once another file follows */
    uint64_t size;
    int fd;             /* -1: closed */
    uint8_t suspect;    /* a write or sync failed: not to be used again */
    uint8_t unreadable; /* neither copy of the header is right: left alone */
    char name[256];
} om_wal_file;

static inline uint64_t om_wal_round(uint64_t size, uint64_t unit) {
    return (size + unit - 1) / unit * unit;
}

/* A block of OM_WAL_BLOCK bytes. */
void om_wal_header_encode(const om_wal_header *header, uint8_t *block);
/* OM_OK; OM_END: a blank block; OM_E_UNSUPPORTED: another version; OM_E_CORRUPT. */
int om_wal_header_decode(const uint8_t *block, om_wal_header *header);
/* A new header with a random seed. */
void om_wal_header_make(om_wal_header *header, uint64_t number, uint32_t epoch, uint64_t prev_last_seq,
                        uint64_t first_seq);
/* What the first record of a group carries, so that a later group can be known for one even
 * when the chain before it is broken. The seed never leaves the file, so a payload can't fake it. */
uint16_t om_wal_group_mark(const om_wal_header *header, uint64_t seq, uint64_t position);

/* All *.wal files by number, headers read, closed again. Free with om_wal_files_free. */
int om_wal_files_list(int dir_fd, om_wal_file ***files, size_t *count, char *err, size_t err_len);
int om_wal_remove_temporaries(int dir_fd, char *err, size_t err_len);
void om_wal_files_free(om_wal_file **files, size_t count);
om_wal_file *om_wal_file_new(const char *name); /* closed; NULL: no memory */
int om_wal_file_open(int dir_fd, om_wal_file *file, int flags, char *err, size_t err_len);
/* The name that belongs to its number, if no other file has it. */
void om_wal_file_rename(int dir_fd, om_wal_file *file);
void om_wal_file_close(om_wal_file *file);
void om_wal_file_remove(int dir_fd, om_wal_file *file); /* and free */
/* All bytes of iov at offset; short writes are carried on. OM_OK or OM_E_IO (errno kept). */
int om_wal_file_write(int fd, struct iovec *iov, int iovcnt, uint64_t offset);

/* errno as a result: errors that may heal when something is given back, and those that may not. */
int om_wal_io_result(void);

/* wal_make.c: a new file, filled in steps. What fails leaves nothing behind; OM_E_NO_SPACE and
 * OM_E_NO_MEMORY may heal. */
typedef struct om_wal_making {
    om_wal_file *file;
    uint64_t filled;
    uint8_t *zeros;
    char spare[32]; /* the name it will have */
} om_wal_making;
int om_wal_make_begin(om_wal_making *making, int dir_fd, uint64_t size, char *err, size_t err_len);
/* At most OM_WAL_MAKE_STEP more, on the disk when it returns. */
int om_wal_make_step(om_wal_making *making, int dir_fd, uint64_t len, char *err, size_t err_len);
/* Filled, synced, with its name: a spare file, open. */
int om_wal_make_end(om_wal_making *making, int dir_fd, om_wal_file **file, char *err, size_t err_len);
void om_wal_make_drop(om_wal_making *making, int dir_fd);
/* All of it at once. */
int om_wal_file_create(int dir_fd, uint64_t size, om_wal_file **file, char *err, size_t err_len);

/* wal_prepare.c: copies of the files in use, and how far they are durable. */
int om_wal_files_in_use(om_wal *wal, om_wal_file ***files, size_t *count, uint64_t *durable_seq);
int om_wal_dir_fd(const om_wal *wal);
/* Out of the way, but kept: NAME.damaged. A file still needed in its place keeps its name too. */
int om_wal_file_set_aside(int dir_fd, const om_wal_file *file, int needed, char *err, size_t err_len);

/* wal_direct.c: 1: write past the page cache; 0: don't, or can't; OM_E_* with errno. wish as in
 * om_wal_options. Writes zeros into the first MiB of a file that is not yet in use. */
int om_wal_direct_choose(int fd, int wish);
int om_wal_direct_set(int fd, int on); /* OM_OK, or OM_E_UNSUPPORTED where the file system can't */

/* wal_fence.c: the fence file. OM_OK, OM_END: there is none, OM_E_CORRUPT, OM_E_IO. */
typedef struct om_wal_fence {
    uint64_t last_seq; /* the last good one of that epoch */
    uint32_t epoch;
} om_wal_fence;
int om_wal_fence_read(int dir_fd, om_wal_fence *fence, char *err, size_t err_len);
int om_wal_fence_write(int dir_fd, const om_wal_fence *fence);
void om_wal_fence_remove(int dir_fd);
#endif
