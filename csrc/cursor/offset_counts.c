/* offset_counts.c -- numbers as planes of bits; see offset_counts.h.
 *
 * To raise a range is to add 1 in binary, for all its offsets side by side: where the plane has
 * a 0 it becomes 1 and that part is done, where it has a 1 the carry goes up a plane.
 */
#include "cursor/offset_counts.h"

#include <stdlib.h>

#include "om_base.h"

void om_offset_counts_clear(om_offset_counts *tally) {
    for (uint32_t i = 0; i < tally->len; i++)
        om_offset_set_clear(&tally->planes[i]);
    free(tally->planes);
    *tally = (om_offset_counts){0};
}

size_t om_offset_counts_memory(const om_offset_counts *tally) {
    size_t memory = tally->len * sizeof *tally->planes;
    for (uint32_t i = 0; i < tally->len; i++)
        memory += om_offset_set_memory(&tally->planes[i]);
    return memory;
}

int32_t om_offset_counts_get(const om_offset_counts *tally, int64_t offset) {
    uint32_t number = 0;
    for (uint32_t i = 0; i < tally->len; i++)
        number |= (uint32_t)om_offset_set_contains(&tally->planes[i], offset) << i;
    return (int32_t)number;
}

om_offset_set *om_offset_counts_append_plane(om_offset_counts *tally) {
    om_offset_set *planes = realloc(tally->planes, (tally->len + 1) * sizeof *planes);
    if (planes == NULL)
        return NULL;
    tally->planes = planes;
    om_offset_set_init(&planes[tally->len]);
    return &planes[tally->len++];
}

/* Planes at the top that have no members left go; the block follows their number. */
static void drop_empty_planes(om_offset_counts *tally) {
    uint32_t len = tally->len;
    while (tally->len > 0 && tally->planes[tally->len - 1].len == 0)
        om_offset_set_clear(&tally->planes[--tally->len]);
    if (tally->len == 0) {
        om_offset_counts_clear(tally);
    } else if (tally->len < len) {
        om_offset_set *planes = realloc(tally->planes, tally->len * sizeof *planes);
        if (planes != NULL)
            tally->planes = planes;
    }
}

static int raise_from(om_offset_counts *tally, uint32_t plane, int64_t first, int64_t last) {
    if (plane == OM_TALLY_PLANES)
        return OM_OK;
    if (plane == tally->len && om_offset_counts_append_plane(tally) == NULL)
        return OM_E_NO_MEMORY;
    while (first <= last) {
        /* The planes may move when the carry adds one: no pointer into them is kept. */
        int64_t member = om_offset_set_next_member(&tally->planes[plane], first, last), stop;
        int result;
        if (member == first) {
            stop = first == last ? last : om_offset_set_next_gap(&tally->planes[plane], first) - 1;
            stop = stop < last ? stop : last;
            result = om_offset_set_prepare_remove(&tally->planes[plane], first, stop);
            if (result == OM_OK)
                result = raise_from(tally, plane + 1, first, stop);
            if (result == OM_OK)
                result = om_offset_set_remove(&tally->planes[plane], first, stop);
        } else {
            stop = member < 0 ? last : member - 1;
            result = om_offset_set_add(&tally->planes[plane], first, stop);
        }
        if (result != OM_OK)
            return result;
        first = stop + 1;
    }
    return OM_OK;
}

int om_offset_counts_raise(om_offset_counts *tally, int64_t first, int64_t last) {
    int result = raise_from(tally, 0, first, last);
    drop_empty_planes(tally);
    return result;
}

int om_offset_counts_prepare_forget(om_offset_counts *tally, int64_t first, int64_t last) {
    int result = OM_OK;
    for (uint32_t i = 0; i < tally->len && result == OM_OK; i++)
        result = om_offset_set_prepare_remove(&tally->planes[i], first, last);
    return result;
}

int om_offset_counts_forget(om_offset_counts *tally, int64_t first, int64_t last) {
    int result = OM_OK;
    for (uint32_t i = 0; i < tally->len && result == OM_OK; i++)
        result = om_offset_set_remove(&tally->planes[i], first, last);
    drop_empty_planes(tally);
    return result;
}
