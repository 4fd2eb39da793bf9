/* om_inspect.h -- reads data files, for tools and audits: no store needed.
 *
 * Called by wal/ and the audits. These functions read and check; they write nothing. The files may change or
 * be damaged while they are read: every length is checked before it is used.
 */
#ifndef OTTERMQ_INSPECT_H
#define OTTERMQ_INSPECT_H

#include "om_base.h"

/* ---- inspection (inspect.c): reads data files, for tools ------------------------------- */

/* Offsets that no batch has: [first, end), with the leader epochs of the batches around them. */
typedef struct om_gap {
    int64_t first, end;
    int32_t epoch_before, epoch_after;
} om_gap;

typedef struct om_walk {
    int64_t base_offset;
    uint64_t size;                          /* of the file */
    uint64_t position;                      /* where the next batch starts */
    int64_t next_offset;                    /* the lowest offset it may have */
    int64_t limit;                          /* ... and one past the highest */
    int32_t epoch;                          /* the lowest leader epoch it may have */
    int64_t first_timestamp, max_timestamp; /* of the first batch, of all; start with -1 */
    int64_t max_timestamp_offset;           /* the last offset of the batch that brought it; -1 */
    uint64_t batches, records;
    const uint8_t *offsets, *times; /* the entries of .index and .timeindex, or NULL */
    uint32_t offset_count, time_count;
    uint32_t offset_at, time_at;      /* the next one to look at */
    int64_t wrong_offset, wrong_time; /* the first entry that is wrong; start with -1 */
    int32_t first_epoch;              /* of the first batch */
    uint64_t left_out;                /* offsets within batches that no record has: compacted ones */
    om_gap *gaps;                     /* between batches; NULL: they aren't asked for */
    uint32_t gap_room, gap_count;
} om_walk;
/* Walk over batches, up to position `stop` or beyond it: CRCs right, offsets growing, epochs not
 * going down; index entries are looked at on the way. data lies at walk->position. OM_E_SHORT:
 * the next batch, or the header behind it, isn't all there. OM_E_FULL: no room for another gap. OM_E_CORRUPT,
 * OM_E_RANGE (offset), OM_E_STALE_EPOCH: the next batch is wrong; walk stands before it. */
int om_walk_batches(om_walk *walk, const uint8_t *data, size_t len, uint64_t stop);

/* A damaged stretch [position, end) and the offsets it may have held: bytes that are no batch, fail a check, or
 * can't be read. */
typedef struct om_bad {
    uint64_t position, end;
    int64_t first, last;
} om_bad;
typedef struct om_survey {
    om_bad *items;
    uint32_t count, cap;
    uint64_t size;            /* of the file */
    int64_t next_offset;      /* one past the last offset */
    int64_t batches, records; /* that are whole and right; their timestamps, -1: none */
    int64_t first_timestamp, max_timestamp;
} om_survey;
/* Each batch of a segment's file, up to `end` (UINT64_MAX: all of it), offsets below limit. Sectors that
 * can't be read are bad stretches too. OM_OK, OM_E_IO, OM_E_NO_MEMORY. */
int om_survey_file(const char *path, int64_t base_offset, uint64_t end, int64_t limit, om_survey *survey);
void om_survey_free(om_survey *survey);

typedef struct om_wal_summary {
    uint64_t records, bytes, first_seq, last_seq;
    uint32_t epoch;
    char error[320];
} om_wal_summary;
/* Read the WAL in that folder as recovery would. OM_OK, or OM_E_* with a line in `error`. */
int om_wal_survey(const char *dir, uint64_t after_seq, om_wal_summary *out);

typedef struct om_wal_reader om_wal_reader;
typedef struct om_wal_record {
    uint64_t seq;
    uint64_t log_id;
    const uint8_t *payload; /* valid until the next call */
    size_t len;
    uint32_t epoch;
    uint8_t type;
} om_wal_record;
/* Records after after_seq, which a checkpoint made needless. A folder that doesn't exist is an
 * empty log; NULL: it can't be listed, or the fence file or a version can't be read. */
om_wal_reader *om_wal_reader_open(const char *dir, uint64_t after_seq, char *err, size_t err_len);
/* OM_OK, OM_END, OM_E_CORRUPT: a hole (the error text says which sequences are missing), OM_E_IO:
 * a read failed, OM_E_NO_MEMORY. Once it isn't OM_OK it stays so. */
int om_wal_reader_next(om_wal_reader *reader, om_wal_record *record);
const char *om_wal_reader_error(const om_wal_reader *reader);
void om_wal_reader_close(om_wal_reader *reader);

/* ---- columns (columns.c, columns_read.c): records in bulk, laid out as Arrow has them ------------------- */

enum om_column {
    OM_COL_OFFSET,         /* int64, always there */
    OM_COL_TIMESTAMP,      /* int64: microseconds */
    OM_COL_SIZE,           /* int32: of the record; of a damaged stretch, its bytes */
    OM_COL_POSITION,       /* int64: of the batch */
    OM_COL_BATCH_BASE,     /* int64 */
    OM_COL_CODEC,          /* int8 */
    OM_COL_PRODUCER_ID,    /* int64 */
    OM_COL_PRODUCER_EPOCH, /* int32 */
    OM_COL_BASE_SEQUENCE,  /* int32 */
    OM_COL_LEADER_EPOCH,   /* int32 */
    OM_COL_DELIVERIES,     /* int32: how often given out; null: settled, or no cursor */
    OM_COL_CRC_OK,         /* these are bits */
    OM_COL_TRANSACTIONAL,
    OM_COL_CONTROL,
    OM_COL_ABORTED, /* null: the transaction is open */
    OM_COL_SETTLED, /* null: no cursor */
    OM_COL_KEY,     /* these are bytes with int32 ends */
    OM_COL_BODY,
    OM_COL_HEADERS, /* a list of the next two, which come with it */
    OM_COL_HEADER_KEY,
    OM_COL_HEADER_VALUE,
    OM_COLUMN_COUNT
};
enum om_column_part { OM_PART_VALID, OM_PART_ENDS, OM_PART_VALUES };

typedef struct om_columns om_columns;

/* Where the reading of a segment is, and what it is for. */
typedef struct om_reading {
    uint64_t size;                  /* of the file */
    uint64_t position;              /* where the next batch starts */
    int64_t next_offset;            /* the lowest offset it may have */
    int64_t from, to;               /* rows wanted: from <= offset < to */
    int64_t since, until;           /* since <= timestamp < until, in ms */
    const om_cursor *cursor;        /* knows what is settled and what was given out; NULL: not known */
    const om_aborted *transactions; /* aborted ones; open ones end at INT64_MAX */
    uint32_t transaction_count;
} om_reading;

/* wanted: a bit (1 << OM_COL_*) per column. NULL: no memory. */
om_columns *om_columns_new(uint32_t wanted, int64_t row_limit);
void om_columns_free(om_columns *columns);
/* Add batches up to position `stop`; data lies at reading->position. OM_OK: there. The reading stands
 * before a batch that isn't all here, or not the header behind it (OM_E_SHORT), is damaged (OM_E_CORRUPT),
 * has offsets that don't fit there (OM_E_RANGE), is compressed (OM_E_COMPRESSED), or finds no room
 * (OM_E_FULL: take the rows, go on with a new om_columns). OM_E_NO_MEMORY. */
int om_columns_read(om_columns *columns, om_reading *reading, const uint8_t *data, size_t len, uint64_t stop);
/* The batch that the reading stands before, with its records decompressed. header: its first 61 bytes, checked. */
int om_columns_decompressed(om_columns *columns, om_reading *reading, const uint8_t *header, const uint8_t *records,
                            size_t len);
/* Skip `size` damaged bytes; adds a row that reports them. */
int om_columns_damaged(om_columns *columns, om_reading *reading, uint64_t size);
int64_t om_columns_rows(const om_columns *columns);
int64_t om_columns_items(const om_columns *columns); /* headers of all rows */
/* A buffer and its length, as Arrow wants it; VALID has none (0) when nothing is null. */
const void *om_columns_part(const om_columns *columns, int column, int part, size_t *len);

#endif
