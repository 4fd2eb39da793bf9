/* unknown_logs.h -- logs in the checkpoint or the WAL that the catalogue doesn't name. */
#ifndef OM_UNKNOWN_LOGS_H
#define OM_UNKNOWN_LOGS_H
#include "om_store.h"

typedef struct om_unknown_logs {
    om_unknown_log *slots;
    uint32_t size, count;
} om_unknown_logs;

int om_unknown_logs_note(om_unknown_logs *set, uint64_t id, uint32_t flags);
void om_unknown_logs_free(om_unknown_logs *set);

#endif
