/* direct_reply_to.c -- direct reply-to: a reply goes from channel to channel, through no queue.
 *
 *   amq.rabbitmq.reply-to.<connection>.<channel>.<secret>, all in hexadecimal
 *
 * The secret is the channel's own: only a client that got the request can reply.
 */
#include "amqp/direct_reply_to.h"
#include "amqp/amqp_conn.h"
#include "amqp/deliver.h"
#include "net/engine_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define PREFIX OM_REPLY_TO "."

int om_reply_is_address(om_span key) {
    return key.len > (int32_t)strlen(PREFIX) && memcmp(key.data, PREFIX, strlen(PREFIX)) == 0;
}

om_channel *om_reply_find(om_engine *engine, om_span key) {
    char text[256];
    unsigned long long conn_id, secret;
    unsigned number;
    int end = 0;
    memcpy(text, key.data, (size_t)key.len);
    text[key.len] = 0;
    if (sscanf(text + strlen(PREFIX), "%llx.%x.%llx%n", &conn_id, &number, &secret, &end) != 3 ||
        text[strlen(PREFIX) + (size_t)end])
        return NULL;
    const om_amqp_conn *amqp = om_amqp_find(engine, conn_id);
    om_channel *channel = amqp && number <= 65535 ? om_channel_find(&amqp->conn, (int)number) : NULL;
    return channel && channel->reply_to && channel->reply_secret == secret ? channel : NULL;
}

int om_reply_start(om_channel *channel, om_span tag, const uint8_t *ok, size_t len) {
    if (channel->reply_to)
        return OM_E_LOCKED;
    int result = om_consumer_start_unqueued(&channel->subscriber, tag, &channel->reply_to);
    if (result == OM_OK)
        om_conn_put_bytes(channel->conn, ok, len);
    return result;
}

static int deliver(om_engine *engine, om_span key, const om_content *content) {
    om_channel *channel = om_reply_is_address(key) ? om_reply_find(engine, key) : NULL;
    if (!channel)
        return 0;
    if (channel->conn->out.bytes >= OM_OUTPUT_HARD_LIMIT)
        return 1; /* it doesn't read: its peer must not wait for it, and the reply isn't kept */
    uint8_t args[OM_DELIVER_ARGS];
    uint64_t tag = om_unacked_skip(&channel->unacked);
    uint8_t *at = om_deliver_args(args, channel->reply_to, tag, 0, (om_span){(const uint8_t *)"", 0}, key);
    if (om_deliver_frames(channel->conn, channel, OM_BASIC_DELIVER, args, (size_t)(at - args), content,
                          content->properties, NULL) == OM_DELIVERY_TOO_LONG)
        return 0; /* longer than this client's frames */
    channel->conn->delivered++;
    return 1;
}

static int deliver_copies(om_engine *engine, om_span keys, const om_content *content) {
    om_field field;
    int answered = 0;
    for (size_t at = 0; keys.len > 0 && om_array_next(keys.data, (size_t)keys.len, &at, &field) == OM_OK;)
        if (field.type == 'S' && field.value.len <= 255)
            answered += deliver(engine, field.value, content);
    return answered;
}

int om_reply_answer(om_channel *from, om_span exchange, om_span key, om_span properties, om_span body) {
    om_engine *engine = from->conn->engine;
    om_properties sent, told;
    om_span cc, bcc;
    if (exchange.len || om_properties_parse(properties.data, (size_t)properties.len, &sent) != OM_OK)
        return 0;
    told = sent;
    om_properties_copies(&sent, &cc, &bcc);
    if (om_properties_hide_bcc(&told, engine->rewrite, engine->rewrite_cap) != OM_OK)
        return 0;
    om_content content = {
        .exchange = exchange, .routing_key = key, .body = body, .properties = {told.data, (int32_t)told.len}};
    return deliver(engine, key, &content) + deliver_copies(engine, cc, &content) +
           deliver_copies(engine, bcc, &content);
}

/* The property part with this channel's own address for `reply-to`. OM_E_GONE: it doesn't
 * consume replies. */
int64_t om_reply_rewrite(om_channel *channel, const om_properties *in, uint8_t *out, size_t cap) {
    char address[128];
    if (!channel->reply_to)
        return OM_E_GONE;
    while (!channel->reply_secret)
        if (getrandom(&channel->reply_secret, sizeof channel->reply_secret, 0) < 0)
            return OM_E_NO_MEMORY;
    int len = snprintf(address, sizeof address, PREFIX "%llx.%x.%llx", (unsigned long long)channel->conn->id,
                       (unsigned)channel->number, (unsigned long long)channel->reply_secret);
    /* Everything before the value, with its length byte; the new one; everything behind. */
    size_t before = (size_t)(in->reply_to.data - 1 - in->data);
    size_t behind = in->len - before - 1 - (size_t)in->reply_to.len;
    size_t size = before + 1 + (size_t)len + behind;
    if (size > cap)
        return OM_E_NO_MEMORY;
    memcpy(out, in->data, before);
    out[before] = (uint8_t)len;
    memcpy(out + before + 1, address, (size_t)len);
    memcpy(out + before + 1 + len, in->reply_to.data + in->reply_to.len, behind);
    return (int64_t)size;
}
