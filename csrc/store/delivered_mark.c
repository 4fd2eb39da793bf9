/* delivered_mark.c -- data/handed: how far each queue has given out its records, kept by the page cache.
 *
 *   slot 0   "OTTERHND" | version u64
 *   slot     log id u64 (0: free) | next i64: all below was given out       16 bytes, little-endian
 *
 * A consumer may have had a record long before the WAL's record of it is synced, or even written: a
 * second is allowed. A process that is killed would forget those, and give them out as new. So
 * the end of each tick leaves a mark here: one store into a shared mapping, no system call. The
 * page cache outlives the process. It doesn't outlive the machine; then the WAL is all there is.
 *
 * A mark is a hint in one direction only. Recovery takes what lies below it and isn't settled for
 * given out; it settles nothing and brings nothing back. A mark that is too low (a lost page), too
 * high (from before a truncation) or nonsense is therefore at worst a `redelivered` too few or too
 * many. So nothing here is synced or checksummed, and a slot's two words may be torn.
 *
 * What recovery has learned from a mark goes into the WAL, as the last thing of the life that was
 * killed: a record that the next one gives out again has been given out twice, and a third life that
 * replays both must not count one of them.
 *
 * Slots are taken when a log first gives something out, and given back when it is deleted; ids are
 * never used again. They stay over a restart, marks and all: the next life may be killed before
 * its first checkpoint as well. The file is written out before it is mapped, so that a full disk
 * is an error here and no signal later; it grows by doubling, in the writer's thread. Until it has
 * grown, a log may be without a slot: then the WAL is all it has, too.
 */
#define _GNU_SOURCE
#include "store/delivered_mark.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_util.h"
#include "base/ticket_lock.h"
#include "segment/file_cache.h"
#include "store/log.h"
#include "store/log_cursor.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "handed"
#define MAGIC "OTTERHND"
#define VERSION 1
#define FIRST_SLOTS 4096u
#define MOST_SLOTS (4u << 20)
#define RETRY_NS 1000000000u

typedef struct om_delivered_mark_slot {
    uint64_t log_id;
    int64_t next;
} om_delivered_mark_slot;

struct om_delivered_mark {
    int fd;
    om_mapping mapping; /* addresses for MOST_SLOTS; the file is mapped as far as it has grown */
    uint64_t slots;
    om_delivered_mark_slot **free; /* room for all of them */
    uint64_t free_count;
    int wanted;        /* a log went without, or soon one would */
    uint64_t retry_at; /* it couldn't grow: not before this */
};

_Static_assert(sizeof(om_delivered_mark_slot) == 16, "as it is on disk");

static uint64_t bytes_of(uint64_t slots) {
    return slots * sizeof(om_delivered_mark_slot);
}

static om_delivered_mark_slot *slot_at(const om_delivered_mark *marks, uint64_t index) {
    return (om_delivered_mark_slot *)marks->mapping.base + index;
}

/* ---- the file ---- */

static int write_zeros(int fd, uint64_t at, uint64_t len) {
    static const uint8_t zeros[65536];
    while (len) {
        ssize_t wrote = pwrite(fd, zeros, len < sizeof zeros ? (size_t)len : sizeof zeros, (off_t)at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return om_errno_result();
        at += (uint64_t)wrote;
        len -= (uint64_t)wrote;
    }
    return OM_OK;
}

static int write_header(int fd) {
    uint8_t header[sizeof(om_delivered_mark_slot)] = MAGIC;
    om_put_le64(header + 8, VERSION);
    return pwrite(fd, header, sizeof header, 0) == (ssize_t)sizeof header ? OM_OK : OM_E_IO;
}

static int has_header(int fd) {
    uint8_t header[sizeof(om_delivered_mark_slot)];
    return pread(fd, header, sizeof header, 0) == (ssize_t)sizeof header && memcmp(header, MAGIC, 8) == 0 &&
           om_get_le64(header + 8) == VERSION;
}

/* How many slots the file has, of those it may have: a doubling that was cut short is made again. */
static uint64_t slots_in_file(int fd) {
    struct stat info;
    uint64_t slots = FIRST_SLOTS;
    if (fstat(fd, &info) != 0 || !has_header(fd) || (uint64_t)info.st_size < bytes_of(slots))
        return 0;
    while (slots < MOST_SLOTS && (uint64_t)info.st_size >= bytes_of(slots * 2))
        slots *= 2;
    return slots;
}

/* ---- growing: at the start, or in the writer's thread ---- */

/* Slots [from, to), which are in the file, into their addresses. */
static int map_slots(om_delivered_mark *marks, uint64_t from, uint64_t to) {
    uint8_t *base = marks->mapping.base + bytes_of(from);
    size_t len = bytes_of(to - from);
    if (mmap(base, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, marks->fd,
             (off_t)bytes_of(from)) == MAP_FAILED)
        return OM_E_NO_MEMORY;
    /* Best kept in memory: a page that had to be read again would make a tick wait. */
    if (mlock(base, len) != 0)
        errno = 0;
    return OM_OK;
}

static int make_slots(om_delivered_mark *marks, uint64_t from, uint64_t to) {
    int result = write_zeros(marks->fd, bytes_of(from), bytes_of(to - from));
    if (result == OM_OK && from == 0)
        result = write_header(marks->fd);
    return result == OM_OK ? map_slots(marks, from, to) : result;
}

/* Room in the list for all slots, so that letting go of one can't fail. */
static int make_list(om_delivered_mark *marks, uint64_t slots) {
    om_delivered_mark_slot **list = realloc(marks->free, slots * sizeof *list);
    if (!list)
        return OM_E_NO_MEMORY;
    marks->free = list;
    return OM_OK;
}

int om_delivered_mark_wants_more(const om_store *store) {
    const om_delivered_mark *marks = store->delivered_mark;
    return marks && marks->wanted && marks->slots < MOST_SLOTS && om_now_ns() >= marks->retry_at;
}

void om_delivered_mark_grow(om_store *store) {
    om_delivered_mark *marks = store->delivered_mark;
    om_ticket_lock_take(&store->lock);
    int wants = om_delivered_mark_wants_more(store);
    om_ticket_lock_give(&store->lock);
    if (!wants)
        return;
    uint64_t from = marks->slots, to = from * 2;
    int result = make_slots(marks, from, to);
    om_ticket_lock_take(&store->lock);
    if (result == OM_OK)
        result = make_list(marks, to);
    if (result == OM_OK) {
        marks->slots = to;
        for (uint64_t i = to; i-- > from;)
            marks->free[marks->free_count++] = slot_at(marks, i);
        marks->wanted = 0;
    } else {
        marks->retry_at = om_now_ns() + RETRY_NS;
    }
    om_ticket_lock_give(&store->lock);
}

/* ---- the start ---- */

/* Whose mark is this? Those of nobody are free, as is the second one of a log. */
static void adopt_slot(om_store *store, om_delivered_mark_slot *slot) {
    om_log *log = slot->log_id ? om_store_find(store, slot->log_id) : NULL;
    if (log && log->cursor && om_log_uses_wal(log) && !log->delivered_mark && slot->next >= 0) {
        log->delivered_mark = slot;
        return;
    }
    if (slot->log_id || slot->next)
        *slot = (om_delivered_mark_slot){0};
    store->delivered_mark->free[store->delivered_mark->free_count++] = slot;
}

static int map_all(om_delivered_mark *marks) {
    void *base = mmap(NULL, bytes_of(MOST_SLOTS), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return OM_E_NO_MEMORY;
    size_t len = bytes_of(MOST_SLOTS);
    marks->mapping = (om_mapping){.base = base, .len = len, .good = len, .written = 1};
    marks->slots = slots_in_file(marks->fd);
    int result = marks->slots ? map_slots(marks, 0, marks->slots) : make_slots(marks, 0, FIRST_SLOTS);
    if (!marks->slots)
        marks->slots = FIRST_SLOTS;
    return result == OM_OK ? make_list(marks, marks->slots) : result;
}

void om_delivered_mark_open(om_store *store) {
    om_delivered_mark *marks = calloc(1, sizeof *marks);
    if (!marks)
        return;
    store->delivered_mark = marks;
    marks->fd = openat(store->dir_fd, NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    /* Without it a kill costs a few `redelivered`, and nothing else: no reason not to start. */
    if (marks->fd < 0 || map_all(marks) != OM_OK) {
        om_delivered_mark_close(store);
        return;
    }
    om_sigbus_mapping(&marks->mapping);
    for (uint64_t i = marks->slots; i-- > 1;) /* the lowest are taken first */
        adopt_slot(store, slot_at(marks, i));
    om_sigbus_mapping(NULL);
}

void om_delivered_mark_close(om_store *store) {
    om_delivered_mark *marks = store->delivered_mark;
    if (!marks)
        return;
    if (marks->mapping.base)
        munmap(marks->mapping.base, marks->mapping.len);
    if (marks->fd >= 0)
        close(marks->fd);
    free(marks->free);
    free(marks);
    store->delivered_mark = NULL;
}

/* ---- marks ---- */

static om_delivered_mark_slot *take_slot(om_delivered_mark *marks, const om_log *log) {
    if (marks->free_count <= marks->slots / 4)
        marks->wanted = 1;
    if (!marks->free_count)
        return NULL;
    om_delivered_mark_slot *slot = marks->free[--marks->free_count];
    slot->next = 0;
    __atomic_store_n(&slot->log_id, log->id, __ATOMIC_RELEASE);
    return slot;
}

/* Somebody may have cut the file under us: a mark is then in memory only, and the broker lives. */
void om_delivered_mark_note(om_log *log) {
    om_delivered_mark *marks = log->store->delivered_mark;
    if (!marks || log->deleted)
        return;
    om_sigbus_mapping(&marks->mapping);
    if (!log->delivered_mark)
        log->delivered_mark = take_slot(marks, log);
    if (log->delivered_mark)
        __atomic_store_n(&log->delivered_mark->next, log->cursor->next, __ATOMIC_RELAXED);
    om_sigbus_mapping(NULL);
}

void om_delivered_mark_recall(om_log *log) {
    if (!log->delivered_mark)
        return;
    om_sigbus_mapping(&log->store->delivered_mark->mapping);
    int64_t next = log->delivered_mark->next;
    om_sigbus_mapping(NULL);
    om_log_pass(log, next);
}

void om_delivered_mark_let_go(om_log *log) {
    om_delivered_mark *marks = log->store->delivered_mark;
    if (!log->delivered_mark)
        return;
    om_sigbus_mapping(&marks->mapping);
    *log->delivered_mark = (om_delivered_mark_slot){0};
    om_sigbus_mapping(NULL);
    marks->free[marks->free_count++] = log->delivered_mark;
    log->delivered_mark = NULL;
}
