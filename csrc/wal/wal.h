/* wal.h -- the shared write-ahead log: one for the broker.
 *
 *   data/wal/0000000000000007.wal          a fixed size, zero-filled once, recycled for ever
 *   | header block 4 KiB | group | group | ... | old bytes of an earlier lap, never believed
 *
 *   group (one commit): starts on a fresh 4 KiB block, records 8-byte aligned, zero padded
 *   record: | len u32 | crc u32 | type u8 | flags u8 | mark u16 | epoch u32 | seq u64 | log id u64 | payload | pad |
 *     len = 32 + payload; crc = CRC32C over len bytes with crc = 0, seeded with the crc of the
 *     record before (the first of a file: with the seed in that file's header).
 *     flags and mark show the first record of a group and the later parts of a long record.
 *
 * A file is known by the number in its header, not by its name: header = magic, version,
 * number, epoch (goes up with each start and each un-fencing), last seq before this file
 * (`prev_last_seq`), first seq, chain seed, its own CRC; kept twice (wal_file.h). A successor's
 * prev_last_seq bounds what is believed of its predecessor, and a sequence missing before it is
 * a hole: reported, never stepped over. A payload over OM_WAL_RECORD_MAX is cut into parts (all
 * but the last have type OM_WAL_PART), each with a sequence of its own; the reader joins them,
 * and a record whose last part isn't there never happened: that is what makes atomic records of
 * any length. docs/wal.md describes every byte.
 *
 * Threads: appends and submits come from one thread at a time (the caller holds the store's
 * lock); the committer takes what has gathered, chains the CRCs, writes, syncs, publishes;
 * the preparer zero-fills files ahead. Nothing here blocks the caller on a disk.
 */
#ifndef OM_WAL_H
#define OM_WAL_H
#include "base/buffer.h"
#include "om_inspect.h"
#include <sys/uio.h>

#define OM_WAL_BLOCK 4096
#define OM_WAL_RECORD_HEADER 32
#define OM_WAL_RECORD_MAX 524288

#define OM_WAL_PART 1
/* the types above 1 belong to the store (store/wal_records.h) */

typedef struct om_wal om_wal;

typedef struct om_wal_options {
    uint64_t file_size;         /* a multiple of 4 KiB, at least 1 MiB */
    uint64_t max_size;          /* all files together: at least 3 files */
    uint64_t reserve;           /* share of max_size kept for settles; leaves at least 2 files */
    uint64_t batch_max_size;    /* a commit takes at most this much at once */
    uint64_t backlog_max;       /* unsynced bytes in memory before appends get FULL */
    uint32_t batch_max_wait_us; /* how long a commit may wait for company; 0: never */
    uint32_t lazy_sync_ms;      /* lazy records are synced after this at the latest (1000) */
    int flush_immediate;        /* each submit is a commit of its own */
    int direct_io;              /* 0 off, 1 on, 2 measure at open and choose */
} om_wal_options;

enum om_wal_class { OM_WAL_APPEND, OM_WAL_SETTLE };

/* The reader's result at its end; all zero for a new log. After a hole, records past it are not
 * believed: files past good_number are set aside as *.damaged when the log is opened, and
 * sequences go on past any that those files may hold. */
typedef struct om_wal_tail {
    uint64_t last_seq; /* of the last record believed */
    uint64_t next_seq; /* the next to give out */
    uint64_t last_number;
    uint64_t good_number;
    uint64_t good_end; /* of what that file holds; 0: not known */
    uint32_t epoch;
    uint32_t hole; /* 1: it ended at one */
} om_wal_tail;

/* Starts a new file with a new epoch; files that hold records > released_seq stay, the
 * others are recycled. Makes the folder if it isn't there. err gets one line of text when NULL
 * comes back; `after` must be what the reader of this very folder said. */
om_wal *om_wal_open(const char *dir, const om_wal_options *options, const om_wal_tail *after, uint64_t released_seq,
                    char *err, size_t err_len);
/* Commits what was appended, stops the threads. OM_E_FENCED if that failed. */
int om_wal_close(om_wal *wal);

/* -- the store's side -- */
/* OM_OK, OM_E_FULL, OM_E_FENCED, or for appends OM_E_NO_SPACE (no file left and no disk space
 * for a new one; heals): a state to look at before taking work in. A record that is admitted is
 * always taken, whatever its length (the limits are soft by one record). */
int om_wal_admit(const om_wal *wal, enum om_wal_class klass);
/* Copies the payload into the open group; returns its sequence (of its last part). 0: fenced, out
 * of memory, or a type that is ours (0, OM_WAL_PART); nothing was taken then. */
uint64_t om_wal_append(om_wal *wal, uint8_t type, uint64_t log_id, const struct iovec *iov, int iovcnt);
/* The same with the last piece of iov, part of `lender`, not copied if it is large: held until it is
 * synced, and not to be changed. */
uint64_t om_wal_append_lent(om_wal *wal, uint8_t type, uint64_t log_id, const struct iovec *iov, int iovcnt,
                            om_buffer *lender);
/* End of a tick: hand what was appended since the last one to the committer. lazy: with the next
 * group, or within lazy_sync_ms, or once somebody waits for it. */
void om_wal_submit(om_wal *wal, int lazy);
uint64_t om_wal_last_seq(const om_wal *wal);
uint64_t om_wal_durable_seq(const om_wal *wal); /* of the last whole record; atomic, any thread */
/* The eventfd that becomes readable when durable_seq moves, the WAL is fenced, or room
 * returns. Owned by the caller (the store); set once before the first append. */
void om_wal_notify_fd(om_wal *wal, int event_fd);
/* Block until seq is durable, in any thread but the engine's. OM_OK, OM_E_FENCED, OM_E_TIMEOUT. */
int om_wal_wait(om_wal *wal, uint64_t seq, int timeout_ms);

/* -- the checkpoint's side -- */
/* No record <= seq, which is a whole one's, is needed any more: recycle. The checkpoint that says
 * so must be on disk. */
void om_wal_release(om_wal *wal, uint64_t seq);
uint64_t om_wal_used(const om_wal *wal); /* bytes between the oldest needed and the head */

/* -- faults -- */
/* There is no spare file, no space for one, and what is left of the head is for settles: appends are
 * refused with NO_SPACE. */
int om_wal_starved(const om_wal *wal);
/* ... and that is used up, too: what was taken waits. */
int om_wal_stands_still(const om_wal *wal);
/* A failed write or sync fences: durable_seq stops for good in this epoch, records past it
 * are refused. Before the fence shows, the failed group's first block is overwritten with
 * zeros and `fence` (epoch, last good seq; checksummed, synced, replaced atomically) is
 * written, so that nothing refused comes back after a restart. fence_kept = 0: neither could
 * be made to stick (the disk is dead); callers must then leave the outcome open, not refuse. */
int om_wal_fenced(const om_wal *wal, int *fence_kept, char *text, size_t text_len);
/* The operator acted: a new file, a new epoch; sequences go on after the refused ones. To be
 * called when the appending side has seen the fence and refused whatever it had past durable_seq;
 * its lock isn't needed (appends return 0 until this is over), and a block is synced here. */
int om_wal_unfence(om_wal *wal, char *err, size_t err_len);

typedef struct om_wal_stat {
    uint64_t groups, bytes, records; /* commits; what they wrote, padding included; parts count */
    uint64_t sync_ns;                /* spent in fdatasync */
    uint64_t files, spare_files;
    int direct_io; /* as chosen */
} om_wal_stat;
void om_wal_stat_get(const om_wal *wal, om_wal_stat *out);

/* -- recovery (wal_reader.c): before om_wal_open, which goes on where the reader ended -- */
void om_wal_reader_tail(const om_wal_reader *reader, om_wal_tail *tail);
uint64_t om_wal_reader_bytes(const om_wal_reader *reader, uint64_t *total); /* for a progress bar */
/* The same for a log that is open: what is durable now. Nothing past after_seq may be released
 * until it is closed. */
om_wal_reader *om_wal_reader_live(om_wal *wal, uint64_t after_seq, char *err, size_t err_len);
#endif
