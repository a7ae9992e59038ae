/* Inside libnccl.so.2: a communicator, and the shared memory in which its ranks meet. */
#ifndef STANDIN_COMM_H
#define STANDIN_COMM_H

#include "gpu.h"
#include "nccl.h"

#define MAX_RANKS 64
#define SLOT_BYTES (64 * 1024)
#define CHANNEL_BYTES (16 * 1024)

enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER, ALL_TO_ALL, SEND, RECV };

/* What all ranks must agree on when they meet. */
struct shape {
    int32_t kind, type, op, root;
    uint64_t count;
};

/* What one rank brings to one round of a collective. */
struct contribution {
    struct shape shape;
    _Alignas(64) unsigned char data[SLOT_BYTES];
};

/* From one rank to another, one message part at a time: full while `sent` is ahead of `received`. */
struct channel {
    _Atomic uint64_t sent, received;
    unsigned char data[CHANNEL_BYTES];
};

/* The meeting of a split: who wants what, and where the leader of each color made the memory of the child. */
struct split {
    _Atomic uint32_t arrived;
    struct {
        int32_t color, key, fd;
        uint64_t nonce;
        _Atomic uint32_t made; /* ordinal of the split + 1 */
    } of[MAX_RANKS];
};

/* Rounds and splits use two places in turn. That is enough: a rank comes to round n+1 only after it has left round n,
 * and leaves n only when all have come to it, that is when all have left n-1. Mostly holes: pages that are never
 * touched cost nothing. */
struct segment {
    uint64_t nonce; /* a reused file descriptor number must not be taken for this segment */
    _Atomic uint32_t nranks, attached, creator_closed;
    struct {
        int32_t pid;
        struct gpu_address gpu;
        _Atomic uint64_t rounds; /* how many it has come to; read when somebody complains */
    } member[MAX_RANKS];
    _Atomic uint64_t arrived; /* in all rounds so far, by all ranks */
    struct split split[2];
    struct contribution contribution[2][MAX_RANKS];
    struct channel channel[MAX_RANKS][MAX_RANKS];
};

struct ncclComm {
    struct segment *shared;
    int rank, nranks;
    gpu_bell *bell[MAX_RANKS];
    uint64_t rounds;        /* of collectives this rank has come to */
    uint32_t splits;        /* of this communicator so far */
    uint64_t issued, ended; /* collectives run in the order of the calls, on whichever stream */
    uint64_t sends_issued[MAX_RANKS], sends_ended[MAX_RANKS];
    uint64_t recvs_issued[MAX_RANKS], recvs_ended[MAX_RANKS];
    _Atomic uint32_t outstanding; /* operations of any kind */
    _Atomic bool aborted;
};

/* One call, from when it is enqueued until the GPU thread is through with it. */
struct work {
    struct ncclComm *comm;
    cudaStream_t stream;
    struct shape shape; /* of send and recv: the root is the peer */
    const void *from;
    void *to;
    uint64_t turn; /* among those of its kind on this communicator */
    size_t done;   /* elements (bytes for send and recv) */
    bool arrived, ended;
    uint64_t waiting_since;
};

extern uint64_t patience_ns; /* how long a rank waits for another */
extern const char *const kind_names[];

size_t size_of(int32_t type); /* 0: no such type */
bool can_reduce(int32_t type, int32_t op);
uint64_t work_poll(struct work *work, uint64_t now); /* in exchange.c; as gpu_poll */

ncclResult_t comm_make_id(ncclUniqueId *id);
ncclResult_t comm_join(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank);
ncclResult_t comm_split(ncclComm_t parent, int color, int key, ncclComm_t *child);
void comm_drain(ncclComm_t comm);
void comm_free(ncclComm_t comm);

_Noreturn void give_up(const struct ncclComm *comm, const char *doing, const char *why);

#endif
