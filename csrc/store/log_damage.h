/* log_damage.h -- unreadable stretches of a log: found, reported once, skipped. */
#ifndef OM_LOG_DAMAGE_H
#define OM_LOG_DAMAGE_H
#include "om_store.h"
#include "segment/segment.h"

#define OM_SURVEYED 2
/* Find out which parts of the segment can't be read, and report them. Blocks; without the store's lock.
 * seen: how many surveys there had been when something wasn't right. OM_SURVEYED: look again. */
int om_log_survey(om_log *log, om_segment *segment, uint64_t suspect, uint32_t seen);
/* What isn't among the known ones becomes a report of that kind. */
void om_log_tell_damage(om_log *log, const om_segment *segment, const om_damages *known, const om_survey *survey,
                        int kind);
/* ---- under the store's lock ---- */
/* What is in the segment's file for certain: [0, *end), offsets below *limit. */
void om_log_written_part(const om_log *log, const om_segment *segment, uint64_t *end, int64_t *limit);
/* The bad part that holds offset; NULL: none does that is known. */
const om_bad *om_log_bad_for(const om_log *log, int64_t offset);
/* Of these, what is ready can't be given to anybody. How many. */
int64_t om_log_lose(om_log *log, int64_t first, int64_t last);
int64_t om_log_lost_ahead(const om_log *log); /* that count as ready still; logs with a cursor */

#endif
