/* wal_records.h -- what the store writes into the WAL (1 is OM_WAL_PART). Payloads, little-endian:
 *
 *   BATCH     the batch, base offset and leader epoch patched in
 *   FANOUT    count u32, zero u32, count x (log id u64, base offset i64, epoch i32, zero u32), batch
 *   ATOMIC    sub-records: len u32, type u8, zero u24, log id u64, payload, padding to 8
 *   LEASE     end i64, epoch i32
 *   CURSOR    ops of 32 bytes, see om_cursor_op
 *   TRIM      start i64, rule i32, zero u32
 *   TRUNCATE  offset i64, new epoch i32, zero u32
 *   DELETE    16 bytes that nobody reads
 *   START     nothing: a life begins, and all that was in flight before has returned
 *   NAMED     nothing: the catalogue's row of the log is on disk
 *
 * recover_replay.c and segment_rebuild.c read them.
 */
#ifndef OM_WAL_RECORDS_H
#define OM_WAL_RECORDS_H

enum om_record_type {
    OM_REC_BATCH = 2,
    OM_REC_FANOUT = 3,
    OM_REC_ATOMIC = 4,
    OM_REC_LEASE = 5,
    OM_REC_CURSOR = 6,
    OM_REC_TRIM = 7,
    OM_REC_TRUNCATE = 8,
    OM_REC_DELETE = 9,
    OM_REC_START = 10,
    OM_REC_NAMED = 11,
};

#define OM_FANOUT_ENTRY 24
#define OM_ATOMIC_HEADER 16

#endif
