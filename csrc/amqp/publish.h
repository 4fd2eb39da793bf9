/* publish.h -- a message comes in: method, header, body. */
#ifndef OM_PUBLISH_H
#define OM_PUBLISH_H

#include "amqp/frame.h"
#include "format/content.h"
#include "queue/route.h"

typedef struct om_channel om_channel;

enum om_content_stage { OM_STAGE_IDLE = 0, OM_STAGE_HEADER = 1, OM_STAGE_BODY = 2 };

/* Where the last publish went: the same method bytes go there again. */
typedef struct om_publish_target {
    uint8_t *method; /* the arguments of basic.publish, as they came */
    uint32_t method_len, method_cap;
    om_span exchange, key; /* in there */
    uint8_t bits;          /* 1 mandatory, 2 immediate */
    om_route *route;       /* held; NULL: not known yet */
    uint64_t permissions;  /* the generation it was allowed under */
    uint32_t salt;
    uint8_t allowed, by_event;
} om_publish_target;

/* The last property part, and what follows from it. */
typedef struct om_props_cache {
    uint8_t *data; /* the property part */
    uint32_t len, cap;
    uint8_t *tail; /* the record headers, made with `exchange` */
    uint32_t tail_len, tail_cap;
    uint8_t exchange_len;
    uint8_t exchange[255];
    uint8_t known, persistent, priority, by_event, direct_reply, user_ok;
    int64_t delay_ms; /* x-delay; -1: none */
} om_props_cache;

enum om_verdict om_publish_method(om_channel *channel, const uint8_t *args, size_t len);
enum om_verdict om_publish_header(om_channel *channel, const uint8_t *payload, size_t len);
enum om_verdict om_publish_body(om_channel *channel, const uint8_t *payload, size_t len);
/* The parked message goes to this route (held by the caller). */
void om_publish_parked(om_channel *channel, om_route *route);
void om_publish_reset(om_channel *channel);
void om_publish_return(om_channel *channel, om_span exchange, om_span key, om_span properties, om_span body);

#endif
