/* socket.h -- socket options of a client's connection. */
#ifndef OM_SOCKET_H
#define OM_SOCKET_H

#define OM_CONGESTION_NAME 16 /* TCP_CA_NAME_MAX */

/* A listener's connections begin unpaced; `usual` becomes the name of the machine's own choice. */
void om_socket_listens(int fd, char usual[OM_CONGESTION_NAME]);
/* One that it accepted, from `peer` (a struct sockaddr_storage). */
void om_socket_accepted(int fd, const void *peer, const char *usual);
/* Output that is sent while it is held goes in full packets; the rest goes when it is let go. */
void om_socket_hold(int fd, int held);
/* "127.0.0.1:5672", "[::1]:5672". */
void om_socket_describe(const void *peer, char *out, int len);
#endif
