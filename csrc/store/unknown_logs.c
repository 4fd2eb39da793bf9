/* unknown_logs.c -- logs in the checkpoint or the WAL that the catalogue doesn't name.
 *
 * Most of them were deleted, and a few were never finished: a queue takes messages before its row
 * is on disk. But a catalogue that was lost or is older than the logs looks the same, so recovery
 * notes them all and lets the caller judge (om_store_unknown_logs), before anything of them can go.
 *
 * A set by id with open addressing: a WAL may hold millions of records of one deleted log.
 */
#include "store/unknown_logs.h"

#include "store/log.h"
#include "store/store.h"

#include <stdlib.h>

static om_unknown_log *slot_of(const om_unknown_logs *set, uint64_t id) {
    uint64_t at = id * 0x9E3779B97F4A7C15u >> 32;
    while (set->slots[at & (set->size - 1)].id && set->slots[at & (set->size - 1)].id != id)
        at++;
    return &set->slots[at & (set->size - 1)];
}

static int grow(om_unknown_logs *set) {
    om_unknown_logs grown = {.size = set->size ? set->size * 2 : 64, .count = set->count};
    grown.slots = calloc(grown.size, sizeof *grown.slots);
    if (!grown.slots)
        return OM_E_NO_MEMORY;
    for (uint32_t i = 0; i < set->size; i++)
        if (set->slots[i].id)
            *slot_of(&grown, set->slots[i].id) = set->slots[i];
    free(set->slots);
    *set = grown;
    return OM_OK;
}

int om_unknown_logs_note(om_unknown_logs *set, uint64_t id, uint32_t flags) {
    if (!id)
        return OM_OK;
    if (set->count >= set->size / 2 && grow(set) != OM_OK)
        return OM_E_NO_MEMORY;
    om_unknown_log *log = slot_of(set, id);
    set->count += !log->id;
    log->id = id;
    log->flags |= flags;
    return OM_OK;
}

void om_unknown_logs_free(om_unknown_logs *set) {
    free(set->slots);
    *set = (om_unknown_logs){0};
}

uint64_t om_store_unknown_logs(const om_store *store, om_unknown_log *out, uint64_t most) {
    const om_unknown_logs *set = &store->unknown_logs;
    uint64_t count = 0;
    for (uint32_t i = 0; i < set->size && count < most; i++)
        if (set->slots[i].id)
            out[count++] = set->slots[i];
    return most ? count : set->count;
}
