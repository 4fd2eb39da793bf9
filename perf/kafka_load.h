/* kafka_load.h -- what the parts of the Kafka load generator share.
 *
 *   kafka_load.c           main: options, threads, the course of a run, the line of JSON
 *   kafka_load_link.c      a connection: requests out, answers in; topics made and waited for
 *   kafka_load_produce.c   prebuilt requests, a window of them under way; or some each millisecond
 *   kafka_load_fetch.c     fetches one after the other, offsets checked
 *   measure.c              clock, latencies, CPU
 */
#ifndef KAFKA_LOAD_H
#define KAFKA_LOAD_H

#include "measure.h"

#include <stdatomic.h>
#include <string.h>

#define PRODUCE 0
#define FETCH 1
#define CREATE_TOPICS 19
#define DELETE_TOPICS 20

typedef struct {
    char host[64];
    int port;
    const char *topic;
    int create; /* partitions to create the topic with; 0: it is there */
    int keep;   /* ... and leave it there */
    int partitions, producers, consumers;
    uint32_t record, batch; /* bytes of a value, of a batch */
    int batches;            /* partitions a request writes to */
    int acks, window;
    double rate;      /* records a second; 0: as fast as it goes */
    uint64_t records; /* produce so many and stop; 0: by time */
    double seconds, warm_up;
    long watch;
} load_options;

extern load_options options;
extern atomic_int stopping, measuring;
extern _Atomic uint64_t produced, fetched, produced_bytes, fetched_bytes;

/* ---- bytes: big-endian, in a buffer that grows ---- */

typedef struct {
    uint8_t *bytes;
    size_t len, cap;
} buffer;

void put(buffer *out, const void *bytes, size_t len);
void put_number(buffer *out, int64_t value, int width);
void put_string(buffer *out, const char *text);
int64_t number(const uint8_t *at, int width);

/* A request begins (returns where) and ends: its size is known then. */
size_t request_begin(buffer *out, int api, int version);
void request_end(buffer *out, size_t start);

/* ---- links ---- */

int link_open(void);
void link_send(int fd, const void *bytes, size_t len);
/* One whole answer without its size; it stays valid until the next one. */
uint8_t *link_answer(int fd, buffer *in, size_t *len);
void topic_create(void);
void topic_delete(void);
void topic_wait(void); /* until all partitions can be read */

/* ---- work ---- */

void *produce(void *number);
void *fetch(void *number);
/* Records of one value each, all alike; with_time: they carry now_ns(). Appends a batch to out. */
void put_batch(buffer *out, uint32_t count, int with_time);
uint32_t records_a_batch(void);
void put_fetch(buffer *out, const int64_t *offsets, int first, int step, int max_wait);

#endif
