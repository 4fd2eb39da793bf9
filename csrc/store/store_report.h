/* store_report.h -- what went wrong, for the operator: oldest first, read by om_store_report (om_store.h). */
#ifndef OM_STORE_REPORT_H
#define OM_STORE_REPORT_H
#include "om_store.h"

#include <pthread.h>

typedef struct om_report_node {
    om_report report;
    struct om_report_node *next;
} om_report_node;

typedef struct om_reports {
    pthread_mutex_t mutex;
    om_report_node *first, *last;
} om_reports;

/* Any thread, with or without the store's lock. */
void om_store_add_report(om_store *store, int kind, const om_log *log, int64_t first, int64_t last, const char *format,
                         ...) __attribute__((format(printf, 6, 7)));
void om_store_tell_disk(const om_store *store, char *text, size_t text_len); /* which disk, and how full */

#endif
