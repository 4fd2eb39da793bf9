/* file_util.c -- writing a file as a whole, replacing it atomically, syncing the folder that names it. */
#define _GNU_SOURCE
#include "base/file_util.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int om_write_all(int fd, const uint8_t *data, size_t len) {
    while (len) {
        ssize_t wrote = write(fd, data, len);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return errno == ENOSPC || errno == EDQUOT ? OM_E_NO_SPACE : OM_E_IO;
        data += wrote;
        len -= (size_t)wrote;
    }
    return OM_OK;
}

int om_file_write_tmp(const char *dir, const char *name, const void *data, size_t len, int sync) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.tmp", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        return errno == ENOSPC ? OM_E_NO_SPACE : OM_E_IO;
    int result = om_write_all(fd, data, len);
    if (result == OM_OK && sync && fsync(fd) != 0)
        result = OM_E_IO;
    if (close(fd) != 0 && result == OM_OK)
        result = OM_E_IO;
    return result;
}

int om_file_commit_tmp(const char *dir, const char *name, int sync) {
    char from[4096], to[4096];
    snprintf(from, sizeof from, "%s/%s.tmp", dir, name);
    snprintf(to, sizeof to, "%s/%s", dir, name);
    if (rename(from, to) != 0)
        return OM_E_IO;
    int fd = sync ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int result = !sync || (fd >= 0 && fsync(fd) == 0) ? OM_OK : OM_E_IO;
    if (fd >= 0)
        close(fd);
    return result;
}

int om_fsync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return om_errno_result();
    int result = fsync(fd) < 0 ? om_errno_result() : OM_OK;
    int kept = errno;
    close(fd);
    errno = kept;
    return result;
}
