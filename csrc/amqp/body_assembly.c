/* body_assembly.c -- assembles a message body that spans several frames or waits for its route.
 *
 * The body is assembled in a batch of its own. All that surrounds it in the record is known once the content header
 * is here, so the record is written first, with room for the body, and the body is copied in as it comes:
 *
 *   | batch header | length, key ... | body: | here already | still to come | headers |
 *
 * A large message stays there: its log takes the batch over (om_log_stage_built), at the cost of one copy. A small
 * one is copied into the batch that it shares with others.
 */
#include "amqp/body_assembly.h"

int om_assembly_put(om_channel *channel, om_span part) {
    const om_props_cache *props = &channel->props;
    om_build *build = &channel->assembly;
    if (!build->bytes &&
        om_build_make_room(build, channel->target.key, (int32_t)channel->body_size,
                           (om_span){props->tail, (int32_t)props->tail_len}, &channel->assembly_at) != OM_OK)
        return OM_E_NO_MEMORY;
    om_build_put(build, channel->assembly_at + channel->body_len, part);
    channel->body_len += (uint64_t)part.len;
    return OM_OK;
}

om_span om_assembly_body(const om_channel *channel) {
    return (om_span){channel->assembly.bytes->data + channel->assembly_at, (int32_t)channel->body_size};
}

int om_assembly_holds(const om_channel *channel, om_span body) {
    return channel->assembly.bytes && body.data == om_assembly_body(channel).data;
}

int om_assembly_can_stay(const om_channel *channel, om_span body) {
    /* By event: its headers may have changed since (BCC). */
    return body.len >= OM_BUFFER_LARGE && om_assembly_holds(channel, body) && !channel->props.by_event;
}

uint64_t om_assembly_weight(const om_channel *channel) {
    return channel->assembly.bytes ? channel->assembly.bytes->room : 0;
}

void om_assembly_drop(om_channel *channel) {
    om_build_free(&channel->assembly);
}
