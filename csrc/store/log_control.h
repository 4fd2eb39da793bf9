/* log_control.h -- a log's start moves, or it is cut: the effects, and the WAL's records of them. Under the lock. */
#ifndef OM_LOG_CONTROL_H
#define OM_LOG_CONTROL_H
#include "om_store.h"

void om_log_start_at(om_log *log, int64_t offset);           /* the trim */
void om_log_cut(om_log *log, int64_t offset, int32_t epoch); /* the truncation */
/* The record of one of these; urgent: somebody waits for it. 0: the WAL took nothing; UINT64_MAX: this log
 * uses no WAL. */
uint64_t om_log_put_control(om_log *log, uint8_t type, int64_t offset, int32_t epoch, int urgent);

#endif
