/* log_offsets.h -- which offsets a log gives, and up to where each kind of reader sees it. Under the store's lock.
 *
 *   written <= durable = high watermark <= readable <= next <= lease end
 *              last stable: the same, but never past an open transaction
 *
 * An offset that was seen is never given twice, even by a life that a crash ended: offsets are leased ahead
 * in the WAL, and shown only below a lease that is durable.
 */
#ifndef OM_LOG_OFFSETS_H
#define OM_LOG_OFFSETS_H
#include "om_store.h"

/* So many offsets are leased ahead: as many as were given lately, within these. */
#define OM_LEASE_LEAST 32
#define OM_LEASE_MOST 65536

/* Give offsets [next, next + count), extending the lease. The first, or OM_E_*. */
int64_t om_log_claim(om_log *log, int64_t count);
int om_log_extend_lease(om_log *log);
void om_log_shorten_lease(om_log *log);
void om_log_raise_epoch(om_log *log, int32_t epoch);

int64_t om_log_written_offset(const om_log *log);
int64_t om_log_high_watermark(const om_log *log);
int64_t om_log_readable_end(const om_log *log);
/* The same two for readers that must not see open transactions. */
int64_t om_log_last_stable(const om_log *log);
int64_t om_log_stable_end(const om_log *log);

#endif
