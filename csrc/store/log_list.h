/* log_list.h -- lists of logs, first in, first out. Under the store's lock.
 *
 * Each list goes through a link of its own in om_log: om_list_push(&store->staged, log, OM_LINK(next_staged)).
 * Whether a log is on a list is a flag of the log, which the caller keeps.
 */
#ifndef OM_LOG_LIST_H
#define OM_LOG_LIST_H
#include "om_store.h"

typedef struct om_list {
    om_log *head, *tail;
    uint64_t count;
} om_list;

#define OM_LINK(field) offsetof(om_log, field)
void om_list_push(om_list *list, om_log *log, size_t link);
om_log *om_list_pop(om_list *list, size_t link); /* NULL: it is empty */

#endif
