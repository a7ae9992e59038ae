/* libnccl.so.2: stands in for NCCL between processes of one machine without a GPU. Names, arguments, return values and
 * the way calls behave are true: a collective returns to the host at once and runs on its stream when its turn comes;
 * inside a group it is enqueued at ncclGroupEnd; calls of one communicator run in the order they were made, on
 * whichever stream; ncclX is a weak alias of pncclX; ncclBcast calls ncclBroadcast.
 *
 * What it does not have: communicators that are ready later (`blocking=0`, or init inside a group: both wait here),
 * the ...Config twins other than init's, user-made reductions, sums of 16-bit and 8-bit types (ncclInvalidArgument),
 * CUDA graphs, more than one machine.
 *
 * STANDIN_BLOCKING=1: a collective (or ncclGroupEnd) returns only when it has run.
 * STANDIN_TIMEOUT_MS: how long to wait for a peer that may be dead (60000); then the process says so and aborts. */
#include <string.h>

#include "comm.h"

#define API(RESULT, NAME, ...)                                        \
    RESULT p##NAME(__VA_ARGS__);                                      \
    __attribute__((weak, alias("p" #NAME))) RESULT NAME(__VA_ARGS__); \
    RESULT p##NAME(__VA_ARGS__)

/* Work that goes to one stream together: all of it proceeds at the same time, so that a send and a receive in one
 * group cannot wait for each other. */
struct batch {
    size_t count;
    struct work work[];
};

static _Thread_local struct work *grouped;
static _Thread_local size_t grouped_count, grouped_room;
static _Thread_local int group_depth;
static bool blocking;

__attribute__((constructor)) static void read_settings(void) { blocking = env_number("STANDIN_BLOCKING", 0) != 0; }

static uint64_t poll_batch(void *argument, uint64_t now) {
    struct batch *batch = argument;
    uint64_t look_again = NEVER;
    size_t ended = 0;
    bool progress = false;
    for (size_t i = 0; i < batch->count; i++) {
        struct work *work = &batch->work[i];
        if (!work->ended) {
            uint64_t again = work_poll(work, now);
            work->ended = again == GPU_DONE;
            progress |= work->ended;
            look_again = !work->ended && again < look_again ? again : look_again;
        }
        ended += work->ended;
    }
    if (ended < batch->count) {
        if (progress) { /* another stream may have waited for its turn on that communicator */
            gpu_ring(batch->work[0].comm->bell[batch->work[0].comm->rank]);
        }
        return look_again;
    }
    for (size_t i = 0; i < batch->count; i++) {
        atomic_fetch_sub(&batch->work[i].comm->outstanding, 1); /* from here on it may be freed */
    }
    free(batch);
    return GPU_DONE;
}

static uint64_t next_turn(const struct work *work) {
    struct ncclComm *comm = work->comm;
    switch (work->shape.kind) {
    case SEND: return comm->sends_issued[work->shape.root]++;
    case RECV: return comm->recvs_issued[work->shape.root]++;
    default: return comm->issued++;
    }
}

/* Enqueue all of `work` that goes to the stream of its first element; the rest moves to the front. */
static size_t enqueue_first_stream(struct work *work, size_t count) {
    cudaStream_t stream = work[0].stream;
    struct batch *batch = malloc(sizeof *batch + count * sizeof *work);
    size_t left = 0;
    if (!batch) {
        abort();
    }
    batch->count = 0;
    for (size_t i = 0; i < count; i++) {
        if (work[i].stream == stream) {
            batch->work[batch->count++] = work[i];
        } else {
            work[left++] = work[i];
        }
    }
    uint64_t number = gpu_enqueue(stream, poll_batch, batch);
    if (blocking && left == 0) {
        gpu_wait(stream, number);
    }
    return left;
}

static void enqueue_all(struct work *work, size_t count) {
    for (size_t i = 0; i < count; i++) {
        work[i].turn = next_turn(&work[i]);
        atomic_fetch_add(&work[i].comm->outstanding, 1);
    }
    while (count) {
        count = enqueue_first_stream(work, count);
    }
}

static ncclResult_t submit(struct work work) {
    int32_t kind = work.shape.kind, root = work.shape.root;
    bool reduces = kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER;
    if (!work.comm || !size_of(work.shape.type) || root < 0 || root >= work.comm->nranks ||
        (reduces && !can_reduce(work.shape.type, work.shape.op))) {
        return ncclInvalidArgument;
    }
    if (kind == SEND || kind == RECV) {
        work.shape.count *= size_of(work.shape.type); /* the two sides need to agree on bytes only */
    }
    if (!group_depth) {
        enqueue_all(&work, 1);
        return ncclSuccess;
    }
    if (grouped_count == grouped_room) {
        size_t room = grouped_room ? 2 * grouped_room : 16;
        struct work *larger = realloc(grouped, room * sizeof *grouped);
        if (!larger) {
            return ncclSystemError;
        }
        grouped = larger;
        grouped_room = room;
    }
    grouped[grouped_count++] = work;
    return ncclSuccess;
}

#define SUBMIT(KIND, FROM, TO, COUNT, TYPE, OP, ROOT)                                                              \
    submit((struct work){.comm = comm,                                                                             \
                         .stream = stream,                                                                         \
                         .from = (FROM),                                                                           \
                         .to = (TO),                                                                               \
                         .shape = {.kind = (KIND), .count = (COUNT), .type = (int32_t)(TYPE), .op = (int32_t)(OP), \
                                   .root = (ROOT)}})

API(ncclResult_t, ncclAllReduce, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
    ncclComm_t comm, cudaStream_t stream) {
    return SUBMIT(ALL_REDUCE, send, recv, count, type, op, 0);
}

API(ncclResult_t, ncclReduceScatter, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
    ncclComm_t comm, cudaStream_t stream) {
    return SUBMIT(REDUCE_SCATTER, send, recv, count, type, op, 0);
}

API(ncclResult_t, ncclReduce, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
    ncclComm_t comm, cudaStream_t stream) {
    return SUBMIT(REDUCE, send, recv, count, type, op, root);
}

API(ncclResult_t, ncclBroadcast, const void *send, void *recv, size_t count, ncclDataType_t type, int root,
    ncclComm_t comm, cudaStream_t stream) {
    return SUBMIT(BROADCAST, send, recv, count, type, 0, root);
}

API(ncclResult_t, ncclBcast, void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
    cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream); /* a call in a call, as in NCCL */
}

API(ncclResult_t, ncclAllGather, const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
    cudaStream_t stream) {
    return SUBMIT(ALL_GATHER, send, recv, count, type, 0, 0);
}

API(ncclResult_t, ncclAlltoAll, const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
    cudaStream_t stream) {
    return SUBMIT(ALL_TO_ALL, send, recv, count, type, 0, 0);
}

API(ncclResult_t, ncclSend, const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
    cudaStream_t stream) {
    return SUBMIT(SEND, buffer, NULL, count, type, 0, peer);
}

API(ncclResult_t, ncclRecv, void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
    cudaStream_t stream) {
    return SUBMIT(RECV, NULL, buffer, count, type, 0, peer);
}

API(ncclResult_t, ncclGroupStart, void) {
    group_depth++;
    return ncclSuccess;
}

API(ncclResult_t, ncclGroupEnd, void) {
    if (!group_depth) {
        return ncclInvalidUsage;
    }
    if (--group_depth == 0) {
        enqueue_all(grouped, grouped_count);
        grouped_count = 0;
    }
    return ncclSuccess;
}

API(ncclResult_t, ncclGetVersion, int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

API(ncclResult_t, ncclGetUniqueId, ncclUniqueId *id) { return id ? comm_make_id(id) : ncclInvalidArgument; }

API(const char *, ncclGetErrorString, ncclResult_t result) {
    static const char *const texts[] = {
        "no error",      "unhandled cuda error", "unhandled system error",     "internal error", "invalid argument",
        "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
    return (size_t)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

API(ncclResult_t, ncclCommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
    return comm ? comm_join(comm, nranks, &id, rank) : ncclInvalidArgument;
}

API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
    ncclConfig_t *config) {
    (void)config;
    return comm ? comm_join(comm, nranks, &id, rank) : ncclInvalidArgument;
}

API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config) {
    (void)config;
    bool valid = comm && child && (color >= 0 || color == NCCL_SPLIT_NOCOLOR);
    return valid ? comm_split(comm, color, key, child) : ncclInvalidArgument;
}

API(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
    if (!comm) {
        return ncclInvalidArgument;
    }
    comm_drain(comm);
    return ncclSuccess;
}

API(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
    if (comm) {
        comm_drain(comm);
        comm_free(comm);
    }
    return ncclSuccess;
}

API(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
    if (comm) {
        atomic_store(&comm->aborted, true);
        gpu_ring(comm->bell[comm->rank]); /* so that the GPU thread drops what still waits for peers */
        comm_drain(comm);
        comm_free(comm);
    }
    return ncclSuccess;
}

API(ncclResult_t, ncclCommCount, const ncclComm_t comm, int *count) {
    if (!comm || !count) {
        return ncclInvalidArgument;
    }
    *count = comm->nranks;
    return ncclSuccess;
}

API(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int *rank) {
    if (!comm || !rank) {
        return ncclInvalidArgument;
    }
    *rank = comm->rank;
    return ncclSuccess;
}
