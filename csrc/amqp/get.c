/* get.c -- basic.get: one message on request, or get-empty.
 *
 * While the segment with the next message is being read, the connection is stalled; then it is answered.
 */
#include "amqp/get.h"
#include "amqp/amqp_conn.h"
#include "amqp/deliver.h"
#include "amqp/frame_write.h"
#include "net/engine_core.h"
#include "queue/queue_head.h"
#include "queue/queue_pump.h"
#include "store/log_append.h"

static void put_empty(om_channel *channel) {
    static const uint8_t args[] = {0};
    uint8_t *at = om_conn_put(channel->conn, OM_METHOD_HEAD + sizeof args + 1);
    om_put_method(at, channel->number, OM_BASIC_GET_EMPTY, args, sizeof args);
}

int om_get(om_channel *channel, om_queue *queue, int no_ack) {
    int32_t lane = 0;
    int64_t offset;
    om_content content;
    queue->touched_ms = queue->engine->now_ms;
    if (!om_queue_can_settle(queue))
        return OM_E_NOT_RESIDENT;
    for (int32_t i = 0; i < queue->lane_count; i++)
        om_log_seal(queue->lanes[i].log); /* what this very tick brought can be had, too */
    om_queue_keep_short(queue);           /* ... but not what consumers wait for, or what is over the limit */
    int result = om_queue_head(queue, queue->engine->wall_ms, &lane, &offset, &content);
    if (result == OM_OK)
        result = om_deliver_head(channel, queue, NULL, no_ack, lane, &content);
    if (result == OM_DELIVERY_TOO_LONG) {
        queue->engine->retry = 1; /* perhaps there is another behind it */
        result = OM_E_NOT_RESIDENT;
    }
    if (result == OM_E_UNREADABLE) {
        om_queue_reader_doubt(queue->lanes[lane].reader, queue->lanes[lane].log);
        result = OM_E_NOT_RESIDENT;
    }
    om_queue_activate(queue);
    if (result == OM_E_NOT_RESIDENT)
        return result;
    if (result == OM_E_NO_MEMORY)
        om_conn_break(channel->conn, "out of memory");
    else if (result != OM_OK)
        put_empty(channel);
    return OM_OK;
}

void om_get_later(om_channel *channel, om_queue *queue, int no_ack) {
    om_conn *conn = channel->conn;
    if (!queue) { /* gone while it waited */
        put_empty(channel);
        return;
    }
    if (om_get(channel, queue, no_ack) != OM_E_NOT_RESIDENT)
        return;
    om_amqp_conn *amqp = om_amqp_of(conn);
    amqp->get_queue = queue->id;
    amqp->get_channel = channel->number;
    amqp->get_no_ack = (uint8_t)no_ack;
    om_conn_stall(conn);
}

void om_get_again(om_conn *conn) {
    om_amqp_conn *amqp = om_amqp_of(conn);
    om_channel *channel = om_channel_find(conn, amqp->get_channel);
    om_queue *queue = om_queue_find(conn->engine, amqp->get_queue);
    amqp->get_queue = 0;
    if (channel && !channel->subscriber.closing)
        om_get_later(channel, queue, amqp->get_no_ack);
}
