/* trouble.c -- what can't be written to the disk: since when, and why.
 *
 *   a segment can't be written     the writer tries again, the WAL keeps what was taken
 *   a checkpoint fails             tried again; until one succeeds the WAL grows
 *   the WAL doesn't move           something waits to be durable, or for room, and nothing becomes durable
 *
 * The thread that meets it reports it at once, with its cause (the WAL: when it is over the limit). What goes on
 * for longer than LIMIT_NS is an alarm: publishers are held back and told so, before the WAL is full. The engine's
 * sweeps look at it, and each caller that asks; a process that stood still between two looks doesn't count that
 * time.
 */
#include "store/trouble.h"

#include "base/clock.h"
#include "store/store.h"
#include "store/store_report.h"
#include "wal/wal.h"

#include <stdio.h>

#define LIMIT_NS 10000000000u
#define PAUSE_NS 5000000000u

static int is_over(uint64_t since, uint64_t now) {
    return since && now - since >= LIMIT_NS;
}

/* Under the lock, as all of this. */
static void watch_wal(om_store *store, uint64_t now) {
    om_trouble *trouble = &store->trouble;
    uint64_t durable = om_wal_durable_seq(store->wal);
    int waits = om_wal_last_seq(store->wal) > durable || om_wal_admit(store->wal, OM_WAL_APPEND) == OM_E_FULL;
    if (!waits || durable != trouble->durable || now - trouble->looked_ns > PAUSE_NS)
        trouble->still_since_ns = waits ? now : 0;
    trouble->durable = durable;
    trouble->looked_ns = now;
}

static const char *cause(const om_store *store, uint64_t now) {
    const om_trouble *trouble = &store->trouble;
    if (is_over(trouble->writer_since_ns, now))
        return store->writer.error;
    if (is_over(trouble->checkpoint_since_ns, now))
        return trouble->checkpoint;
    return is_over(trouble->still_since_ns, now)
               ? "the WAL hasn't moved for 10 s: the disk doesn't answer, or nothing is released"
               : NULL;
}

void om_trouble_look(om_store *store) {
    om_trouble *trouble = &store->trouble;
    if (!store->wal)
        return;
    uint64_t now = om_now_ns();
    watch_wal(store, now);
    /* A full disk has an alarm of its own; once it is over, all of this has ten seconds again. */
    if (om_store_short_of_space(store)) {
        trouble->checkpoint_since_ns = trouble->checkpoint_since_ns ? now : 0;
        trouble->still_since_ns = trouble->still_since_ns ? now : 0;
    }
    /* What is fenced is refused, not held back. */
    const char *why = om_wal_fenced(store->wal, NULL, NULL, 0) ? NULL : cause(store, now);
    if ((why != NULL) == trouble->alarm)
        return;
    trouble->alarm = why != NULL;
    if (why)
        snprintf(trouble->why, sizeof trouble->why, "%s", why);
    om_store_add_report(store, why ? OM_REPORT_STALLED : OM_REPORT_GOES_ON, NULL, 0, 0,
                        why ? "publishers are held back: %.200s" : "what failed succeeds again", trouble->why);
}

int om_trouble_is_alarm(const om_store *store) {
    return store->trouble.alarm;
}

int om_store_trouble(om_store *store, char *out, size_t len) {
    om_store_enter(store);
    om_trouble_look(store);
    const om_trouble *trouble = &store->trouble;
    int kind = trouble->alarm                 ? OM_TROUBLE_STALLED
               : trouble->writer_since_ns     ? OM_TROUBLE_WRITER
               : trouble->checkpoint_since_ns ? OM_TROUBLE_CHECKPOINT
                                              : OM_TROUBLE_NONE;
    const char *text = kind == OM_TROUBLE_STALLED  ? trouble->why
                       : kind == OM_TROUBLE_WRITER ? store->writer.error
                                                   : trouble->checkpoint;
    snprintf(out, len, "%s", kind == OM_TROUBLE_NONE ? "" : text);
    om_store_leave(store);
    return kind;
}
