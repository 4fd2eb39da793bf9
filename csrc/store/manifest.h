/* manifest.h -- a log's manifest: the sealed segments it has. */
#ifndef OM_MANIFEST_H
#define OM_MANIFEST_H
#include "base/blob.h"
#include "om_store.h"

typedef struct om_manifest_entry {
    int64_t base_offset, next_offset;
    uint64_t size;
    int64_t first_timestamp, max_timestamp;
} om_manifest_entry;
typedef struct om_manifest {
    om_manifest_entry *entries;
    uint32_t count;
} om_manifest;

int om_manifest_text(const om_log *log, om_blob *out); /* under the store's lock, as is the next */
/* Only segments that begin before `end`, and not in [from, to). */
int om_manifest_text_but(const om_log *log, int64_t end, int64_t from, int64_t to, om_blob *out);
int om_manifest_load(const char *folder, om_manifest *out);
const om_manifest_entry *om_manifest_find(const om_manifest *manifest, int64_t base_offset);

#endif
