/* sigbus.c -- survives a mapped page that can't be read (SIGBUS).
 *
 * A file that is cut under its mapping, or a sector that can't be read, shows as SIGBUS at some
 * load instruction. While a thread stands inside a guard, a fault within the guarded mapping is
 * answered with a page of zeros, and the mapping remembers from where on it is no longer to be
 * trusted; the reader learns of it at the end of the guard. Other threads that read the same
 * page after that get the zeros without a fault of their own, which is why the mapping
 * remembers and not the thread.
 *
 * Any other SIGBUS is not ours: it goes to the handler that was there before, or the
 * process dies of it as it would have without us.
 */
#define _GNU_SOURCE
#include "segment/file_cache.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A signal's disposition belongs to the process, so what it needs does too: set once, then only
 * read. Initial-exec: a handler must not run into the lazy allocation of thread-local memory. */
static __thread om_mapping *guarded __attribute__((tls_model("initial-exec")));
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before;
static uintptr_t page_size;
static int install_result;

static void note_fault(om_mapping *mapping, size_t at) {
    size_t good = __atomic_load_n(&mapping->good, __ATOMIC_RELAXED);
    while (at < good && !__atomic_compare_exchange_n(&mapping->good, &good, at, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
}

static void pass_on(int number, siginfo_t *info, void *context) {
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (info->si_code > 0 || before.sa_handler == SIG_DFL) {
        /* Back to the load that faulted: it faults again, and now the process dies with the
         * right address in its core. A signal that was only sent must be sent again. */
        struct sigaction standard = {.sa_handler = SIG_DFL};
        sigaction(number, &standard, NULL);
        if (info->si_code <= 0)
            raise(number);
    }
}

static void on_sigbus(int number, siginfo_t *info, void *context) {
    om_mapping *mapping = guarded;
    uintptr_t address = (uintptr_t)info->si_addr;
    if (mapping && info->si_code > 0 && address >= (uintptr_t)mapping->base &&
        address < (uintptr_t)mapping->base + mapping->len) {
        int kept = errno;
        uintptr_t page = address & ~(page_size - 1);
        note_fault(mapping, page - (uintptr_t)mapping->base); /* before anyone can see the zeros */
        void *zeros = mmap((void *)page, page_size, PROT_READ | (mapping->written ? PROT_WRITE : 0),
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        errno = kept;
        if (zeros != MAP_FAILED)
            return;
    }
    pass_on(number, info, context);
}

static void install(void) {
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    install_result = sigaction(SIGBUS, &action, &before) == 0 ? OM_OK : OM_E_IO;
}

int om_sigbus_install(void) {
    pthread_once(&once, install);
    return install_result;
}

void om_sigbus_mapping(const om_mapping *mapping) {
    guarded = (om_mapping *)mapping;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void om_sigbus_begin(const om_view *view) {
    guarded = view->mapping;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

int om_sigbus_end(const om_view *view) {
    om_mapping *mapping = view->mapping;
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* zeros of another thread's: its note is seen too */
    guarded = NULL;
    size_t end = (size_t)(view->data - mapping->base) + view->len;
    if (end <= __atomic_load_n(&mapping->good, __ATOMIC_RELAXED))
        return OM_OK;
    return OM_E_UNREADABLE;
}
