/* kafka_load.c -- load for a Kafka broker over raw sockets: prebuilt batches, so that the broker is
 * what is measured and not a client. `kafka_load --help` lists the options; one line of JSON is the
 * answer. Errors in answers and offsets that don't follow end the run.
 */
#define _GNU_SOURCE
#include "kafka_load.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define THREADS 64

load_options options = {
    .host = "127.0.0.1",
    .port = 9092,
    .topic = "load",
    .partitions = 1,
    .record = 1024,
    .batch = 16384,
    .batches = 1,
    .acks = 1,
    .window = 5,
    .seconds = 5,
    .warm_up = 1,
};
atomic_int stopping, measuring;
_Atomic uint64_t produced, fetched, produced_bytes, fetched_bytes;

static const char usage[] =
    "usage: kafka_load [options]\n"
    "  --address HOST:PORT     where the broker listens (127.0.0.1:9092)\n"
    "  --topic NAME            (load)\n"
    "  --create N              create it, with N partitions; it is deleted in the end, unless:\n"
    "  --keep                  it stays there\n"
    "  --partitions N          that it has (1)\n"
    "  --producers N --consumers N     connections (0)\n"
    "  --record BYTES          of a value (1024)\n"
    "  --batch BYTES           about so large is a batch (16384)\n"
    "  --batches N             partitions a request writes to, a batch each (1)\n"
    "  --acks 0|1|-1           (1)\n"
    "  --window N              requests under way a connection (5)\n"
    "  --rate R                records a second, some each millisecond; consumers tell how long they took\n"
    "  --records N             produce so many and end\n"
    "  --seconds S --warm-up S how long (5 after 1)\n"
    "  --watch GROUP           tell the cores that this process group took\n";

static void parse(int argc, char **argv) {
    enum {
        ADDRESS = 1,
        TOPIC,
        CREATE,
        PARTITIONS,
        PRODUCERS,
        CONSUMERS,
        RECORD,
        BATCH,
        BATCHES,
        ACKS,
        WINDOW,
        RATE,
        RECORDS,
        KEEP,
        SECONDS,
        WARM_UP,
        WATCH
    };
    static const struct option known[] = {
        {"address", 1, 0, ADDRESS},     {"topic", 1, 0, TOPIC},
        {"create", 1, 0, CREATE},       {"partitions", 1, 0, PARTITIONS},
        {"producers", 1, 0, PRODUCERS}, {"consumers", 1, 0, CONSUMERS},
        {"record", 1, 0, RECORD},       {"batch", 1, 0, BATCH},
        {"batches", 1, 0, BATCHES},     {"acks", 1, 0, ACKS},
        {"window", 1, 0, WINDOW},       {"rate", 1, 0, RATE},
        {"records", 1, 0, RECORDS},     {"keep", 0, 0, KEEP},
        {"seconds", 1, 0, SECONDS},     {"warm-up", 1, 0, WARM_UP},
        {"watch", 1, 0, WATCH},         {0, 0, 0, 0},
    };
    for (int which; (which = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (which) {
        case ADDRESS:
            if (sscanf(optarg, "%63[^:]:%d", options.host, &options.port) != 2)
                fail("--address takes HOST:PORT");
            break;
        case TOPIC:
            options.topic = optarg;
            break;
        case CREATE:
            options.create = options.partitions = atoi(optarg);
            break;
        case PARTITIONS:
            options.partitions = atoi(optarg);
            break;
        case PRODUCERS:
            options.producers = atoi(optarg);
            break;
        case CONSUMERS:
            options.consumers = atoi(optarg);
            break;
        case RECORD:
            options.record = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case BATCH:
            options.batch = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case BATCHES:
            options.batches = atoi(optarg);
            break;
        case ACKS:
            options.acks = atoi(optarg);
            break;
        case WINDOW:
            options.window = atoi(optarg);
            break;
        case RATE:
            options.rate = atof(optarg);
            break;
        case RECORDS:
            options.records = strtoull(optarg, NULL, 10);
            break;
        case KEEP:
            options.keep = 1;
            break;
        case SECONDS:
            options.seconds = atof(optarg);
            break;
        case WARM_UP:
            options.warm_up = atof(optarg);
            break;
        case WATCH:
            options.watch = atol(optarg);
            break;
        default:
            fputs(usage, stderr), exit(2);
        }
    if (optind < argc || options.partitions < 1 || options.batches < 1 || options.batches > options.partitions ||
        options.window < 1 || options.producers + options.consumers > THREADS || !options.record)
        fputs(usage, stderr), exit(2);
}

/* ---- the course of a run ---- */

typedef struct {
    double time, cpu, watched;
    uint64_t produced, fetched, produced_bytes, fetched_bytes;
} sample;

static sample take_sample(void) {
    return (sample){
        (double)now_ns() / 1e9, own_seconds(), group_seconds(options.watch), produced, fetched,
        produced_bytes,         fetched_bytes,
    };
}

static void report(sample from, sample to) {
    double took = to.time - from.time;
    printf("{\"seconds\": %.4f, \"produced\": %lu, \"fetched\": %lu", took, (unsigned long)produced,
           (unsigned long)fetched);
    printf(", \"produced_rate\": %.1f, \"fetched_rate\": %.1f", (double)(to.produced - from.produced) / took,
           (double)(to.fetched - from.fetched) / took);
    printf(", \"produced_bytes_rate\": %.1f, \"fetched_bytes_rate\": %.1f",
           (double)(to.produced_bytes - from.produced_bytes) / took,
           (double)(to.fetched_bytes - from.fetched_bytes) / took);
    printf(", \"cpu\": %.4f, \"watched_cpu\": %.4f", (to.cpu - from.cpu) / took, (to.watched - from.watched) / took);
    printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n", latency_us(0.5), latency_us(0.99),
           latency_slowest_us());
}

static void start(pthread_t *thread, void *(*work)(void *), int number) {
    if (pthread_create(thread, NULL, work, (void *)(intptr_t)number) != 0)
        fail("no thread");
}

int main(int argc, char **argv) {
    parse(argc, argv);
    prctl(PR_SET_TIMERSLACK, 1);
    if (options.create)
        topic_create();
    topic_wait();
    pthread_t producers[THREADS], consumers[THREADS];
    for (int i = 0; i < options.consumers; i++)
        start(&consumers[i], fetch, i);
    sample from = take_sample(), to;
    for (int i = 0; i < options.producers; i++)
        start(&producers[i], produce, i);
    if (options.records) {
        for (int i = 0; i < options.producers; i++)
            pthread_join(producers[i], NULL);
        to = take_sample();
    } else if (options.producers || options.consumers) {
        usleep((useconds_t)(options.warm_up * 1e6));
        from = take_sample();
        measuring = 1;
        usleep((useconds_t)(options.seconds * 1e6));
        measuring = 0;
        to = take_sample();
        stopping = 1;
        for (int i = 0; i < options.producers; i++)
            pthread_join(producers[i], NULL);
    } else
        to = take_sample();
    if (options.create && !options.keep)
        topic_delete();
    report(from, to); /* a consumer's last fetch may still wait: the process ends all the same */
    return 0;
}
