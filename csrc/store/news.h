/* news.h -- serving the store: what the committer's news asks for. */
#ifndef OM_NEWS_H
#define OM_NEWS_H
#include "om_store.h"

int om_news_start(om_store *store);    /* a thread of the store's own does; OM_E_NO_MEMORY */
void om_news_stop(om_store *store);    /* ... no more: the caller's does */
void om_news_ring(om_store *store);    /* there is something to look at; any thread */
int om_news_take(om_store *store);     /* was there a ring since the last time? */
void om_news_look(om_store *store);    /* under the lock: the fence, a starving WAL */
void om_news_pass_on(om_store *store); /* without it, after a ring: to the checkpoint and to Python */

#endif
