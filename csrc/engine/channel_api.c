/* channel_api.c -- Python's calls about channels and their transactions. */
#include "amqp/ack.h"
#include "amqp/amqp_conn.h"
#include "amqp/tx.h"
#include "engine/engine.h"

static om_channel *enter(om_engine *engine, uint64_t id, int number) {
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    return amqp ? om_channel_find(&amqp->conn, number) : NULL;
}

static int leave(om_engine *engine, const om_channel *channel) {
    om_engine_leave(engine);
    return channel ? OM_OK : OM_E_GONE;
}

int om_channel_open(om_engine *engine, uint64_t id, int number) {
    om_engine_enter(engine);
    om_amqp_conn *amqp = om_amqp_find(engine, id);
    int result = amqp ? om_channel_new(&amqp->conn, number) : OM_E_GONE;
    om_engine_leave(engine);
    return result;
}

int om_channel_close(om_engine *engine, uint64_t id, int number, int closing) {
    om_channel *channel = enter(engine, id, number);
    if (channel) {
        om_channel_let_go(channel);
        om_confirm_clear(channel); /* nothing is said on it any more */
        channel->subscriber.closing = 1;
        if (!closing)
            om_channel_free(channel);
    }
    return leave(engine, channel);
}

int om_channel_confirm(om_engine *engine, uint64_t id, int number) {
    om_channel *channel = enter(engine, id, number);
    if (channel)
        channel->confirms = 1;
    return leave(engine, channel);
}

int om_channel_limit(om_engine *engine, uint64_t id, int number, uint32_t prefetch) {
    om_channel *channel = enter(engine, id, number);
    if (channel) {
        channel->subscriber.limit = prefetch;
        om_channel_wake_queues(channel);
    }
    return leave(engine, channel);
}

int om_channel_recover(om_engine *engine, uint64_t id, int number) {
    om_channel *channel = enter(engine, id, number);
    if (channel) {
        om_basic_recover(channel);
        om_channel_wake_queues(channel);
    }
    return leave(engine, channel);
}

int om_channel_tx_select(om_engine *engine, uint64_t id, int number) {
    om_channel *channel = enter(engine, id, number);
    int result = channel ? om_tx_select(channel) : OM_E_GONE;
    om_engine_leave(engine);
    return result;
}

int om_channel_tx_commit(om_engine *engine, uint64_t id, int number, const uint8_t *ok, size_t len) {
    om_channel *channel = enter(engine, id, number);
    int result = channel && channel->tx ? om_tx_commit(channel, ok, len) : OM_E_GONE;
    om_engine_leave(engine);
    return result;
}

int om_channel_tx_rollback(om_engine *engine, uint64_t id, int number) {
    om_channel *channel = enter(engine, id, number);
    if (channel && !channel->tx)
        channel = NULL;
    if (channel)
        om_tx_rollback(channel);
    return leave(engine, channel);
}
