/* event.c -- the queue of events: what C can't decide, in order, for Python.
 *
 * At most one event per connection is under way (its input is paused meanwhile), besides those about queues and the
 * end of a connection: so the queue is bounded.
 */
#include "net/event.h"
#include "net/engine_core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t span_len(om_span span) {
    return span.len > 0 ? (size_t)span.len : 0;
}

static void keep(om_span *span, uint8_t **at) {
    size_t len = span_len(*span);
    if (len)
        memcpy(*at, span->data, len);
    *span = (om_span){*at, (int32_t)len};
    *at += len;
}

void om_event_push(om_engine *engine, const om_event *event) {
    om_event_queue *events = &engine->events;
    size_t bytes = span_len(event->payload) + span_len(event->exchange) + span_len(event->key) +
                   span_len(event->header) + span_len(event->text);
    om_event_node *node = malloc(sizeof *node + bytes);
    if (!node)
        return; /* its connection stays paused; there is no memory to say so */
    node->event = *event;
    node->next = NULL;
    uint8_t *at = node->bytes;
    keep(&node->event.payload, &at);
    keep(&node->event.exchange, &at);
    keep(&node->event.key, &at);
    keep(&node->event.header, &at);
    keep(&node->event.text, &at);
    pthread_mutex_lock(&events->mutex);
    if (events->last)
        events->last->next = node;
    else
        events->first = node;
    events->last = node;
    pthread_mutex_unlock(&events->mutex);
    uint64_t one = 1;
    while (write(events->fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

om_event *om_engine_next_event(om_engine *engine) {
    om_event_queue *events = &engine->events;
    pthread_mutex_lock(&events->mutex);
    om_event_node *node = events->first;
    if (node) {
        events->first = node->next;
        if (!events->first)
            events->last = NULL;
    }
    pthread_mutex_unlock(&events->mutex);
    return node ? &node->event : NULL;
}

void om_event_free(om_event *event) {
    free(event); /* the node's first member */
}

int om_engine_event_fd(om_engine *engine) {
    return engine->events.fd;
}
