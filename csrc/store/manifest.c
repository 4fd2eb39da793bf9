/* manifest.c -- a log's manifest: its name and which segments it has, for people and for
 * recovery. Without it a segment that somebody removed by hand would not be missed.
 *
 *   ottermq-manifest 1
 *   log 17
 *   name orders
 *   segment 0 4711 67108001 1699999990000 1700000000000     base, next offset, bytes, first and
 *   segment 4711 5000 48113 1700000000001 1700000000409     largest timestamp
 *   xxh3 0123456789abcdef                                   over all the lines before
 *
 * Sealed segments only: the active one is known by the checkpoint. The name has control
 * characters, spaces and % written as %XX.
 */
#include "store/manifest.h"

#include "base/blob.h"
#include "base/checksum.h"
#include "segment/segment.h"
#include "store/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRAILER_LEN 22 /* "xxh3 " + 16 digits + newline */

static int put_line(om_blob *out, const char *line) {
    return om_blob_put(out, line, strlen(line));
}

static int put_name(om_blob *out, const char *name) {
    int result = put_line(out, "name ");
    for (const unsigned char *at = (const unsigned char *)name; *at && result == OM_OK; at++) {
        char escaped[4];
        snprintf(escaped, sizeof escaped, *at <= ' ' || *at == '%' || *at == 127 ? "%%%02X" : "%c", *at);
        result = put_line(out, escaped);
    }
    return result == OM_OK ? put_line(out, "\n") : result;
}

int om_manifest_text(const om_log *log, om_blob *out) {
    return om_manifest_text_but(log, INT64_MAX, -1, -1, out);
}

int om_manifest_text_but(const om_log *log, int64_t end, int64_t from, int64_t to, om_blob *out) {
    char line[160];
    snprintf(line, sizeof line, "ottermq-manifest 1\nlog %llu\n", (unsigned long long)log->id);
    int result = put_line(out, line);
    if (result == OM_OK)
        result = put_name(out, log->name);
    for (uint32_t i = 0; i < log->segment_count && result == OM_OK; i++) {
        const om_segment *segment = log->segments[i];
        if (!segment->sealed || segment->base_offset >= end ||
            (segment->base_offset >= from && segment->base_offset < to))
            continue;
        snprintf(line, sizeof line, "segment %lld %lld %llu %lld %lld\n", (long long)segment->base_offset,
                 (long long)segment->next_offset, (unsigned long long)segment->size,
                 (long long)segment->first_timestamp, (long long)segment->max_timestamp);
        result = put_line(out, line);
    }
    if (result != OM_OK)
        return result;
    snprintf(line, sizeof line, "xxh3 %016llx\n", (unsigned long long)om_xxh3(out->data, out->len));
    return put_line(out, line);
}

static char *read_text(const char *folder, size_t *len) {
    char path[4096];
    snprintf(path, sizeof path, "%s/manifest", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct stat stat;
    char *text = fstat(fd, &stat) == 0 ? malloc((size_t)stat.st_size + 1) : NULL;
    ssize_t got = text ? read(fd, text, (size_t)stat.st_size) : -1;
    close(fd);
    if (got < TRAILER_LEN) {
        free(text);
        return NULL;
    }
    text[got] = 0;
    *len = (size_t)got;
    return text;
}

static int checksum_fits(const char *text, size_t len) {
    unsigned long long sum;
    return sscanf(text + len - TRAILER_LEN, "xxh3 %16llx", &sum) == 1 && sum == om_xxh3(text, len - TRAILER_LEN);
}

static int add_entry(om_manifest *manifest, const char *line) {
    long long base, next, first, max;
    unsigned long long size;
    if (sscanf(line, "segment %lld %lld %llu %lld %lld", &base, &next, &size, &first, &max) != 5)
        return OM_OK; /* another kind of line */
    om_manifest_entry *entries = realloc(manifest->entries, (manifest->count + 1) * sizeof *entries);
    if (!entries)
        return OM_E_NO_MEMORY;
    entries[manifest->count++] = (om_manifest_entry){base, next, size, first, max};
    manifest->entries = entries;
    return OM_OK;
}

int om_manifest_load(const char *folder, om_manifest *out) {
    *out = (om_manifest){0};
    size_t len;
    char *text = read_text(folder, &len);
    if (!text)
        return OM_END;
    int result = checksum_fits(text, len) ? OM_OK : OM_E_CORRUPT;
    for (char *line = text; line && result == OM_OK; line = strchr(line, '\n'), line += line != NULL)
        result = add_entry(out, line);
    free(text);
    return result;
}

const om_manifest_entry *om_manifest_find(const om_manifest *manifest, int64_t base_offset) {
    uint32_t low = 0, high = manifest->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (manifest->entries[mid].base_offset < base_offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low < manifest->count && manifest->entries[low].base_offset == base_offset ? &manifest->entries[low] : NULL;
}
