/* log_count.h -- how many records a log has. Under the store's lock. */
#ifndef OM_LOG_COUNT_H
#define OM_LOG_COUNT_H
#include "om_store.h"

int64_t om_log_record_end(const om_log *log); /* one past the last record; logs without a cursor */
int64_t om_log_record_count(const om_log *log);
void om_log_note_missing(om_log *log); /* offsets at its end were skipped, or are passed now */

#endif
