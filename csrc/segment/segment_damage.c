/* segment_damage.c -- the unreadable stretches of a segment, and the next whole batch behind each.
 *
 *   | batch | batch | bad: checksum, header, sector | batch | batch |
 *                   ^ position                      ^ end
 *                     first .. last: the offsets it may have held
 *
 * Promise: damage costs the damaged batches and nothing else. When a reader meets bytes that are no batch, that have
 * a wrong checksum or that the disk can't give, the file is surveyed: read as a whole, each batch checked.
 * From then on all readers step over the bad stretches, which are the same for each of them.
 *
 * Behind a bad batch the next one is where its length says, if a whole batch is there. Else the length is
 * what is damaged: then the first place counts that has a header, a right checksum and offsets that fit.
 *
 * The list is replaced, never changed: readers hold no lock. A marker file beside the segment
 * (*.log.damaged) makes the next start survey it again; people can read it.
 */
#define _GNU_SOURCE
#include "segment/chunk_reader.h"

#include "base/file_util.h"
#include "segment/file_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Checksums that a search for the next batch may take before it gives up: headers can be made up. */
#define SEARCH_MAX (256u << 20)
#define MAGIC_AT 16
#define PATIENCE 3 /* surveys that didn't see what a reader saw */

/* ---- the list -------------------------------------------------------------------------- */

static const om_damages *damages_of(const om_segment *segment) {
    return __atomic_load_n(&segment->damages, __ATOMIC_ACQUIRE);
}

int om_segment_is_damaged(const om_segment *segment) {
    const om_damages *damages = damages_of(segment);
    return damages && damages->count;
}

const om_bad *om_segment_bad_at(const om_segment *segment, uint64_t position) {
    const om_damages *damages = damages_of(segment);
    for (uint32_t i = 0; damages && i < damages->count && damages->items[i].position <= position; i++)
        if (position < damages->items[i].end)
            return &damages->items[i];
    return NULL;
}

const om_bad *om_segment_bad_for(const om_segment *segment, int64_t offset) {
    const om_damages *damages = damages_of(segment);
    if (offset < segment->base_offset)
        offset = segment->base_offset;
    for (uint32_t i = 0; damages && i < damages->count && damages->items[i].first <= offset; i++)
        if (offset <= damages->items[i].last)
            return &damages->items[i];
    return NULL;
}

uint64_t om_segment_good_until(const om_segment *segment, uint64_t position) {
    const om_damages *damages = damages_of(segment);
    for (uint32_t i = 0; damages && i < damages->count; i++)
        if (damages->items[i].end > position)
            return damages->items[i].position > position ? damages->items[i].position : position;
    return UINT64_MAX;
}

uint32_t om_segment_surveys(const om_segment *segment) {
    return __atomic_load_n(&segment->surveys, __ATOMIC_ACQUIRE);
}

int64_t om_segment_lost_records(const om_segment *segment, int64_t from) {
    const om_damages *damages = damages_of(segment);
    int64_t sum = 0;
    for (uint32_t i = 0; damages && i < damages->count; i++) {
        int64_t first = damages->items[i].first > from ? damages->items[i].first : from;
        sum += damages->items[i].last >= first ? damages->items[i].last - first + 1 : 0;
    }
    return sum;
}

void om_damages_free(om_damages *damages) {
    while (damages) {
        om_damages *older = damages->older;
        free(damages);
        damages = older;
    }
}

int om_segment_step_surveyed(const om_segment *segment, const om_view *view, uint64_t at, int64_t least,
                             om_step *step) {
    const om_bad *bad = om_segment_bad_at(segment, at);
    if (!bad)
        return om_step_at(view->data, at, view->len, least, step);
    if (bad->position != at)
        return OM_E_CORRUPT; /* an index that points into it */
    *step = (om_step){bad->first, bad->last, -1, bad->end - at, 1};
    return OM_OK;
}

/* ---- the survey ------------------------------------------------------------------------ */

typedef struct search {
    om_chunk_reader *chunks;
    uint64_t end;  /* of what should be there */
    int64_t limit; /* one past the last offset that it may hold */
    uint64_t left; /* bytes whose checksum may still be made */
} search;

/* A whole and right batch at `at`, of offsets that fit: OM_OK; OM_END: there is none. */
static int whole_at(search *search, uint64_t at, int64_t least, om_batch_info *batch) {
    const uint8_t *data;
    size_t got;
    if (at >= search->chunks->size)
        return OM_END;
    int result = om_chunk_at(search->chunks, at, OM_BATCH_OVERHEAD, &data, &got);
    if (result != OM_OK)
        return result;
    if (om_batch_peek(data, got, batch) != OM_OK || (uint64_t)batch->size > search->end - at ||
        batch->base_offset < least || batch->base_offset + batch->last_offset_delta >= search->limit)
        return OM_END;
    result = om_chunk_reader_check(search->chunks, at, batch);
    return result == OM_E_SHORT || result == OM_E_CORRUPT ? OM_END : result;
}

enum { FITS, ASTRAY, EITHER };

/* Base offsets have no checksum. Behind a gap, one that is too large shows by the batch that follows; or is that
 * one's too small? The one that closes a gap, or ends where the segment does, is at its place. EITHER: nothing
 * tells, and nobody may be given a record under another offset. */
static int place_of(search *search, uint64_t at, int64_t least, const om_batch_info *batch) {
    om_batch_info after, third;
    uint64_t next = at + (uint64_t)batch->size;
    if (batch->base_offset == least || next >= search->end)
        return FITS;
    if (whole_at(search, next, least, &after) != OM_OK || !om_batch_is_astray(batch, least, &after))
        return FITS;
    if (after.base_offset == least + batch->last_offset_delta + 1)
        return ASTRAY;
    next += (uint64_t)after.size;
    if (next >= search->end)
        return after.base_offset + after.last_offset_delta + 1 == search->limit ? ASTRAY : FITS;
    int64_t last = batch->base_offset + batch->last_offset_delta;
    if (whole_at(search, next, least, &third) != OM_OK)
        return EITHER;
    if (third.base_offset <= last)
        return ASTRAY; /* two against one */
    return third.base_offset == last + after.last_offset_delta + 2 ? FITS : EITHER;
}

/* The first place from `at` on that may be a header: its magic, by which others are passed over fast. */
static int next_magic(search *search, uint64_t *at) {
    while (*at + MAGIC_AT < search->chunks->size && *at < search->end) {
        const uint8_t *data, *found;
        size_t got;
        int result = om_chunk_at(search->chunks, *at + MAGIC_AT, 1, &data, &got);
        if (result != OM_OK)
            return result;
        if (!got)
            break;
        found = memchr(data, OM_BATCH_MAGIC, got);
        if (found) {
            *at += (uint64_t)(found - data);
            return OM_OK;
        }
        *at += got;
    }
    *at = search->end;
    return OM_END;
}

/* Where the next whole batch behind the bad one at `*at` starts; search->end when there is none. */
static int find_next(search *search, uint64_t *at, int64_t least, om_batch_info *batch) {
    const uint8_t *data;
    size_t got = 0;
    uint64_t from = *at;
    int result =
        from < search->chunks->size ? om_chunk_at(search->chunks, from, OM_BATCH_OVERHEAD, &data, &got) : OM_OK;
    if (result != OM_OK)
        return result;
    if (got && om_batch_peek(data, got, batch) == OM_OK && (uint64_t)batch->size < search->end - from) {
        *at = from + (uint64_t)batch->size;
        result = whole_at(search, *at, least, batch);
        if (result != OM_END)
            return result;
    }
    search->left = SEARCH_MAX;
    for (*at = from + 1; (result = next_magic(search, at)) == OM_OK; ++*at) {
        result = whole_at(search, *at, least, batch);
        if (result != OM_END)
            return result;
        uint64_t cost = batch->size > 0 && (uint64_t)batch->size <= search->end - *at ? (uint64_t)batch->size : 1;
        if (cost > search->left)
            break;
        search->left -= cost;
    }
    *at = search->end;
    return result < 0 ? result : OM_OK;
}

static int add_bad(om_survey *survey, om_bad bad) {
    if (survey->count == survey->cap) {
        uint32_t cap = survey->cap ? survey->cap * 2 : 8;
        om_bad *items = realloc(survey->items, cap * sizeof *items);
        if (!items)
            return OM_E_NO_MEMORY;
        survey->items = items;
        survey->cap = cap;
    }
    survey->items[survey->count++] = bad;
    return OM_OK;
}

static void count_good(om_survey *survey, const om_batch_info *batch) {
    if (!survey->batches++)
        survey->first_timestamp =
            batch->attributes & OM_ATTR_DELETE_HORIZON ? batch->max_timestamp : batch->base_timestamp;
    survey->records += batch->record_count;
    survey->next_offset = batch->base_offset + batch->last_offset_delta + 1;
    if (batch->max_timestamp > survey->max_timestamp)
        survey->max_timestamp = batch->max_timestamp;
}

static int survey_chunks(search *search, int64_t base_offset, uint64_t suspect, om_survey *survey) {
    om_batch_info batch;
    uint64_t at = 0;
    survey->next_offset = base_offset;
    while (at < search->end) {
        int64_t least = survey->next_offset;
        int result = whole_at(search, at, least, &batch);
        int place = result == OM_OK && at != suspect ? place_of(search, at, least, &batch) : ASTRAY;
        if (place == FITS) {
            count_good(survey, &batch);
            at += (uint64_t)batch.size;
            continue;
        }
        if (result != OM_OK && result != OM_END)
            return result;
        om_bad bad = {.position = at, .end = at + (place == EITHER ? (uint64_t)batch.size : 0), .first = least};
        result = find_next(search, &bad.end, least, &batch);
        if (result != OM_OK)
            return result;
        bad.last = (bad.end < search->end ? batch.base_offset : search->limit) - 1;
        result = add_bad(survey, bad);
        if (result != OM_OK)
            return result;
        survey->next_offset = bad.last + 1;
        at = bad.end;
    }
    return OM_OK;
}

static int survey_fd(int fd, int64_t base_offset, uint64_t end, int64_t limit, uint64_t suspect, om_survey *survey) {
    om_chunk_reader chunks;
    *survey = (om_survey){.first_timestamp = -1, .max_timestamp = -1, .next_offset = base_offset};
    int result = om_chunk_reader_open(&chunks, fd);
    if (result != OM_OK)
        return result;
    chunks.tolerant = 1;
    search search = {.chunks = &chunks, .end = end == UINT64_MAX ? chunks.size : end, .limit = limit};
    survey->size = chunks.size;
    result = survey_chunks(&search, base_offset, suspect, survey);
    om_chunk_reader_close(&chunks);
    return result;
}

int om_survey_file(const char *path, int64_t base_offset, uint64_t end, int64_t limit, om_survey *survey) {
    *survey = (om_survey){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return om_errno_result();
    int result = survey_fd(fd, base_offset, end, limit, OM_NO_SUSPECT, survey);
    close(fd);
    if (result != OM_OK)
        om_survey_free(survey);
    return result;
}

void om_survey_free(om_survey *survey) {
    free(survey->items);
    survey->items = NULL;
    survey->count = survey->cap = 0;
}

/* A crash leaves zeros where the disk hadn't come to. */
static int has_zero_sector(om_chunk_reader *chunks, uint64_t from, uint64_t to) {
    enum { SECTOR = 512 };
    static const uint8_t zeros[SECTOR];
    for (uint64_t at = (from + SECTOR - 1) / SECTOR * SECTOR; at + SECTOR <= to; at += SECTOR) {
        const uint8_t *data;
        size_t got;
        if (om_chunk_at(chunks, at, SECTOR, &data, &got) != OM_OK || got < SECTOR || memcmp(data, zeros, SECTOR) == 0)
            return 1;
    }
    return 0;
}

int om_segment_goes_on(const om_segment *segment, uint64_t position, int64_t least) {
    char path[OM_PATH_MAX];
    om_chunk_reader chunks;
    om_batch_info batch;
    int result = om_segment_path(segment, ".log", path, sizeof path);
    int fd = result == OM_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return OM_E_IO;
    result = om_chunk_reader_open(&chunks, fd);
    if (result == OM_OK) {
        chunks.tolerant = 1;
        search search = {.chunks = &chunks, .end = chunks.size, .limit = INT64_MAX};
        uint64_t at = position;
        result = at < search.end ? find_next(&search, &at, least, &batch) : OM_OK;
        result = result == OM_OK ? at < search.end && !has_zero_sector(&chunks, position, at) : result;
        om_chunk_reader_close(&chunks);
    }
    close(fd);
    return result;
}

/* ---- a segment's ------------------------------------------------------------------------ */

/* Nothing of it can be had: the file is gone, or isn't one. */
static int all_of_it(om_segment *segment, uint64_t end, int64_t limit, om_survey *survey) {
    *survey = (om_survey){.first_timestamp = -1, .max_timestamp = -1, .next_offset = limit};
    return end ? add_bad(survey, (om_bad){0, end, segment->base_offset, limit - 1}) : OM_OK;
}

static int read_file(om_segment *segment, uint64_t end, int64_t limit, uint64_t suspect, om_survey *survey) {
    char path[OM_PATH_MAX];
    /* By its name, not by a descriptor of the cache: what is there now is what counts. */
    int result = om_segment_path(segment, ".log", path, sizeof path);
    int fd = result == OM_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return result == OM_OK && (errno == EMFILE || errno == ENFILE) ? OM_E_IO
                                                                       : all_of_it(segment, end, limit, survey);
    result = survey_fd(fd, segment->base_offset, end, limit, suspect, survey);
    close(fd);
    if (result == OM_E_IO) {
        om_survey_free(survey);
        result = all_of_it(segment, end, limit, survey);
    }
    return result;
}

/* People read it; a start only looks whether it is there. */
static void put_marker(const om_segment *segment, const om_survey *survey) {
    char path[OM_PATH_MAX], line[160];
    if (om_segment_path(segment, ".log.damaged", path, sizeof path) != OM_OK)
        return;
    if (!survey->count) {
        unlink(path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    for (uint32_t i = 0; fd >= 0 && i < survey->count; i++) {
        const om_bad *bad = &survey->items[i];
        int len = snprintf(line, sizeof line, "offsets %lld to %lld: bytes %llu to %llu\n", (long long)bad->first,
                           (long long)bad->last, (unsigned long long)bad->position, (unsigned long long)bad->end - 1);
        if (len <= 0 || write(fd, line, (size_t)len) != len)
            break;
    }
    if (fd >= 0) {
        fsync(fd);
        close(fd);
        om_fsync_folder(segment->dir);
    }
}

/* Readers may be looking at the one before: it stays until the segment goes. */
static int publish(om_segment *segment, const om_survey *survey) {
    om_damages *older = segment->damages;
    if (!survey->count && !older)
        return OM_OK;
    om_damages *damages = malloc(sizeof *damages + survey->count * sizeof *survey->items);
    if (!damages)
        return OM_E_NO_MEMORY;
    damages->older = older;
    damages->count = survey->count;
    if (survey->count)
        memcpy(damages->items, survey->items, survey->count * sizeof *survey->items);
    __atomic_store_n(&segment->damages, damages, __ATOMIC_RELEASE);
    return OM_OK;
}

static int covers(const om_survey *survey, uint64_t position) {
    for (uint32_t i = 0; i < survey->count; i++)
        if (position >= survey->items[i].position && position < survey->items[i].end)
            return 1;
    return 0;
}

int om_segment_survey(om_segment *segment, uint64_t end, int64_t limit, uint64_t suspect, om_survey *survey) {
    const om_damages *known = segment->damages;
    __atomic_store_n(&segment->doubtful, 0, __ATOMIC_RELEASE);
    int result = read_file(segment, end, limit, OM_NO_SUSPECT, survey);
    int no_news = result == OM_OK && survey->count == (known ? known->count : 0);
    if (no_news && !covers(survey, suspect) && ++segment->doubts > PATIENCE) {
        /* It is right by the file, and again and again it isn't by what readers are shown. */
        om_survey_free(survey);
        result = suspect == OM_NO_SUSPECT ? all_of_it(segment, end, limit, survey)
                                          : read_file(segment, end, limit, suspect, survey);
    }
    if (result == OM_OK)
        result = publish(segment, survey);
    if (result != OM_OK) {
        om_survey_free(survey);
        return result;
    }
    put_marker(segment, survey);
    om_file_cache_forget_map(segment); /* and with it pages of zeros, and an index of what it was */
    om_file_cache_reap(segment->files);
    __atomic_add_fetch(&segment->surveys, 1, __ATOMIC_RELEASE);
    return OM_OK;
}
