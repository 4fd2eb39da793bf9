/* event.h -- the queue of events: questions that C can't decide, for Python. */
#ifndef OM_EVENT_H
#define OM_EVENT_H

#include "om_engine.h"

#include <pthread.h>

typedef struct om_event_node {
    om_event event;
    struct om_event_node *next;
    uint8_t bytes[];
} om_event_node;

typedef struct om_event_queue {
    int fd; /* an eventfd: there are some */
    pthread_mutex_t mutex;
    om_event_node *first, *last;
} om_event_queue;

/* Spans in `event` are copied. */
void om_event_push(om_engine *engine, const om_event *event);

#endif
