/* offset_counts.c -- numbers as planes of bits; see offset_counts.h.
 *
 * To raise a range is to add 1 in binary, for all its offsets side by side: where the plane has
 * a 0 it becomes 1 and that part is done, where it has a 1 the carry goes up a plane.
 */
#include "cursor/offset_counts.h"

#include <stdlib.h>

#include "om_base.h"

void om_offset_counts_clear(om_offset_counts *counts) {
    for (uint32_t i = 0; i < counts->len; i++)
        om_offset_set_clear(&counts->planes[i]);
    free(counts->planes);
    *counts = (om_offset_counts){0};
}

size_t om_offset_counts_memory(const om_offset_counts *counts) {
    size_t memory = counts->len * sizeof *counts->planes;
    for (uint32_t i = 0; i < counts->len; i++)
        memory += om_offset_set_memory(&counts->planes[i]);
    return memory;
}

int32_t om_offset_counts_get(const om_offset_counts *counts, int64_t offset) {
    uint32_t number = 0;
    for (uint32_t i = 0; i < counts->len; i++)
        number |= (uint32_t)om_offset_set_contains(&counts->planes[i], offset) << i;
    return (int32_t)number;
}

om_offset_set *om_offset_counts_append_plane(om_offset_counts *counts) {
    om_offset_set *planes = realloc(counts->planes, (counts->len + 1) * sizeof *planes);
    if (planes == NULL)
        return NULL;
    counts->planes = planes;
    om_offset_set_init(&planes[counts->len]);
    return &planes[counts->len++];
}

/* Planes at the top that have no members left go; the block follows their number. */
static void drop_empty_planes(om_offset_counts *counts) {
    uint32_t len = counts->len;
    while (counts->len > 0 && counts->planes[counts->len - 1].len == 0)
        om_offset_set_clear(&counts->planes[--counts->len]);
    if (counts->len == 0) {
        om_offset_counts_clear(counts);
    } else if (counts->len < len) {
        om_offset_set *planes = realloc(counts->planes, counts->len * sizeof *planes);
        if (planes != NULL)
            counts->planes = planes;
    }
}

static int raise_from(om_offset_counts *counts, uint32_t plane, int64_t first, int64_t last) {
    if (plane == OM_COUNT_PLANES)
        return OM_OK;
    if (plane == counts->len && om_offset_counts_append_plane(counts) == NULL)
        return OM_E_NO_MEMORY;
    while (first <= last) {
        /* The planes may move when the carry adds one: no pointer into them is kept. */
        int64_t member = om_offset_set_next_member(&counts->planes[plane], first, last), stop;
        int result;
        if (member == first) {
            stop = first == last ? last : om_offset_set_next_gap(&counts->planes[plane], first) - 1;
            stop = stop < last ? stop : last;
            result = om_offset_set_prepare_remove(&counts->planes[plane], first, stop);
            if (result == OM_OK)
                result = raise_from(counts, plane + 1, first, stop);
            if (result == OM_OK)
                result = om_offset_set_remove(&counts->planes[plane], first, stop);
        } else {
            stop = member < 0 ? last : member - 1;
            result = om_offset_set_add(&counts->planes[plane], first, stop);
        }
        if (result != OM_OK)
            return result;
        first = stop + 1;
    }
    return OM_OK;
}

int om_offset_counts_raise(om_offset_counts *counts, int64_t first, int64_t last) {
    int result = raise_from(counts, 0, first, last);
    drop_empty_planes(counts);
    return result;
}

int om_offset_counts_prepare_forget(om_offset_counts *counts, int64_t first, int64_t last) {
    int result = OM_OK;
    for (uint32_t i = 0; i < counts->len && result == OM_OK; i++)
        result = om_offset_set_prepare_remove(&counts->planes[i], first, last);
    return result;
}

int om_offset_counts_forget(om_offset_counts *counts, int64_t first, int64_t last) {
    int result = OM_OK;
    for (uint32_t i = 0; i < counts->len && result == OM_OK; i++)
        result = om_offset_set_remove(&counts->planes[i], first, last);
    drop_empty_planes(counts);
    return result;
}
