/* listener.c -- listening sockets: connections are accepted, each for its port's protocol. */
#define _GNU_SOURCE
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPT_MAX 64

/* Without a free file number accept fails and the listener stays ready: watched, it would spin. */
void om_listeners_watch(om_engine *engine, int on) {
    if (engine->loop->listening == on)
        return;
    engine->loop->listening = on;
    for (int i = 0; i < engine->loop->listener_count; i++) {
        struct epoll_event watch = {.events = on ? EPOLLIN : 0u, .data.u64 = OM_LISTENER_EVENT + (uint64_t)i};
        epoll_ctl(engine->poll_fd, EPOLL_CTL_MOD, engine->loop->listeners[i].fd, &watch);
    }
}

void om_listener_accept(om_engine *engine, int index) {
    for (int i = 0; i < ACCEPT_MAX; i++) {
        struct sockaddr_storage address;
        socklen_t size = sizeof address;
        char peer[64];
        int fd = accept4(engine->loop->listeners[index].fd, (struct sockaddr *)&address, &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED && errno != EINTR)
                om_listeners_watch(engine, 0); /* until the next second */
            return;
        }
        om_socket_describe(&address, peer, sizeof peer);
        om_socket_accepted(fd, &address, engine->loop->listeners[index].usual);
        if (engine->conn_count < engine->options.max_connections &&
            om_conn_new(engine, fd, engine->loop->listeners[index].protocol, peer))
            continue;
        close(fd);
        om_event event = {.kind = OM_EV_REFUSED_CONN,
                          .protocol = engine->loop->listeners[index].protocol,
                          .text = {(const uint8_t *)peer, (int32_t)strlen(peer)}};
        om_event_push(engine, &event);
    }
}

int om_listener_add(om_engine *engine, int fd, int protocol) {
    if (engine->loop->listener_count == OM_LISTENERS)
        return OM_E_LIMIT;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return OM_E_IO;
    int index = engine->loop->listener_count++;
    struct epoll_event watch = {.events = engine->loop->listening ? EPOLLIN : 0u,
                                .data.u64 = OM_LISTENER_EVENT + (uint64_t)index};
    engine->loop->listeners[index].fd = copy;
    engine->loop->listeners[index].protocol = protocol;
    fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK);
    om_socket_listens(copy, engine->loop->listeners[index].usual);
    return epoll_ctl(engine->poll_fd, EPOLL_CTL_ADD, copy, &watch) == 0 ? OM_OK : OM_E_IO;
}

void om_listeners_close(om_engine *engine) {
    while (engine->loop->listener_count) {
        /* Closing alone doesn't end the watch: the caller's copy of the socket lives on. */
        int fd = engine->loop->listeners[--engine->loop->listener_count].fd;
        epoll_ctl(engine->poll_fd, EPOLL_CTL_DEL, fd, NULL);
        close(fd);
    }
}
