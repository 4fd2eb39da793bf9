/* cursor_replay.c -- a cursor brought up to date by the changes that the WAL has of it.
 *
 * For recovery, and for tools that look at a data directory: the checkpoint's cursor plus these changes is
 * the broker's cursor when it wrote the last of them.
 */
#include "base/bytes.h"
#include "cursor/cursor.h"

static int64_t record_weight(int64_t bytes, int64_t first, int64_t last) {
    return bytes / (last - first + 1);
}

int om_cursor_apply(om_cursor *cursor, const om_cursor_op *op) {
    /* Records that vanished with the power may be named here: what isn't there is passed over. */
    int64_t last = op->last < cursor->end ? op->last : cursor->end - 1;
    if (op->kind == OM_OP_PURGE) {
        /* In recovery the cursor may know records that came after the purge: they stay. */
        return om_cursor_purge(cursor, last + 1) < 0 ? OM_E_CORRUPT : OM_OK;
    }
    if (op->first < 0 || op->last < op->first || (op->bytes < 0 && op->kind != OM_OP_SETTLE))
        return OM_E_CORRUPT;
    if (op->kind == OM_OP_SETTLE)
        return om_cursor_settle(cursor, op->first, op->last, op->bytes) < 0 ? OM_E_CORRUPT : OM_OK;
    if (op->kind == OM_OP_PASS) {
        om_cursor_pass(cursor, last + 1, op->bytes);
        return OM_OK;
    }
    int64_t each = record_weight(op->bytes, op->first, op->last);
    /* An offset given out for the first time was `next` then. Offsets before it that the WAL doesn't
     * name are a gap, which recovery finds only at its end and which weighs nothing, or were given
     * out behind a fence. */
    if (op->kind == OM_OP_ACQUIRE && op->first > cursor->next)
        om_cursor_pass(cursor, op->first, 0);
    for (int64_t offset = op->first; offset <= last; offset++) {
        if (op->kind == OM_OP_ACQUIRE)
            om_cursor_acquire(cursor, offset, each);
        else if (op->kind == OM_OP_RETURN || op->kind == OM_OP_RETURN_COUNTED)
            om_cursor_return(cursor, offset, each, op->kind == OM_OP_RETURN_COUNTED);
        else
            return OM_E_CORRUPT;
    }
    return OM_OK;
}

om_cursor_op om_cursor_op_at(const uint8_t *at) {
    return (om_cursor_op){om_get_le64(at), (int64_t)om_get_le64(at + 8), (int64_t)om_get_le64(at + 16),
                          (int64_t)om_get_le64(at + 24)};
}

int om_cursor_replay(om_cursor *cursor, const uint8_t *ops, size_t len) {
    if (len % sizeof(om_cursor_op))
        return OM_E_CORRUPT;
    for (const uint8_t *at = ops; at < ops + len; at += sizeof(om_cursor_op)) {
        om_cursor_op op = om_cursor_op_at(at);
        int result = om_cursor_apply(cursor, &op);
        if (result != OM_OK)
            return result;
    }
    return OM_OK;
}
