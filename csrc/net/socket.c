/* socket.c -- socket options of a client's connection.
 *
 * Nothing is delayed for company (TCP_NODELAY): the engine gathers output by itself, per tick.
 *
 * Clients on this machine aren't paced. Where BBR is the machine's choice, the kernel lets each socket send at the
 * rate it estimates for the path, with a timer per socket. Over loopback those timers took half of the CPU of
 * sending, and the rate was half of what it could be. "reno" is the one choice that every kernel has and that needs
 * no rights. Pacing can't be undone once it has begun, so a listener's connections begin without it, and connections
 * from other machines get the machine's choice when they are accepted, before anything is sent.
 */
#include "net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void om_socket_listens(int fd, char usual[OM_CONGESTION_NAME]) {
    socklen_t len = OM_CONGESTION_NAME;
    memset(usual, 0, OM_CONGESTION_NAME);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, usual, &len) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

/* Both ends have the same address. */
static int is_local(int fd, const struct sockaddr_storage *peer) {
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &len) != 0 || own.ss_family != peer->ss_family)
        return 0;
    if (own.ss_family == AF_INET)
        return ((const struct sockaddr_in *)&own)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)peer)->sin_addr.s_addr;
    return own.ss_family == AF_INET6 && memcmp(&((const struct sockaddr_in6 *)&own)->sin6_addr,
                                               &((const struct sockaddr_in6 *)peer)->sin6_addr, 16) == 0;
}

void om_socket_accepted(int fd, const void *peer, const char *usual) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (usual[0] && !is_local(fd, peer))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, usual, (socklen_t)strnlen(usual, OM_CONGESTION_NAME));
}

void om_socket_hold(int fd, int held) {
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &held, sizeof held);
}

void om_socket_describe(const void *peer, char *out, int len) {
    const struct sockaddr_storage *address = peer;
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = peer;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(out, (size_t)len, "%s:%d", host, ntohs(in->sin_port));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = peer;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        snprintf(out, (size_t)len, "[%s]:%d", host, ntohs(in->sin6_port));
    } else {
        snprintf(out, (size_t)len, "?");
    }
}
