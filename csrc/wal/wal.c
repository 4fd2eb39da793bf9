/* wal.c -- the store's side of the WAL: append, submit, admit, wait.
 *
 * An append is a copy into the open buffer, or a note of where the bytes are when they are many: no
 * lock, no allocation, no system call. A submit is
 * one short lock; it wakes the committer only if that sleeps. CRCs, files and syncs are the
 * committer's business (wal_commit.c). wal_internal.h says which thread owns what. */
#define _GNU_SOURCE
#include "base/bytes.h"
#include "wal/wal_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- buffers ---- */

static om_wal_buffer *buffer_new(uint32_t size) {
    om_wal_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL)
        return NULL;
    if (posix_memalign((void **)&buffer->data, OM_WAL_BLOCK, size) != 0) {
        free(buffer);
        return NULL;
    }
    return buffer;
}

void om_wal_buffers_delete(om_wal_buffer *buffer) {
    while (buffer != NULL) {
        om_wal_buffer *next = buffer->next;
        free(buffer->data);
        free(buffer);
        buffer = next;
    }
}

void om_wal_buffer_free(om_wal *wal, om_wal_buffer *buffer) {
    for (; buffer->loans_taken < buffer->loans_used; buffer->loans_taken++)
        om_buffer_unref(buffer->loans[buffer->loans_taken].lender);
    if (wal->pool_count >= OM_WAL_POOL_MAX) {
        buffer->next = NULL;
        om_wal_buffers_delete(buffer);
        return;
    }
    buffer->used = buffer->submitted = buffer->taken = 0;
    buffer->loans_used = buffer->loans_submitted = buffer->loans_taken = 0;
    buffer->next = wal->pool;
    wal->pool = buffer;
    wal->pool_count++;
}

/* A chain of `count` empty buffers, or NULL. */
static om_wal_buffer *buffers_get(om_wal *wal, size_t count) {
    om_wal_buffer *chain = NULL;
    pthread_mutex_lock(&wal->lock);
    for (; count > 0 && wal->pool != NULL; count--) {
        om_wal_buffer *buffer = wal->pool;
        wal->pool = buffer->next;
        wal->pool_count--;
        buffer->next = chain;
        chain = buffer;
    }
    pthread_mutex_unlock(&wal->lock);
    for (; count > 0; count--) {
        om_wal_buffer *buffer = buffer_new(wal->buffer_size);
        if (buffer == NULL) {
            om_wal_buffers_delete(chain);
            return NULL;
        }
        buffer->next = chain;
        chain = buffer;
    }
    return chain;
}

void om_wal_drop_buffers(om_wal *wal) {
    om_wal_buffer *buffer = wal->head != NULL ? wal->head : wal->from;
    while (buffer != NULL) {
        om_wal_buffer *next = buffer->next;
        om_wal_buffer_free(wal, buffer);
        buffer = next;
    }
    wal->head = wal->tail = wal->from = wal->open = NULL;
    wal->queued = wal->urgent_since = wal->lazy_deadline = 0;
    uint64_t appended = atomic_load(&wal->appended);
    atomic_store(&wal->committed, appended);
    wal->submitted_bytes = appended;
}

/* ---- appending ---- */

/* The rest of a payload: bytes to be copied, then bytes to be lent. */
typedef struct rest {
    uint64_t copied, lent;
} rest;

/* The next part of it. */
typedef struct part {
    uint32_t len, copied, lent;
    uint32_t size; /* of the record */
    uint32_t need; /* in the buffer */
} part;

static part cut_part(rest *rest) {
    part part = {0};
    part.copied = rest->copied < OM_WAL_RECORD_MAX ? (uint32_t)rest->copied : OM_WAL_RECORD_MAX;
    uint32_t room = OM_WAL_RECORD_MAX - part.copied;
    part.lent = rest->lent < room ? (uint32_t)rest->lent : room;
    part.len = part.copied + part.lent;
    part.size = (uint32_t)om_wal_round(OM_WAL_RECORD_HEADER + part.len, 8);
    part.need = part.size - part.lent;
    rest->copied -= part.copied;
    rest->lent -= part.lent;
    return part;
}

static int has_more(const rest *rest) {
    return rest->copied + rest->lent > 0;
}

/* Room for all its parts before the first byte is copied, so that a record is taken whole or
 * not at all. */
static int reserve(om_wal *wal, rest rest) {
    size_t buffers = 0;
    uint32_t room = wal->open == NULL ? 0 : wal->buffer_size - wal->open->used;
    uint32_t loans = wal->open == NULL ? 0 : OM_WAL_LOANS - wal->open->loans_used;
    do {
        part part = cut_part(&rest);
        if (part.need > room || (part.lent > 0 && loans == 0)) {
            buffers++;
            room = wal->buffer_size;
            loans = OM_WAL_LOANS;
        }
        room -= part.need;
        loans -= part.lent > 0;
    } while (has_more(&rest));
    if (buffers == 0)
        return 1;
    om_wal_buffer *chain = buffers_get(wal, buffers);
    if (chain == NULL)
        return 0;
    if (wal->open == NULL)
        wal->open = wal->from = chain;
    else
        wal->open->next = chain;
    return 1;
}

typedef struct source {
    const struct iovec *iov;
    size_t at;
} source;

static void copy(source *source, uint8_t *to, size_t len) {
    while (len > 0) {
        size_t left = source->iov->iov_len - source->at;
        size_t part = left < len ? left : len;
        if (part > 0)
            memcpy(to, (const uint8_t *)source->iov->iov_base + source->at, part);
        to += part;
        len -= part;
        source->at += part;
        if (part == left) {
            source->iov++;
            source->at = 0;
        }
    }
}

static void lend(om_wal_buffer *buffer, uint32_t at, uint32_t len, const uint8_t *data, om_buffer *lender) {
    om_buffer_ref(lender);
    buffer->loans[buffer->loans_used++] =
        (om_wal_loan){.record = buffer->used, .at = at, .len = len, .data = data, .lender = lender};
}

static uint64_t append(om_wal *wal, uint8_t type, uint64_t log_id, const struct iovec *iov, rest rest,
                       const uint8_t *lent, om_buffer *lender) {
    if (type <= OM_WAL_PART || atomic_load_explicit(&wal->fenced, memory_order_acquire) || !reserve(wal, rest))
        return 0;
    source source = {.iov = iov};
    uint64_t appended = atomic_load_explicit(&wal->appended, memory_order_relaxed);
    uint64_t seq = atomic_load_explicit(&wal->last_seq, memory_order_relaxed);
    uint32_t epoch = (uint32_t)atomic_load_explicit(&wal->epoch, memory_order_relaxed);
    uint8_t flags = 0;
    do {
        part part = cut_part(&rest);
        if (part.need > wal->buffer_size - wal->open->used || (part.lent > 0 && wal->open->loans_used == OM_WAL_LOANS))
            wal->open = wal->open->next;
        uint8_t *record = wal->open->data + wal->open->used;
        om_put_le32(record + OM_WAL_AT_LEN, OM_WAL_RECORD_HEADER + part.len);
        om_put_le32(record + OM_WAL_AT_CRC, 0);
        record[OM_WAL_AT_TYPE] = has_more(&rest) ? OM_WAL_PART : type;
        record[OM_WAL_AT_FLAGS] = flags;
        om_put_le16(record + OM_WAL_AT_MARK, 0);
        om_put_le32(record + OM_WAL_AT_EPOCH, epoch);
        om_put_le64(record + OM_WAL_AT_SEQ, ++seq);
        om_put_le64(record + OM_WAL_AT_LOG_ID, log_id);
        uint32_t filled = OM_WAL_RECORD_HEADER + part.copied;
        copy(&source, record + OM_WAL_RECORD_HEADER, part.copied);
        if (part.lent > 0) {
            lend(wal->open, wal->open->used + filled, part.lent, lent, lender);
            lent += part.lent;
        }
        memset(record + filled, 0, part.need - filled);
        wal->open->used += part.need;
        wal->last_record = record;
        appended += part.size;
        flags = OM_WAL_CONTINUES;
    } while (has_more(&rest));
    atomic_store_explicit(&wal->appended, appended, memory_order_relaxed);
    atomic_store_explicit(&wal->last_seq, seq, memory_order_release);
    return seq;
}

uint64_t om_wal_append(om_wal *wal, uint8_t type, uint64_t log_id, const struct iovec *iov, int iovcnt) {
    rest rest = {0};
    for (int i = 0; i < iovcnt; i++)
        rest.copied += iov[i].iov_len;
    return append(wal, type, log_id, iov, rest, NULL, NULL);
}

uint64_t om_wal_append_lent(om_wal *wal, uint8_t type, uint64_t log_id, const struct iovec *iov, int iovcnt,
                            om_buffer *lender) {
    const struct iovec *last = &iov[iovcnt - 1];
    if (last->iov_len < OM_WAL_LOAN_MIN)
        return om_wal_append(wal, type, log_id, iov, iovcnt);
    rest rest = {.lent = last->iov_len};
    for (int i = 0; i < iovcnt - 1; i++)
        rest.copied += iov[i].iov_len;
    return append(wal, type, log_id, iov, rest, last->iov_base, lender);
}

void om_wal_submit(om_wal *wal, int lazy) {
    uint64_t appended = atomic_load_explicit(&wal->appended, memory_order_relaxed);
    if (appended == wal->submitted_bytes || atomic_load_explicit(&wal->fenced, memory_order_acquire))
        return;
    if (wal->options.flush_immediate && !lazy)
        om_put_le32(wal->last_record + OM_WAL_AT_CRC, 1);
    uint64_t now = lazy || wal->options.batch_max_wait_us > 0 ? om_wal_now() : 1;
    pthread_mutex_lock(&wal->lock);
    for (om_wal_buffer *buffer = wal->from;; buffer = buffer->next) {
        buffer->submitted = buffer->used;
        buffer->loans_submitted = buffer->loans_used;
        if (buffer == wal->open)
            break;
    }
    if (wal->head == NULL)
        wal->head = wal->from;
    wal->from = wal->tail = wal->open;
    wal->queued += appended - wal->submitted_bytes;
    if (lazy) {
        if (wal->lazy_deadline == 0)
            wal->lazy_deadline = now + wal->options.lazy_sync_ms * UINT64_C(1000000);
    } else {
        wal->urgent_seq = atomic_load_explicit(&wal->last_seq, memory_order_relaxed);
        if (wal->urgent_since == 0)
            wal->urgent_since = now;
    }
    uint64_t group = om_wal_starved(wal) ? OM_WAL_LEAN_GROUP : wal->options.batch_max_size;
    int full = wal->queued >= group;
    int wake = wal->sleep == OM_WAL_IDLE || (wal->sleep == OM_WAL_LAZY && (full || !lazy)) ||
               (wal->sleep == OM_WAL_GATHERING && full);
    if (wake)
        wal->sleep = OM_WAL_AWAKE;
    pthread_mutex_unlock(&wal->lock);
    if (wake)
        pthread_cond_signal(&wal->work);
    wal->submitted_bytes = appended;
}

/* ---- admission ---- */

static inline int stands_still(const om_wal *wal) {
    return atomic_load_explicit(&wal->starved, memory_order_relaxed);
}

/* The last part of the head is for settles while there is no other file. */
static inline int is_for_settles(const om_wal *wal, int lean) {
    return lean == OM_WAL_LEAN &&
           atomic_load_explicit(&wal->head_room, memory_order_relaxed) < om_wal_lean_reserve(wal);
}

/* Records under way when the head is full fill the next file: it is known too late that there is none behind it. */
static inline uint64_t sure_room(const om_wal *wal, int lean) {
    return atomic_load_explicit(&wal->head_room, memory_order_relaxed) +
           (lean == OM_WAL_NOT_LEAN ? wal->options.file_size : 0);
}

int om_wal_stands_still(const om_wal *wal) {
    return stands_still(wal);
}

int om_wal_starved(const om_wal *wal) {
    return stands_still(wal) || is_for_settles(wal, atomic_load_explicit(&wal->lean, memory_order_relaxed));
}

/* Settles leave room for the checkpoints that free the settled records. Not while they wait in memory for a file
 * anyway. */
static int is_for_checkpoints(const om_wal *wal, uint64_t pending) {
    return !stands_still(wal) && atomic_load_explicit(&wal->head_room, memory_order_relaxed) <
                                     pending + atomic_load_explicit(&wal->kept, memory_order_relaxed);
}

int om_wal_admit(const om_wal *wal, enum om_wal_class klass) {
    const om_wal_options *options = &wal->options;
    if (atomic_load_explicit(&wal->fenced, memory_order_acquire))
        return OM_E_FENCED;
    uint64_t limit = options->max_size + options->reserve, backlog = 2 * options->backlog_max;
    uint64_t committed = atomic_load_explicit(&wal->committed, memory_order_acquire);
    uint64_t pending = atomic_load_explicit(&wal->appended, memory_order_relaxed) - committed;
    int lean = atomic_load_explicit(&wal->lean, memory_order_relaxed);
    if (klass == OM_WAL_APPEND) {
        if (stands_still(wal) || is_for_settles(wal, lean))
            return OM_E_NO_SPACE;
        if (sure_room(wal, lean) < pending + om_wal_lean_reserve(wal))
            return OM_E_FULL;
        limit -= 2 * options->reserve;
        backlog = options->backlog_max;
    } else if (lean && is_for_checkpoints(wal, pending)) {
        return OM_E_FULL;
    }
    uint64_t used = atomic_load_explicit(&wal->used, memory_order_relaxed);
    return used + pending > limit || pending > backlog ? OM_E_FULL : OM_OK;
}

uint64_t om_wal_last_seq(const om_wal *wal) {
    return atomic_load_explicit(&wal->last_seq, memory_order_acquire);
}

uint64_t om_wal_durable_seq(const om_wal *wal) {
    return atomic_load_explicit(&wal->durable_seq, memory_order_acquire);
}

uint64_t om_wal_used(const om_wal *wal) {
    return atomic_load_explicit(&wal->used, memory_order_relaxed);
}

/* ---- news for waiters ---- */

void om_wal_notify_fd(om_wal *wal, int event_fd) {
    atomic_store(&wal->notify_fd, event_fd);
}

void om_wal_notify(om_wal *wal) {
    uint64_t one = 1;
    int fd = atomic_load(&wal->notify_fd);
    /* EAGAIN: the counter is full, so it is readable already. */
    if (fd >= 0 && write(fd, &one, sizeof one) < 0)
        return;
}

/* A later sync doesn't speak for it, nor does a later fence make it forgotten. */
static int is_refused(const om_wal *wal, uint64_t seq) {
    for (size_t i = 0; i < wal->refused_count; i++)
        if (seq >= wal->refused[i].first && seq <= wal->refused[i].last)
            return 1;
    return 0;
}

int om_wal_wait(om_wal *wal, uint64_t seq, int timeout_ms) {
    uint64_t patience = timeout_ms < 0 ? 0 : (uint64_t)timeout_ms * 1000000u;
    struct timespec until = om_wal_timespec(om_wal_now() + patience);
    int result = OM_OK, timed_out = 0;
    pthread_mutex_lock(&wal->lock);
    uint64_t last_seq = om_wal_last_seq(wal);
    uint64_t wanted = seq < last_seq ? seq : last_seq;
    if (wanted > wal->wanted_seq) {
        wal->wanted_seq = wanted;
        if (wal->urgent_since == 0)
            wal->urgent_since = om_wal_now();
        if (wal->sleep == OM_WAL_LAZY)
            pthread_cond_signal(&wal->work);
    }
    wal->waiters++;
    for (;;) {
        if (is_refused(wal, seq))
            result = OM_E_FENCED;
        else if (om_wal_durable_seq(wal) >= seq)
            result = OM_OK;
        else if (atomic_load(&wal->fenced))
            result = OM_E_FENCED;
        else if (timed_out)
            result = OM_E_TIMEOUT;
        else {
            if (timeout_ms < 0)
                pthread_cond_wait(&wal->done, &wal->lock);
            else
                timed_out = pthread_cond_timedwait(&wal->done, &wal->lock, &until) == ETIMEDOUT;
            continue;
        }
        break;
    }
    wal->waiters--;
    pthread_mutex_unlock(&wal->lock);
    return result;
}

void om_wal_release(om_wal *wal, uint64_t seq) {
    uint64_t durable = om_wal_durable_seq(wal);
    pthread_mutex_lock(&wal->lock);
    if (seq > durable)
        seq = durable;
    if (seq > wal->released_seq)
        wal->released_seq = seq;
    int freed = om_wal_recycle(wal);
    pthread_mutex_unlock(&wal->lock);
    if (freed)
        om_wal_notify(wal);
}

void om_wal_stat_get(const om_wal *wal, om_wal_stat *out) {
    pthread_mutex_t *lock = (pthread_mutex_t *)&wal->lock;
    *out = (om_wal_stat){
        .groups = atomic_load(&wal->groups),
        .bytes = atomic_load(&wal->group_bytes),
        .records = atomic_load(&wal->group_records),
        .sync_ns = atomic_load(&wal->sync_ns),
        .direct_io = atomic_load(&wal->direct),
    };
    pthread_mutex_lock(lock);
    out->files = wal->live_files + wal->spare_files;
    out->spare_files = wal->spare_files;
    pthread_mutex_unlock(lock);
}
