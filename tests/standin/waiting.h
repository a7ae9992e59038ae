/* Clocks and futexes, for the libraries and for the training job. Every wait here sleeps in the kernel: a probe that
 * looks at the scheduler must see a waiting thread off the CPU. */
#ifndef STANDIN_WAITING_H
#define STANDIN_WAITING_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NEVER UINT64_MAX
#define NS_PER_MS 1000000ULL
#define NS_PER_S 1000000000ULL

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static inline struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static inline void sleep_until(uint64_t deadline) {
    struct timespec until = timespec_of(deadline);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

/* Sleep while `*word` is `seen`, at most until `deadline`; wakes early as futexes do. Works between processes. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline) {
    struct timespec until = timespec_of(deadline == NEVER ? 0 : deadline);
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, deadline == NEVER ? NULL : &until, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

static inline void futex_wake_all(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX); }

/* Wait until `*word` has reached `wanted`, counting up; false when the deadline came first. */
static inline bool await_at_least(_Atomic uint32_t *word, uint32_t wanted, uint64_t deadline) {
    for (;;) {
        uint32_t seen = atomic_load(word);
        if (seen >= wanted) {
            return true;
        }
        if (now_ns() >= deadline) {
            return false;
        }
        futex_wait(word, seen, deadline);
    }
}

static inline uint64_t env_number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* How long anything waits for another process, before it gives up loudly. */
static inline uint64_t timeout_ns(void) { return env_number("STANDIN_TIMEOUT_MS", 60000) * NS_PER_MS; }

#endif
