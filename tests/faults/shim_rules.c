/* shim_rules.c -- the faults: which call must fail, be cut short, be late, or be the last.
 *
 * Rules lie in the control page and are switched by Python while the child runs. The first armed
 * rule that speaks of the operation and the path, and is due, is the one that counts; every
 * matching rule counts the match.
 *
 * The byte budget is a full disk: it is spent by growth only, in blocks of 4 KiB, since a full
 * disk still takes what is written over blocks the file already owns (a recycled WAL file must
 * go on working). What a file owns is told by st_blocks, read as a dense beginning: exact for
 * logs, a guess for files with holes. Space given back by unlink is not counted; lift the limit.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096

static int armed(const shim_rule *rule) {
    return __atomic_load_n(&rule->armed, __ATOMIC_ACQUIRE) != 0;
}

int shim_watches(unsigned ops) {
    if (!__atomic_load_n(&shim.ready, __ATOMIC_ACQUIRE))
        return 0;
    for (int i = 0; i < SHIM_RULES; i++)
        if (armed(&shim.page->rules[i]) && (shim.page->rules[i].ops & ops))
            return 1;
    return 0;
}

shim_fault shim_match(unsigned ops, const char *path) {
    shim_fault fault = {0};
    for (int i = 0; i < SHIM_RULES; i++) {
        shim_rule *rule = &shim.page->rules[i];
        if (!armed(rule) || !(rule->ops & ops) || fnmatch(rule->glob, path, 0) != 0)
            continue;
        uint64_t before = rule->matched++;
        if (fault.action || before < rule->skip || (rule->times >= 0 && before - rule->skip >= (uint64_t)rule->times))
            continue;
        rule->fired++;
        fault = (shim_fault){.action = rule->action,
                             .error = rule->error,
                             .carried_out = rule->carried_out != 0,
                             .amount = rule->amount};
        shim_record record = {.event = SHIM_EV_FAULT,
                              .detail = (uint8_t)rule->action,
                              .error = (uint16_t)rule->error,
                              .size = (int64_t)ops};
        shim_put(&record, path, "", NULL, 0);
    }
    return fault;
}

/* The lock is never let go: another thread's call, done but cut off before its record, would
 * leave a change on the disk that the trace knows nothing of. */
void shim_last_call(void) {
    shim.page->dying = 1;
    __atomic_store_n(&shim.dying, syscall(SYS_gettid), __ATOMIC_RELEASE);
}

_Noreturn void shim_die(void) {
    shim_last_call();
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;)
        syscall(SYS_pause);
}

void shim_wait(const shim_fault *fault) {
    struct timespec left = {.tv_sec = (time_t)(fault->amount / 1000000),
                            .tv_nsec = (long)(fault->amount % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

int shim_enter(shim_fault *fault, unsigned ops, const char *path) {
    shim_lock();
    *fault = shim_match(ops, path);
    if (fault->action == SHIM_DELAY) {
        shim_unlock();
        shim_wait(fault);
        shim_lock();
    } else if (fault->action == SHIM_KILL && !fault->carried_out) {
        shim_die();
    } else if (fault->action == SHIM_FAIL && !fault->carried_out) {
        shim_unlock();
        errno = fault->error;
        return -1;
    }
    return 0;
}

long shim_leave(const shim_fault *fault, long result) {
    if (fault->action == SHIM_KILL && fault->carried_out)
        shim_die();
    shim_unlock();
    if (fault->action == SHIM_FAIL && fault->carried_out) {
        errno = fault->error;
        return -1;
    }
    return result;
}

size_t shim_spend(int fd, int64_t offset, size_t len, int whole) {
    struct stat st;
    int64_t budget = __atomic_load_n(&shim.page->budget, __ATOMIC_ACQUIRE);
    if (budget < 0 || len == 0 || fstat(fd, &st) != 0)
        return len;
    int64_t owned = (int64_t)st.st_blocks * 512;
    int64_t end = offset + (int64_t)len;
    int64_t from = offset > owned ? offset / BLOCK * BLOCK : owned;
    int64_t needed = (end - from + BLOCK - 1) / BLOCK * BLOCK;
    if (needed <= 0)
        return len;
    if (whole && needed > budget)
        return 0;
    int64_t granted = needed <= budget ? needed : budget / BLOCK * BLOCK;
    /* Python may lift the limit at this very moment: that must not be undone. */
    __atomic_compare_exchange_n(&shim.page->budget, &budget, budget - granted, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    if (granted == needed)
        return len;
    int64_t fits = from + granted - offset;
    return fits > 0 ? (size_t)fits : 0;
}
