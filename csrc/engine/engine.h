/* engine.h -- the engine's thread and its tick.
 *
 *   socket -> amqp_conn.c, frame.c -> publish.c -> route.c -> log (batch.c, log.c, wal.c)
 *                                  -> ack.c                    |
 *   socket <- output.c <- deliver.c <- queue_pump.c <- queue_reader.c       confirm.c <- committer
 *
 * A tick (engine.c): drain the ready sockets, seal the batches they made, pump the queues that
 * have something to give, log the cursors' changes, note which confirms wait for which sequence,
 * flush. All of it under the store's lock (om_ticket_lock), as are Python's calls (*_api.c), which
 * end with the same steps: begin (om_engine_enter), do, end (om_engine_leave).
 *
 * Nothing here blocks: pages that aren't in memory are asked for (reader.c), input that doesn't fit is held
 * (a connection stalls, its client is slowed by TCP), questions that C can't decide are events.
 *
 * The common part of the engine is in net/engine_core.h.
 */
#ifndef OM_ENGINE_H
#define OM_ENGINE_H

#include "net/engine_core.h"
#include "net/socket.h"

#include <pthread.h>

#define OM_LISTENERS 16

typedef struct om_loop {
    pthread_t thread;
    int running, stopping; /* stopping: atomic */
    int64_t swept_ms;      /* when the last sweep over the connections was */
    int64_t sleeps_until;  /* ms, or until something comes */
    const char *alarm;     /* why publishers are held back, as it was announced; NULL: they aren't */
    struct {
        int fd, protocol;
        char usual[OM_CONGESTION_NAME];
    } listeners[OM_LISTENERS];
    int listener_count;
    int listening; /* they are watched */
} om_loop;

#define OM_NEWS_EVENT UINT64_MAX /* in epoll's data: the store has news, a listener, or a connection's id */
#define OM_LISTENER_EVENT (UINT64_MAX - 1 - OM_LISTENERS)

void *om_engine_main(void *engine);
/* One round of it: sleeps (-1: as long as it may), ticks. OM_E_IO */
int om_engine_tick(om_engine *engine, int most_ms);
void om_engine_read_clocks(om_engine *engine);
int om_listener_add(om_engine *engine, int fd, int protocol);
void om_listener_accept(om_engine *engine, int index); /* some of those that wait there */
/* Without a free file number accept fails and the listener stays ready: watched, it would spin. */
void om_listeners_watch(om_engine *engine, int on);
void om_listeners_close(om_engine *engine);
void om_engine_enter(om_engine *engine);
/* The rest of a tick, and the lock is free again. */
void om_engine_leave(om_engine *engine);

#endif
