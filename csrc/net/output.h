/* output.h -- a connection's output, waiting to be sent. */
#ifndef OM_OUTPUT_H
#define OM_OUTPUT_H

#include "store/store.h"

enum om_piece_kind { OM_PIECE_OWN, OM_PIECE_BYTES, OM_PIECE_FILE };

/* A segment's file, open while somebody may send from it. Counted under the lock. */
typedef struct om_backing {
    uint32_t refs;
    om_segment *segment; /* held */
    int fd;
} om_backing;

/* A piece of output: bytes of its own, a part of a batch in memory, or a part of a segment. */
typedef struct om_piece {
    struct om_piece *next;
    uint32_t kind;
    uint32_t cap; /* own */
    uint64_t sent, len;
    union {
        struct {
            om_buffer *bytes;
            const uint8_t *data;
        } ref;
        struct {
            om_backing *backing;
            uint64_t position;
        } file;
    } from;
    uint8_t own[];
} om_piece;

/* Small chunks that were sent, to be used again: shared by all connections. */
typedef struct om_spares {
    om_piece *first;
    uint32_t count;
} om_spares;

typedef struct om_output {
    om_piece *head, *tail;
    uint64_t bytes;
    uint32_t files; /* pieces that are parts of a segment */
    om_spares *spares;
} om_output;

#define OM_OUTPUT_LIMIT (1u << 20)                 /* a consumer whose connection has more waiting gets nothing new */
#define OM_OUTPUT_HARD_LIMIT (4 * OM_OUTPUT_LIMIT) /* ... and what asks for an answer is not taken */

/* Room for len bytes in one piece, to be filled at once; NULL: no memory. */
uint8_t *om_output_put(om_output *output, size_t len);
/* The last `len` bytes put were not needed. */
void om_output_unput(om_output *output, size_t len);
int om_output_bytes(om_output *output, om_buffer *bytes, const uint8_t *data, size_t len);
int om_output_file(om_output *output, om_backing *backing, uint64_t position, size_t len);
om_backing *om_backing_open(om_segment *segment); /* NULL: it can't be had now */
void om_backing_unref(om_backing *backing);
/* OM_OK: all gone; OM_E_FULL: the socket takes no more now; OM_E_IO: it is broken. */
int om_output_flush(om_output *output, int fd, uint64_t *sent);
/* The bytes taken; OM_E_IO: a segment's part can't be read. */
int64_t om_output_drain(om_output *output, uint8_t *out, size_t cap);
void om_output_clear(om_output *output);
void om_spares_clear(om_spares *spares);

#endif
