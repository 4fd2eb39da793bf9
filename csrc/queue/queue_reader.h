/* queue_reader.h -- reading a log message by message. */
#ifndef OM_QUEUE_READER_H
#define OM_QUEUE_READER_H

#include "format/content.h"
#include "net/output.h"
#include "om_engine.h"
#include "store/log_read.h"
#include "store/store.h"

#define OM_FOREIGN (128u << 10) /* bytes that the properties of a Kafka record may take */

/* Where it stands: a batch in memory or a stretch of a mapped segment. */
typedef struct om_queue_reader {
    om_content_iter iter;
    om_buffer *bytes;        /* hot: held */
    om_buffer *decompressed; /* the batch at hand, decompressed: held; NULL: it wasn't compressed */
    om_read read;            /* mapped: held while pins isn't NULL */
    uint8_t is_unseen;       /* ... and nobody has looked at its checksums */
    om_backing *backing;     /* ... its file, once a large message was sent from it */
    size_t read_at;          /* ... the batch under iter starts here */
    int64_t next;            /* the offset iter gives next, if it has one; -1: no batch */
    int64_t last;            /* the batch's last offset */
    uint32_t batch_size;
    uint64_t batch_position; /* mapped: of the batch in its segment's file */
} om_queue_reader;

om_queue_reader *om_queue_reader_new(void);
void om_queue_reader_free(om_queue_reader *reader);
void om_queue_reader_rest(om_queue_reader *reader); /* lets go of the batch at hand */
/* Beside om_result: no consumer gets what is at that offset. It is in a gap, a marker, or of an aborted transaction. */
#define OM_READER_PASS 64
/* The message at that offset. OM_OK; OM_END: not there yet; OM_E_NOT_RESIDENT: asked for; OM_READER_PASS,
 * OM_E_UNREADABLE or (the log begins behind it) OM_E_RANGE: reading may go on at `skip_to`. Valid until the next
 * call. */
int om_queue_reader_get(om_engine *engine, om_queue_reader *reader, om_log *log, int64_t offset, om_content *out,
                        int64_t *skip_to);
static inline int om_queue_reader_goes_on(int result) {
    return result == OM_READER_PASS || result == OM_E_UNREADABLE || result == OM_E_RANGE;
}

/* Memory that holds the last message and may be lent; NULL: it lies in a mapping. */
static inline om_buffer *om_queue_reader_bytes(const om_queue_reader *reader) {
    return reader->decompressed ? reader->decompressed : reader->bytes;
}

/* Guard the mapping under the last message while its bytes are copied. */
static inline void om_queue_reader_guard(om_queue_reader *reader) {
    if (!om_queue_reader_bytes(reader) && reader->read.pins)
        om_read_guard(&reader->read);
}

static inline int om_queue_reader_unguard(om_queue_reader *reader) {
    return !om_queue_reader_bytes(reader) && reader->read.pins ? om_read_unguard(&reader->read) : OM_OK;
}

/* The message it gave couldn't be read after all: the segment is surveyed, and the reader comes back. */
void om_queue_reader_doubt(om_queue_reader *reader, om_log *log);
/* Where these bytes of the last message lie in a segment's file, to be sent from there (not held);
 * NULL: they are in memory only, or the file can't be decompressed. */
om_backing *om_queue_reader_backing(om_queue_reader *reader, const uint8_t *data, uint64_t *position);

#endif
