/* wal_file.c -- WAL files on disk: header block, names. See wal_file.h for the
 * layout and for what a crash may leave behind. */
#define _GNU_SOURCE
#include "wal/wal_file.h"
#include "base/bytes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the header block ---- */

void om_wal_header_encode(const om_wal_header *header, uint8_t *block) {
    memset(block, 0, OM_WAL_BLOCK);
    memcpy(block, OM_WAL_MAGIC, 8);
    om_put_le32(block + 8, OM_WAL_VERSION);
    om_put_le32(block + 12, header->epoch);
    om_put_le64(block + 16, header->number);
    om_put_le64(block + 24, header->prev_last_seq);
    om_put_le64(block + 32, header->first_seq);
    om_put_le32(block + 40, header->seed);
    om_put_le32(block + 44, om_crc32c(0, block, 44));
    memcpy(block + OM_WAL_HEADER_COPY, block, OM_WAL_HEADER_LEN);
}

static int decode_copy(const uint8_t *at, om_wal_header *header) {
    if (memcmp(at, OM_WAL_MAGIC, 8) != 0 || om_get_le32(at + 44) != om_crc32c(0, at, 44))
        return OM_E_CORRUPT;
    if (om_get_le32(at + 8) != OM_WAL_VERSION)
        return OM_E_UNSUPPORTED;
    header->epoch = om_get_le32(at + 12);
    header->number = om_get_le64(at + 16);
    header->prev_last_seq = om_get_le64(at + 24);
    header->first_seq = om_get_le64(at + 32);
    header->seed = om_get_le32(at + 40);
    if (header->number == 0 || header->epoch == 0 || header->first_seq <= header->prev_last_seq)
        return OM_E_CORRUPT;
    return OM_OK;
}

int om_wal_header_decode(const uint8_t *block, om_wal_header *header) {
    static const uint8_t blank[OM_WAL_HEADER_LEN];
    const uint8_t *copy = block + OM_WAL_HEADER_COPY;
    om_wal_header first, second;
    int a = decode_copy(block, &first);
    int b = decode_copy(copy, &second);
    if (a == OM_OK && (b != OM_OK || first.number >= second.number))
        *header = first;
    else if (b == OM_OK)
        *header = second;
    else if (a == OM_E_UNSUPPORTED || b == OM_E_UNSUPPORTED)
        return OM_E_UNSUPPORTED;
    else if (memcmp(block, blank, sizeof blank) == 0 && memcmp(copy, blank, sizeof blank) == 0)
        return OM_END;
    else
        return OM_E_CORRUPT;
    return OM_OK;
}

void om_wal_header_make(om_wal_header *header, uint64_t number, uint32_t epoch, uint64_t prev_last_seq,
                        uint64_t first_seq) {
    *header = (om_wal_header){.number = number, .epoch = epoch, .prev_last_seq = prev_last_seq, .first_seq = first_seq};
    if (getrandom(&header->seed, sizeof header->seed, GRND_NONBLOCK) != sizeof header->seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        header->seed = (uint32_t)now.tv_nsec * 2654435761u ^ (uint32_t)now.tv_sec;
    }
}

uint16_t om_wal_group_mark(const om_wal_header *header, uint64_t seq, uint64_t position) {
    uint8_t at[20];
    om_put_le64(at, seq);
    om_put_le64(at + 8, position);
    om_put_le32(at + 16, header->epoch);
    uint32_t crc = om_crc32c(header->seed, at, sizeof at);
    return (uint16_t)(crc ^ crc >> 16);
}

/* ---- a directory of them ---- */

int om_wal_io_result(void) {
    switch (errno) {
    case ENOSPC:
    case EDQUOT:
        return OM_E_NO_SPACE;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return OM_E_NO_MEMORY;
    default:
        return OM_E_IO;
    }
}

om_wal_file *om_wal_file_new(const char *name) {
    om_wal_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    file->fd = -1;
    snprintf(file->name, sizeof file->name, "%s", name);
    return file;
}

static int read_header(int dir_fd, om_wal_file *file, char *err, size_t err_len) {
    uint8_t block[OM_WAL_BLOCK];
    struct stat stat;
    int result = om_wal_file_open(dir_fd, file, O_RDONLY, err, err_len);
    if (result != OM_OK)
        return result;
    ssize_t got = 0;
    if (fstat(file->fd, &stat) != 0 || (got = pread(file->fd, block, sizeof block, 0)) < 0) {
        snprintf(err, err_len, "reading the header of %s: %m", file->name);
        om_wal_file_close(file);
        return OM_E_IO;
    }
    om_wal_file_close(file);
    file->size = (uint64_t)stat.st_size;
    memset(block + got, 0, sizeof block - (size_t)got);
    result = om_wal_header_decode(block, &file->header);
    if (result == OM_E_UNSUPPORTED) {
        snprintf(err, err_len, "%s was written by another version of this broker", file->name);
        return result;
    }
    if (result != OM_OK)
        file->header = (om_wal_header){0};
    file->unreadable = result == OM_E_CORRUPT;
    return OM_OK;
}

static int by_number(const void *left, const void *right) {
    const om_wal_file *a = *(om_wal_file *const *)left, *b = *(om_wal_file *const *)right;
    if (a->header.number != b->header.number)
        return a->header.number < b->header.number ? -1 : 1;
    return strcmp(a->name, b->name);
}

void om_wal_files_free(om_wal_file **files, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (files[i] != NULL)
            om_wal_file_close(files[i]);
        free(files[i]);
    }
    free(files);
}

static int ends_with(const char *name, const char *end) {
    size_t len = strlen(name), end_len = strlen(end);
    return len > end_len && strcmp(name + len - end_len, end) == 0;
}

static DIR *open_listing(int dir_fd) {
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL && fd >= 0)
        close(fd);
    return dir;
}

/* The next name that ends so, in `name`; 0 at the end, -1 with errno when the listing failed. */
static int next_name(DIR *dir, const char *end, const char **name) {
    struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(dir);
        if (entry == NULL)
            return errno == 0 ? 0 : -1;
    } while (!ends_with(entry->d_name, end));
    *name = entry->d_name;
    return 1;
}

static int add_file(om_wal_file ***files, size_t *count, const char *name) {
    om_wal_file *file = om_wal_file_new(name);
    om_wal_file **grown = file == NULL ? NULL : realloc(*files, (*count + 1) * sizeof **files);
    if (grown == NULL) {
        free(file);
        return OM_E_NO_MEMORY;
    }
    grown[(*count)++] = file;
    *files = grown;
    return OM_OK;
}

int om_wal_files_list(int dir_fd, om_wal_file ***files, size_t *count, char *err, size_t err_len) {
    om_wal_file **list = NULL;
    size_t used = 0;
    const char *name;
    int more = -1, result = OM_OK;
    DIR *dir = open_listing(dir_fd);
    while (dir != NULL && result == OM_OK && (more = next_name(dir, ".wal", &name)) > 0) {
        result = add_file(&list, &used, name);
        if (result == OM_OK)
            result = read_header(dir_fd, list[used - 1], err, err_len);
        else
            snprintf(err, err_len, "out of memory");
    }
    if (more < 0) {
        snprintf(err, err_len, "listing the WAL's folder: %m");
        result = OM_E_IO;
    }
    if (dir != NULL)
        closedir(dir);
    if (result != OM_OK) {
        om_wal_files_free(list, used);
        return result;
    }
    if (used > 0)
        qsort(list, used, sizeof *list, by_number);
    *files = list;
    *count = used;
    return OM_OK;
}

int om_wal_remove_temporaries(int dir_fd, char *err, size_t err_len) {
    const char *name;
    int more = -1;
    DIR *dir = open_listing(dir_fd);
    while (dir != NULL && (more = next_name(dir, ".tmp", &name)) > 0)
        unlinkat(dir_fd, name, 0);
    if (more < 0)
        snprintf(err, err_len, "listing the WAL's folder: %m");
    if (dir != NULL)
        closedir(dir);
    return more < 0 ? OM_E_IO : OM_OK;
}

int om_wal_file_open(int dir_fd, om_wal_file *file, int flags, char *err, size_t err_len) {
    file->fd = openat(dir_fd, file->name, flags | O_CLOEXEC);
    if (file->fd >= 0)
        return OM_OK;
    snprintf(err, err_len, "opening %s: %m", file->name);
    return om_wal_io_result();
}

void om_wal_file_close(om_wal_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

void om_wal_file_remove(int dir_fd, om_wal_file *file) {
    om_wal_file_close(file);
    unlinkat(dir_fd, file->name, 0);
    free(file);
}

void om_wal_file_rename(int dir_fd, om_wal_file *file) {
    char name[32];
    snprintf(name, sizeof name, "%016" PRIu64 ".wal", file->header.number);
    /* After a crash another file may sit under this name: names are for people, and it stays. */
    if (faccessat(dir_fd, name, F_OK, 0) == 0 || renameat(dir_fd, file->name, dir_fd, name) != 0)
        return;
    memcpy(file->name, name, sizeof name);
}

int om_wal_file_set_aside(int dir_fd, const om_wal_file *file, int needed, char *err, size_t err_len) {
    char name[sizeof file->name + 32];
    int failed;
    for (int n = 0;; n++) {
        if (n == 0)
            snprintf(name, sizeof name, "%s.damaged", file->name);
        else
            snprintf(name, sizeof name, "%s.damaged-%d", file->name, n);
        failed = linkat(dir_fd, file->name, dir_fd, name, 0) != 0;
        if (!failed || errno != EEXIST)
            break;
    }
    if (!failed && !needed)
        failed = unlinkat(dir_fd, file->name, 0) != 0;
    if (failed)
        snprintf(err, err_len, "setting %s aside: %m", file->name);
    return failed ? OM_E_IO : OM_OK;
}

int om_wal_file_write(int fd, struct iovec *iov, int iovcnt, uint64_t offset) {
    while (iovcnt > 0) {
        ssize_t wrote = pwritev(fd, iov, iovcnt, (off_t)offset);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            if (wrote == 0)
                errno = EIO;
            return OM_E_IO;
        }
        offset += (uint64_t)wrote;
        size_t left = (size_t)wrote;
        while (iovcnt > 0 && left >= iov->iov_len) {
            left -= iov->iov_len;
            iov++;
            iovcnt--;
        }
        if (iovcnt > 0) {
            iov->iov_base = (uint8_t *)iov->iov_base + left;
            iov->iov_len -= left;
        }
    }
    return OM_OK;
}
