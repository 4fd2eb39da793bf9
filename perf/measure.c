/* measure.c -- clock, latencies, CPU. */
#define _GNU_SOURCE
#include "measure.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(1);
}

void *need(void *memory) {
    if (!memory)
        fail("out of memory");
    return memory;
}

/* ---- latencies ---- */

#define STEPS 32
static _Atomic uint32_t histogram[64 * STEPS];
static _Atomic uint64_t slowest;

void latency_add(uint64_t ns) {
    if (ns > atomic_load_explicit(&slowest, memory_order_relaxed))
        atomic_store_explicit(&slowest, ns, memory_order_relaxed);
    int power = ns < STEPS ? 0 : 63 - __builtin_clzll(ns) - 4;
    size_t slot = power ? (size_t)power * STEPS + ((ns >> (power - 1)) & (STEPS - 1)) : ns;
    atomic_fetch_add_explicit(&histogram[slot], 1, memory_order_relaxed);
}

double latency_us(double share) {
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

double latency_slowest_us(void) {
    return (double)slowest / 1e3;
}

/* ---- CPU ---- */

double own_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

double group_seconds(long wanted) {
    DIR *all = wanted ? opendir("/proc") : NULL;
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
        if (rest &&
            sscanf(rest + 1, " %*c %*d %ld %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &group, &user, &system) == 3 &&
            group == wanted)
            ticks += (double)(user + system);
    }
    if (all)
        closedir(all);
    return ticks / (double)sysconf(_SC_CLK_TCK);
}
