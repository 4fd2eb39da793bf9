/* channel.c -- channels: opened and closed by Python, found by number. */
#include "amqp/channel.h"
#include "amqp/ack.h"
#include "amqp/amqp.h"
#include "amqp/amqp_conn.h"
#include "amqp/deliver.h"
#include "amqp/tx.h"
#include "queue/queues.h"

#include <stdlib.h>

/* ---- a connection's channels: a hash by number ----
 *
 * Numbers that follow each other, as clients give them, have a slot each; one far off, up to 65535, costs
 * no more than they do. Never full: a search ends at a free slot. */

static uint32_t slot_of(const om_amqp_conn *amqp, uint32_t number) {
    uint32_t mask = amqp->channel_cap - 1, slot = number & mask;
    while (amqp->channels[slot] && amqp->channels[slot]->number != number)
        slot = (slot + 1) & mask;
    return slot;
}

om_channel *om_channel_find(const om_conn *conn, int number) {
    const om_amqp_conn *amqp = om_amqp_of(conn);
    return amqp->channel_cap ? amqp->channels[slot_of(amqp, (uint32_t)number)] : NULL;
}

static int need_slot(om_amqp_conn *amqp) {
    uint32_t before = amqp->channel_cap, cap = before ? before * 2 : 2;
    if ((amqp->channel_count + 1) * 4 <= before * 3)
        return OM_OK;
    om_channel **channels = calloc(cap, sizeof *channels), **old = amqp->channels;
    if (!channels)
        return OM_E_NO_MEMORY;
    amqp->channels = channels;
    amqp->channel_cap = cap;
    for (uint32_t i = 0; i < before; i++)
        if (old[i])
            channels[slot_of(amqp, old[i]->number)] = old[i];
    free(old);
    return OM_OK;
}

/* Those behind it, up to a free slot, may have wanted its place. */
static void leave_slot(om_amqp_conn *amqp, uint32_t number) {
    uint32_t mask = amqp->channel_cap - 1, slot = slot_of(amqp, number);
    amqp->channels[slot] = NULL;
    for (slot = (slot + 1) & mask; amqp->channels[slot]; slot = (slot + 1) & mask) {
        om_channel *moved = amqp->channels[slot];
        amqp->channels[slot] = NULL;
        amqp->channels[slot_of(amqp, moved->number)] = moved;
    }
    amqp->channel_count--;
}

int om_channel_new(om_conn *conn, int number) {
    om_amqp_conn *amqp = om_amqp_of(conn);
    if (number < 1 || number > 65535)
        return OM_E_INVALID;
    if (om_channel_find(conn, number))
        return OM_E_EXISTS;
    om_channel *channel = calloc(1, sizeof *channel);
    if (!channel || need_slot(amqp) != OM_OK) {
        free(channel);
        return OM_E_NO_MEMORY;
    }
    channel->conn = channel->subscriber.conn = conn;
    channel->number = channel->subscriber.number = (uint16_t)number;
    channel->subscriber.ops = &om_amqp_delivery;
    channel->unacked.next_tag = 1;
    amqp->channels[slot_of(amqp, (uint32_t)number)] = channel;
    amqp->channel_count++;
    conn->engine->stat.channels++;
    return OM_OK;
}

void om_channel_drop_consumer(om_channel *channel, om_consumer *consumer) {
    if (channel->reply_to == consumer)
        channel->reply_to = NULL;
    om_consumer_drop(consumer);
}

/* Consumers first: what goes back must not come again to one of its own. */
void om_channel_let_go(om_channel *channel) {
    while (channel->subscriber.consumers)
        om_channel_drop_consumer(channel, channel->subscriber.consumers);
    om_ack_return_all(channel);
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
        leave_list(&engine->amqp->published, channel, offsetof(om_channel, next_published));
    if (channel->on_confirming)
        leave_list(&engine->amqp->confirming, channel, offsetof(om_channel, next_confirming));
    om_confirm_clear(channel);
    free(channel->unacked.slots);
    engine->stat.channels--;
    om_amqp_conn *amqp = om_amqp_of(channel->conn);
    if (amqp->last_channel == channel)
        amqp->last_channel = NULL;
    leave_slot(amqp, channel->number);
    free(channel);
}

void om_channel_wake_queues(om_channel *channel) {
    for (om_consumer *consumer = channel->subscriber.consumers; consumer; consumer = consumer->next)
        if (consumer->queue)
            om_queue_activate(consumer->queue);
    om_consumer *first = channel->subscriber.consumers, **end = &channel->subscriber.consumers;
    if (!first || !first->next)
        return;
    channel->subscriber.consumers = first->next;
    while (*end)
        end = &(*end)->next;
    *end = first;
    first->next = NULL;
}

/* A message that nobody acks pins its segment. */
void om_channel_check_overdue(om_channel *channel) {
    om_engine *engine = channel->conn->engine;
    if (!channel->unacked.live || channel->overdue_told)
        return;
    const om_unacked *late = om_unacked_overdue(&channel->unacked, engine->now_ms, engine->queues->shortest_timeout_ms);
    if (!late)
        return;
    channel->overdue_told = 1;
    om_event event = {
        .kind = OM_EV_CONSUMER_TIMEOUT,
        .conn = channel->conn->id,
        .channel = channel->number,
        .queue = late->queue->id,
        .count = om_unacked_timeout(late),
    };
    om_event_push(engine, &event);
}
