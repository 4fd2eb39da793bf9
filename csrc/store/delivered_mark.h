/* delivered_mark.h -- how far each queue has given out its records; survives SIGKILL. */
#ifndef OM_DELIVERED_MARK_H
#define OM_DELIVERED_MARK_H
#include "om_store.h"

typedef struct om_delivered_mark om_delivered_mark; /* the file */

/* At the start, when all logs are known: each finds its mark again. */
void om_delivered_mark_open(om_store *store);
void om_delivered_mark_close(om_store *store);
void om_delivered_mark_grow(om_store *store); /* the writer's, without the store's lock */
/* ---- under the store's lock ---- */
void om_delivered_mark_note(om_log *log);   /* as far as its cursor has given out by now */
void om_delivered_mark_recall(om_log *log); /* recovery: what was noted counts as given out */
void om_delivered_mark_let_go(om_log *log);
int om_delivered_mark_wants_more(const om_store *store);

#endif
