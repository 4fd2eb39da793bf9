/* news.c -- the committer's news: what became durable, a fence, a WAL that has no file to go on with.
 *
 * The committer rings, and so does each thread that has brought something an engine may wait for (news_fd). To serve it
 * is to take the lock and look (om_news_look), and to pass the news on afterwards (om_news_pass_on). The store has a
 * thread for that. An engine, which sleeps on its sockets and the news alike, serves the store instead: it ends this
 * thread (om_news_stop), and lets it begin again when it goes (om_news_start).
 */
#define _GNU_SOURCE
#include "store/news.h"

#include "store/checkpoint.h"
#include "store/log.h"
#include "store/log_hot.h"
#include "store/store.h"
#include "store/store_report.h"
#include "store/undo.h"
#include "wal/wal.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

void om_news_ring(om_store *store) {
    uint64_t one = 1;
    while (write(store->news_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

int om_news_take(om_store *store) {
    uint64_t rings;
    return read(store->news_fd, &rings, sizeof rings) == (ssize_t)sizeof rings;
}

/* A failed sync is final for what wasn't durable yet: it leaves the hot tail before anybody can
 * believe in it. */
static void handle_fence(om_store *store) {
    char text[160];
    int kept = 0;
    if (store->fence_handled || !om_wal_fenced(store->wal, &kept, text, sizeof text))
        return;
    store->fence_handled = 1;
    uint64_t durable = om_wal_durable_seq(store->wal);
    for (uint32_t i = 0; i < store->table_size; i++)
        for (om_log *log = store->table[i]; log; log = log->next_in_table)
            om_log_refuse_after(log, durable);
    om_undo_forget(store, durable);
    om_undo_all(store);
    om_store_add_report(store, OM_REPORT_FENCED, NULL, 0, 0,
                        "WAL sync failed (%s): durable appends are refused until `ottermq unfence` or a restart%s",
                        text, kept ? "" : "; in-flight records may reappear after a restart");
}

/* The committer says so by waking us; it changes its mind only when it has a file again. */
static void report_starving(om_store *store) {
    int starved = om_wal_starved(store->wal);
    if (starved == store->starved_reported)
        return;
    store->starved_reported = starved;
    char where[160];
    om_store_tell_disk(store, where, sizeof where);
    if (starved)
        om_store_add_report(store, OM_REPORT_NO_SPACE, NULL, 0, 0,
                            "no space left for the WAL on %s: appends are refused", where);
    else
        om_store_add_report(store, OM_REPORT_SPACE_BACK, NULL, 0, 0, "the WAL can be written again");
}

void om_news_look(om_store *store) {
    handle_fence(store);
    report_starving(store);
}

void om_news_pass_on(om_store *store) {
    if (om_wal_used(store->wal) > store->options.wal_max_size / 2)
        om_checkpoint_wake(store);
    om_store_tell(store);
}

/* ---- the store's own thread ---- */

static void *news_main(void *arg) {
    om_store *store = arg;
    while (!__atomic_load_n(&store->news_stopping, __ATOMIC_ACQUIRE)) {
        struct pollfd watch = {.fd = store->news_fd, .events = POLLIN};
        if (poll(&watch, 1, -1) < 0 || !om_news_take(store))
            continue;
        om_store_enter(store);
        om_news_look(store);
        om_store_leave(store);
        om_news_pass_on(store);
    }
    return NULL;
}

int om_news_start(om_store *store) {
    if (pthread_create(&store->news, NULL, news_main, store) != 0)
        return OM_E_NO_MEMORY;
    pthread_setname_np(store->news, "otter-news");
    store->news_running = 1;
    return OM_OK;
}

void om_news_stop(om_store *store) {
    if (!store->news_running)
        return;
    __atomic_store_n(&store->news_stopping, 1, __ATOMIC_RELEASE);
    om_news_ring(store);
    pthread_join(store->news, NULL);
    store->news_running = store->news_stopping = 0;
}
