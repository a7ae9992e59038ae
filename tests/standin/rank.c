/* One rank of the training job: a process with one thread that makes all calls. Stands in for a training script. A
 * step is host work, a gradient copied to the GPU, a kernel, the collectives, and a wait for the stream, after which
 * all sums are checked. Floats are small whole numbers, so that sums are exact in any order. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "control.h"

struct group {
    ncclComm_t comm;
    int size, index;     /* of this rank in it */
    int first, distance; /* its members in the world: first, first + distance, ... */
};

struct training {
    struct job *job;
    int schedstat_fd;
    struct group world, dp, tp;
    cudaStream_t main, side;
    cudaEvent_t side_done;
    size_t floats, dp_part;
    float *host, *device;       /* the gradient of the world's all-reduce */
    float *tp_host, *tp_device; /* activations: an all-reduce on the same stream */
    float *dp_host, *dp_device; /* reduce-scatter, then all-gather, on the side stream */
    float *pp_host, *pp_device; /* activations from the rank before */
};

void call_parent(const struct job *job) {
    uint64_t one = 1;
    if (write(job->attention_fd, &one, sizeof one) != sizeof one) {
        perror("train: write to the parent");
        exit(2);
    }
}

void count_call(struct job *job, const char *name) {
    struct function_calls *function = job->control->rank[job->rank].functions;
    while (function->calls && strcmp(function->name, name) != 0) {
        function++;
    }
    if (!function->calls) {
        snprintf(function->name, sizeof function->name, "%s", name);
    }
    function->calls++;
}

void check_result(int result, const char *name) {
    if (result != 0) {
        fprintf(stderr, "train: %s returned %d\n", name, result);
        exit(2);
    }
}

static void await_id(struct job *job, int index) {
    if (!await_at_least(&job->control->id[index].made, 1, now_ns() + timeout_ns())) {
        fprintf(stderr, "train: rank %d waited in vain for a unique id\n", job->rank);
        exit(2);
    }
}

static void init_group(struct training *t, struct group *group, int id_index) {
    struct job *job = t->job;
    struct made_id *made = &job->control->id[id_index];
    if (group->index == 0) {
        CALL(ncclGetUniqueId, &made->id);
        atomic_store(&made->made, 1);
        futex_wake_all(&made->made);
    }
    await_id(job, id_index);
    CALL(ncclCommInitRank, &group->comm, group->size, made->id, group->index);
}

/* Tensor parallel: neighbours, two by two. Data parallel: the ranks with the same place in their pair. As splits, they
 * are the first (dp) and the second (tp) of the world, with the number of the group as color. */
static void init_communicators(struct training *t) {
    struct job *job = t->job;
    const struct options *options = &job->control->options;
    int rank = job->rank, pair = options->ranks % 2 ? 1 : 2;

    t->world = (struct group){.size = options->ranks, .index = rank, .first = 0, .distance = 1};
    init_group(t, &t->world, 0);
    if (options->comms != DP_TP) {
        return;
    }
    t->dp = (struct group){
        .size = options->ranks / pair, .index = rank / pair, .first = rank % pair, .distance = pair};
    t->tp = (struct group){.size = pair, .index = rank % pair, .first = rank / pair * pair, .distance = 1};
    if (options->split) {
        CALL(ncclCommSplit, t->world.comm, rank % pair, rank, &t->dp.comm, NULL);
        CALL(ncclCommSplit, t->world.comm, rank / pair, rank, &t->tp.comm, NULL);
    } else {
        init_group(t, &t->dp, 1 + rank % pair);
        init_group(t, &t->tp, 1 + MAX_RANKS + rank / pair);
    }
}

static void make_pair(struct job *job, float **host, float **device, size_t floats) {
    *host = calloc(floats, sizeof **host);
    if (!*host) {
        abort();
    }
    CALL(cudaMalloc, (void **)device, floats * sizeof **device);
}

static void set_up(struct training *t) {
    struct job *job = t->job;
    CALL(cudaSetDevice, job->rank % 8);
    CALL(cudaStreamCreate, &t->main);
    CALL(cudaStreamCreate, &t->side);
    CALL(cudaEventCreate, &t->side_done);
    init_communicators(t);
    t->floats = (size_t)job->control->options.floats;
    t->dp_part = t->dp.size ? (t->floats + (size_t)t->dp.size - 1) / (size_t)t->dp.size : 0;
    make_pair(job, &t->host, &t->device, t->floats);
    make_pair(job, &t->tp_host, &t->tp_device, t->floats);
    make_pair(job, &t->dp_host, &t->dp_device, t->dp_part * (size_t)t->dp.size);
    make_pair(job, &t->pp_host, &t->pp_device, t->floats);
}

static void tear_down(struct training *t) {
    struct job *job = t->job;
    ncclComm_t comms[] = {t->tp.comm, t->dp.comm, t->world.comm};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) {
        if (comms[i]) {
            CALL(ncclCommFinalize, comms[i]);
            CALL(ncclCommDestroy, comms[i]);
        }
    }
    CALL(cudaEventDestroy, t->side_done);
    CALL(cudaStreamDestroy, t->side);
    CALL(cudaStreamDestroy, t->main);
}

static float value(int rank, int step, size_t i) { return (float)(rank + 1 + step % 16 + (int)(i % 7)); }

static void fill(float *into, size_t count, int rank, int step) {
    for (size_t i = 0; i < count; i++) {
        into[i] = value(rank, step, i);
    }
}

static void check_sum(struct training *t, const float *sum, size_t count, const struct group *group, int step) {
    struct rank_report *report = &t->job->control->rank[t->job->rank];
    bool right = true;
    for (size_t i = 0; i < count; i++) {
        float expected = 0;
        for (int member = 0; member < group->size; member++) {
            expected += value(group->first + member * group->distance, step, i);
        }
        right &= sum[i] == expected;
    }
    report->sums_checked++;
    report->sums_wrong += !right;
}

static void to_device(struct training *t, float *device, const float *host, size_t floats, cudaStream_t stream) {
    struct job *job = t->job;
    CALL(cudaMemcpyAsync, device, host, floats * sizeof *host, cudaMemcpyHostToDevice, stream);
}

static void to_host(struct training *t, float *host, const float *device, size_t floats, cudaStream_t stream) {
    struct job *job = t->job;
    CALL(cudaMemcpyAsync, host, device, floats * sizeof *host, cudaMemcpyDeviceToHost, stream);
}

/* Two communicators on two streams, so that their operations overlap in any order. */
static void enqueue_dp_tp(struct training *t, int step) {
    struct job *job = t->job;
    size_t dp_floats = t->dp_part * (size_t)t->dp.size;
    float *dp_own = t->dp_device + (size_t)t->dp.index * t->dp_part;

    fill(t->tp_host, t->floats, job->rank, step);
    to_device(t, t->tp_device, t->tp_host, t->floats, t->main);
    CALL(ncclAllReduce, t->tp_device, t->tp_device, t->floats, ncclFloat32, ncclSum, t->tp.comm, t->main);
    to_host(t, t->tp_host, t->tp_device, t->floats, t->main);

    fill(t->dp_host, dp_floats, job->rank, step);
    to_device(t, t->dp_device, t->dp_host, dp_floats, t->side);
    CALL(ncclReduceScatter, t->dp_device, dp_own, t->dp_part, ncclFloat32, ncclSum, t->dp.comm, t->side);
    CALL(ncclAllGather, dp_own, t->dp_device, t->dp_part, ncclFloat32, t->dp.comm, t->side);
    to_host(t, t->dp_host, t->dp_device, dp_floats, t->side);
    CALL(cudaEventRecord, t->side_done, t->side);
}

/* Pipeline parallel: every rank is a stage, and gives its activations to the next one. */
static void enqueue_pp(struct training *t, int step) {
    struct job *job = t->job;
    int rank = job->rank;
    fill(t->pp_host, t->floats, rank, step);
    to_device(t, t->tp_device, t->pp_host, t->floats, t->main);
    CALL(ncclGroupStart);
    if (rank > 0) {
        CALL(ncclRecv, t->pp_device, t->floats, ncclFloat32, rank - 1, t->world.comm, t->main);
    }
    if (rank + 1 < t->world.size) {
        CALL(ncclSend, t->tp_device, t->floats, ncclFloat32, rank + 1, t->world.comm, t->main);
    }
    CALL(ncclGroupEnd);
    to_host(t, t->pp_host, t->pp_device, t->floats, t->main);
}

/* What the kernel itself has counted, to compare a probe's opinion with; 0 where the kernel does not count it. */
static uint64_t run_queue_ns(const struct training *t) {
    char text[96] = "";
    unsigned long long cpu, runq = 0;
    if (t->schedstat_fd < 0 || pread(t->schedstat_fd, text, sizeof text - 1, 0) <= 0) {
        return 0;
    }
    return sscanf(text, "%llu %llu", &cpu, &runq) == 2 ? runq : 0;
}

static void check_step(struct training *t, int step) {
    check_sum(t, t->host, t->floats, &t->world, step);
    if (t->tp.comm) {
        check_sum(t, t->tp_host, t->floats, &t->tp, step);
        check_sum(t, t->dp_host, t->dp_part * (size_t)t->dp.size, &t->dp, step);
    }
    if (t->job->control->options.comms == PP && t->job->rank > 0) {
        check_sum(t, t->pp_host, t->floats, &(struct group){.size = 1, .first = t->job->rank - 1}, step);
    }
}

static void run_step(struct training *t, int step) {
    struct job *job = t->job;
    const struct options *options = &job->control->options;
    struct step_record *record = record_of(job->control, step, job->rank);
    uint64_t kernel_ns = (uint64_t)(options->kernel_ms * NS_PER_MS);
    void *kernel_args[] = {&kernel_ns};
    dim3 one = {1, 1, 1};

    compute_phase(job, step);
    fill(t->host, t->floats, job->rank, step);
    if (options->fault == CORRUPT && is_faulty(options, step, job->rank)) {
        t->host[0]++;
    }
    to_device(t, t->device, t->host, t->floats, t->main);
    CALL(cudaLaunchKernel, (const void *)run_step, one, one, kernel_args, 0, t->main);
    if (options->comms == DP_TP) {
        enqueue_dp_tp(t, step);
    } else if (options->comms == PP) {
        enqueue_pp(t, step);
    }
    record->cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    record->runq = run_queue_ns(t);
    record->enter = now_ns();
    CALL(ncclAllReduce, t->device, t->device, t->floats, ncclFloat32, ncclSum, t->world.comm, t->main);
    record->returned = now_ns();
    to_host(t, t->host, t->device, t->floats, t->main);
    CALL(cudaStreamSynchronize, t->main);
    record->synced = now_ns();
    if (options->comms == DP_TP) {
        CALL(cudaEventSynchronize, t->side_done);
    }
    check_step(t, step);
}

int run_rank(struct job *job) {
    struct training training = {.job = job,
                                .schedstat_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)};
    set_up(&training);
    for (int step = 0; step < job->control->options.steps; step++) {
        run_step(&training, step);
    }
    tear_down(&training);
    return job->control->rank[job->rank].sums_wrong ? 3 : 0;
}
