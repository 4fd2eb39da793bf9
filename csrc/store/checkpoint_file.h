/* checkpoint_file.h -- data/checkpoint: written by a checkpoint, read by the next start. */
#ifndef OM_CHECKPOINT_FILE_H
#define OM_CHECKPOINT_FILE_H
#include "base/blob.h"
#include "om_store.h"

int om_saved_load(om_store *store, char *err, size_t err_len);
void om_saved_free(om_store *store);
int om_saved_note_unknown(om_store *store); /* entries of logs that nobody added */
/* What the checkpoint knew of this log goes into it. OM_END: nothing. */
int om_saved_restore(om_store *store, om_log *log, uint64_t *cursor_seq, int64_t *first_segment);

int om_saved_put(om_blob *blob, om_log *log, uint64_t cursor_seq, int closing); /* under the store's lock */
int om_saved_write(om_store *store, const om_blob *entries, uint64_t count, uint64_t seq);
/* Space for the next one, while there is some. */
void om_saved_reserve(om_store *store);

#endif
