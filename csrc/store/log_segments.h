/* log_segments.h -- a log's segments, in offset order. Under the store's lock. */
#ifndef OM_LOG_SEGMENTS_H
#define OM_LOG_SEGMENTS_H
#include "om_store.h"
#include "segment/segment.h"

om_segment *om_log_active(om_log *log); /* the one that is appended to; NULL: none */
int om_log_add_segment(om_log *log, om_segment *segment);
/* The first segment whose records reach past offset; segment_count when there is none. */
uint32_t om_log_segment_for(const om_log *log, int64_t offset);
/* Out of the list; their files go once a checkpoint no longer names them (segment_delete.h). rule: enum om_rule. */
void om_log_retire_segments(om_log *log, uint32_t from, uint32_t count, int at_once, int rule);
void om_log_limits(const om_log *log, om_segment_limits *out);

#endif
