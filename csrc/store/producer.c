/* producer.c -- a log's producers: sequences, epochs, open and aborted transactions; see producer.h.
 *
 * The rules are Kafka's. A producer numbers its records; a batch must start where the last one of
 * the same epoch ended (2^31 - 1 is followed by 0), a new epoch starts at 0, and a producer nobody
 * remembers may start anywhere: its past was expired or deleted, and refusing it would help nobody.
 * A batch with the very sequences of one of the last five is that batch, sent again.
 */
#include "store/producer.h"

#include "base/clock.h"
#include "cursor/offset_set.h"
#include "store/log.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

static uint32_t slot_of(const om_producers *producers, int64_t id) {
    uint32_t at = (uint32_t)((uint64_t)id * 0x9E3779B97F4A7C15u >> 32) & (producers->cap - 1);
    while (producers->table[at] && producers->table[at]->id != id)
        at = (at + 1) & (producers->cap - 1);
    return at;
}

om_producer *om_producer_find(const om_log *log, int64_t id) {
    const om_producers *producers = log->producers;
    return producers && producers->cap ? producers->table[slot_of(producers, id)] : NULL;
}

static int is_forgotten(const om_producer *producer, int64_t before_ms) {
    return producer->heard_ms < before_ms && producer->first_open == OM_NO_TRANSACTION && producer->enlisted < 0;
}

/* Into a table of so many slots, without those that weren't heard of. */
static int rebuild(om_producers *producers, uint32_t cap, int64_t before_ms) {
    om_producer **old = producers->table, **table = calloc(cap, sizeof *table);
    uint32_t old_cap = producers->cap;
    if (!table)
        return OM_E_NO_MEMORY;
    producers->table = table;
    producers->cap = cap;
    for (uint32_t i = 0; i < old_cap; i++) {
        if (!old[i])
            continue;
        if (is_forgotten(old[i], before_ms)) {
            free(old[i]);
            producers->count--;
        } else {
            table[slot_of(producers, old[i]->id)] = old[i];
        }
    }
    free(old);
    return OM_OK;
}

static om_producers *need_producers(om_log *log) {
    if (!log->producers)
        log->producers = calloc(1, sizeof *log->producers);
    return log->producers;
}

om_producer *om_producer_need(om_log *log, int64_t id) {
    om_producers *producers = need_producers(log);
    if (!producers)
        return NULL;
    if ((producers->count + 1) * 4 > producers->cap * 3 &&
        rebuild(producers, producers->cap ? producers->cap * 2 : 4, INT64_MIN) != OM_OK)
        return NULL;
    om_producer **slot = &producers->table[slot_of(producers, id)];
    if (*slot)
        return *slot;
    om_producer *producer = calloc(1, sizeof *producer);
    if (!producer)
        return NULL;
    producer->id = id;
    producer->first_open = producer->ended_first = producer->ended_at = OM_NO_TRANSACTION;
    producer->coordinator_epoch = -1;
    producer->epoch = producer->enlisted = -1;
    producer->heard_ms = om_clock_ms(&log->store->clock);
    producers->count++;
    return *slot = producer;
}

/* ---- open transactions ---- */

/* They begin in the order of their offsets; one that comes back after a lost marker finds its place. */
void om_producer_open(om_log *log, om_producer *producer, int64_t first) {
    om_producers *producers = log->producers;
    om_producer *before = producers->newest;
    while (before && before->first_open > first)
        before = before->older;
    producer->first_open = first;
    producer->older = before;
    producer->newer = before ? before->newer : producers->oldest;
    *(producer->newer ? &producer->newer->older : &producers->newest) = producer;
    *(before ? &before->newer : &producers->oldest) = producer;
}

static void close_transaction(om_producers *producers, om_producer *producer) {
    om_hidden_forget(producers, producer);
    *(producer->older ? &producer->older->newer : &producers->oldest) = producer->newer;
    *(producer->newer ? &producer->newer->older : &producers->newest) = producer->older;
    producer->older = producer->newer = NULL;
    producer->first_open = OM_NO_TRANSACTION;
}

int64_t om_producers_first_open(const om_log *log) {
    const om_producers *producers = log->producers;
    return producers && producers->oldest ? producers->oldest->first_open : INT64_MAX;
}

/* ---- aborted transactions ---- */

/* The first whose marker lies at or past offset. */
uint32_t om_aborted_from(const om_producers *producers, int64_t offset) {
    uint32_t low = 0, high = producers->aborted_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (producers->aborted[mid].last_offset < offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* In the order of markers. One that is known keeps what is known of it: recovery that reads
 * a log from its middle may not have seen where the transaction began. */
int om_producer_note_aborted(om_log *log, const om_aborted *aborted) {
    om_producers *producers = need_producers(log);
    if (!producers)
        return OM_E_NO_MEMORY;
    uint32_t at = om_aborted_from(producers, aborted->last_offset);
    if (at < producers->aborted_count && producers->aborted[at].last_offset == aborted->last_offset)
        return OM_OK;
    if (producers->aborted_count == producers->aborted_cap) {
        uint32_t cap = producers->aborted_cap ? producers->aborted_cap * 2 : 4;
        om_aborted *grown = realloc(producers->aborted, cap * sizeof *grown);
        if (!grown)
            return OM_E_NO_MEMORY;
        producers->aborted = grown;
        producers->aborted_cap = cap;
    }
    memmove(&producers->aborted[at + 1], &producers->aborted[at],
            (producers->aborted_count - at) * sizeof *producers->aborted);
    producers->aborted[at] = *aborted;
    producers->aborted_count++;
    return OM_OK;
}

int om_log_aborted(om_log *log, int64_t from, int64_t to, om_aborted *out, int cap) {
    const om_producers *producers = log->producers;
    int found = 0;
    if (!producers)
        return 0;
    for (uint32_t i = om_aborted_from(producers, from); i < producers->aborted_count; i++) {
        const om_aborted *aborted = &producers->aborted[i];
        if (aborted->first_offset < to) {
            if (found < cap)
                out[found] = *aborted;
            found++;
        }
        /* What was stable when it ended lies before all transactions that ended later began. */
        if (aborted->last_stable >= to)
            break;
    }
    return found;
}

int om_log_is_aborted(const om_log *log, const om_batch_info *info) {
    const om_producers *producers = log->producers;
    if (!(info->attributes & OM_ATTR_TRANSACTIONAL) || !producers)
        return 0;
    for (uint32_t i = om_aborted_from(producers, info->base_offset); i < producers->aborted_count; i++) {
        const om_aborted *aborted = &producers->aborted[i];
        if (aborted->producer_id == info->producer_id && aborted->first_offset <= info->base_offset)
            return 1;
        if (aborted->last_stable > info->base_offset)
            break;
    }
    return 0;
}

/* ---- sequences ---- */

static int32_t last_sequence(const om_batch_info *info) {
    return (int32_t)(((uint32_t)info->base_sequence + (uint32_t)info->last_offset_delta) & INT32_MAX);
}

static int follows(int32_t last, int32_t next) {
    return last == INT32_MAX ? next == 0 : next == last + 1;
}

static const om_producer_batch *find_duplicate(const om_producer *producer, const om_batch_info *info) {
    int32_t last = last_sequence(info);
    if (producer->epoch != info->producer_epoch)
        return NULL;
    for (int i = 0; i < producer->count; i++)
        if (producer->batches[i].first_sequence == info->base_sequence && producer->batches[i].last_sequence == last)
            return &producer->batches[i];
    return NULL;
}

static int is_next(const om_producer *producer, const om_batch_info *info) {
    if (producer->epoch < 0)
        return 1; /* nobody remembers it */
    if (producer->epoch != info->producer_epoch || !producer->count)
        return info->base_sequence == 0;
    return follows(producer->batches[producer->count - 1].last_sequence, info->base_sequence);
}

static int judge(const om_producer *producer, const om_batch_info *info) {
    int transactional = (info->attributes & OM_ATTR_TRANSACTIONAL) != 0;
    if (info->producer_epoch < producer->epoch)
        return OM_KAFKA_INVALID_PRODUCER_EPOCH;
    if (!is_next(producer, info))
        return OM_KAFKA_OUT_OF_ORDER_SEQUENCE;
    /* Only the coordinator ends transactions: one that it doesn't know of would never end. */
    if (transactional ? producer->enlisted != info->producer_epoch : producer->first_open != OM_NO_TRANSACTION)
        return OM_KAFKA_INVALID_TXN_STATE;
    return 0;
}

int om_producer_admit(om_log *log, const om_batch_info *info, om_producer_verdict *verdict) {
    *verdict = (om_producer_verdict){.first_offset = -1, .timestamp = -1};
    int transactional = (info->attributes & OM_ATTR_TRANSACTIONAL) != 0;
    if (info->producer_id < 0 && !transactional)
        return OM_OK;
    if (info->producer_id < 0 || info->producer_epoch < 0 || info->base_sequence < 0) {
        verdict->error = OM_KAFKA_INVALID_RECORD;
        return OM_E_REFUSED;
    }
    om_producer *producer = om_producer_need(log, info->producer_id);
    if (!producer)
        return OM_E_NO_MEMORY;
    const om_producer_batch *same = find_duplicate(producer, info);
    if (same) {
        verdict->first_offset = same->first_offset;
        verdict->timestamp = same->timestamp;
        verdict->seq = log->last_logged_seq;
        return OM_DUPLICATE;
    }
    verdict->error = judge(producer, info);
    return verdict->error ? OM_E_REFUSED : OM_OK;
}

static void enter_epoch(om_producer *producer, int16_t epoch) {
    if (producer->epoch == epoch)
        return;
    producer->epoch = epoch;
    producer->count = 0;
}

void om_producer_appended(om_log *log, const om_batch_info *info) {
    int counts = info->producer_id >= 0 && !(info->attributes & OM_ATTR_CONTROL);
    om_producer *producer = counts ? om_producer_find(log, info->producer_id) : NULL;
    if (!producer || info->producer_epoch < producer->epoch)
        return;
    enter_epoch(producer, info->producer_epoch);
    if (producer->count && producer->batches[producer->count - 1].first_offset >= info->base_offset)
        return;
    if (producer->count == OM_PRODUCER_BATCHES) {
        memmove(producer->batches, producer->batches + 1, (OM_PRODUCER_BATCHES - 1) * sizeof *producer->batches);
        producer->count--;
    }
    producer->batches[producer->count++] = (om_producer_batch){
        .first_sequence = info->base_sequence,
        .last_sequence = last_sequence(info),
        .first_offset = info->base_offset,
        .timestamp = info->max_timestamp,
    };
    producer->heard_ms = om_clock_ms(&log->store->clock);
    if (!(info->attributes & OM_ATTR_TRANSACTIONAL))
        return;
    if (producer->first_open == OM_NO_TRANSACTION)
        om_producer_open(log, producer, info->base_offset);
    om_hidden_add(log, producer, info->base_offset, info->base_offset + info->last_offset_delta);
}

int om_producer_marked(om_log *log, const om_batch_info *info, int32_t coordinator_epoch, int commit) {
    om_producer *producer = om_producer_need(log, info->producer_id);
    if (!producer)
        return OM_E_NO_MEMORY;
    int64_t first = producer->first_open;
    /* Recovery may report one that ended an earlier transaction. */
    if (first != OM_NO_TRANSACTION && first < info->base_offset) {
        if (!commit)
            om_hidden_settle(log, producer);
        close_transaction(log->producers, producer);
        producer->ended_first = first;
        producer->ended_at = info->base_offset;
        int64_t open = om_producers_first_open(log);
        om_aborted aborted = {
            .producer_id = info->producer_id,
            .first_offset = first,
            .last_offset = info->base_offset,
            .last_stable = open < info->base_offset ? open : info->base_offset + 1,
        };
        if (!commit && om_producer_note_aborted(log, &aborted) != OM_OK) {
            om_producer_open(log, producer, first);
            return OM_E_NO_MEMORY;
        }
    }
    if (info->producer_epoch >= producer->epoch)
        enter_epoch(producer, info->producer_epoch);
    producer->coordinator_epoch = coordinator_epoch;
    producer->enlisted = -1;
    producer->heard_ms = om_clock_ms(&log->store->clock);
    return OM_OK;
}

/* ---- cut, trim, expire ---- */

static void cut_one(om_log *log, om_producer *producer, int64_t offset) {
    int had = producer->count;
    while (producer->count && producer->batches[producer->count - 1].first_offset >= offset)
        producer->count--;
    if (producer->first_open >= offset)
        close_transaction(log->producers, producer);
    if (producer->ended_at >= offset) {
        if (producer->ended_first < offset && producer->first_open == OM_NO_TRANSACTION)
            om_producer_open(log, producer, producer->ended_first);
        producer->ended_first = producer->ended_at = OM_NO_TRANSACTION;
    }
    /* Nothing is left that says where it stands: as if it had never been. */
    if (had && !producer->count && producer->first_open == OM_NO_TRANSACTION)
        producer->epoch = -1;
}

void om_producers_cut(om_log *log, int64_t offset) {
    om_producers *producers = log->producers;
    if (!producers)
        return;
    producers->aborted_count = om_aborted_from(producers, offset);
    for (uint32_t i = 0; i < producers->cap; i++)
        if (producers->table[i])
            cut_one(log, producers->table[i], offset);
    om_hidden_prune(log);
}

void om_producers_trim(om_log *log, int64_t start) {
    om_producers *producers = log->producers;
    uint32_t gone = producers ? om_aborted_from(producers, start) : 0;
    om_hidden_prune(log);
    if (!gone)
        return;
    producers->aborted_count -= gone;
    memmove(producers->aborted, producers->aborted + gone, producers->aborted_count * sizeof *producers->aborted);
}

void om_producers_expire(om_log *log, int64_t before_ms) {
    om_producers *producers = log->producers;
    uint32_t gone = 0, cap = 4;
    for (uint32_t i = 0; producers && i < producers->cap; i++)
        gone += producers->table[i] && is_forgotten(producers->table[i], before_ms);
    if (!gone)
        return;
    while ((producers->count - gone + 1) * 4 > cap * 3)
        cap *= 2;
    (void)rebuild(producers, cap, before_ms); /* without memory they stay a little longer */
}

void om_producers_free(om_log *log) {
    om_producers *producers = log->producers;
    if (!producers)
        return;
    for (uint32_t i = 0; i < producers->cap; i++) {
        if (producers->table[i])
            om_offset_set_clear(&producers->table[i]->hidden);
        free(producers->table[i]);
    }
    free(producers->table);
    free(producers->aborted);
    free(producers);
    log->producers = NULL;
}

int64_t om_producers_memory(const om_log *log) {
    const om_producers *producers = log->producers;
    if (!producers)
        return 0;
    size_t bytes = sizeof *producers + producers->cap * sizeof *producers->table +
                   producers->count * sizeof(om_producer) + producers->aborted_cap * sizeof *producers->aborted;
    for (const om_producer *open = producers->oldest; open; open = open->newer)
        bytes += om_offset_set_memory(&open->hidden);
    return (int64_t)bytes;
}
