/* load.h -- what the parts of the load generator share.
 *
 *   amqp_load.c       main: threads, the course of a run
 *   load_options.c    the command line
 *   load_client.c     a connection up to its open channel
 *   load_topology.c   the queues and exchanges a run declares and deletes
 *   load_publish.c    blocks of publishes, their window, their confirms
 *   load_consume.c    deliveries, their checks, their acks
 *   load_report.c     counts over time, and the line of JSON
 *   measure.c         clock, latencies, CPU (other generators use it too)
 */
#ifndef LOAD_H
#define LOAD_H

#include "amqp_wire.h"
#include "measure.h"

#include <pthread.h>
#include <stdatomic.h>

#define READ_SIZE (256u << 10)
#define CARRY_SIZE 8192 /* a frame cut off at the end of a read; bodies never wait */
#define LARGE 16384     /* from this size on a body's bytes are copied neither to nor from us */
#define CHANNEL 1

typedef struct {
    char host[64];
    int port;
    int publishers, consumers, queues, threads;
    uint64_t size, window, messages, in_flight;
    unsigned prefetch, ack_every;
    int persistent, auto_ack, keep, leave_rest;
    double rate, seconds, warm_up, patience;
    const char *name, *type, *exchange;
    const char *arguments[16];
    int argument_count;
    long ttl, watch;
    uint64_t expect;
} load_options;

extern load_options options;

/* What all threads see. */
extern atomic_int stopping, quitting, measuring;
extern _Atomic uint64_t published, confirmed, delivered, last_event;
extern _Atomic uint64_t started; /* when; 0: not yet */

typedef struct {
    int fd, publisher, number;
    uint32_t frame_max;
    char queue[128];
    /* reading */
    uint8_t carry[CARRY_SIZE];
    size_t carried;
    uint64_t skip; /* bytes of a body that are still to come */
    int end_due;   /* ... and then the byte that ends its frame */
    uint64_t body_left;
    /* publishing */
    uint8_t *block;
    int block_fd; /* the block as a file, for sendfile; -1: send() it */
    size_t block_len, message_len;
    uint64_t sent;    /* bytes */
    uint64_t counted; /* messages wholly sent */
    uint64_t limit;
    uint64_t granted;     /* messages whose time has come, at a fixed rate */
    uint64_t lowest;      /* the first tag without a confirm */
    uint8_t *out_of_turn; /* confirmed before the lowest was; by tag & mask */
    uint64_t *due;        /* when a tag was to be sent; by tag & mask */
    uint64_t mask;
    double next_due, interval;
    int armed;
    /* consuming */
    uint64_t tag, whole, acked; /* the last that began, that came to its end, that was acked */
    uint8_t half_ack[32];       /* an ack the socket took only in part */
    size_t half_at, half_len;
} client;

typedef struct {
    int poller;
    client **clients;
    int count;
    uint8_t *buffer;
    pthread_t thread;
} worker;

typedef struct {
    double time, cpu, watched;
    uint64_t published, confirmed, delivered;
} sample;

void parse(int argc, char **argv);

void client_open(client *it);
void client_arm(worker *self, client *it, int out);
void call(const client *it, wire *out, uint32_t answer);
__attribute__((noreturn)) void closed_by_broker(const client *it, const uint8_t *payload);

void queue_name(char *name, size_t room, int number, int dead_letters);
void declare_all(const client *control);
void delete_all(const client *control);

void publisher_open(client *it);
void publish(worker *self, client *it, uint64_t now);
void confirm(client *it, uint64_t tag, int multiple, uint64_t now);

void consumer_open(client *it);
void acknowledge(worker *self, client *it);
void readable(worker *self, client *it);

sample take_sample(int with_watched);
void nap(double seconds);
void report(sample from, sample to, double all_seconds);

#endif
