/* measure.h -- what every load generator needs: a clock, latencies, CPU, and an end with a reason. */
#ifndef MEASURE_H
#define MEASURE_H

#include <stddef.h>
#include <stdint.h>

uint64_t now_ns(void);
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
void *need(void *memory);

/* Latencies, from any thread: 32 steps a power of two, so within 3 %. */
void latency_add(uint64_t ns);
double latency_us(double share); /* that share of them took at most so long */
double latency_slowest_us(void);

double own_seconds(void);         /* CPU of this process */
double group_seconds(long group); /* CPU of a process group: all of a broker; 0: of none */

#endif
