/* body_assembly.c -- a body that doesn't come in one frame, or waits for its route, and the place where it does.
 *
 * That place is a batch of its own: all that stands around the body is known once the content header is
 * here, so the record is written first, with room for the body, and the body goes in as it comes:
 *
 *   | batch header | length, key ... | body: | here already | still to come | headers |
 *
 * A large message stays there: its log takes the batch over (om_log_stage_landed), and what it costs is one
 * copy. A small one is copied into the batch that it shares with others.
 */
#include "amqp/body_assembly.h"

int om_assembly_put(om_channel *channel, om_span part) {
    const om_props_cache *stamp = &channel->stamp;
    om_build *build = &channel->landing;
    if (!build->bytes &&
        om_build_make_room(build, channel->address.key, (int32_t)channel->body_size,
                           (om_span){stamp->tail, (int32_t)stamp->tail_len}, &channel->landing_at) != OM_OK)
        return OM_E_NO_MEMORY;
    om_build_put(build, channel->landing_at + channel->body_len, part);
    channel->body_len += (uint64_t)part.len;
    return OM_OK;
}

om_span om_assembly_body(const om_channel *channel) {
    return (om_span){channel->landing.bytes->data + channel->landing_at, (int32_t)channel->body_size};
}

int om_assembly_holds(const om_channel *channel, om_span body) {
    return channel->landing.bytes && body.data == om_assembly_body(channel).data;
}

int om_assembly_can_stay(const om_channel *channel, om_span body) {
    /* By event: its headers may have changed since (BCC). */
    return body.len >= OM_BUFFER_LARGE && om_assembly_holds(channel, body) && !channel->stamp.by_event;
}

uint64_t om_assembly_weight(const om_channel *channel) {
    return channel->landing.bytes ? channel->landing.bytes->room : 0;
}

void om_assembly_drop(om_channel *channel) {
    om_build_free(&channel->landing);
}
