/* log_list.c -- see log_list.h. */
#include "store/log_list.h"

#include "store/log.h"

static om_log **link_of(om_log *log, size_t link) {
    return (om_log **)((char *)log + link);
}

void om_list_push(om_list *list, om_log *log, size_t link) {
    *link_of(log, link) = NULL;
    if (list->tail)
        *link_of(list->tail, link) = log;
    else
        list->head = log;
    list->tail = log;
    list->count++;
}

om_log *om_list_pop(om_list *list, size_t link) {
    om_log *log = list->head;
    if (!log)
        return NULL;
    list->head = *link_of(log, link);
    if (!list->head)
        list->tail = NULL;
    list->count--;
    return log;
}
