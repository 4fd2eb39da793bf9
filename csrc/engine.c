/* engine.c -- the engine's thread: wakes when the committer has news, ends a tick.
 *
 * It has its own epoll set and never needs the GIL. Today the WAL's event is all that it
 * watches; sockets join it here.
 */
#include "store.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

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
                        "the WAL can't be synced (%s): durable appends are refused until an operator acts%s", text,
                        kept ? "" : "; what was under way may come back after a restart");
}

static void tick(om_store *store) {
    om_store_enter(store);
    handle_fence(store);
    om_store_leave(store);
    if (om_wal_used(store->wal) > store->options.wal_max_size / 2)
        om_checkpoint_wake(store);
    om_store_tell(store);
}

void *om_engine_main(void *arg) {
    om_store *store = arg;
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event watch = {.events = EPOLLIN, .data.fd = store->wal_fd};
    if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, store->wal_fd, &watch) != 0) {
        om_store_add_report(store, OM_REPORT_FENCED, NULL, 0, 0, "the engine can't watch its events");
        return NULL;
    }
    while (!__atomic_load_n(&store->stopping, __ATOMIC_RELAXED)) {
        struct epoll_event event;
        int ready = epoll_wait(poll, &event, 1, -1);
        if (ready < 0 && errno != EINTR)
            break;
        uint64_t news;
        if (ready > 0 && read(store->wal_fd, &news, sizeof news) == (ssize_t)sizeof news)
            tick(store);
    }
    close(poll);
    return NULL;
}
