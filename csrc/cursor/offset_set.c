/* offset_set.c -- the list of chunks that makes an offset set; see offset_set.h.
 *
 * Every change first opens the chunks at the two edges of its range (that may need memory, and
 * leaves the members as they were), then applies itself, which can't fail, then tidies the
 * edges: an empty chunk leaves the list, a whole one joins the full stretch beside it.
 */
#include "cursor/offset_set.h"

#include <stdlib.h>
#include <string.h>

#include "om_base.h"

#define FIRST_CAP 2
#define LAST_CHUNK (OM_OFFSET_MAX >> 16)

static inline int64_t number_of(int64_t offset) {
    return offset >> 16;
}

static inline uint32_t low_of(int64_t offset) {
    return (uint32_t)(offset & (OM_CHUNK_SIZE - 1));
}

/* The last chunk number that an entry stands for. */
static inline int64_t last_number(const om_chunk *chunk) {
    return chunk->shape == OM_CHUNK_FULL ? chunk->number + chunk->span - 1 : chunk->number;
}

/* The first entry that stands for chunk `number` or a later one; len when there is none. */
static uint32_t locate(const om_offset_set *set, int64_t number) {
    uint32_t low = 0, high = set->len, hint = set->hint;
    if (hint < high) {
        if (last_number(&set->chunks[hint]) < number)
            low = hint + 1;
        else if (hint == 0 || last_number(&set->chunks[hint - 1]) < number)
            return hint;
        else
            high = hint;
    }
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (last_number(&set->chunks[middle]) < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The entry that stands for chunk `number`, or NULL: empty. */
static om_chunk *chunk_at(const om_offset_set *set, int64_t number) {
    uint32_t i = locate(set, number);
    return i < set->len && set->chunks[i].number <= number ? &set->chunks[i] : NULL;
}

/* ---- the list ------------------------------------------------------------------------- */

static int make_room(om_offset_set *set, uint32_t more) {
    uint64_t want = (uint64_t)set->len + more, cap = set->cap > 0 ? set->cap : FIRST_CAP;
    if (want <= set->cap)
        return OM_OK;
    while (cap < want)
        cap *= 2;
    if (cap > UINT32_MAX)
        return OM_E_NO_MEMORY;
    om_chunk *chunks = realloc(set->chunks, cap * sizeof *chunks);
    if (chunks == NULL)
        return OM_E_NO_MEMORY;
    set->chunks = chunks;
    set->cap = (uint32_t)cap;
    return OM_OK;
}

static void insert_entry(om_offset_set *set, uint32_t at, om_chunk entry) {
    memmove(set->chunks + at + 1, set->chunks + at, (set->len - at) * sizeof entry);
    set->chunks[at] = entry;
    set->len++;
}

static void erase_entries(om_offset_set *set, uint32_t at, uint32_t count) {
    memmove(set->chunks + at, set->chunks + at + count, (set->len - at - count) * sizeof *set->chunks);
    set->len -= count;
    if (set->len == 0) {
        free(set->chunks);
        om_offset_set_init(set);
    } else if (set->cap > FIRST_CAP && set->len * 4 <= set->cap) {
        /* When realloc won't give back, the larger block serves on. */
        om_chunk *chunks = realloc(set->chunks, set->cap / 2 * sizeof *chunks);
        if (chunks != NULL) {
            set->chunks = chunks;
            set->cap /= 2;
        }
    }
}

static om_chunk full_entry(int64_t first, int64_t last) {
    return (om_chunk){.number = first, .span = last - first + 1, .shape = OM_CHUNK_FULL};
}

/* All of chunks [first, last] become members. Room for one entry must be there, unless one of
 * them is in the list already. */
static void put_full(om_offset_set *set, int64_t first, int64_t last) {
    uint32_t from = locate(set, first > 0 ? first - 1 : 0), to;
    if (from < set->len && last_number(&set->chunks[from]) < first && set->chunks[from].shape != OM_CHUNK_FULL)
        from++;
    for (to = from; to < set->len && set->chunks[to].number <= last + 1; to++) {
        om_chunk *chunk = &set->chunks[to];
        if (chunk->shape == OM_CHUNK_FULL) {
            first = chunk->number < first ? chunk->number : first;
            last = last_number(chunk) > last ? last_number(chunk) : last;
        } else if (chunk->number > last) {
            break;
        } else {
            om_chunk_free(chunk);
        }
    }
    if (from == to) {
        insert_entry(set, from, full_entry(first, last));
    } else {
        set->chunks[from] = full_entry(first, last);
        if (to - from > 1)
            erase_entries(set, from + 1, to - from - 1);
    }
}

/* None of chunks [first, last] has members any more. Room for one entry must be there. */
static void cut_out(om_offset_set *set, int64_t first, int64_t last) {
    uint32_t from = locate(set, first), to;
    if (from < set->len && set->chunks[from].number < first) {
        om_chunk *stretch = &set->chunks[from];
        int64_t stretch_last = last_number(stretch);
        stretch->span = first - stretch->number;
        from++;
        if (stretch_last > last)
            insert_entry(set, from, full_entry(last + 1, stretch_last));
    }
    for (to = from; to < set->len && last_number(&set->chunks[to]) <= last; to++)
        om_chunk_free(&set->chunks[to]);
    if (to < set->len && set->chunks[to].number <= last)
        set->chunks[to] = full_entry(last + 1, last_number(&set->chunks[to]));
    if (to > from)
        erase_entries(set, from, to - from);
}

/* ---- one edge of a change -------------------------------------------------------------- */

/* Make sure that chunk `number` can take an addition. */
static int open_to_add(om_offset_set *set, int64_t number) {
    uint32_t i = locate(set, number);
    if (i < set->len && set->chunks[i].number <= number)
        return set->chunks[i].shape == OM_CHUNK_FULL ? OM_OK : om_chunk_reserve(&set->chunks[i]);
    om_chunk fresh;
    int result = make_room(set, 1);
    if (result == OM_OK)
        result = om_chunk_init(&fresh, number, 0);
    if (result == OM_OK)
        insert_entry(set, i, fresh);
    return result;
}

/* Make sure that chunk `number` can take a removal: one of a full stretch gets an entry of its
 * own, with what lies before and after it. */
static int open_to_remove(om_offset_set *set, int64_t number) {
    uint32_t i = locate(set, number);
    if (i == set->len || set->chunks[i].number > number)
        return OM_OK;
    if (set->chunks[i].shape != OM_CHUNK_FULL)
        return om_chunk_reserve(&set->chunks[i]);
    om_chunk whole;
    int result = make_room(set, 2);
    if (result == OM_OK)
        result = om_chunk_init(&whole, number, 1);
    if (result != OM_OK)
        return result;
    int64_t first = set->chunks[i].number, last = last_number(&set->chunks[i]);
    set->chunks[i] = whole;
    if (last > number)
        insert_entry(set, i + 1, full_entry(number + 1, last));
    if (first < number)
        insert_entry(set, i, full_entry(first, number - 1));
    return OM_OK;
}

static void tidy(om_offset_set *set, int64_t number) {
    uint32_t i = locate(set, number);
    set->hint = i;
    if (set->len == 0)
        om_offset_set_clear(set); /* room was made, and then no chunk came of it */
    if (i == set->len || set->chunks[i].number > number || set->chunks[i].shape == OM_CHUNK_FULL)
        return;
    om_chunk *chunk = &set->chunks[i];
    om_chunk_fit(chunk);
    if (chunk->run_count == 0) {
        om_chunk_free(chunk);
        erase_entries(set, i, 1);
    } else if (om_chunk_is_whole(chunk)) {
        put_full(set, number, number);
    }
}

/* A range as a change sees it: a chunk of which only a part is meant at each end, or none,
 * and whole chunks [whole_first, whole_last] between, or none. */
typedef struct om_cover {
    int64_t head, tail; /* -1: none */
    uint32_t head_first, head_last, tail_last;
    int64_t whole_first, whole_last;
} om_cover;

static int cover(om_cover *out, int64_t first, int64_t last) {
    if (first < 0 || last > OM_OFFSET_MAX || first > last)
        return OM_E_INVALID;
    *out = (om_cover){-1, -1, 0, OM_CHUNK_SIZE - 1, 0, number_of(first), number_of(last)};
    if (low_of(last) < OM_CHUNK_SIZE - 1) {
        out->tail = out->whole_last--;
        out->tail_last = low_of(last);
    }
    if (low_of(first) > 0) {
        out->head = out->whole_first++;
        out->head_first = low_of(first);
        if (out->head == out->tail) {
            out->head_last = out->tail_last;
            out->tail = -1;
        }
    }
    return OM_OK;
}

/* ---- changes --------------------------------------------------------------------------- */

/* The way most changes go: one offset, in a chunk that has an entry and room. */
static om_chunk *quick_chunk(om_offset_set *set, int64_t first, int64_t last) {
    if (first != last || first < 0 || first > OM_OFFSET_MAX)
        return NULL;
    om_chunk *chunk = chunk_at(set, number_of(first));
    if (chunk == NULL || chunk->shape == OM_CHUNK_FULL)
        return NULL;
    return om_chunk_reserve(chunk) == OM_OK ? chunk : NULL;
}

static void quick_tidy(om_offset_set *set, const om_chunk *chunk) {
    set->hint = (uint32_t)(chunk - set->chunks);
    if (om_chunk_is_untidy(chunk))
        tidy(set, chunk->number);
}

int om_offset_set_add(om_offset_set *set, int64_t first, int64_t last) {
    om_chunk *chunk = quick_chunk(set, first, last);
    if (chunk != NULL) {
        om_chunk_add(chunk, low_of(first), low_of(first));
        quick_tidy(set, chunk);
        return OM_OK;
    }
    om_cover at;
    int result = cover(&at, first, last);
    if (result != OM_OK)
        return result;
    if (at.head >= 0)
        result = open_to_add(set, at.head);
    if (result == OM_OK && at.tail >= 0)
        result = open_to_add(set, at.tail);
    if (result == OM_OK && at.whole_first <= at.whole_last)
        result = make_room(set, 1);
    if (result == OM_OK) {
        om_chunk *head = at.head >= 0 ? chunk_at(set, at.head) : NULL;
        om_chunk *tail = at.tail >= 0 ? chunk_at(set, at.tail) : NULL;
        if (head != NULL && head->shape != OM_CHUNK_FULL)
            om_chunk_add(head, at.head_first, at.head_last);
        if (tail != NULL && tail->shape != OM_CHUNK_FULL)
            om_chunk_add(tail, 0, at.tail_last);
        if (at.whole_first <= at.whole_last)
            put_full(set, at.whole_first, at.whole_last);
    }
    if (at.head >= 0)
        tidy(set, at.head);
    if (at.tail >= 0)
        tidy(set, at.tail);
    return result;
}

int om_offset_set_prepare_remove(om_offset_set *set, int64_t first, int64_t last) {
    om_cover at;
    int result = cover(&at, first, last);
    if (result != OM_OK || set->len == 0)
        return result;
    if (at.head >= 0)
        result = open_to_remove(set, at.head);
    if (result == OM_OK && at.tail >= 0)
        result = open_to_remove(set, at.tail);
    if (result == OM_OK && at.whole_first <= at.whole_last)
        result = make_room(set, 1);
    return result;
}

int om_offset_set_remove(om_offset_set *set, int64_t first, int64_t last) {
    om_chunk *chunk = quick_chunk(set, first, last);
    if (chunk != NULL) {
        om_chunk_remove(chunk, low_of(first), low_of(first));
        quick_tidy(set, chunk);
        return OM_OK;
    }
    om_cover at;
    int result = cover(&at, first, last);
    if (result != OM_OK || set->len == 0)
        return result;
    result = om_offset_set_prepare_remove(set, first, last);
    if (result == OM_OK) {
        om_chunk *head = at.head >= 0 ? chunk_at(set, at.head) : NULL;
        om_chunk *tail = at.tail >= 0 ? chunk_at(set, at.tail) : NULL;
        if (head != NULL)
            om_chunk_remove(head, at.head_first, at.head_last);
        if (tail != NULL)
            om_chunk_remove(tail, 0, at.tail_last);
        if (at.whole_first <= at.whole_last)
            cut_out(set, at.whole_first, at.whole_last);
    }
    if (at.head >= 0)
        tidy(set, at.head);
    if (at.tail >= 0)
        tidy(set, at.tail);
    return result;
}

int om_offset_set_append(om_offset_set *set, om_chunk *chunk) {
    int64_t last = last_number(chunk);
    int result = OM_OK;
    if (chunk->number < 0 || last > LAST_CHUNK || last < chunk->number ||
        (set->len > 0 && last_number(&set->chunks[set->len - 1]) >= chunk->number))
        result = OM_E_INVALID;
    else if (last == LAST_CHUNK && (chunk->shape == OM_CHUNK_FULL || om_chunk_contains(chunk, OM_CHUNK_SIZE - 1)))
        result = OM_E_INVALID;
    else
        result = make_room(set, 1);
    if (result != OM_OK) {
        om_chunk_free(chunk);
        return result;
    }
    if (chunk->shape == OM_CHUNK_FULL) {
        put_full(set, chunk->number, last);
    } else {
        insert_entry(set, set->len, *chunk);
        tidy(set, chunk->number);
    }
    return OM_OK;
}

/* ---- questions -------------------------------------------------------------------------- */

void om_offset_set_init(om_offset_set *set) {
    *set = (om_offset_set){0};
}

void om_offset_set_clear(om_offset_set *set) {
    for (uint32_t i = 0; i < set->len; i++)
        om_chunk_free(&set->chunks[i]);
    free(set->chunks);
    om_offset_set_init(set);
}

size_t om_offset_set_memory(const om_offset_set *set) {
    size_t memory = set->cap * sizeof *set->chunks;
    for (uint32_t i = 0; i < set->len; i++)
        memory += om_chunk_memory(&set->chunks[i]);
    return memory;
}

int om_offset_set_is_empty(const om_offset_set *set) {
    return om_offset_set_next_member(set, 0, OM_OFFSET_MAX) < 0;
}

int om_offset_set_contains(const om_offset_set *set, int64_t offset) {
    const om_chunk *chunk = chunk_at(set, number_of(offset));
    if (chunk == NULL)
        return 0;
    return chunk->shape == OM_CHUNK_FULL || om_chunk_contains(chunk, low_of(offset));
}

int64_t om_offset_set_next_member(const om_offset_set *set, int64_t from, int64_t to) {
    for (uint32_t i = locate(set, number_of(from)); i < set->len; i++) {
        const om_chunk *chunk = &set->chunks[i];
        int64_t start = chunk->number << 16;
        if (start > to || from > to)
            break;
        if (chunk->shape == OM_CHUNK_FULL)
            return start > from ? start : from;
        uint32_t member = om_chunk_next_member(chunk, start > from ? 0 : low_of(from),
                                               to - start < OM_CHUNK_SIZE ? low_of(to) : OM_CHUNK_SIZE - 1);
        if (member < OM_CHUNK_SIZE)
            return start + member;
    }
    return -1;
}

int64_t om_offset_set_next_gap(const om_offset_set *set, int64_t from) {
    for (uint32_t i = locate(set, number_of(from)); i < set->len; i++) {
        const om_chunk *chunk = &set->chunks[i];
        if (chunk->number > number_of(from))
            return from;
        if (chunk->shape != OM_CHUNK_FULL) {
            uint32_t gap = om_chunk_next_gap(chunk, low_of(from));
            if (gap < OM_CHUNK_SIZE)
                return (chunk->number << 16) + gap;
        }
        from = (last_number(chunk) + 1) << 16;
    }
    return from;
}

int om_offset_set_next_run(const om_offset_set *set, int64_t from, int64_t *first, int64_t *last) {
    int64_t member = om_offset_set_next_member(set, from, OM_OFFSET_MAX);
    if (member < 0)
        return 0;
    *first = member;
    *last = om_offset_set_next_gap(set, member) - 1;
    return 1;
}

int64_t om_offset_set_count(const om_offset_set *set, int64_t first, int64_t last) {
    int64_t count = 0;
    if (first > last)
        return 0;
    for (uint32_t i = locate(set, number_of(first)); i < set->len; i++) {
        const om_chunk *chunk = &set->chunks[i];
        int64_t start = chunk->number << 16;
        int64_t end = (last_number(chunk) << 16) + (OM_CHUNK_SIZE - 1);
        if (start > last)
            break;
        int64_t from = start > first ? start : first, to = end < last ? end : last;
        count += chunk->shape == OM_CHUNK_FULL ? to - from + 1 : om_chunk_count(chunk, low_of(from), low_of(to));
    }
    return count;
}
