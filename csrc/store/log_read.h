/* log_read.h -- reads of what is in segments, for callers that must not wait. See om_log_read (om_store.h). */
#ifndef OM_LOG_READ_H
#define OM_LOG_READ_H
#include "om_store.h"
#include "segment/segment.h"

/* om_log_read of what is in a segment, under the lock: never waits (OM_E_NOT_RESIDENT). OM_END: it
 * is in the hot tail, or not there. */
int om_log_read_mapped(om_log *log, int64_t offset, uint64_t max_bytes, om_read *out);
/* The same as a part of a file, up to `end`; the segment is held. */
typedef struct om_stretch {
    om_segment *segment;
    uint64_t position, len;
    int64_t next_offset; /* behind it; with OM_E_UNREADABLE: where reading may go on */
} om_stretch;
int om_log_locate(om_log *log, int64_t offset, int64_t end, uint64_t max_bytes, om_stretch *out);

/* ---- a read's bytes: no lock ---- */
/* Are they what they were when they were written? Every batch's CRC, guarded, nothing copied. For a caller that
 * sends straight from the mapping and has reason to doubt (a segment that was cold). The read then
 * ends before the first that isn't; OM_E_UNREADABLE: it is the first, and read->next_offset says where
 * reading may go on. OM_E_NOT_RESIDENT: that is being found out. */
int om_read_check(om_read *read);
/* Of a mapped read: the reader thread brings what comes behind it, and maps it, before anybody asks. */
void om_read_ahead(const om_read *read, uint64_t bytes);
/* Guarded access to a mapped read's bytes: between these two a page that can't be read is no SIGBUS.
 * OM_E_UNREADABLE: there was one. */
void om_read_guard(const om_read *read);
int om_read_unguard(const om_read *read);
/* The segment (not held) such a read looks into, and where in its file the bytes start. */
om_segment *om_read_segment(const om_read *read, uint64_t *position);

#endif
