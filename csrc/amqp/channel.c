/* channel.c -- channels: opened and closed by Python, found by number. */
#include "engine/engine.h"

#include <stdlib.h>

/* ---- a connection's channels: a hash by number ----
 *
 * Numbers that follow each other, as clients give them, have a slot each; one far off, up to 65535, costs
 * no more than they do. Never full: a search ends at a free slot. */

static uint32_t slot_of(const om_conn *conn, uint32_t number) {
    uint32_t mask = conn->channel_cap - 1, slot = number & mask;
    while (conn->channels[slot] && conn->channels[slot]->number != number)
        slot = (slot + 1) & mask;
    return slot;
}

om_channel *om_channel_find(om_conn *conn, int number) {
    return conn->channel_cap ? conn->channels[slot_of(conn, (uint32_t)number)] : NULL;
}

static int need_slot(om_conn *conn) {
    uint32_t before = conn->channel_cap, cap = before ? before * 2 : 2;
    if ((conn->channel_count + 1) * 4 <= before * 3)
        return OM_OK;
    om_channel **channels = calloc(cap, sizeof *channels), **old = conn->channels;
    if (!channels)
        return OM_E_NO_MEMORY;
    conn->channels = channels;
    conn->channel_cap = cap;
    for (uint32_t i = 0; i < before; i++)
        if (old[i])
            channels[slot_of(conn, old[i]->number)] = old[i];
    free(old);
    return OM_OK;
}

/* Those behind it, up to a free slot, may have wanted its place. */
static void leave_slot(om_conn *conn, uint32_t number) {
    uint32_t mask = conn->channel_cap - 1, slot = slot_of(conn, number);
    conn->channels[slot] = NULL;
    for (slot = (slot + 1) & mask; conn->channels[slot]; slot = (slot + 1) & mask) {
        om_channel *moved = conn->channels[slot];
        conn->channels[slot] = NULL;
        conn->channels[slot_of(conn, moved->number)] = moved;
    }
    conn->channel_count--;
}

int om_channel_new(om_conn *conn, int number) {
    if (number < 1 || number > 65535)
        return OM_E_INVALID;
    if (om_channel_find(conn, number))
        return OM_E_EXISTS;
    om_channel *channel = calloc(1, sizeof *channel);
    if (!channel || need_slot(conn) != OM_OK) {
        free(channel);
        return OM_E_NO_MEMORY;
    }
    channel->conn = conn;
    channel->number = (uint16_t)number;
    channel->state = OM_CH_OPEN;
    channel->unacked.next_tag = 1;
    conn->channels[slot_of(conn, (uint32_t)number)] = channel;
    conn->channel_count++;
    conn->engine->stat.channels++;
    return OM_OK;
}

/* Consumers first: what goes back must not come again to one of its own. */
void om_channel_let_go(om_channel *channel) {
    while (channel->consumers)
        om_consumer_drop(channel->consumers);
    om_settle_return_all(channel);
    om_tx_free(channel);
    om_publish_reset(channel);
}

static void leave_list(om_channel **link, const om_channel *channel, size_t next) {
    while (*link && *link != channel)
        link = (om_channel **)((char *)*link + next);
    if (*link)
        *link = *(om_channel *const *)((const char *)channel + next);
}

void om_channel_free(om_channel *channel) {
    om_engine *engine = channel->conn->engine;
    if (channel->on_published)
        leave_list(&engine->published, channel, offsetof(om_channel, next_published));
    if (channel->on_confirming)
        leave_list(&engine->confirming, channel, offsetof(om_channel, next_confirming));
    om_confirm_clear(channel);
    free(channel->unacked.slots);
    engine->stat.channels--;
    leave_slot(channel->conn, channel->number);
    free(channel);
}

void om_channel_wake_queues(om_channel *channel) {
    for (om_consumer *consumer = channel->consumers; consumer; consumer = consumer->next)
        if (consumer->queue)
            om_queue_activate(consumer->queue);
    om_consumer *first = channel->consumers, **end = &channel->consumers;
    if (!first || !first->next)
        return;
    channel->consumers = first->next;
    while (*end)
        end = &(*end)->next;
    *end = first;
    first->next = NULL;
}
