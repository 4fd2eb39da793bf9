/* removal_journal.c -- writes the journal of removals (removal_journal.h describes its format and its promise). */
#define _GNU_SOURCE
#include "store/removal_journal.h"

#include "base/blob.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_util.h"
#include "segment/file_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "OTTERRMV"
#define VERSION 1
#define HEADER 16
#define FIXED 96
#define SUFFIX ".removals"
#define FILE_MAX (64u << 20) /* more than we write: what is larger isn't ours */
#define FILE_SIZE (8u << 20) /* when nobody says another */
#define RESERVE (256u << 10) /* a thousand records or more */

struct om_removal_journal_file {
    pthread_mutex_t mutex;
    char dir[OM_PATH_MAX];
    uint64_t file_size; /* a new one begins behind this */
    uint64_t number;    /* of the file that is written; 0: none yet */
    uint64_t seq;       /* of the last record */
    uint64_t size, reserved;
    int fd;    /* -1: the next write begins a new file */
    int named; /* its name is on disk, and the folder's */
    int lived; /* this life is told of */
};

/* ---- reading what is there ---- */

/* A whole record at `at`: its length, else 0. */
static size_t record_at(const uint8_t *data, size_t size, size_t at) {
    if (size - at < FIXED)
        return 0;
    size_t len = om_get_le32(data + at);
    if (len < FIXED || len % 8 || len > size - at)
        return 0;
    static const uint8_t zero[4];
    uint32_t crc = om_crc32c(0, data + at, 4);
    crc = om_crc32c(crc, zero, sizeof zero);
    crc = om_crc32c(crc, data + at + 8, len - 8);
    return crc == om_get_le32(data + at + 4) ? len : 0;
}

typedef struct found {
    uint64_t first, last; /* sequences; 0: no record */
    int whole;            /* nothing but records: may be written on */
} found;

static void path_of(const om_removal_journal_file *file, uint64_t number, char *path, size_t cap) {
    snprintf(path, cap, "%.*s/%016llu" SUFFIX, OM_PATH_MAX - 64, file->dir, (unsigned long long)number);
}

static int scan(const om_removal_journal_file *file, uint64_t number, found *out) {
    char path[OM_PATH_MAX];
    struct stat stat;
    path_of(file, number, path, sizeof path);
    *out = (found){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return om_errno_result();
    uint8_t *data = fstat(fd, &stat) == 0 && stat.st_size <= FILE_MAX ? malloc((size_t)stat.st_size + 1) : NULL;
    ssize_t size = data ? pread(fd, data, (size_t)stat.st_size, 0) : -1;
    close(fd);
    int result = size < 0 ? OM_E_IO : OM_OK;
    size_t at = HEADER;
    out->whole = size >= HEADER && memcmp(data, MAGIC, 8) == 0 && om_get_le32(data + 8) == VERSION;
    while (size > 0 && at < (size_t)size) {
        size_t len = record_at(data, (size_t)size, at);
        if (len) {
            out->last = om_get_le64(data + at + 8);
            out->first = out->first ? out->first : out->last;
        } else {
            out->whole = 0; /* torn, or spoilt: good ones may follow */
        }
        at += len ? len : 8;
    }
    free(data);
    return result;
}

static uint64_t number_of(const char *name) {
    char *end;
    unsigned long long number = strtoull(name, &end, 10);
    return end - name == 16 && strcmp(end, SUFFIX) == 0 ? number : 0;
}

static int list(const om_removal_journal_file *file, uint64_t *oldest, uint64_t *newest) {
    DIR *dir = opendir(file->dir);
    if (!dir)
        return om_errno_result();
    struct dirent *entry;
    *oldest = *newest = 0;
    while ((entry = readdir(dir))) {
        uint64_t number = number_of(entry->d_name);
        if (number && (!*oldest || number < *oldest))
            *oldest = number;
        if (number > *newest)
            *newest = number;
    }
    closedir(dir);
    return OM_OK;
}

/* ---- a file ---- */

static void reserve(om_removal_journal_file *file) {
    if (file->size + RESERVE / 2 <= file->reserved)
        return;
    if (fallocate(file->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)(file->size + RESERVE)) == 0)
        file->reserved = file->size + RESERVE;
    /* else: there may be space for the record all the same */
}

static int begin(om_removal_journal_file *file) {
    char path[OM_PATH_MAX];
    uint8_t header[HEADER] = MAGIC;
    om_put_le32(header + 8, VERSION);
    path_of(file, file->number + 1, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0)
        return om_errno_result();
    int result = om_write_all(fd, header, sizeof header);
    if (result != OM_OK) {
        close(fd);
        unlink(path);
        return result;
    }
    if (file->fd >= 0)
        close(file->fd);
    file->fd = fd;
    file->number++;
    file->size = HEADER;
    file->reserved = 0;
    file->named = 0;
    reserve(file);
    return OM_OK;
}

static int go_on(om_removal_journal_file *file) {
    char path[OM_PATH_MAX];
    path_of(file, file->number, path, sizeof path);
    file->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file->fd < 0)
        return om_errno_result();
    file->size = (uint64_t)lseek(file->fd, 0, SEEK_END);
    reserve(file);
    return OM_OK;
}

/* Where the last life stopped: the last record may be in a file before the newest. */
static int find_end(om_removal_journal_file *file) {
    uint64_t oldest, newest;
    int result = list(file, &oldest, &newest);
    if (result != OM_OK || !newest)
        return result == OM_OK ? begin(file) : result;
    int whole = 0;
    for (uint64_t number = newest; number >= oldest && number && !file->seq; number--) {
        found found;
        result = scan(file, number, &found);
        if (result != OM_OK && number == newest)
            return result;
        whole |= number == newest && found.whole;
        file->seq = found.last;
    }
    file->number = newest;
    return whole ? go_on(file) : begin(file);
}

om_removal_journal_file *om_removal_journal_open(const char *data, uint64_t file_size, int *fresh, char *err,
                                                 size_t err_len) {
    om_removal_journal_file *file = calloc(1, sizeof *file);
    snprintf(err, err_len, "out of memory");
    if (!file)
        return NULL;
    pthread_mutex_init(&file->mutex, NULL);
    file->fd = -1;
    file->file_size = file_size ? file_size : FILE_SIZE;
    snprintf(file->dir, sizeof file->dir, "%.*s/removals", OM_PATH_MAX - 32, data);
    *fresh = mkdir(file->dir, 0750) == 0;
    int result = *fresh || errno == EEXIST ? find_end(file) : om_errno_result();
    if (result == OM_E_NO_SPACE)
        result = OM_OK; /* the first write begins the file, and says so if it can't */
    if (result != OM_OK) {
        snprintf(err, err_len, "can't keep the record of removed segments in %.400s: %s", file->dir,
                 om_result_text(result));
        om_removal_journal_close(file);
        return NULL;
    }
    return file;
}

void om_removal_journal_close(om_removal_journal_file *file) {
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    pthread_mutex_destroy(&file->mutex);
    free(file);
}

/* ---- writing ---- */

static int put(om_blob *blob, const om_removal *item, uint64_t seq, int64_t now) {
    static const uint8_t zeros[8];
    uint8_t fixed[FIXED] = {0};
    size_t folder = strlen(item->folder), name = strlen(item->name), at = blob->len;
    folder = folder > UINT16_MAX ? UINT16_MAX : folder;
    name = name > UINT16_MAX ? UINT16_MAX : name;
    size_t len = (FIXED + folder + name + 7) & ~(size_t)7;
    om_put_le32(fixed, (uint32_t)len);
    om_put_le64(fixed + 8, seq);
    om_put_le64(fixed + 16, (uint64_t)now);
    om_put_le64(fixed + 24, item->log_id);
    om_put_le64(fixed + 32, (uint64_t)item->segment);
    om_put_le64(fixed + 40, (uint64_t)item->first);
    om_put_le64(fixed + 48, (uint64_t)item->next);
    om_put_le64(fixed + 56, item->bytes);
    om_put_le64(fixed + 64, item->left);
    om_put_le64(fixed + 72, (uint64_t)item->first_timestamp);
    om_put_le64(fixed + 80, (uint64_t)item->max_timestamp);
    fixed[88] = (uint8_t)item->rule;
    om_put_le16(fixed + 90, (uint16_t)folder);
    om_put_le16(fixed + 92, (uint16_t)name);
    int result = om_blob_put(blob, fixed, sizeof fixed);
    if (result == OM_OK)
        result = om_blob_put(blob, item->folder, folder);
    if (result == OM_OK)
        result = om_blob_put(blob, item->name, name);
    if (result == OM_OK)
        result = om_blob_put(blob, zeros, len - FIXED - folder - name);
    if (result == OM_OK)
        om_put_le32(blob->data + at + 4, om_crc32c(0, blob->data + at, len));
    return result;
}

static int sync_all(om_removal_journal_file *file) {
    if (fdatasync(file->fd) != 0)
        return om_errno_result();
    if (file->named)
        return OM_OK;
    char data[OM_PATH_MAX];
    snprintf(data, sizeof data, "%.*s/..", OM_PATH_MAX - 8, file->dir);
    int result = om_fsync_folder(file->dir);
    if (result == OM_OK)
        result = om_fsync_folder(data);
    file->named = result == OM_OK;
    return result;
}

static int append(om_removal_journal_file *file, const om_removal *items, size_t count) {
    om_blob blob = {0};
    int result = OM_OK;
    int64_t now = om_now_ms();
    for (size_t i = 0; i < count && result == OM_OK; i++)
        result = put(&blob, &items[i], file->seq + 1 + i, now);
    if (result == OM_OK)
        result = om_write_all(file->fd, blob.data, blob.len);
    if (result == OM_OK)
        result = sync_all(file);
    if (result == OM_OK) {
        file->size += blob.len;
        file->seq += count;
        reserve(file);
    } else if (blob.len) {
        /* What of it is on the disk nobody knows: a half record must not get a whole one behind it. */
        close(file->fd);
        file->fd = -1;
    }
    free(blob.data);
    return result;
}

/* The oldest file goes, and the newest says what went with it. */
static void drop_oldest(om_removal_journal_file *file) {
    uint64_t oldest, newest;
    found found;
    char path[OM_PATH_MAX];
    if (list(file, &oldest, &newest) != OM_OK || newest - oldest < OM_REMOVED_FILES ||
        scan(file, oldest, &found) != OM_OK)
        return;
    om_removal dropped = {.folder = "",
                          .name = "",
                          .segment = -1,
                          .rule = OM_RULE_DROPPED,
                          .first = (int64_t)found.first,
                          .next = (int64_t)found.last + 1,
                          .first_timestamp = -1,
                          .max_timestamp = -1};
    path_of(file, oldest, path, sizeof path);
    if (append(file, &dropped, 1) == OM_OK)
        unlink(path);
}

int om_removal_journal_write(om_removal_journal_file *file, const om_removal *items, size_t count) {
    if (!count)
        return OM_OK;
    pthread_mutex_lock(&file->mutex);
    int result = OM_OK;
    if (file->fd < 0) {
        result = begin(file);
    } else if (file->size >= file->file_size && begin(file) == OM_OK) {
        drop_oldest(file); /* no space for a new one: the one at hand has a reserve */
        result = file->fd >= 0 ? OM_OK : OM_E_IO;
    }
    if (result == OM_OK && !file->lived) {
        om_removal life = {
            .folder = "", .name = "", .segment = -1, .rule = OM_RULE_LIFE, .first_timestamp = -1, .max_timestamp = -1};
        result = append(file, &life, 1);
        file->lived = result == OM_OK;
    }
    if (result == OM_OK)
        result = append(file, items, count);
    pthread_mutex_unlock(&file->mutex);
    return result;
}
