/* ottermq.h -- everything Python may call, and nothing else: four headers, by who uses them.
 *
 *   om_base.h     results, checksums, record batches, cursors     everybody
 *   om_store.h    the store and its logs                          wal/
 *   om_engine.h   connections, routes, queues, deliveries         ottermq/engine/
 *   om_inspect.h  reads data files, for tools and audits          tools, audits
 *
 * The cffi definitions are made from these very files (build_core.py joins them and drops the
 * preprocessor lines other than plain integer #defines), so they hold plain declarations only.
 * C files include the one they need (tests/test_layers.py).
 *
 * Conventions: `om_` + module + verb, object first. Functions that can fail return an om_result
 * (0 or more is success, below 0 is one of OM_E_*). A call releases the GIL; whatever takes an
 * om_store is safe from any thread.
 */
#ifndef OTTERMQ_H
#define OTTERMQ_H

#include "om_base.h"
#include "om_engine.h"
#include "om_inspect.h"
#include "om_store.h"

#endif
