/* shim.h -- what the parts of the preloaded shim share with each other and with Python.
 *
 *   shim.c        the libc calls that are stood in for: bytes, sizes, syncs, free space
 *   shim_names.c  the same: opening, renaming, removing
 *   shim_trace.c  where a path lies, the lock, and the records of what happened
 *   shim_rules.c  which calls must fail, be cut short, be late, or be the last
 *
 * The promise: every change of a file below the root that went through libc is in the trace,
 * in an order that agrees with what the threads and processes could observe. A process that ends
 * itself, or by a rule, ends between two calls, never within one. Whatever the shim sees but
 * can't follow (a writable mapping, stdio, a kill from outside amid a call) is in the trace as
 * UNTRACED, so that the simulator refuses it instead of being wrong in silence.
 *
 * The control page (mapped shared by the parent, the child and the child's children):
 *
 *   0     | magic u32 | lock state u32 | process-shared robust mutex, 64 bytes |
 *   72    | trace end u64 | next sync u64 | budget i64 | free i64 | skip sync, dying u32 | to 256
 *   256   | rule 0, 256 bytes | rule 1 | ... | rule 30 |                            8192 in all
 *
 * tests/faults/rules.py mirrors it, tests/faults/trace.py mirrors the record.
 */
#ifndef OTTERMQ_SHIM_H
#define OTTERMQ_SHIM_H
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define SHIM_MAGIC 0x6d697368u
#define SHIM_RULES 31

/* What a rule can be about; one call may be several (an open that creates is both). */
enum shim_op {
    SHIM_OPEN = 1 << 0,
    SHIM_CREATE = 1 << 1,
    SHIM_WRITE = 1 << 2,
    SHIM_TRUNCATE = 1 << 3,
    SHIM_ALLOCATE = 1 << 4,
    SHIM_FSYNC = 1 << 5,
    SHIM_FDATASYNC = 1 << 6,
    SHIM_SYNCFS = 1 << 7,
    SHIM_SYNC_RANGE = 1 << 8,
    SHIM_RENAME = 1 << 9,
    SHIM_UNLINK = 1 << 10,
    SHIM_MKDIR = 1 << 11,
    SHIM_LINK = 1 << 12,
};

enum shim_action { SHIM_FAIL = 1, SHIM_SHORTEN, SHIM_DELAY, SHIM_KILL };

typedef struct shim_rule {
    uint32_t armed; /* written last by Python: the rest is valid while it is 1 */
    uint32_t ops;
    uint32_t action;
    int32_t error;
    uint32_t carried_out; /* do it, then fail (or die): the answer is lost, not the deed */
    uint32_t reserved;
    uint64_t skip;   /* let that many matches pass first */
    int64_t times;   /* then fire that often; < 0: for ever */
    uint64_t amount; /* SHORTEN: bytes; DELAY: microseconds */
    uint64_t matched;
    uint64_t fired;
    char glob[192]; /* fnmatch(3) on the path relative to the root */
} shim_rule;

typedef struct shim_page {
    uint32_t magic;
    uint32_t lock_state; /* 0 untouched, 1 being made, 2 ready */
    union {
        pthread_mutex_t lock;
        char lock_room[64];
    };
    uint64_t trace_end; /* bytes of the trace that are whole records */
    uint64_t next_sync;
    int64_t budget;     /* bytes the disk still has; < 0: no limit */
    int64_t free_bytes; /* what statvfs may report at most; < 0: the truth */
    uint32_t skip_sync; /* don't bother the disk: the simulator is what counts */
    uint32_t dying;     /* the lock's holder chose to end: no call was cut in two */
    char pad[144];
    shim_rule rules[SHIM_RULES];
} shim_page;

_Static_assert(sizeof(shim_rule) == 256, "rules.py relies on it");
_Static_assert(offsetof(shim_page, trace_end) == 72, "rules.py relies on it");
_Static_assert(offsetof(shim_page, rules) == 256 && sizeof(shim_page) == 8192, "the same");

/* A record: | this header | path | other path | data |, nothing padded. */
enum shim_event {
    SHIM_EV_CREATE = 1,
    SHIM_EV_TMPFILE,
    SHIM_EV_MKDIR,
    SHIM_EV_SYMLINK, /* data: the target */
    SHIM_EV_LINK,
    SHIM_EV_RENAME, /* path -> other path; detail: 1 exchange */
    SHIM_EV_UNLINK, /* of a file or an empty folder */
    SHIM_EV_WRITE,  /* detail: 1 all zeros, no data stored */
    SHIM_EV_TRUNCATE,
    SHIM_EV_GROW,       /* fallocate that moved the size */
    SHIM_EV_SYNC_START, /* detail: shim_sync_kind; size < 0: the whole file */
    SHIM_EV_SYNC_END,   /* error: 0 or errno */
    SHIM_EV_MARK,
    SHIM_EV_FAULT,    /* a rule fired; size: the op, error: errno */
    SHIM_EV_UNTRACED, /* data: why */
    SHIM_EV_BEGIN,    /* written by Python: what came before is the starting point */
};

enum shim_sync_kind { SHIM_KIND_FSYNC, SHIM_KIND_FDATASYNC, SHIM_KIND_SYNCFS };

typedef struct shim_record {
    uint32_t length;
    uint8_t event;
    uint8_t detail;
    uint16_t path_len;
    uint16_t other_len;
    uint16_t error;
    uint32_t thread;
    uint64_t inode;
    int64_t offset;
    int64_t size;
    uint64_t sync; /* pairs SYNC_START with SYNC_END */
} shim_record;

_Static_assert(sizeof(shim_record) == 48, "trace.py relies on it");

/* The one object of the shim. A preloaded library has no caller who could hold it. */
typedef struct shim_state {
    int ready;
    long dying; /* the thread that ends this process: no other starts a call now */
    shim_page *page;
    dev_t root_device;
    size_t root_len;
    char root[PATH_MAX];
    char mark[PATH_MAX];
    char trace[PATH_MAX];
} shim_state;
extern shim_state shim;

/* The call that was stood in for. */
#define NEXT(call)                                                                                                     \
    ({                                                                                                                 \
        static typeof(&call) next_;                                                                                    \
        typeof(&call) found_ = __atomic_load_n(&next_, __ATOMIC_RELAXED);                                              \
        if (!found_) {                                                                                                 \
            found_ = (typeof(&call))dlsym(RTLD_NEXT, #call);                                                           \
            __atomic_store_n(&next_, found_, __ATOMIC_RELAXED);                                                        \
        }                                                                                                              \
        found_;                                                                                                        \
    })
#define ALIAS(call) __attribute__((alias(#call)))

/* ---- shim_trace.c ---- */
enum shim_place { SHIM_ELSEWHERE, SHIM_BELOW_ROOT, SHIM_MARK };
/* Where is it, and what is its path relative to the root? Paths need not exist. */
enum shim_place shim_locate(int dirfd, const char *path, char relative[PATH_MAX]);
enum shim_place shim_locate_fd(int fd, char relative[PATH_MAX]);

void shim_lock(void);
void shim_unlock(void);
/* With the lock held. The header's length and thread are filled in here; errno is kept. */
void shim_put(shim_record *record, const char *path, const char *other, const void *data, size_t len);
void shim_put_iov(shim_record *record, const char *path, const struct iovec *iov, int count, size_t len);
void shim_put_untraced(const char *path, const char *why);

/* ---- shim_rules.c ---- */
typedef struct shim_fault {
    enum shim_action action; /* 0: none */
    int error;
    int carried_out;
    uint64_t amount;
} shim_fault;

/* Does any armed rule speak of these ops? Cheap, without the lock. */
int shim_watches(unsigned ops);
/* With the lock held: the rule that fires, if any, noted in the trace. */
shim_fault shim_match(unsigned ops, const char *path);
/* The frame around most calls: enter waits, dies, or fails with errno set (-1, no lock held);
 * otherwise it returns 0 with the lock held. leave unlocks and turns the result into a failure
 * where the rule says so. */
int shim_enter(shim_fault *fault, unsigned ops, const char *path);
long shim_leave(const shim_fault *fault, long result);
void shim_wait(const shim_fault *fault);
/* With the lock held: the process ends, by an exit that follows or by SIGKILL. */
void shim_last_call(void);
_Noreturn void shim_die(void);
/* With the lock held: how many of `len` bytes at `offset` the budget lets through. Spends them.
 * whole: all or nothing. */
size_t shim_spend(int fd, int64_t offset, size_t len, int whole);
#endif
