/* load_report.c -- counts, latencies and CPU on their way to one line of JSON. */
#define _GNU_SOURCE
#include "load.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- latencies: 32 steps a power of two, so within 3 % ---- */

#define STEPS 32
static _Atomic uint32_t histogram[64 * STEPS];
static _Atomic uint64_t slowest;

void latency_add(uint64_t ns) {
    if (!atomic_load_explicit(&measuring, memory_order_relaxed))
        return;
    if (ns > atomic_load_explicit(&slowest, memory_order_relaxed))
        atomic_store_explicit(&slowest, ns, memory_order_relaxed);
    int power = ns < STEPS ? 0 : 63 - __builtin_clzll(ns) - 4;
    size_t slot = power ? (size_t)power * STEPS + ((ns >> (power - 1)) & (STEPS - 1)) : ns;
    atomic_fetch_add_explicit(&histogram[slot], 1, memory_order_relaxed);
}

static double latency_at(double share) {
    uint64_t total = 0, seen = 0;
    for (size_t i = 0; i < 64 * STEPS; i++)
        total += histogram[i];
    for (size_t i = 0; i < 64 * STEPS; i++) {
        seen += histogram[i];
        if (total && (double)seen >= share * (double)total) {
            int power = (int)(i / STEPS);
            uint64_t low = power ? (STEPS + (i % STEPS)) << (power - 1) : i;
            return (double)low / 1e3;
        }
    }
    return 0;
}

/* ---- samples ---- */

static sample samples[8192];
static int sample_count;

/* CPU seconds of the watched process group: all of the broker and nothing of us. */
static double watched_seconds(void) {
    DIR *all = options.watch ? opendir("/proc") : NULL;
    double ticks = 0;
    for (struct dirent *entry; all && (entry = readdir(all));) {
        char path[300], line[1024];
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        size_t len = file ? fread(line, 1, sizeof line - 1, file) : 0;
        if (file)
            fclose(file);
        line[len] = 0;
        const char *rest = strrchr(line, ')');
        long group;
        unsigned long user, system;
        if (rest && sscanf(rest + 1, " %*c %*d %ld %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &group, &user, &system) == 3 &&
            group == options.watch)
            ticks += (double)(user + system);
    }
    if (all)
        closedir(all);
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

sample take_sample(int with_watched) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (sample){
        .time = (double)(now_ns() - atomic_load(&started)) / 1e9,
        .cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
        .watched = with_watched ? watched_seconds() : 0,
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
               latency_at(0.5), latency_at(0.9), latency_at(0.99), latency_at(0.999), (double)slowest / 1e3);
    printf(", \"series\": [");
    for (int i = 0; i < sample_count; i++)
        printf("%s[%.3f, %lu, %lu, %lu]", i ? ", " : "", samples[i].time, (unsigned long)samples[i].published,
               (unsigned long)samples[i].confirmed, (unsigned long)samples[i].delivered);
    printf("]}\n");
}
