/* confirm.c -- publisher confirms: sent when the disk has the messages, for many at once.
 *
 * A tick's publishes on a channel become one entry: (the tick's last sequence, the last tag). When that sequence is
 * durable, one basic.ack (multiple) confirms everything up to the tag. Entries are a queue: what needed no disk waits
 * behind what does, since a multiple ack covers all tags below its own.
 */
#include "amqp/confirm.h"
#include "amqp/amqp.h"
#include "amqp/amqp_conn.h"
#include "amqp/channel.h"
#include "amqp/frame_write.h"
#include "net/engine_core.h"

#include <stdlib.h>

static om_pending *entry_at(const om_channel *channel, uint32_t index) {
    return &channel->pending[(channel->pending_head + index) & (channel->pending_cap - 1)];
}

int om_confirm_push(om_channel *channel, uint64_t seq, uint64_t tag, uint8_t *frame, uint32_t len) {
    om_engine *engine = channel->conn->engine;
    if (channel->pending_count == channel->pending_cap) {
        uint32_t cap = channel->pending_cap ? channel->pending_cap * 2 : 8;
        om_pending *pending = malloc(cap * sizeof *pending);
        if (!pending)
            return OM_E_NO_MEMORY;
        for (uint32_t i = 0; i < channel->pending_count; i++)
            pending[i] = *entry_at(channel, i);
        free(channel->pending);
        channel->pending = pending;
        channel->pending_cap = cap;
        channel->pending_head = 0;
    }
    channel->pending_count++;
    *entry_at(channel, channel->pending_count - 1) = (om_pending){seq, tag, frame, len};
    engine->amqp->confirm_due |= seq <= engine->amqp->confirmed_seq;
    if (!channel->on_confirming) {
        channel->on_confirming = 1;
        channel->next_confirming = engine->amqp->confirming;
        engine->amqp->confirming = channel;
    }
    return OM_OK;
}

void om_confirm_clear(om_channel *channel) {
    for (uint32_t i = 0; i < channel->pending_count; i++)
        free(entry_at(channel, i)->frame);
    free(channel->pending);
    channel->pending = NULL;
    channel->pending_count = channel->pending_cap = channel->pending_head = 0;
}

static void put_verdict(om_channel *channel, uint32_t method, uint64_t tag, int multiple) {
    uint8_t *at = om_conn_put(channel->conn, OM_METHOD_HEAD + 9 + 1);
    at = om_put_method_head(at, channel->number, method, 9);
    om_put_be64(at, tag);
    at[8] = (uint8_t)multiple; /* basic.nack's second bit, requeue, means nothing to a publisher */
    om_put_frame_end(at + 9);
}

void om_confirm_published(om_channel *channel, int logged) {
    if (!channel->confirms)
        return;
    channel->good_tag = ++channel->publish_tag;
    channel->tick_logged |= (uint8_t)logged;
    if (channel->on_published)
        return;
    om_engine *engine = channel->conn->engine;
    channel->on_published = 1;
    channel->next_published = engine->amqp->published;
    engine->amqp->published = channel;
}

void om_confirm_nack(om_channel *channel) {
    if (!channel->confirms)
        return;
    /* Said at once: a multiple ack for those around it then finds it settled. No ack names it. */
    put_verdict(channel, OM_BASIC_NACK, ++channel->publish_tag, 0);
}

/* Messages that a fence refuses are nacked when the fence is handled: their sequence never becomes durable. Messages
 * that found no memory have no sequence; their publishers lose their connection and with it nothing but a confirm
 * that would have been a lie. */
static int is_lost(om_store *store) {
    int kept, lost = store->refused && !om_wal_fenced(store->wal, &kept, NULL, 0);
    store->refused = 0;
    return lost;
}

void om_confirm_note(om_engine *engine, uint64_t seq) {
    int lost = is_lost(engine->store);
    while (engine->amqp->published) {
        om_channel *channel = engine->amqp->published;
        engine->amqp->published = channel->next_published;
        channel->on_published = 0;
        if (channel->subscriber.closing)
            continue;
        if (lost || om_confirm_push(channel, channel->tick_logged ? seq : 0, channel->good_tag, NULL, 0) != OM_OK)
            om_conn_break(channel->conn, "out of memory");
        else
            channel->tick_logged = 0;
    }
}

/* Everything of this channel that may be said now. Returns whether something still waits. */
static int settle_channel(om_channel *channel, uint64_t durable, int fenced) {
    om_engine *engine = channel->conn->engine;
    uint64_t acked = 0;
    while (channel->pending_count) {
        om_pending *entry = entry_at(channel, 0);
        int done = entry->seq <= durable;
        if (!done && !fenced)
            break;
        if (entry->frame || !done) {
            if (acked)
                put_verdict(channel, OM_BASIC_ACK, acked, 1);
            acked = 0;
        }
        if (entry->frame) {
            if (done)
                om_conn_put_bytes(channel->conn, entry->frame, entry->frame_len);
            else
                om_amqp_error(channel->conn, channel->number, 541, 90 << 16 | 20,
                              "INTERNAL_ERROR - the transaction can't be written to disk");
            free(entry->frame);
        } else if (done) {
            acked = entry->tag;
        } else {
            put_verdict(channel, OM_BASIC_NACK, entry->tag, 1);
        }
        if (!entry->frame)
            engine->stat.confirmed += entry->tag - channel->noted_tag;
        channel->noted_tag = entry->tag;
        channel->pending_head = (channel->pending_head + 1) & (channel->pending_cap - 1);
        channel->pending_count--;
    }
    if (acked)
        put_verdict(channel, OM_BASIC_ACK, acked, 1);
    return channel->pending_count > 0;
}

/* Thousands may wait at a time, and most ticks bring nothing for any of them. */
void om_confirm_send(om_engine *engine) {
    uint64_t durable = om_wal_durable_seq(engine->store->wal);
    int fenced = engine->store->fence_handled;
    if (durable == engine->amqp->confirmed_seq && !engine->amqp->confirm_due && !fenced)
        return;
    engine->amqp->confirmed_seq = durable;
    engine->amqp->confirm_due = 0;
    om_channel **link = &engine->amqp->confirming;
    while (*link) {
        om_channel *channel = *link;
        if (settle_channel(channel, durable, fenced)) {
            link = &channel->next_confirming;
            continue;
        }
        channel->on_confirming = 0;
        *link = channel->next_confirming;
    }
}
