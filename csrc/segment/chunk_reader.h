/* chunk_reader.h -- reading a segment's file piece by piece with pread, never through a mapping: a bad sector
 * is an error then, and no signal. One piece of memory, however large a batch is or claims to be. */
#ifndef OM_CHUNK_READER_H
#define OM_CHUNK_READER_H
#include "format/batch.h"

/* Bytes [from, to) that the disk couldn't give. */
typedef struct om_lost {
    uint64_t from, to;
} om_lost;

typedef struct om_chunk_reader {
    int fd;
    uint64_t size;  /* of the file */
    uint64_t start; /* the file position of data[0] */
    size_t len, cap;
    uint8_t *data;
    int tolerant;  /* what can't be read is taken for zeros, and noted in `lost` */
    om_lost *lost; /* in order */
    uint32_t lost_count, lost_cap;
} om_chunk_reader;

int om_chunk_reader_open(om_chunk_reader *chunks, int fd);
void om_chunk_reader_close(om_chunk_reader *chunks); /* what it has in memory; the descriptor is the caller's */
/* Have at least `need` bytes (no more than cap) at `at`, or all there are. *got says how many lie there. */
int om_chunk_at(om_chunk_reader *chunks, uint64_t at, size_t need, const uint8_t **data, size_t *got);
/* Is its CRC right? OM_OK, OM_E_SHORT, OM_E_CORRUPT (also: a part of it can't be read), or OM_E_*. */
int om_chunk_reader_check(om_chunk_reader *chunks, uint64_t at, const om_batch_info *batch);
#endif
