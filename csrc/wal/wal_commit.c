/* wal_commit.c -- the committer: one sync for all that gathered.
 *
 * It never waits while there is urgent work: whatever was submitted while the last sync ran is
 * the next group. Load makes groups, idleness makes latency; batch_max_wait is the one knob that
 * trades the one for the other. Seal (chain the CRCs), one write, one fdatasync, publish.
 *
 * A group is written only after the one before is synced. That order is what recovery leans on:
 * where a later group exists, the earlier ones were on disk, and if they can't be read now
 * that is damage, not a torn end. */
#define _GNU_SOURCE
#include "base/bytes.h"
#include "base/checksum.h"
#include "wal/wal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STARVED_RETRY_NS 250000000u

/* ---- gathering: with the lock held ---- */

/* When the next group should start, in ns; 0: now. */
static uint64_t due_at(const om_wal *wal, enum om_wal_sleep *sleep) {
    const om_wal_options *options = &wal->options;
    if (atomic_load(&wal->stop) || wal->queued >= options->batch_max_size)
        return 0;
    if (wal->urgent_seq > wal->chain_seq || wal->wanted_seq > wal->chain_seq) {
        *sleep = OM_WAL_GATHERING;
        if (options->flush_immediate || options->batch_max_wait_us == 0)
            return 0;
        return wal->urgent_since + options->batch_max_wait_us * UINT64_C(1000);
    }
    *sleep = OM_WAL_LAZY;
    if (!om_wal_starved(wal))
        return wal->lazy_deadline;
    uint64_t size = wal->head_file->size, end = wal->head_bytes + wal->queued;
    if (wal->queued >= OM_WAL_LEAN_GROUP && end + 2 * om_wal_kept_of(size) <= size)
        return 0;
    return wal->lazy_deadline + (OM_WAL_LEAN_PATIENCE - 1) * options->lazy_sync_ms * UINT64_C(1000000);
}

/* Sleeps until there is a group to commit; 0: the WAL is being closed and nothing is left. */
static int wait_for_work(om_wal *wal) {
    for (;;) {
        if (atomic_load(&wal->fenced) || wal->queued == 0) {
            if (atomic_load(&wal->stop))
                return 0;
            wal->sleep = OM_WAL_IDLE;
            pthread_cond_wait(&wal->work, &wal->lock);
        } else {
            enum om_wal_sleep sleep;
            uint64_t due = due_at(wal, &sleep);
            if (due == 0 || due <= om_wal_now())
                return 1;
            wal->sleep = sleep;
            struct timespec until = om_wal_timespec(due);
            pthread_cond_timedwait(&wal->work, &wal->lock, &until);
        }
        wal->sleep = OM_WAL_AWAKE;
    }
}

static void take_ranges(om_wal *wal, om_wal_group *group) {
    group->count = 0;
    group->leftover = 0;
    group->direct = atomic_load(&wal->direct);
    for (om_wal_buffer *buffer = wal->head;; buffer = buffer->next) {
        if (group->count == OM_WAL_RANGES) {
            group->leftover = 1;
            break;
        }
        if (buffer->submitted > buffer->taken)
            group->ranges[group->count++] =
                (om_wal_range){buffer, buffer->taken, buffer->submitted, buffer->loans_taken, buffer->loans_submitted};
        if (buffer == wal->tail)
            break;
    }
    group->urgent_since = wal->urgent_since;
    group->lazy_deadline = wal->lazy_deadline;
    wal->urgent_since = wal->lazy_deadline = 0;
}

/* ---- sealing: without it ---- */

static uint32_t record_room(const uint8_t *record) {
    return (uint32_t)om_wal_round(om_get_le32(record + OM_WAL_AT_LEN), 8);
}

/* The part of the record that starts there which isn't in the buffer; *loan is the next one in this range. */
static const om_wal_loan *loan_of(const om_wal_range *range, uint32_t loan, uint32_t at) {
    const om_wal_loan *next = &range->buffer->loans[loan];
    return loan < range->loans_end && next->record == at ? next : NULL;
}

/* How much of it makes one group: as much as may be committed at once, and in immediate mode no
 * more than one urgent submit (its last record carries 1 where the CRC will be). */
static void measure(const om_wal *wal, om_wal_group *group) {
    uint32_t loans = 0;
    group->bytes = group->records = group->size = group->whole_seq = 0;
    group->last_seq = wal->chain_seq;
    group->first_seq = wal->chain_seq + 1;
    for (int i = 0; i < group->count; i++) {
        om_wal_range *range = &group->ranges[i];
        uint32_t next = range->loan;
        for (uint32_t at = range->start; at < range->end;) {
            const uint8_t *record = range->buffer->data + at;
            const om_wal_loan *loan = loan_of(range, next, at);
            uint32_t room = record_room(record);
            uint64_t size = om_wal_place(group, loan, group->size) + room;
            int full = (group->records > 0 && size > wal->group_max) || loans == OM_WAL_GROUP_LOANS;
            if (!full) {
                group->bytes += room;
                group->size = size;
                group->records++;
                group->last_seq = om_get_le64(record + OM_WAL_AT_SEQ);
                if (record[OM_WAL_AT_TYPE] != OM_WAL_PART)
                    group->whole_seq = group->last_seq;
                at += room - (loan != NULL ? loan->len : 0);
                next += loan != NULL;
                loans += loan != NULL;
            }
            if (full || om_get_le32(record + OM_WAL_AT_CRC) != 0) {
                group->leftover |= at < range->end || i + 1 < group->count;
                range->end = at;
                range->loans_end = next;
                group->count = range->end > range->start ? i + 1 : i;
                return;
            }
        }
    }
}

/* A batch brings the CRC of nearly all of it along. */
static uint32_t chain_loan(uint32_t chain, const om_wal_loan *loan) {
    const om_buffer *whole = loan->lender;
    if (whole->crc_from == 0 || loan->data != whole->data || loan->len != whole->len)
        return om_crc32c(chain, loan->data, loan->len);
    chain = om_crc32c(chain, loan->data, whole->crc_from);
    return om_crc32c_join(chain, whole->crc, loan->len - whole->crc_from);
}

static void chain_crcs(om_wal *wal, const om_wal_group *group, uint64_t position) {
    const om_wal_header *header = &wal->head_file->header;
    uint8_t *first = group->ranges[0].buffer->data + group->ranges[0].start;
    first[OM_WAL_AT_FLAGS] |= OM_WAL_GROUP_START;
    om_put_le16(first + OM_WAL_AT_MARK, om_wal_group_mark(header, group->first_seq, position));
    for (int i = 0; i < group->count; i++) {
        const om_wal_range *range = &group->ranges[i];
        uint32_t next = range->loan;
        for (uint32_t at = range->start; at < range->end;) {
            uint8_t *record = range->buffer->data + at;
            const om_wal_loan *loan = loan_of(range, next, at);
            uint32_t lent = loan != NULL ? loan->len : 0;
            om_put_le32(record + OM_WAL_AT_CRC, 0);
            wal->chain = om_crc32c(wal->chain, record, om_get_le32(record + OM_WAL_AT_LEN) - lent);
            if (loan != NULL) /* it is the end of its record */
                wal->chain = chain_loan(wal->chain, loan);
            om_put_le32(record + OM_WAL_AT_CRC, wal->chain);
            at += record_room(record) - lent;
            next += loan != NULL;
        }
    }
}

/* ---- writing ---- */

/* Next file. Without a spare one and without space to make one, if only a small one that takes the group and
 * more, the group waits: nothing of it was written, so nothing is lost, and appends get NO_SPACE until a
 * checkpoint releases a file or the disk has room again. Only a closing WAL can't wait. */
static int roll(om_wal *wal, uint64_t first_seq, uint64_t size) {
    char err[320];
    om_wal_file *file;
    for (;;) {
        uint32_t epoch = atomic_load(&wal->epoch);
        int result = om_wal_take_file(wal, epoch, wal->chain_seq, first_seq, &file, err, sizeof err);
        if (result == OM_E_NO_SPACE && om_wal_make_small_spare(wal, 2 * size, err, sizeof err) == OM_OK)
            result = om_wal_take_file(wal, epoch, wal->chain_seq, first_seq, &file, err, sizeof err);
        if (result == OM_OK)
            break;
        if ((result != OM_E_NO_SPACE && result != OM_E_NO_MEMORY) || atomic_load(&wal->stop)) {
            om_wal_fence_raise(wal, err, 0);
            return 0;
        }
        if (!atomic_exchange(&wal->starved, 1))
            om_wal_notify(wal);
        struct timespec until = om_wal_timespec(om_wal_now() + STARVED_RETRY_NS);
        pthread_mutex_lock(&wal->lock);
        if (wal->spares == NULL && !atomic_load(&wal->stop))
            pthread_cond_timedwait(&wal->room, &wal->lock, &until);
        pthread_mutex_unlock(&wal->lock);
    }
    if (atomic_exchange(&wal->starved, 0))
        om_wal_notify(wal);
    om_wal_use_file(wal, file, 1);
    return 1;
}

/* An empty head is as good as any other file. */
static uint64_t kept_for_a_start(om_wal *wal, uint64_t end) {
    uint64_t size = wal->head_file->size, kept = om_wal_kept_of(size);
    if (end + kept <= size || wal->position == OM_WAL_BLOCK)
        return 0;
    pthread_mutex_lock(&wal->lock);
    int none = wal->spares == NULL && !wal->preparing && (atomic_load(&wal->lean) || !om_wal_wants_file(wal));
    pthread_mutex_unlock(&wal->lock);
    return none ? kept : 0;
}

/* A file without a name is synced like any other, and found by nobody afterwards: somebody removed it,
 * or the whole data directory. Once per group, next to a sync: a third of a microsecond. Only the number of
 * links is asked for: once the times were looked at, as fstat does, kernels with fine-grained timestamps give
 * the next write a new one, and the sync behind it brings that to disk, too. */
static int has_name(const om_wal_file *file) {
    struct statx info;
    return statx(file->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &info) == 0 && info.stx_nlink > 0;
}

static int commit(om_wal *wal, om_wal_group *group) {
    char text[384];
    uint64_t size = om_wal_round(group->size, OM_WAL_BLOCK), end = wal->position + size;
    if (end + kept_for_a_start(wal, end) > wal->head_file->size && !roll(wal, group->first_seq, size))
        return 0;
    chain_crcs(wal, group, wal->position);
    if (om_wal_write_group(wal, group) != OM_OK) {
        snprintf(text, sizeof text, "writing the WAL file %s: %m", wal->head_file->name);
        om_wal_fence_raise(wal, text, wal->position);
        return 0;
    }
    uint64_t start = om_wal_now();
    if (fdatasync(wal->head_file->fd) != 0) {
        snprintf(text, sizeof text, "syncing the WAL file %s: %m", wal->head_file->name);
        om_wal_fence_raise(wal, text, wal->position);
        return 0;
    }
    if (!has_name(wal->head_file)) {
        snprintf(text, sizeof text, "the WAL file %s was removed while in use", wal->head_file->name);
        om_wal_fence_raise(wal, text, wal->position);
        return 0;
    }
    atomic_fetch_add_explicit(&wal->sync_ns, om_wal_now() - start, memory_order_relaxed);
    atomic_fetch_add_explicit(&wal->groups, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&wal->group_bytes, size, memory_order_relaxed);
    atomic_fetch_add_explicit(&wal->group_records, group->records, memory_order_relaxed);
    wal->position += size;
    return 1;
}

/* It is on disk: the lenders may do with it what they like. */
static void give_loans_back(const om_wal_group *group) {
    for (int i = 0; i < group->count; i++) {
        om_wal_buffer *buffer = group->ranges[i].buffer;
        for (; buffer->loans_taken < group->ranges[i].loans_end; buffer->loans_taken++)
            om_buffer_unref(buffer->loans[buffer->loans_taken].lender);
    }
}

/* ---- publishing: with the lock held ---- */

/* Buffers before the tail take no more records; the store may still fill the tail. */
static void retire_buffers(om_wal *wal) {
    while (wal->head != wal->tail && wal->head->taken == wal->head->submitted) {
        om_wal_buffer *buffer = wal->head;
        wal->head = buffer->next;
        om_wal_buffer_free(wal, buffer);
    }
}

static void publish(om_wal *wal, const om_wal_group *group) {
    for (int i = 0; i < group->count; i++)
        group->ranges[i].buffer->taken = group->ranges[i].end;
    wal->chain_seq = group->last_seq;
    wal->queued -= group->bytes;
    if (group->leftover && group->urgent_since != 0)
        wal->urgent_since = group->urgent_since;
    if (group->leftover && group->lazy_deadline != 0)
        wal->lazy_deadline = group->lazy_deadline;
    retire_buffers(wal);
    wal->head_bytes = wal->position;
    om_wal_update_used(wal);
    if (wal->header_pending) {
        wal->header_pending = 0;
        om_wal_recycle(wal);
    }
    uint64_t committed = atomic_load_explicit(&wal->committed, memory_order_relaxed);
    atomic_store_explicit(&wal->committed, committed + group->bytes, memory_order_release);
    if (group->whole_seq != 0)
        atomic_store_explicit(&wal->durable_seq, group->whole_seq, memory_order_release);
    if (wal->waiters > 0)
        pthread_cond_broadcast(&wal->done);
}

void *om_wal_commit_main(void *argument) {
    om_wal *wal = argument;
    om_wal_group group;
    pthread_mutex_lock(&wal->lock);
    while (wait_for_work(wal)) {
        take_ranges(wal, &group);
        pthread_mutex_unlock(&wal->lock);
        measure(wal, &group);
        if (commit(wal, &group)) {
            give_loans_back(&group);
            pthread_mutex_lock(&wal->lock);
            publish(wal, &group);
            pthread_mutex_unlock(&wal->lock);
            om_wal_notify(wal);
        }
        pthread_mutex_lock(&wal->lock);
    }
    pthread_mutex_unlock(&wal->lock);
    return NULL;
}
