/* load_report.c -- counts, latencies and CPU on their way to one line of JSON. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <unistd.h>

/* ---- samples ---- */

static sample samples[8192];
static int sample_count;

sample take_sample(int with_watched) {
    return (sample){
        .time = (double)(now_ns() - atomic_load(&started)) / 1e9,
        .cpu = own_seconds(),
        .watched = with_watched ? group_seconds(options.watch) : 0,
        .published = atomic_load(&published),
        .confirmed = atomic_load(&confirmed),
        .delivered = atomic_load(&delivered),
    };
}

/* A sample each quarter of a second, for whoever wants to see how the rates went. */
void nap(double seconds) {
    usleep((useconds_t)(seconds * 1e6));
    sample now = take_sample(0);
    if (sample_count < 8192 && (!sample_count || now.time - samples[sample_count - 1].time >= 0.25))
        samples[sample_count++] = now;
}

void report(sample from, sample to, double all_seconds) {
    double took = to.time - from.time;
    printf("{\"seconds\": %.4f, \"published\": %lu, \"confirmed\": %lu, \"delivered\": %lu", took,
           (unsigned long)published, (unsigned long)confirmed, (unsigned long)delivered);
    printf(", \"published_rate\": %.1f, \"confirmed_rate\": %.1f, \"delivered_rate\": %.1f",
           (double)(to.published - from.published) / took, (double)(to.confirmed - from.confirmed) / took,
           (double)(to.delivered - from.delivered) / took);
    printf(", \"passed_rate\": %.1f, \"all_seconds\": %.4f", (double)delivered / all_seconds, all_seconds);
    printf(", \"cpu\": %.4f, \"watched_cpu\": %.4f", (to.cpu - from.cpu) / took, (to.watched - from.watched) / took);
    if (options.rate > 0 && options.window)
        printf(", \"confirm_us\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}",
               latency_us(0.5), latency_us(0.9), latency_us(0.99), latency_us(0.999), latency_slowest_us());
    printf(", \"series\": [");
    for (int i = 0; i < sample_count; i++)
        printf("%s[%.3f, %lu, %lu, %lu]", i ? ", " : "", samples[i].time, (unsigned long)samples[i].published,
               (unsigned long)samples[i].confirmed, (unsigned long)samples[i].delivered);
    printf("]}\n");
}
