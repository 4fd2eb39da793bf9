/* reader.h -- the reader: brings into memory what the engine found missing. */
#ifndef OM_READER_H
#define OM_READER_H
#include "om_store.h"
#include "segment/segment.h"

#include <pthread.h>

/* A view to fault in, or a segment to survey. */
typedef struct om_read_request {
    om_log *log; /* held */
    om_view view;
    om_segment *survey; /* held */
    uint64_t suspect;
    uint32_t seen; /* surveys of it before the request */
    struct om_read_request *next;
} om_read_request;

typedef struct om_reader {
    pthread_mutex_t mutex; /* guards the list */
    pthread_cond_t wake;
    om_read_request *first, *last;
    uint32_t count;
    pthread_t thread;
} om_reader;

void om_reader_init(om_store *store);
void *om_reader_main(void *store);
void om_reader_wake(om_store *store);           /* to stop */
void om_reader_ask(om_log *log, om_view *view); /* takes over the view */
/* Something in the segment isn't right, and the caller must not wait: OM_E_NOT_RESIDENT. */
int om_reader_survey(om_log *log, om_segment *segment, uint64_t suspect);

#endif
