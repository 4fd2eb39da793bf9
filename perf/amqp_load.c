/* amqp_load.c -- load for an AMQP 0-9-1 broker, cheap enough never to be what limits it.
 *
 * All publishes of a connection are the same bytes, so they are built once, many in a block, and
 * sent by the block; deliveries are cut in place, large bodies thrown away inside the kernel
 * (MSG_TRUNC), acks and confirms counted by the group. One thread for publishers and one for
 * consumers, or one for both. `amqp_load --help` lists the options; one line of JSON is the answer.
 *
 * It believes nobody: the size of every message, the order of the tags, the number delivered and
 * confirmed are checked, and a connection or channel closed by the broker ends the run with the
 * broker's own words.
 *
 *   warm-up | the measured seconds | what is still under way arrives | counts are compared
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

atomic_int stopping, quitting, measuring;
_Atomic uint64_t published, confirmed, delivered, last_event;
_Atomic uint64_t started; /* when; 0: not yet */

/* ---- threads ---- */

/* Publishers at a fixed rate wake for the next that is due; many of them together, twice a ms. */
static uint64_t wait_ns(const worker *self, uint64_t now) {
    if (options.in_flight)
        return 200000;
    if (options.rate <= 0)
        return 20000000;
    double next = (double)now + 20e6;
    for (int i = 0; i < self->count; i++)
        if (self->clients[i]->publisher && self->clients[i]->next_due < next)
            next = self->clients[i]->next_due;
    uint64_t left = next > (double)now ? (uint64_t)(next - (double)now) : 0;
    return options.publishers > 16 && left < 500000 ? 500000 : left;
}

static void *work(void *argument) {
    worker *self = argument;
    prctl(PR_SET_TIMERSLACK, 1);
    while (!atomic_load(&started))
        usleep(100);
    for (int i = 0; i < self->count; i++) {
        client *it = self->clients[i];
        it->next_due = (double)atomic_load(&started) + it->interval * it->number / options.publishers;
        if (it->publisher)
            publish(self, it, now_ns());
    }
    int told = 0;
    while (!atomic_load_explicit(&quitting, memory_order_relaxed)) {
        struct epoll_event events[256];
        uint64_t wait = wait_ns(self, now_ns());
        struct timespec timeout = {.tv_sec = 0, .tv_nsec = (long)wait};
        int count = epoll_pwait2(self->poller, events, 256, &timeout, NULL);
        uint64_t now = now_ns();
        for (int i = 0; i < count; i++) {
            client *it = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                readable(self, it);
            if (it->publisher)
                publish(self, it, now);
            else if (events[i].events & EPOLLOUT)
                acknowledge(self, it);
        }
        int stop = atomic_load(&stopping);
        for (int i = 0; i < self->count && (options.rate > 0 || options.in_flight || stop != told); i++)
            if (self->clients[i]->publisher)
                publish(self, self->clients[i], now);
            else if (!options.auto_ack)
                acknowledge(self, self->clients[i]);
        told = stop;
    }
    return NULL;
}

static void worker_add(worker *self, client *it) {
    self->clients = need(realloc(self->clients, sizeof *self->clients * (size_t)(self->count + 1)));
    self->clients[self->count++] = it;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (epoll_ctl(self->poller, EPOLL_CTL_ADD, it->fd, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
}

/* ---- the course of a run ---- */

static uint64_t expected_deliveries(void) {
    if (!options.consumers)
        return 0;
    if (!options.publishers)
        return options.expect;
    int copies = options.exchange && !strcmp(options.exchange, "fanout") ? options.queues : 1;
    return atomic_load(&published) * (uint64_t)copies;
}

static int all_arrived(void) {
    if (options.messages && options.publishers && atomic_load(&published) < options.messages)
        return 0;
    if (options.window && options.publishers && atomic_load(&confirmed) < atomic_load(&published))
        return 0;
    return atomic_load(&delivered) >= expected_deliveries();
}

/* Until everything arrived; as long as something still moves, it may take its time. */
static void wait_for_all(void) {
    uint64_t seen = 0, sum;
    double since = take_sample(0).time;
    while (!all_arrived()) {
        nap(0.001);
        sample now = take_sample(0);
        if ((sum = now.published + now.confirmed + now.delivered) != seen)
            seen = sum, since = now.time;
        else if (now.time - since > options.patience)
            fail("nothing came for %g s: %lu published, %lu confirmed, %lu delivered", options.patience,
                 (unsigned long)now.published, (unsigned long)now.confirmed, (unsigned long)now.delivered);
    }
}

int main(int argc, char **argv) {
    parse(argc, argv);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    client control = {.queue = "control"};
    client_open(&control);
    declare_all(&control);
    worker workers[2] = {{0}};
    for (int i = 0; i < options.threads; i++) {
        workers[i].poller = epoll_create1(EPOLL_CLOEXEC);
        workers[i].buffer = need(malloc(READ_SIZE + CARRY_SIZE));
    }
    for (int i = 0; i < options.consumers; i++) {
        client *it = need(calloc(1, sizeof *it));
        it->number = i;
        queue_name(it->queue, sizeof it->queue, i % options.queues, options.ttl >= 0);
        consumer_open(it);
        worker_add(&workers[options.threads - 1], it);
    }
    for (int i = 0; i < options.publishers; i++) {
        client *it = need(calloc(1, sizeof *it));
        it->publisher = 1;
        it->number = i;
        queue_name(it->queue, sizeof it->queue, i % options.queues, 0);
        publisher_open(it);
        worker_add(&workers[0], it);
    }
    for (int i = 0; i < options.threads; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            fail("no thread");
    atomic_store(&last_event, now_ns());
    atomic_store(&started, now_ns());

    sample from = take_sample(1), to;
    if (options.messages) {
        atomic_store(&measuring, 1);
        wait_for_all();
        to = take_sample(1);
        atomic_store(&stopping, 1);
        nap(options.auto_ack ? 0 : 0.05); /* for the last acks */
    } else {
        while (take_sample(0).time < options.warm_up)
            nap(0.01);
        from = take_sample(1);
        atomic_store(&measuring, 1);
        while (take_sample(0).time - from.time < options.seconds)
            nap(0.01);
        to = take_sample(1);
        atomic_store(&measuring, 0);
        atomic_store(&stopping, 1);
        if (!options.leave_rest) {
            nap(0.05); /* a message half sent is still finished */
            wait_for_all();
        }
    }
    double all_seconds = (double)(atomic_load(&last_event) - atomic_load(&started)) / 1e9;
    atomic_store(&quitting, 1);
    for (int i = 0; i < options.threads; i++)
        pthread_join(workers[i].thread, NULL);
    if (!options.leave_rest && atomic_load(&delivered) > expected_deliveries())
        fail("%lu delivered, and only %lu published", (unsigned long)delivered, (unsigned long)published);
    if (!options.keep)
        delete_all(&control);
    report(from, to, all_seconds);
    return 0;
}
