/* file_util.h -- files written as a whole, and errno as a result. All of it may block. */
#ifndef OM_FILE_UTIL_H
#define OM_FILE_UTIL_H
#include "om_base.h"

#include <errno.h>

int om_write_all(int fd, const uint8_t *data, size_t len); /* however the kernel cuts it up */
/* Write dir/name.tmp; with `sync` it is on disk afterwards. */
int om_file_write_tmp(const char *dir, const char *name, const void *data, size_t len, int sync);
/* Rename it to dir/name; with `sync` the folder is on disk afterwards. */
int om_file_commit_tmp(const char *dir, const char *name, int sync);
int om_fsync_folder(const char *path);

/* errno as a result; EDQUOT is a full disk, too. */
static inline int om_errno_result(void) {
    if (errno == ENOSPC || errno == EDQUOT)
        return OM_E_NO_SPACE;
    return errno == ENOMEM ? OM_E_NO_MEMORY : OM_E_IO;
}
#endif
