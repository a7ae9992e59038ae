/* How the ranks of a communicator exchange data: stands in for NCCL's kernels and transports. A collective goes in
 * rounds. In each, every rank brings a part of its input, the round is complete when all have come (the barrier), and
 * everybody takes from all contributions what it needs. So every collective waits for its last rank, also those that
 * need not in NCCL (a broadcast does not wait for all receivers). Send and receive meet in a channel of their own.
 *
 * All of it runs on the GPU thread and returns instead of waiting; whoever completes something rings the others. */
#include "comm.h"

#include <stdio.h>
#include <string.h>

const char *const kind_names[] = {"ncclAllReduce", "ncclReduce",   "ncclReduceScatter", "ncclBroadcast",
                                  "ncclAllGather", "ncclAlltoAll", "ncclSend",          "ncclRecv"};

size_t size_of(int32_t type) {
    static const unsigned char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < (int32_t)sizeof sizes ? sizes[type] : 0;
}

bool can_reduce(int32_t type, int32_t op) {
    bool known_type = type == ncclFloat32 || type == ncclFloat64 || type == ncclInt32 || type == ncclInt64;
    return known_type && op >= ncclSum && op <= ncclAvg;
}

#define DEFINE_REDUCE(NAME, TYPE)                                                                                  \
    static void NAME(TYPE *into, const TYPE *from, size_t count, int32_t op) {                                     \
        for (size_t i = 0; i < count; i++) {                                                                       \
            switch (op) {                                                                                          \
            case ncclProd: into[i] *= from[i]; break;                                                              \
            case ncclMax: into[i] = from[i] > into[i] ? from[i] : into[i]; break;                                  \
            case ncclMin: into[i] = from[i] < into[i] ? from[i] : into[i]; break;                                  \
            default: into[i] += from[i];                                                                           \
            }                                                                                                      \
        }                                                                                                          \
    }                                                                                                              \
    static void NAME##_divide(TYPE *into, size_t count, int by) {                                                  \
        for (size_t i = 0; i < count; i++) {                                                                       \
            into[i] /= (TYPE)by;                                                                                   \
        }                                                                                                          \
    }
DEFINE_REDUCE(reduce_f32, float)
DEFINE_REDUCE(reduce_f64, double)
DEFINE_REDUCE(reduce_i32, int32_t)
DEFINE_REDUCE(reduce_i64, int64_t)

static void reduce(int32_t type, void *into, const void *from, size_t count, int32_t op) {
    switch (type) {
    case ncclFloat32: reduce_f32(into, from, count, op); break;
    case ncclFloat64: reduce_f64(into, from, count, op); break;
    case ncclInt32: reduce_i32(into, from, count, op); break;
    default: reduce_i64(into, from, count, op);
    }
}

static void divide(int32_t type, void *into, size_t count, int by) {
    switch (type) {
    case ncclFloat32: reduce_f32_divide(into, count, by); break;
    case ncclFloat64: reduce_f64_divide(into, count, by); break;
    case ncclInt32: reduce_i32_divide(into, count, by); break;
    default: reduce_i64_divide(into, count, by);
    }
}

/* Input that consists of one part for each rank, of which a round carries a piece of each. */
static bool has_parts(int32_t kind) { return kind == REDUCE_SCATTER || kind == ALL_TO_ALL; }

static size_t round_elements(const struct work *work) {
    size_t room = SLOT_BYTES / size_of(work->shape.type);
    room /= has_parts(work->shape.kind) ? (size_t)work->comm->nranks : 1;
    size_t left = work->shape.count - work->done;
    return left < room ? left : room;
}

static struct contribution *contribution_of(const struct ncclComm *comm, uint64_t round, int rank) {
    return &comm->shared->contribution[round % 2][rank];
}

static void come(struct work *work) {
    struct ncclComm *comm = work->comm;
    struct contribution *mine = contribution_of(comm, comm->rounds, comm->rank);
    size_t size = size_of(work->shape.type), elements = round_elements(work);
    const unsigned char *from = work->from;

    mine->shape = work->shape;
    if (has_parts(work->shape.kind)) {
        for (size_t part = 0; part < (size_t)comm->nranks; part++) {
            memcpy(mine->data + part * elements * size, from + (part * work->shape.count + work->done) * size,
                   elements * size);
        }
    } else if (work->shape.kind != BROADCAST || comm->rank == work->shape.root) {
        memcpy(mine->data, from + work->done * size, elements * size);
    }
    comm->rounds++;
    atomic_store(&comm->shared->member[comm->rank].rounds, comm->rounds);
    if (atomic_fetch_add(&comm->shared->arrived, 1) + 1 == comm->rounds * (uint64_t)comm->nranks) {
        for (int rank = 0; rank < comm->nranks; rank++) {
            gpu_ring(comm->bell[rank]); /* the last one wakes the others, its own process too: one way for all */
        }
    }
}

static void take_reduced(struct work *work, unsigned char *to, size_t elements, size_t skip) {
    struct ncclComm *comm = work->comm;
    int32_t type = work->shape.type;
    size_t size = size_of(type);
    for (int rank = 0; rank < comm->nranks; rank++) {
        const unsigned char *from = contribution_of(comm, comm->rounds - 1, rank)->data + skip * elements * size;
        if (rank == 0) {
            memcpy(to, from, elements * size);
        } else {
            reduce(type, to, from, elements, work->shape.op);
        }
    }
    if (work->shape.op == ncclAvg) {
        divide(type, to, elements, comm->nranks);
    }
}

static void take(struct work *work) {
    struct ncclComm *comm = work->comm;
    size_t size = size_of(work->shape.type), elements = round_elements(work), bytes = elements * size;
    unsigned char *to = (unsigned char *)work->to + work->done * size;
    size_t me = (size_t)comm->rank;

    switch (work->shape.kind) {
    case REDUCE:
        if (comm->rank != work->shape.root) {
            break;
        }
        __attribute__((fallthrough));
    case ALL_REDUCE: take_reduced(work, to, elements, 0); break;
    case REDUCE_SCATTER: take_reduced(work, to, elements, me); break;
    case BROADCAST: memcpy(to, contribution_of(comm, comm->rounds - 1, work->shape.root)->data, bytes); break;
    default:
        for (int rank = 0; rank < comm->nranks; rank++) {
            const unsigned char *from = contribution_of(comm, comm->rounds - 1, rank)->data;
            memcpy(to + (size_t)rank * work->shape.count * size, from + (has_parts(work->shape.kind) ? me * bytes : 0),
                   bytes);
        }
    }
    work->done += elements;
}

/* NCCL would hang or return nonsense; a test is better served by an end. */
static void check_agreement(const struct work *work) {
    for (int rank = 0; rank < work->comm->nranks; rank++) {
        const struct shape *other = &contribution_of(work->comm, work->comm->rounds - 1, rank)->shape;
        if (memcmp(other, &work->shape, sizeof *other) != 0) {
            char why[160];
            snprintf(why, sizeof why, "rank %d called %s with count %llu, type %d", rank, kind_names[other->kind],
                     (unsigned long long)other->count, other->type);
            give_up(work->comm, kind_names[work->shape.kind], why);
        }
    }
}

static uint64_t keep_waiting(struct work *work, uint64_t now) {
    if (!work->waiting_since) {
        work->waiting_since = now;
    }
    if (now - work->waiting_since >= patience_ns) {
        give_up(work->comm, kind_names[work->shape.kind], "timed out waiting for its peers");
    }
    return work->waiting_since + patience_ns;
}

static uint64_t poll_collective(struct work *work, uint64_t now) {
    struct ncclComm *comm = work->comm;
    if (comm->ended != work->turn) {
        return NEVER; /* the one before it is on another stream, and its end brings the GPU thread back here */
    }
    while (work->done < work->shape.count) {
        if (!work->arrived) {
            come(work);
            work->arrived = true;
        }
        if (atomic_load(&comm->shared->arrived) < comm->rounds * (uint64_t)comm->nranks) {
            return keep_waiting(work, now);
        }
        check_agreement(work);
        take(work);
        work->arrived = false;
        work->waiting_since = 0;
    }
    comm->ended++;
    return GPU_DONE;
}

static uint64_t poll_send(struct work *work, uint64_t now) {
    struct ncclComm *comm = work->comm;
    int peer = work->shape.root;
    struct channel *channel = &comm->shared->channel[comm->rank][peer];
    if (comm->sends_ended[peer] != work->turn) {
        return NEVER;
    }
    while (work->done < work->shape.count) {
        if (atomic_load(&channel->sent) != atomic_load(&channel->received)) {
            return keep_waiting(work, now);
        }
        size_t left = work->shape.count - work->done, part = left < CHANNEL_BYTES ? left : CHANNEL_BYTES;
        memcpy(channel->data, (const unsigned char *)work->from + work->done, part);
        work->done += part;
        work->waiting_since = 0;
        atomic_fetch_add(&channel->sent, 1);
        gpu_ring(comm->bell[peer]);
    }
    comm->sends_ended[peer]++;
    return GPU_DONE;
}

static uint64_t poll_recv(struct work *work, uint64_t now) {
    struct ncclComm *comm = work->comm;
    int peer = work->shape.root;
    struct channel *channel = &comm->shared->channel[peer][comm->rank];
    if (comm->recvs_ended[peer] != work->turn) {
        return NEVER;
    }
    while (work->done < work->shape.count) {
        if (atomic_load(&channel->sent) == atomic_load(&channel->received)) {
            return keep_waiting(work, now);
        }
        size_t left = work->shape.count - work->done, part = left < CHANNEL_BYTES ? left : CHANNEL_BYTES;
        memcpy((unsigned char *)work->to + work->done, channel->data, part);
        work->done += part;
        work->waiting_since = 0;
        atomic_fetch_add(&channel->received, 1);
        gpu_ring(comm->bell[peer]);
    }
    comm->recvs_ended[peer]++;
    return GPU_DONE;
}

uint64_t work_poll(struct work *work, uint64_t now) {
    if (atomic_load(&work->comm->aborted)) {
        return GPU_DONE;
    }
    switch (work->shape.kind) {
    case SEND: return poll_send(work, now);
    case RECV: return poll_recv(work, now);
    default: return poll_collective(work, now);
    }
}
