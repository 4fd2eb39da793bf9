/* wal_prepare.c -- the WAL files in use, the spare ones, and the thread that makes more.
 *
 *   new ---> spare ---> head ---> sealed ---> released --+--> spare again, for ever
 *    ^ zero-filled once                                  '--> gone: one too many, or suspect
 *
 * The preparer keeps one spare file ready, the last of them past what settles may use; after that only
 * recycled files are used. Should there be none when the committer needs one, it makes one
 * itself: the limits are soft, and the extra file goes when it is released. */
#define _GNU_SOURCE
#include "wal/wal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_NS 1000000000u
#define SMALL_STEP (64u << 10)
#define PAUSE_NS 10000000u

static uint64_t total_files(const om_wal *wal) {
    return wal->live_files + wal->spare_files + wal->making_files;
}

static void push_spare(om_wal *wal, om_wal_file *file) {
    file->next = wal->spares;
    wal->spares = file;
    wal->spare_files++;
    if (atomic_exchange(&wal->lean, OM_WAL_NOT_LEAN) == OM_WAL_LEAN)
        pthread_cond_signal(&wal->work); /* what was gathered needn't wait for more */
}

void om_wal_update_used(om_wal *wal) {
    atomic_store_explicit(&wal->used, wal->sealed_bytes + wal->head_bytes, memory_order_relaxed);
    atomic_store_explicit(&wal->head_room, wal->head_file->size - wal->head_bytes, memory_order_relaxed);
    atomic_store_explicit(&wal->kept, om_wal_kept_of(wal->head_file->size) + 2 * OM_WAL_BLOCK, memory_order_relaxed);
}

/* A sealed file stays until its successor's header is on disk: the newest durable header is
 * the next start's only source of number, epoch and sequence. */
static int is_released(const om_wal *wal, const om_wal_file *file) {
    if (file == NULL || file == wal->head_file)
        return 0;
    if (file->next == wal->head_file && wal->header_pending)
        return 0;
    return file->last_seq <= wal->released_seq;
}

int om_wal_recycle(om_wal *wal) {
    int freed = 0;
    while (is_released(wal, wal->oldest)) {
        om_wal_file *file = wal->oldest;
        wal->oldest = file->next;
        wal->sealed_bytes -= file->size;
        wal->live_files--;
        if (file->suspect || file->size != wal->options.file_size || total_files(wal) >= wal->max_files) {
            file->next = wal->surplus;
            wal->surplus = file;
        } else {
            push_spare(wal, file);
        }
        freed = 1;
    }
    if (freed) {
        om_wal_update_used(wal);
        pthread_cond_broadcast(&wal->room);
        pthread_cond_signal(&wal->prepare);
    }
    return freed;
}

int om_wal_dir_fd(const om_wal *wal) {
    return wal->dir_fd;
}

int om_wal_files_in_use(om_wal *wal, om_wal_file ***files, size_t *count, uint64_t *durable_seq) {
    int result = OM_OK;
    pthread_mutex_lock(&wal->lock);
    *durable_seq = om_wal_durable_seq(wal);
    *count = 0;
    *files = calloc(wal->live_files, sizeof **files);
    for (om_wal_file *file = wal->oldest; file != NULL && result == OM_OK; file = file->next) {
        /* A header that isn't on disk yet has nothing durable behind it. */
        if (file == wal->head_file && wal->header_pending)
            break;
        om_wal_file *twin = *files == NULL ? NULL : calloc(1, sizeof *twin);
        if (twin == NULL) {
            result = OM_E_NO_MEMORY;
            break;
        }
        /* Not the rest: some of it changes without the lock. */
        twin->header = file->header;
        twin->size = file->size;
        twin->fd = -1;
        memcpy(twin->name, file->name, sizeof twin->name);
        (*files)[(*count)++] = twin;
    }
    pthread_mutex_unlock(&wal->lock);
    return result;
}

static om_wal_file *pop_spare(om_wal *wal) {
    pthread_mutex_lock(&wal->lock);
    /* Better wait for a file that is half made than make the disk write two. */
    while (wal->spares == NULL && wal->preparing) {
        wal->hurry = 1;
        pthread_cond_signal(&wal->prepare);
        pthread_cond_wait(&wal->room, &wal->lock);
    }
    om_wal_file *file = wal->spares;
    if (file != NULL) {
        wal->spares = file->next;
        wal->spare_files--;
        file->next = NULL;
        int sure = OM_WAL_NOT_LEAN;
        if (wal->spares == NULL)
            atomic_compare_exchange_strong(&wal->lean, &sure, OM_WAL_MAYBE_LEAN);
    }
    wal->making_files++; /* until it is in use */
    pthread_cond_signal(&wal->prepare);
    pthread_mutex_unlock(&wal->lock);
    return file;
}

static void unmake(om_wal *wal, om_wal_file *file, int keep) {
    pthread_mutex_lock(&wal->lock);
    wal->making_files--;
    if (keep)
        push_spare(wal, file);
    pthread_cond_signal(&wal->prepare); /* which may have left it to us */
    pthread_mutex_unlock(&wal->lock);
    if (file != NULL && !keep)
        om_wal_file_remove(wal->dir_fd, file);
}

/* An open file, spare or new. A spare one that can't be opened (somebody removed it) is no loss. */
static int get_file(om_wal *wal, om_wal_file **file, char *err, size_t err_len) {
    for (;;) {
        *file = pop_spare(wal);
        int result = OM_OK;
        if (*file == NULL)
            result = om_wal_file_create(wal->dir_fd, wal->options.file_size, file, err, err_len);
        else if ((*file)->fd < 0)
            result = om_wal_file_open(wal->dir_fd, *file, O_RDWR, err, err_len);
        if (result == OM_OK)
            return OM_OK;
        int keep = *file != NULL && result == OM_E_NO_MEMORY;
        int again = *file != NULL && !keep;
        unmake(wal, *file, keep);
        if (!again)
            return result;
    }
}

int om_wal_make_small_spare(om_wal *wal, uint64_t bytes, char *err, size_t err_len) {
    om_wal_file *file;
    uint64_t least = OM_WAL_BLOCK + om_wal_round(bytes, OM_WAL_BLOCK);
    int result = OM_E_NO_SPACE;
    for (uint64_t size = wal->options.file_size / 2; result == OM_E_NO_SPACE && size >= least; size /= 2)
        result = om_wal_file_create(wal->dir_fd, om_wal_round(size, OM_WAL_BLOCK), &file, err, err_len);
    if (result != OM_OK)
        return result;
    pthread_mutex_lock(&wal->lock);
    file->next = wal->spares; /* lean all the same */
    wal->spares = file;
    wal->spare_files++;
    pthread_mutex_unlock(&wal->lock);
    return OM_OK;
}

int om_wal_take_file(om_wal *wal, uint32_t epoch, uint64_t prev_last_seq, uint64_t first_seq, om_wal_file **file,
                     char *err, size_t err_len) {
    int result = get_file(wal, file, err, err_len);
    if (result != OM_OK)
        return result;
    if (atomic_load(&wal->direct))
        om_wal_direct_set((*file)->fd, 1);
    om_wal_header_make(&(*file)->header, ++wal->last_number, epoch, prev_last_seq, first_seq);
    om_wal_file_rename(wal->dir_fd, *file);
    return OM_OK;
}

int om_wal_write_header(om_wal *wal, om_wal_file *file, char *err, size_t err_len) {
    _Alignas(OM_WAL_BLOCK) uint8_t block[OM_WAL_BLOCK];
    om_wal_header_encode(&file->header, block);
    struct iovec iov = {.iov_base = block, .iov_len = sizeof block};
    if (om_wal_file_write(file->fd, &iov, 1, 0) == OM_OK && fdatasync(file->fd) == 0)
        return OM_OK;
    snprintf(err, err_len, "writing the header of %s: %m", file->name);
    unmake(wal, file, 0);
    return OM_E_IO;
}

void om_wal_use_file(om_wal *wal, om_wal_file *file, int header_pending) {
    om_wal_file *sealed = wal->head_file;
    if (sealed != NULL)
        om_wal_file_close(sealed);
    pthread_mutex_lock(&wal->lock);
    if (sealed != NULL) {
        sealed->last_seq = wal->chain_seq;
        sealed->next = file;
        wal->sealed_bytes += sealed->size;
    } else {
        wal->oldest = file;
    }
    wal->head_file = file;
    wal->header_pending = header_pending;
    wal->making_files--;
    wal->live_files++;
    wal->head_bytes = OM_WAL_BLOCK;
    om_wal_update_used(wal);
    om_wal_recycle(wal);
    pthread_cond_signal(&wal->prepare); /* the next one, before this one is full */
    pthread_mutex_unlock(&wal->lock);
    wal->position = OM_WAL_BLOCK;
    wal->chain = file->header.seed;
    wal->chain_seq = file->header.first_seq - 1;
}

/* As long as settles are taken: without a spare file they have no place to go on, and whether one can be
 * had must be known while there is still room in the head (om_wal_lean_reserve). By bytes: starts on a full
 * disk leave small files. */
int om_wal_wants_file(const om_wal *wal) {
    uint64_t bytes = wal->sealed_bytes + (wal->head_file == NULL ? 0 : wal->head_file->size);
    uint64_t making = wal->making_files * wal->options.file_size;
    return wal->spares == NULL && bytes + making <= wal->options.max_size + wal->options.reserve;
}

/* With the lock held; let go meanwhile. */
static void remove_surplus(om_wal *wal) {
    om_wal_file *file = wal->surplus;
    wal->surplus = file->next;
    pthread_mutex_unlock(&wal->lock);
    om_wal_file_remove(wal->dir_fd, file);
    pthread_mutex_lock(&wal->lock);
}

/* How much of a new file to write next; 0: none, the WAL is being closed.
 *
 * Commits share the disk with it. Written in one go, a file of 64 MiB made the confirms of that
 * moment wait for milliseconds. It isn't needed before the head is full, so it keeps a little ahead of the
 * head, in small steps; while the head stands still, it gets on by a small step now and then, for the
 * burst that may come. Only when the committer stands there waiting is it made as fast as can be. */
static uint64_t next_step(om_wal *wal, uint64_t filled) {
    struct timespec until = om_wal_timespec(om_wal_now() + PAUSE_NS);
    uint64_t step = 0;
    pthread_mutex_lock(&wal->lock);
    while (step == 0 && !atomic_load(&wal->stop)) {
        uint64_t wanted = wal->head_bytes + wal->head_bytes / 4;
        if (wal->hurry)
            step = OM_WAL_MAKE_STEP;
        else if (wanted > filled)
            step = wanted - filled > SMALL_STEP ? wanted - filled : SMALL_STEP;
        else if (pthread_cond_timedwait(&wal->prepare, &wal->lock, &until) == ETIMEDOUT)
            step = SMALL_STEP;
    }
    pthread_mutex_unlock(&wal->lock);
    return step;
}

/* It has its space. Waiters hear of it by this, or by the syncs of the groups that fill an empty head. */
static void note_next_file(om_wal *wal) {
    int maybe = OM_WAL_MAYBE_LEAN;
    pthread_mutex_lock(&wal->lock);
    if (atomic_compare_exchange_strong(&wal->lean, &maybe, OM_WAL_NOT_LEAN) && wal->head_bytes > OM_WAL_BLOCK)
        om_wal_notify(wal);
    pthread_mutex_unlock(&wal->lock);
}

static int make_slowly(om_wal *wal, om_wal_file **file, char *err, size_t err_len) {
    om_wal_making making;
    int result = om_wal_make_begin(&making, wal->dir_fd, wal->options.file_size, err, err_len);
    if (result == OM_OK)
        note_next_file(wal);
    while (result == OM_OK && making.filled < making.file->size) {
        uint64_t step = next_step(wal, making.filled);
        if (step == 0) {
            om_wal_make_drop(&making, wal->dir_fd);
            return OM_END;
        }
        result = om_wal_make_step(&making, wal->dir_fd, step, err, err_len);
    }
    return result == OM_OK ? om_wal_make_end(&making, wal->dir_fd, file, err, err_len) : result;
}

static int prepare_one(om_wal *wal) {
    char err[256];
    om_wal_file *file = NULL;
    wal->preparing = 1;
    wal->making_files++;
    pthread_mutex_unlock(&wal->lock);
    int result = make_slowly(wal, &file, err, sizeof err);
    pthread_mutex_lock(&wal->lock);
    wal->preparing = wal->hurry = 0;
    wal->making_files--;
    int was_lean = atomic_load(&wal->lean);
    if (result == OM_OK)
        push_spare(wal, file);
    else if (result == OM_E_NO_SPACE && wal->spares == NULL)
        atomic_store(&wal->lean, OM_WAL_LEAN);
    pthread_cond_broadcast(&wal->room);
    if (was_lean != atomic_load(&wal->lean))
        om_wal_notify(wal);
    return result;
}

void *om_wal_prepare_main(void *argument) {
    om_wal *wal = argument;
    uint64_t retry_at = 0;
    pthread_mutex_lock(&wal->lock);
    while (!atomic_load(&wal->stop)) {
        uint64_t now = om_wal_now();
        if (wal->surplus != NULL) {
            remove_surplus(wal);
        } else if (!om_wal_wants_file(wal)) {
            pthread_cond_wait(&wal->prepare, &wal->lock);
        } else if (now < retry_at) {
            struct timespec until = om_wal_timespec(retry_at);
            pthread_cond_timedwait(&wal->prepare, &wal->lock, &until);
        } else if (prepare_one(wal) != OM_OK) {
            /* A full disk is early here: there is still the head (om_wal_admit). */
            retry_at = om_wal_now() + RETRY_NS;
        }
    }
    pthread_mutex_unlock(&wal->lock);
    return NULL;
}
