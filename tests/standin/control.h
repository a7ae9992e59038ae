/* The training job's own shared memory: what the parent tells the ranks, and what they tell it. Stands in for the
 * launcher and its key-value store (torchrun, TCPStore), through which real ranks exchange the unique id. */
#ifndef STANDIN_CONTROL_H
#define STANDIN_CONTROL_H

#include <limits.h>
#include <sys/types.h>

#include "nccl.h"
#include "waiting.h"

#define MAX_RANKS 64
#define MAX_IDS (1 + 2 * MAX_RANKS)
#define MAX_FUNCTIONS 48

enum fault { NONE, SLEEP, CPU, STOP, CONTENTION, ALLOC, DIE, CORRUPT };
enum comms { WORLD, DP_TP, PP };

struct options {
    int ranks, steps, ranks_per_node;
    enum fault fault;
    int fault_rank, every, burners;
    double step_ms, kernel_ms, fault_ms;
    enum comms comms;
    bool split; /* else each communicator has a unique id of its own */
    int floats; /* in the gradient */
    int calls;  /* > 0: no training, but this many calls of each function */
    bool timings;
    char job[64];
    char wait_for[PATH_MAX];
};

struct made_id {
    _Atomic uint32_t made;
    ncclUniqueId id;
};

struct step_record {
    uint64_t enter, returned, synced; /* of the world's all-reduce: its call, its return, the end of the wait for it */
    uint64_t cpu, runq;               /* of the thread so far, at `enter` */
    uint64_t fault_ns;                /* how long the fault took; 0: none */
};

struct function_calls {
    char name[32];
    int calls;
};

struct rank_report {
    pid_t pid;
    _Atomic bool loaded;
    long sums_checked, sums_wrong;
    struct function_calls functions[MAX_FUNCTIONS];
};

struct control {
    struct options options;
    struct made_id id[MAX_IDS]; /* world, then one per group of DP, then of TP */
    struct rank_report rank[MAX_RANKS];
    /* Steps + 1, since zero means none. The rank asks, the parent (or the burners) serve. */
    _Atomic uint32_t stop_wanted, stop_served, burn_wanted;
    _Atomic uint64_t burn_until;
    struct step_record record[]; /* [step][rank] */
};

/* One rank, in its process. */
struct job {
    struct control *control;
    int rank, attention_fd; /* written to make the parent look */
};

static inline struct step_record *record_of(struct control *control, int step, int rank) {
    return &control->record[(size_t)step * (size_t)control->options.ranks + (size_t)rank];
}

/* Faults come by step, never by the clock, so that every run has the same ones. */
static inline bool is_faulty(const struct options *options, int step, int rank) {
    return options->fault != NONE && rank == options->fault_rank && step % options->every == options->every - 1;
}

int run_rank(struct job *job);                 /* rank.c: the exit code of the process */
int run_calls(struct job *job);                /* calls.c: the same, for --calls */
void compute_phase(struct job *job, int step); /* faults.c: the host's work of a step, with its fault */
void burn(struct control *control);            /* faults.c: the life of a process that takes a CPU away */
void call_parent(const struct job *job);       /* rank.c */

void count_call(struct job *job, const char *name);
void check_result(int result, const char *name);

/* Every call into the libraries goes through here: its number is ground truth for whoever counts them from outside. */
#define CALL(FUNCTION, ...) (count_call(job, #FUNCTION), check_result((int)FUNCTION(__VA_ARGS__), #FUNCTION))

#endif
