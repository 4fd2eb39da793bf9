/* replay_main.c -- runs a fuzz target over stored inputs, without libFuzzer: any C compiler will
 * do. Arguments are files, or folders whose files are taken (not their sub-folders). Prints
 * how many inputs ran; fails when one can't be read.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    int whole = file != NULL && data != NULL && fread(data, 1, size, file) == size;
    if (whole)
        LLVMFuzzerTestOneInput(data, size);
    else
        fprintf(stderr, "can't read %s\n", path);
    if (file != NULL)
        fclose(file);
    free(data);
    return whole;
}

/* Inputs run, or -1. */
static int replay(const char *path, int enter_folder) {
    struct stat stat_buf;
    if (stat(path, &stat_buf) != 0) {
        perror(path);
        return -1;
    }
    if (!S_ISDIR(stat_buf.st_mode))
        return replay_file(path, (size_t)stat_buf.st_size) ? 1 : -1;
    if (!enter_folder)
        return 0;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        perror(path);
        return -1;
    }
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(folder)) != NULL;) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        int ran = replay(name, 0);
        count = ran < 0 ? -1 : count + ran;
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv) {
    int count = 0;
    for (int i = 1; i < argc; i++) {
        int ran = replay(argv[i], 1);
        if (ran < 0)
            return 1;
        count += ran;
    }
    printf("%d inputs\n", count);
    return 0;
}
