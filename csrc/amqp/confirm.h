/* confirm.h -- publisher confirms. */
#ifndef OM_CONFIRM_H
#define OM_CONFIRM_H

#include "om_engine.h"

typedef struct om_channel om_channel;

typedef struct om_pending {
    uint64_t seq;   /* when this is durable ... */
    uint64_t tag;   /* ... all up to this tag are confirmed */
    uint8_t *frame; /* or this (tx.commit-ok) is sent; owned */
    uint32_t frame_len;
} om_pending;

void om_confirm_published(om_channel *channel, int logged); /* one publish done */
void om_confirm_nack(om_channel *channel);                  /* the last publish was refused */
void om_confirm_note(om_engine *engine, uint64_t seq);      /* end of the tick */
void om_confirm_send(om_engine *engine);                    /* the disk has news */
int om_confirm_push(om_channel *channel, uint64_t seq, uint64_t tag, uint8_t *frame, uint32_t len);
void om_confirm_clear(om_channel *channel);

#endif
