/* What a rank's host does between two all-reduces, and what goes wrong there. Each fault makes the rank late by the
 * same time for a different reason, so that its scheduler statistics differ: asleep (sleep, alloc), on the CPU (cpu),
 * stopped (stop), runnable without a CPU (contention). */
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#include "control.h"

static uint64_t thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static void work_a_little(void) {
    volatile double sum = 0; /* volatile: or there is nothing left to compute */
    for (int i = 0; i < 5000; i++) {
        sum += i;
    }
}

/* An amount of work rather than a time: a thread that gets no CPU is late with it. */
static void work(uint64_t cpu_ns) {
    uint64_t until = thread_cpu_ns() + cpu_ns;
    while (thread_cpu_ns() < until) {
        work_a_little();
    }
}

/* Stopped by the parent somewhere in here: this goes on until it has happened. */
static void work_until_stopped(struct job *job, int step, uint64_t cpu_ns) {
    struct control *control = job->control;
    uint64_t until = thread_cpu_ns() + cpu_ns;
    atomic_store(&control->stop_wanted, (uint32_t)step + 1);
    call_parent(job);
    while (thread_cpu_ns() < until || atomic_load(&control->stop_served) != (uint32_t)step + 1) {
        work_a_little();
    }
}

/* The burners have this CPU while they run. Where they may not have all of it, this thread works on until they end
 * instead of being early. */
static void work_beside_burners(struct job *job, int step, uint64_t cpu_ns, uint64_t burn_ns) {
    struct control *control = job->control;
    uint64_t until = thread_cpu_ns() + cpu_ns, burnt = now_ns() + burn_ns;
    atomic_store(&control->burn_until, burnt);
    atomic_store(&control->burn_wanted, (uint32_t)step + 1);
    futex_wake_all(&control->burn_wanted);
    while (thread_cpu_ns() < until || now_ns() < burnt) {
        work_a_little();
    }
}

/* What an allocator does that is out of memory: give blocks back and ask again. The calls take the time, see
 * STANDIN_ALLOC_NS, which the parent sets to a twentieth of the fault. */
static void allocate_in_bursts(struct job *job) {
    void *block = NULL;
    CALL(cudaMalloc, &block, 1 << 20);
    for (int i = 0; i < 9; i++) {
        CALL(cudaFree, block);
        CALL(cudaMalloc, &block, 1 << 20);
    }
    CALL(cudaFree, block);
}

void compute_phase(struct job *job, int step) {
    const struct options *options = &job->control->options;
    struct step_record *record = record_of(job->control, step, job->rank);
    uint64_t work_ns = (uint64_t)(options->step_ms * NS_PER_MS), fault_ns = (uint64_t)(options->fault_ms * NS_PER_MS);
    enum fault fault = is_faulty(options, step, job->rank) ? options->fault : NONE;

    if (fault != STOP && fault != CONTENTION) {
        work(work_ns);
    }
    uint64_t start = now_ns();
    switch (fault) {
    case SLEEP: sleep_until(start + fault_ns); break;
    case CPU: work(fault_ns); break;
    case STOP: work_until_stopped(job, step, work_ns); break;
    case CONTENTION: work_beside_burners(job, step, work_ns, fault_ns); break;
    case ALLOC: allocate_in_bursts(job); break;
    case DIE: raise(SIGKILL); break;
    default: return;
    }
    if (fault != STOP) { /* the parent knows better how long that was */
        record->fault_ns = now_ns() - start;
    }
}

void burn(struct control *control) {
    /* Ahead of all ordinary threads where that is allowed; else the rank has its share, 1 / (burners + 1), of the CPU.
     * Not a low nice value: the kernel takes the weight of such a thread from the rest of its group on other CPUs. */
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    for (uint32_t served = 0;;) {
        while (atomic_load(&control->burn_wanted) == served) {
            futex_wait(&control->burn_wanted, served, NEVER);
        }
        served = atomic_load(&control->burn_wanted);
        while (now_ns() < atomic_load(&control->burn_until)) {
            work_a_little();
        }
    }
}
