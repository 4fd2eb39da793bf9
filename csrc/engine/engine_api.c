/* engine_api.c -- Python's calls about the engine as a whole.
 *
 * Whatever Python calls happens between two ticks. A function of ottermq.h that enters the engine stands in the
 * *_api.c of its object: om_conn_* in conn_api.c, om_queue_* in queue_api.c, and so on.
 */
#include "engine/engine.h"

void om_engine_set_limits(om_engine *engine, uint64_t memory_limit, uint64_t max_message_size) {
    om_engine_enter(engine);
    engine->options.memory_limit = memory_limit;
    engine->options.max_message_size = max_message_size;
    om_engine_leave(engine);
}

void om_engine_stat_get(om_engine *engine, om_engine_stat *out) {
    om_engine_enter(engine);
    *out = engine->stat;
    out->connections = engine->conn_count;
    out->queues = engine->queue_count;
    out->routes = engine->route_count;
    out->blocked = engine->alarm;
    for (uint32_t i = 0; i < engine->conn_cap; i++)
        out->output_bytes += engine->conns[i] ? engine->conns[i]->out.bytes : 0;
    for (uint32_t i = 0; i < engine->queue_buckets; i++)
        for (const om_queue *queue = engine->by_id[i]; queue; queue = queue->next_by_id)
            out->consumers += queue->consumer_count;
    om_engine_leave(engine);
}

void om_engine_forget_permissions(om_engine *engine) {
    om_ticket_lock_take(&engine->store->turn);
    engine->permissions++;
    om_ticket_lock_give(&engine->store->turn);
}
