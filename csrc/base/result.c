/* result.c -- one line of plain text for each om_result: always a string, never NULL. */
#include "om_base.h"

const char *om_result_text(int result) {
    if (result > OM_DUPLICATE)
        return "ok";
    switch ((enum om_result)result) {
    case OM_OK:
        return "ok";
    case OM_END:
        return "nothing more to read";
    case OM_DUPLICATE:
        return "the batch has been appended before";
    case OM_E_SHORT:
        return "a buffer is too short";
    case OM_E_CORRUPT:
        return "the bytes are damaged or not what they claim to be";
    case OM_E_INVALID:
        return "an argument is invalid";
    case OM_E_NO_MEMORY:
        return "out of memory";
    case OM_E_IO:
        return "a system call failed";
    case OM_E_NO_SPACE:
        return "the disk is full, or below the low-space limit";
    case OM_E_FENCED:
        return "a WAL sync failed: durable appends are refused";
    case OM_E_FULL:
        return "no room now: try again later";
    case OM_E_STALE_EPOCH:
        return "the epoch is older than the log's";
    case OM_E_RANGE:
        return "the offset is below the start or beyond the end of the log";
    case OM_E_DELETED:
        return "the log or its file has been deleted";
    case OM_E_NOT_RESIDENT:
        return "not in memory yet: it has been asked for";
    case OM_E_TIMEOUT:
        return "timed out";
    case OM_E_UNREADABLE:
        return "the segment is damaged, cut or unreadable";
    case OM_E_GONE:
        return "it isn't there any more";
    case OM_E_EXISTS:
        return "the name or number is in use";
    case OM_E_LOCKED:
        return "in exclusive use";
    case OM_E_STALE:
        return "out of date: something has changed meanwhile";
    case OM_E_LIMIT:
        return "over a limit";
    case OM_E_COMPRESSED:
        return "the batch is compressed";
    case OM_E_REFUSED:
        return "the producer may not write this now";
    case OM_E_UNSUPPORTED:
        return "not supported here";
    case OM_E_INTERRUPTED:
        return "interrupted";
    }
    return "unknown result";
}
