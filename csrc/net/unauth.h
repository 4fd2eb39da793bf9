/* unauth.h -- connections that haven't logged in: limits per address, and on the memory of all. */
#ifndef OM_UNAUTH_H
#define OM_UNAUTH_H

#include <stdint.h>

typedef struct om_conn om_conn;
typedef struct om_engine om_engine;

#define OM_UNAUTH_INPUT (16u << 10) /* bytes that one may send before it is heard */
#define OM_UNAUTH_BUCKETS 1024

/* A list of them, the oldest first. */
typedef struct om_age {
    om_conn *older, *newer;
} om_age;

typedef struct om_ages {
    om_conn *oldest, *newest;
    uint32_t count;
} om_ages;

enum { OM_AGE_ALL, OM_AGE_BUCKET, OM_AGE_LISTS };

/* Addresses are spread over buckets by a hash with a secret: no client can choose another one's. */
typedef struct om_unauth {
    om_ages all;
    om_ages buckets[OM_UNAUTH_BUCKETS];
    uint64_t secret;
} om_unauth;

om_unauth *om_unauth_new(void);
void om_unauth_add(om_conn *conn);    /* it has come; the oldest from there may have to go */
void om_unauth_remove(om_conn *conn); /* it has logged in, or left */
/* Those that hold most and longest go until the rest holds little. Each sweep. */
void om_unauth_weigh(om_engine *engine);

#endif
