/* reader.c -- the reader thread: brings pages into memory so that the engine never waits for
 * a disk. The engine asks for what isn't resident and goes on; the event fd says when to come
 * back. */
#include "store/reader.h"

#include "segment/segment.h"
#include "store/log.h"
#include "store/log_damage.h"
#include "store/news.h"
#include "store/store.h"

#include <stdlib.h>

/* More than this many wishes at once are not kept: their readers will ask again. */
#define REQUESTS_MAX 4096

/* The readers that wait for it look again. */
static void done(om_store *store, om_read_request *request) {
    if (request->survey)
        om_segment_unref(request->survey);
    om_view_release(&request->view);
    om_log_release(request->log);
    free(request);
    om_store_tell(store);
    om_news_ring(store);
}

static void ask(om_store *store, om_read_request *request) {
    pthread_mutex_lock(&store->reader.mutex);
    if (store->reader.count >= REQUESTS_MAX) {
        pthread_mutex_unlock(&store->reader.mutex);
        done(store, request);
        return;
    }
    if (store->reader.last)
        store->reader.last->next = request;
    else
        store->reader.first = request;
    store->reader.last = request;
    store->reader.count++;
    pthread_cond_signal(&store->reader.wake);
    pthread_mutex_unlock(&store->reader.mutex);
}

static om_read_request *new_request(om_log *log) {
    om_read_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    om_log_ref(log);
    request->log = log;
    return request;
}

void om_reader_ask(om_log *log, om_view *view) {
    om_read_request *request = new_request(log);
    if (!request) {
        om_view_release(view);
        om_news_ring(log->store);
        return;
    }
    request->view = *view;
    ask(log->store, request);
}

int om_reader_survey(om_log *log, om_segment *segment, uint64_t suspect) {
    om_read_request *request = new_request(log);
    if (!request)
        return OM_E_NO_MEMORY;
    om_segment_ref(segment);
    request->survey = segment;
    request->suspect = suspect;
    request->seen = om_segment_surveys(segment);
    ask(log->store, request);
    return OM_E_NOT_RESIDENT;
}

static om_read_request *next_request(om_store *store) {
    pthread_mutex_lock(&store->reader.mutex);
    while (!store->reader.first && !__atomic_load_n(&store->stopping, __ATOMIC_RELAXED))
        pthread_cond_wait(&store->reader.wake, &store->reader.mutex);
    om_read_request *request = store->reader.first;
    if (request) {
        store->reader.first = request->next;
        store->reader.count--;
        if (!store->reader.first)
            store->reader.last = NULL;
    }
    pthread_mutex_unlock(&store->reader.mutex);
    return request;
}

void om_reader_init(om_store *store) {
    pthread_mutex_init(&store->reader.mutex, NULL);
    pthread_cond_init(&store->reader.wake, NULL);
}

void om_reader_wake(om_store *store) {
    pthread_mutex_lock(&store->reader.mutex);
    pthread_cond_broadcast(&store->reader.wake);
    pthread_mutex_unlock(&store->reader.mutex);
}

static void load(const om_read_request *request) {
    om_segment *segment = request->view.segment;
    uint32_t seen = om_segment_surveys(segment);
    if (om_view_load(&request->view) == OM_E_UNREADABLE)
        om_log_survey(request->log, segment, OM_NO_SUSPECT, seen);
}

void *om_reader_main(void *arg) {
    om_store *store = arg;
    om_read_request *request;
    while ((request = next_request(store))) {
        if (request->survey)
            om_log_survey(request->log, request->survey, request->suspect, request->seen);
        else
            load(request);
        done(store, request);
    }
    return NULL;
}
