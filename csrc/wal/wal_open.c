/* wal_open.c -- opening and closing the WAL. A start never goes on in an old file: it begins a
 * new one with a new epoch, and that header is on disk before the first record is taken, so no
 * epoch is ever given out twice. */
#define _GNU_SOURCE
#include "wal/wal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *refuse_options(const om_wal_options *options) {
    if (options->file_size < 1u << 20 || options->file_size % OM_WAL_BLOCK != 0)
        return "file_size must be a multiple of 4 KiB and at least 1 MiB";
    if (options->max_size < 3 * options->file_size)
        return "max_size must hold at least 3 files";
    if (options->reserve > options->max_size - 2 * options->file_size)
        return "reserve must leave room for 2 files";
    if (options->batch_max_size == 0 || options->backlog_max == 0 || options->backlog_max > UINT64_MAX / 4 ||
        options->max_size > UINT64_MAX / 4)
        return "sizes out of range";
    if (options->direct_io < 0 || options->direct_io > 2)
        return "direct_io must be 0, 1 or 2";
    return NULL;
}

static int open_folder(const char *dir, char *err, size_t err_len) {
    /* Each time: the process that made it may have been killed before it synced its name. */
    if (mkdir(dir, 0750) == 0 || errno == EEXIST) {
        char parent[PATH_MAX];
        snprintf(parent, sizeof parent, "%s", dir);
        int fd = open(dirname(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int synced = fd >= 0 && fsync(fd) == 0;
        if (!synced)
            snprintf(err, err_len, "syncing the folder of %s: %m", dir);
        if (fd >= 0)
            close(fd);
        if (!synced)
            return -1;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        snprintf(err, err_len, "opening %s: %m", dir);
    return fd;
}

static om_wal *wal_new(const om_wal_options *options) {
    om_wal *wal = NULL;
    if (posix_memalign((void **)&wal, 64, sizeof *wal) != 0)
        return NULL;
    memset(wal, 0, sizeof *wal);
    wal->options = *options;
    wal->dir_fd = -1;
    wal->max_files = options->max_size / options->file_size;
    wal->group_max = options->file_size - OM_WAL_BLOCK;
    wal->buffer_size = OM_WAL_BUFFER < wal->group_max ? OM_WAL_BUFFER : (uint32_t)wal->group_max;
    if (options->batch_max_size < wal->group_max)
        wal->group_max = options->batch_max_size;
    atomic_store(&wal->notify_fd, -1);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&wal->lock, NULL);
    pthread_cond_init(&wal->work, &clock);
    pthread_cond_init(&wal->room, &clock);
    pthread_cond_init(&wal->prepare, &clock);
    pthread_cond_init(&wal->done, &clock);
    pthread_condattr_destroy(&clock);
    return wal;
}

static void files_free(om_wal_file *file) {
    while (file != NULL) {
        om_wal_file *next = file->next;
        om_wal_file_close(file);
        free(file);
        file = next;
    }
}

static void wal_free(om_wal *wal) {
    om_wal_drop_buffers(wal);
    om_wal_buffers_delete(wal->pool);
    files_free(wal->oldest);
    files_free(wal->spares);
    while (wal->surplus != NULL) {
        om_wal_file *file = wal->surplus;
        wal->surplus = file->next;
        om_wal_file_remove(wal->dir_fd, file);
    }
    if (wal->dir_fd >= 0)
        close(wal->dir_fd);
    pthread_cond_destroy(&wal->work);
    pthread_cond_destroy(&wal->room);
    pthread_cond_destroy(&wal->prepare);
    pthread_cond_destroy(&wal->done);
    pthread_mutex_destroy(&wal->lock);
    free(wal->staging);
    free(wal->refused);
    free(wal);
}

/* A file that is needed, or the newest: even without a needed record its header tells the next
 * start where things stand, until a newer header is on disk. */
static void keep(om_wal *wal, om_wal_file *file) {
    if (wal->head_file == NULL) {
        wal->oldest = file;
    } else {
        wal->head_file->next = file;
        wal->sealed_bytes += wal->head_file->size;
    }
    wal->head_file = file;
    wal->live_files++;
}

static void set_free(om_wal *wal, om_wal_file *file) {
    int useful = file->size == wal->options.file_size && wal->spare_files < wal->max_files;
    om_wal_file **list = useful ? &wal->spares : &wal->surplus;
    file->next = *list;
    *list = file;
    wal->spare_files += (uint64_t)useful;
}

/* Sort what is there into files in use, spare ones, ones to be removed, and, behind a hole, ones
 * to be set aside. The file the hole is in stays until it is released; its copy stays longer. */
static int adopt(om_wal *wal, const om_wal_tail *after, om_wal_file *file, char *err, size_t err_len) {
    uint64_t number = file->header.number;
    int damaged = number != 0 && number == after->good_number && after->hole;
    if (number > after->good_number || damaged) {
        int result = om_wal_file_set_aside(wal->dir_fd, file, damaged, err, err_len);
        if (result != OM_OK || !damaged) {
            free(file);
            return result;
        }
        file->suspect = 1;
    }
    if (file->unreadable)
        free(file);
    else if (number != 0 && (wal->oldest != NULL || number == after->good_number || file->last_seq > wal->released_seq))
        keep(wal, file);
    else
        set_free(wal, file);
    return OM_OK;
}

static int adopt_files(om_wal *wal, const om_wal_tail *after, char *err, size_t err_len) {
    om_wal_file **files = NULL;
    size_t count = 0;
    int result = om_wal_files_list(wal->dir_fd, &files, &count, err, err_len);
    if (result != OM_OK)
        return result;
    uint64_t newest = count > 0 ? files[count - 1]->header.number : 0;
    if (newest != after->last_number) {
        snprintf(err, err_len, "the newest WAL file is %" PRIu64 ", but recovery ended with %" PRIu64, newest,
                 after->last_number);
        result = OM_E_STALE;
    }
    for (size_t i = 0; i < count && result == OM_OK; i++) {
        om_wal_file *file = files[i];
        files[i] = NULL;
        file->last_seq = after->last_seq;
        if (i + 1 < count && files[i + 1]->header.number <= after->good_number)
            file->last_seq = files[i + 1]->header.prev_last_seq;
        result = adopt(wal, after, file, err, err_len);
    }
    om_wal_files_free(files, count);
    if (result == OM_OK && after->hole && fsync(wal->dir_fd) != 0) {
        snprintf(err, err_len, "syncing the WAL's folder: %m");
        result = OM_E_IO;
    }
    return result;
}

/* After a kill, records may have been read that were never synced. The new file's header will
 * say they are there, so first they must be. */
static int sync_adopted(om_wal *wal, char *err, size_t err_len) {
    for (om_wal_file *file = wal->oldest; file != NULL; file = file->next) {
        int result = om_wal_file_open(wal->dir_fd, file, O_RDONLY, err, err_len);
        if (result != OM_OK)
            return result;
        if (fdatasync(file->fd) != 0) {
            snprintf(err, err_len, "syncing %s: %m", file->name);
            return OM_E_IO;
        }
        om_wal_file_close(file);
    }
    return OM_OK;
}

/* The last life's head was seldom full, and nobody will write there again. Killed again and again without
 * a checkpoint, such files would fill the WAL with nothing, and a disk without a block left would keep
 * the broker from starting: what is behind the head's end goes back. Failing that, it stays as it is. */
static void cut_last_head(om_wal *wal, const om_wal_tail *after) {
    char err[256];
    om_wal_file *last = wal->head_file;
    if (last == NULL || after->hole || after->good_end == 0 || last->header.number != after->good_number ||
        last->size <= after->good_end || om_wal_file_open(wal->dir_fd, last, O_RDWR, err, sizeof err) != OM_OK)
        return;
    if (ftruncate(last->fd, (off_t)after->good_end) == 0 && fsync(last->fd) == 0)
        last->size = after->good_end;
    om_wal_file_close(last);
}

/* Are more files in use than a life that ended well would leave? */
static int is_crowded(const om_wal *wal) {
    return wal->live_files + 1 > wal->max_files / 2;
}

/* Consumers must be able to drain a full disk: acks need no more than a small file. That there is room
 * for one, in the last life's head, is om_wal_lean_reserve's doing. */
static int make_small_file(om_wal *wal, const om_wal_tail *after, char *err, size_t err_len) {
    if (wal->head_file == NULL)
        return OM_E_NO_SPACE; /* a new log has nobody to serve */
    cut_last_head(wal, after);
    return om_wal_make_small_spare(wal, 3 * OM_WAL_BLOCK, err, err_len);
}

static int start_file(om_wal *wal, const om_wal_tail *after, char *err, size_t err_len) {
    om_wal_file *file;
    uint32_t epoch = after->epoch + 1;
    uint64_t first_seq = atomic_load(&wal->last_seq) + 1;
    if (is_crowded(wal))
        cut_last_head(wal, after);
    int result = om_wal_take_file(wal, epoch, after->last_seq, first_seq, &file, err, err_len);
    if (result == OM_E_NO_SPACE && make_small_file(wal, after, err, err_len) == OM_OK)
        result = om_wal_take_file(wal, epoch, after->last_seq, first_seq, &file, err, err_len);
    if (result != OM_OK)
        return result;
    int small = file->size < wal->options.file_size;
    atomic_store(&wal->lean, small ? OM_WAL_LEAN : wal->spares == NULL ? OM_WAL_MAYBE_LEAN : OM_WAL_NOT_LEAN);
    int direct = small ? 0 : om_wal_direct_choose(file->fd, wal->options.direct_io);
    if (direct < 0) {
        snprintf(err, err_len, "measuring %s: %m", file->name);
        om_wal_file_close(file);
        free(file);
        return direct;
    }
    if (direct && posix_memalign((void **)&wal->staging, OM_WAL_BLOCK, OM_WAL_STAGING) != 0)
        direct = 0;
    if (direct)
        om_wal_direct_set(file->fd, 1);
    atomic_store(&wal->direct, direct);
    result = om_wal_write_header(wal, file, err, err_len);
    if (result != OM_OK)
        return result;
    atomic_store(&wal->epoch, epoch);
    om_wal_use_file(wal, file, 0);
    om_wal_fence_remove(wal->dir_fd); /* the new header says the same */
    return OM_OK;
}

static int start_threads(om_wal *wal) {
    if (pthread_create(&wal->committer, NULL, om_wal_commit_main, wal) != 0)
        return 0;
    pthread_setname_np(wal->committer, "otter-commit");
    wal->started = 1;
    if (pthread_create(&wal->preparer, NULL, om_wal_prepare_main, wal) != 0)
        return 0;
    pthread_setname_np(wal->preparer, "otter-prepare");
    wal->started = 2;
    return 1;
}

static void stop_threads(om_wal *wal) {
    pthread_mutex_lock(&wal->lock);
    atomic_store(&wal->stop, 1);
    pthread_cond_broadcast(&wal->work);
    pthread_cond_broadcast(&wal->room);
    pthread_cond_broadcast(&wal->prepare);
    pthread_mutex_unlock(&wal->lock);
    if (wal->started > 0)
        pthread_join(wal->committer, NULL);
    if (wal->started > 1)
        pthread_join(wal->preparer, NULL);
}

om_wal *om_wal_open(const char *dir, const om_wal_options *options, const om_wal_tail *after, uint64_t released_seq,
                    char *err, size_t err_len) {
    const char *refused = refuse_options(options);
    if (refused != NULL) {
        snprintf(err, err_len, "%s", refused);
        return NULL;
    }
    om_wal *wal = wal_new(options);
    if (wal == NULL) {
        snprintf(err, err_len, "out of memory");
        return NULL;
    }
    uint64_t last_seq = after->next_seq > after->last_seq ? after->next_seq - 1 : after->last_seq;
    wal->released_seq = released_seq < last_seq ? released_seq : last_seq;
    wal->last_number = after->last_number;
    wal->chain_seq = after->last_seq;
    atomic_store(&wal->last_seq, last_seq);
    atomic_store(&wal->durable_seq, last_seq);
    wal->dir_fd = open_folder(dir, err, err_len);
    if (wal->dir_fd < 0 || om_wal_remove_temporaries(wal->dir_fd, err, err_len) != OM_OK ||
        adopt_files(wal, after, err, err_len) != OM_OK || sync_adopted(wal, err, err_len) != OM_OK ||
        start_file(wal, after, err, err_len) != OM_OK) {
        wal_free(wal);
        return NULL;
    }
    if (!start_threads(wal)) {
        snprintf(err, err_len, "starting the WAL's threads: %m");
        stop_threads(wal);
        wal_free(wal);
        return NULL;
    }
    return wal;
}

int om_wal_close(om_wal *wal) {
    om_wal_submit(wal, 0);
    stop_threads(wal);
    int result = atomic_load(&wal->fenced) ? OM_E_FENCED : OM_OK;
    wal_free(wal);
    return result;
}
