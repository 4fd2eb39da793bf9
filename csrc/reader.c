/* reader.c -- the reader thread: brings pages into memory so that the engine never waits for
 * a disk. The engine asks for what isn't resident and goes on; the event fd says when to come
 * back. */
#include "store.h"

#include <stdlib.h>

/* More than this many wishes at once are not kept: their readers will ask again. */
#define FETCH_MAX 4096

void om_reader_ask(om_store *store, om_view *view) {
    om_fetch *fetch = malloc(sizeof *fetch);
    pthread_mutex_lock(&store->reader_mutex);
    if (!fetch || store->fetch_count >= FETCH_MAX) {
        pthread_mutex_unlock(&store->reader_mutex);
        free(fetch);
        om_view_release(view);
        om_store_tell(store);
        om_store_wake_engine(store);
        return;
    }
    fetch->view = *view;
    fetch->next = NULL;
    if (store->fetches_tail)
        store->fetches_tail->next = fetch;
    else
        store->fetches = fetch;
    store->fetches_tail = fetch;
    store->fetch_count++;
    pthread_cond_signal(&store->reader_wake);
    pthread_mutex_unlock(&store->reader_mutex);
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
        om_view_load(&fetch->view); /* what can't be loaded shows when it is read */
        om_view_release(&fetch->view);
        free(fetch);
        om_store_tell(store);
        om_store_wake_engine(store);
    }
    return NULL;
}
