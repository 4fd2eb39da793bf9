/* wal_internal.h -- the inside of the WAL, shared by its few files only.
 *
 *   wal_open.c     open and close
 *   wal.c          append, submit, admit, wait
 *   wal_commit.c   the committer: seal a group, write, sync, publish
 *   wal_write.c    a group's bytes into the file
 *   wal_make.c     a new file
 *   wal_prepare.c  the files in use, the spare ones, and the thread that makes them
 *   wal_fence.c    what happens when a write or sync fails, and how it goes on
 *
 * The way of the bytes: a chain of 1 MiB buffers from the oldest that isn't synced to the one
 * being appended to. Submitting only moves a mark, so the engine goes on in the same buffer
 * while the committer chains, writes and syncs what lies before the mark:
 *
 *      head                            tail = open
 *      | taken      | submitted (full) |-> | submitted | appended | room |
 *      '-- synced --'----- next group ------------'
 *
 * A large payload isn't copied there but lent: its record has its header and its padding in the
 * buffer, and a loan says what belongs between them.
 *
 * Who may touch what: `open`, `from` and `used` belong to the appending side; `taken` and the
 * head file's position to the committer; what the lock guards is marked. While the fence is up
 * the appending side is barred, and the thread that lifts it owns everything.
 */
#ifndef OM_WAL_INTERNAL_H
#define OM_WAL_INTERNAL_H
#include "wal/wal_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define OM_WAL_BUFFER ((1u << 20) + OM_WAL_BLOCK) /* two full records fit */
#define OM_WAL_POOL_MAX 8
#define OM_WAL_RANGES 62 /* buffers in one group; with header and padding, one iovec */
#define OM_WAL_STAGING (1u << 20)
#define OM_WAL_SLICE (1u << 20) /* of a large group: its write-back begins while the next is copied */

#define OM_WAL_LOAN_MIN (32u << 10)
#define OM_WAL_LOANS 64        /* in one buffer */
#define OM_WAL_GROUP_LOANS 448 /* in one group: two iovecs each */

typedef struct om_wal_loan {
    uint32_t record; /* where in the buffer it starts */
    uint32_t at;     /* ... and where these bytes belong */
    uint32_t len;
    const uint8_t *data;
    om_buffer *lender; /* held */
} om_wal_loan;

typedef struct om_wal_buffer {
    struct om_wal_buffer *next;
    uint8_t *data;
    uint32_t used, loans_used;
    uint32_t submitted, loans_submitted; /* under the lock */
    uint32_t taken, loans_taken;
    om_wal_loan loans[OM_WAL_LOANS];
} om_wal_buffer;

typedef struct om_wal_range {
    om_wal_buffer *buffer;
    uint32_t start, end;
    uint32_t loan, loans_end; /* what belongs between these bytes */
} om_wal_range;

typedef struct om_wal_group {
    om_wal_range ranges[OM_WAL_RANGES];
    int count;
    int direct;              /* written past the page cache: large records begin on a block */
    int leftover;            /* not all that was queued fits */
    uint64_t bytes, records; /* as they were appended */
    uint64_t size;           /* ... and so much of the file, to the end of the last record */
    uint64_t first_seq, last_seq;
    uint64_t whole_seq; /* the last one that isn't a part with more to come; 0: none */
    uint64_t urgent_since, lazy_deadline;
} om_wal_group;

/* Is a next file sure? It is when a spare one is there, or one has its space; until the preparer has tried, nobody
 * knows. While it isn't, appends leave room for settles in the head. */
enum om_wal_lean { OM_WAL_NOT_LEAN, OM_WAL_MAYBE_LEAN, OM_WAL_LEAN };

/* What would wake the committer: nothing (it is awake); any submit; an urgent one or a full
 * group; a full group. */
enum om_wal_sleep { OM_WAL_AWAKE, OM_WAL_IDLE, OM_WAL_LAZY, OM_WAL_GATHERING };

struct om_wal {
    /* -- fixed while it is open -- */
    om_wal_options options;
    int dir_fd;
    uint32_t buffer_size;
    uint64_t group_max; /* bytes of one group */
    uint64_t max_files;
    pthread_t committer, preparer;
    int started; /* threads to join */

    /* -- the appending side -- */
    _Alignas(64) om_wal_buffer *open;
    om_wal_buffer *from; /* the first buffer with bytes not yet submitted */
    uint8_t *last_record;
    uint64_t submitted_bytes;
    atomic_uint_fast64_t appended; /* bytes, ever */
    atomic_uint_fast64_t last_seq;

    /* -- the committer; read by all -- */
    _Alignas(64) atomic_uint_fast64_t durable_seq;
    atomic_uint_fast64_t committed; /* bytes of `appended` that are synced or dropped */
    atomic_uint_fast64_t used;
    atomic_uint_fast32_t epoch;
    atomic_int fenced, starved, notify_fd, stop;
    atomic_int lean;                /* enum om_wal_lean */
    atomic_uint_fast64_t head_room; /* bytes that the head can still take */
    atomic_uint_fast64_t kept;      /* of them, what isn't for settles (om_wal_kept_of) */
    atomic_int direct;
    atomic_uint_fast64_t groups, group_bytes, group_records, sync_ns;
    om_wal_file *head_file; /* changed under the lock; the file itself is the committer's */
    uint64_t position;      /* of the next group in it */
    uint64_t last_number;   /* of any header ever written, or tried to */
    uint64_t chain_seq;     /* the last sequence in the log's chain */
    uint32_t chain;         /* the CRC the next record is seeded with */
    uint8_t *staging;       /* direct writes go through it */

    /* -- under the lock -- */
    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t work;    /* the committer sleeps here */
    pthread_cond_t room;    /* ... and here for a file */
    pthread_cond_t prepare; /* the preparer */
    pthread_cond_t done;    /* waits for a sequence */
    om_wal_buffer *head, *tail, *pool;
    uint32_t pool_count;
    uint64_t queued;        /* bytes submitted, not taken */
    uint64_t urgent_seq;    /* the last one submitted urgently */
    uint64_t wanted_seq;    /* the last one somebody waits for */
    uint64_t urgent_since;  /* ns; 0: nothing urgent queued */
    uint64_t lazy_deadline; /* ns; 0: nothing lazy queued */
    enum om_wal_sleep sleep;
    int waiters;
    om_wal_file *oldest; /* files in use, by number, to head_file */
    om_wal_file *spares, *surplus;
    uint64_t live_files, spare_files, making_files;
    int header_pending; /* head_file's header goes with its first group: not on disk yet */
    int preparing;      /* the preparer is making a file right now */
    int hurry;          /* ... and the committer waits for it */
    uint64_t released_seq;
    uint64_t sealed_bytes; /* of the files in use without the head */
    uint64_t head_bytes;
    struct {
        uint64_t first, last;
    } * refused; /* by each fence that was lifted, oldest first */
    size_t refused_count;
    int fence_kept;
    char fence_text[512];
};

static inline uint64_t om_wal_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline struct timespec om_wal_timespec(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

/* wal.c */
void om_wal_notify(om_wal *wal);
void om_wal_buffer_free(om_wal *wal, om_wal_buffer *buffer); /* to the pool; with the lock held */
void om_wal_buffers_delete(om_wal_buffer *buffer);
void om_wal_drop_buffers(om_wal *wal); /* all that isn't synced; nobody else may be using them */

/* wal_commit.c */
void *om_wal_commit_main(void *wal);

/* wal_write.c */
/* Where in its group, not before `at`, a record with this loan (NULL: without one) begins. */
uint64_t om_wal_place(const om_wal_group *group, const om_wal_loan *loan, uint64_t at);
int om_wal_write_group(om_wal *wal, const om_wal_group *group);

/* wal_prepare.c */
void *om_wal_prepare_main(void *wal);
/* A spare file, or a new one, open and with a header for what comes next; not yet in use. */
int om_wal_take_file(om_wal *wal, uint32_t epoch, uint64_t prev_last_seq, uint64_t first_seq, om_wal_file **file,
                     char *err, size_t err_len);
/* Write and sync its header block by itself. A file that can't take it is removed. */
int om_wal_write_header(om_wal *wal, om_wal_file *file, char *err, size_t err_len);
/* Let it be the head file; the one before is sealed. The committer, or a thread that stands in for it. */
void om_wal_use_file(om_wal *wal, om_wal_file *file, int header_pending);
/* With the lock held: files whose records are all released become spare or go. 1: some did. */
int om_wal_recycle(om_wal *wal);
void om_wal_update_used(om_wal *wal);     /* with the lock held */
int om_wal_wants_file(const om_wal *wal); /* with the lock held: a spare one */
/* As large as the disk allows; OM_E_NO_SPACE if these bytes wouldn't go in. It goes when it is released. */
int om_wal_make_small_spare(om_wal *wal, uint64_t bytes, char *err, size_t err_len);
/* Of the head of a lean WAL, the share that only settles may use: consumers must be able to drain
 * what fills the disk. */
static inline uint64_t om_wal_lean_reserve(const om_wal *wal) {
    return wal->options.file_size / 2;
}
/* The last bytes of a file of this size, which stay unused while no spare file is there nor will be: the next
 * start may find no other place (wal_open.c). What settles write into as much before that waits for a checkpoint:
 * what was settled makes space by checkpoints only, and each of them takes a block or two. */
static inline uint64_t om_wal_kept_of(uint64_t size) {
    return 16 * OM_WAL_BLOCK < size / 4 ? 16 * OM_WAL_BLOCK : size / 4;
}
/* While that is all there is, no ack has a block for itself: they wait until so many bytes of them are there, or
 * somebody waits for them, or lazy_sync_ms has passed so often. */
#define OM_WAL_LEAN_GROUP (4 * OM_WAL_BLOCK)
#define OM_WAL_LEAN_PATIENCE 10

/* wal_fence.c: the group at `position` of the head file (0: nothing was written) is lost. */
void om_wal_fence_raise(om_wal *wal, const char *why, uint64_t position);
#endif
