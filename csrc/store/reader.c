/* reader.c -- the reader thread: brings pages into memory so that the engine never waits for
 * a disk. The engine asks for what isn't resident and goes on; the event fd says when to come
 * back. */
#include "store/store.h"

#include <stdlib.h>

/* More than this many wishes at once are not kept: their readers will ask again. */
#define FETCH_MAX 4096

/* Whoever waits for it looks again. */
static void done(om_store *store, om_fetch *fetch) {
    if (fetch->survey)
        om_segment_unref(fetch->survey);
    om_view_release(&fetch->view);
    om_log_release(fetch->log);
    free(fetch);
    om_store_tell(store);
    om_news_ring(store);
}

static void ask(om_store *store, om_fetch *fetch) {
    pthread_mutex_lock(&store->reader_mutex);
    if (store->fetch_count >= FETCH_MAX) {
        pthread_mutex_unlock(&store->reader_mutex);
        done(store, fetch);
        return;
    }
    if (store->fetches_tail)
        store->fetches_tail->next = fetch;
    else
        store->fetches = fetch;
    store->fetches_tail = fetch;
    store->fetch_count++;
    pthread_cond_signal(&store->reader_wake);
    pthread_mutex_unlock(&store->reader_mutex);
}

static om_fetch *new_fetch(om_log *log) {
    om_fetch *fetch = calloc(1, sizeof *fetch);
    if (!fetch)
        return NULL;
    om_log_ref(log);
    fetch->log = log;
    return fetch;
}

void om_reader_ask(om_log *log, om_view *view) {
    om_fetch *fetch = new_fetch(log);
    if (!fetch) {
        om_view_release(view);
        om_news_ring(log->store);
        return;
    }
    fetch->view = *view;
    ask(log->store, fetch);
}

int om_reader_survey(om_log *log, om_segment *segment, uint64_t suspect) {
    om_fetch *fetch = new_fetch(log);
    if (!fetch)
        return OM_E_NO_MEMORY;
    om_segment_ref(segment);
    fetch->survey = segment;
    fetch->suspect = suspect;
    ask(log->store, fetch);
    return OM_E_NOT_RESIDENT;
}

static om_fetch *next_fetch(om_store *store) {
    pthread_mutex_lock(&store->reader_mutex);
    while (!store->fetches && !__atomic_load_n(&store->stopping, __ATOMIC_RELAXED))
        pthread_cond_wait(&store->reader_wake, &store->reader_mutex);
    om_fetch *fetch = store->fetches;
    if (fetch) {
        store->fetches = fetch->next;
        store->fetch_count--;
        if (!store->fetches)
            store->fetches_tail = NULL;
    }
    pthread_mutex_unlock(&store->reader_mutex);
    return fetch;
}

void *om_reader_main(void *arg) {
    om_store *store = arg;
    om_fetch *fetch;
    while ((fetch = next_fetch(store))) {
        if (fetch->survey)
            om_log_survey(fetch->log, fetch->survey, fetch->suspect);
        else if (om_view_load(&fetch->view) == OM_E_UNREADABLE)
            om_log_survey(fetch->log, fetch->view.segment, OM_NO_SUSPECT);
        done(store, fetch);
    }
    return NULL;
}
