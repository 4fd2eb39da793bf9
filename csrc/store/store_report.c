/* store_report.c -- what went wrong, for the operator; see store_report.h. */
#include "store/store_report.h"

#include "store/log.h"
#include "store/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

void om_store_add_report(om_store *store, int kind, const om_log *log, int64_t first, int64_t last, const char *format,
                         ...) {
    om_report_node *node = calloc(1, sizeof *node);
    if (!node)
        return;
    node->report.kind = kind;
    node->report.log_id = log ? log->id : 0;
    node->report.first_offset = first;
    node->report.last_offset = last;
    va_list args;
    va_start(args, format);
    vsnprintf(node->report.text, sizeof node->report.text, format, args);
    va_end(args);
    pthread_mutex_lock(&store->reports.mutex);
    if (store->reports.last)
        store->reports.last->next = node;
    else
        store->reports.first = node;
    store->reports.last = node;
    pthread_mutex_unlock(&store->reports.mutex);
    om_store_tell(store);
}

/* Which disk it is that an alarm speaks of, and how full. */
void om_store_tell_disk(const om_store *store, char *text, size_t text_len) {
    struct statvfs disk;
    if (statvfs(store->dir, &disk) != 0)
        disk = (struct statvfs){0};
    unsigned long long all = (unsigned long long)disk.f_blocks * disk.f_frsize;
    unsigned long long unused = (unsigned long long)disk.f_bfree * disk.f_frsize;
    snprintf(text, text_len, "the disk of %.100s (%llu of %llu MiB used)", store->dir, (all - unused) >> 20, all >> 20);
}

int om_store_report(om_store *store, om_report *out) {
    pthread_mutex_lock(&store->reports.mutex);
    om_report_node *node = store->reports.first;
    if (node) {
        store->reports.first = node->next;
        if (!store->reports.first)
            store->reports.last = NULL;
    }
    pthread_mutex_unlock(&store->reports.mutex);
    if (!node)
        return OM_END;
    *out = node->report;
    free(node);
    return OM_OK;
}
