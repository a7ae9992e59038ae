/* Communicators of libnccl.so.2: how ranks find each other. Stands in for NCCL's bootstrap network. As there, the
 * unique id is an address in the process that made it, which must live until all ranks have joined: here the address
 * of a file in memory, so that nothing is left behind however the processes end. One machine, at most MAX_RANKS. */
#include "comm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

uint64_t patience_ns;

__attribute__((constructor)) static void read_settings(void) { patience_ns = timeout_ns(); }

static const char MAGIC[8] = "standin";

struct id {
    char magic[8];
    uint64_t nonce;
    int32_t pid, fd;
    unsigned char rest[NCCL_UNIQUE_ID_BYTES - 24]; /* random: no hash may do with the first bytes */
};
_Static_assert(sizeof(struct id) == sizeof(ncclUniqueId), "the id has the size of NCCL's");

void give_up(const struct ncclComm *comm, const char *doing, const char *why) {
    char missing[256] = "";
    size_t length = 0;
    for (int rank = 0; rank < comm->nranks && length < sizeof missing - 16; rank++) {
        if (atomic_load(&comm->shared->member[rank].rounds) < comm->rounds) {
            length += (size_t)snprintf(missing + length, sizeof missing - length, " %d", rank);
        }
    }
    fprintf(stderr, "standin nccl: rank %d of %d, %s: %s; not in this round:%s\n", comm->rank, comm->nranks, doing, why,
            length ? missing : " none");
    abort();
}

static struct segment *map_segment(int fd) {
    void *memory = mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static struct segment *open_segment(int pid, int fd, uint64_t nonce) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    struct segment *found = own < 0 ? NULL : map_segment(own);
    if (own >= 0) {
        close(own);
    }
    if (found && found->nonce != nonce) {
        munmap(found, sizeof *found);
        return NULL;
    }
    return found;
}

static int make_segment(uint64_t nonce) {
    char name[64];
    snprintf(name, sizeof name, "standin-nccl-%016llx", (unsigned long long)nonce);
    int fd = memfd_create(name, MFD_CLOEXEC);
    struct segment *made = fd < 0 || ftruncate(fd, sizeof *made) ? NULL : map_segment(fd);
    if (!made) {
        perror("standin nccl: memfd");
        return -1;
    }
    made->nonce = nonce;
    munmap(made, sizeof *made);
    return fd;
}

ncclResult_t comm_make_id(ncclUniqueId *out) {
    struct id id;
    if (getrandom(&id, sizeof id, 0) != sizeof id) {
        return ncclSystemError;
    }
    memcpy(id.magic, MAGIC, sizeof MAGIC);
    id.pid = getpid();
    id.fd = make_segment(id.nonce);
    memcpy(out, &id, sizeof id);
    return id.fd < 0 ? ncclSystemError : ncclSuccess;
}

static void meet(struct ncclComm *comm, uint32_t times, const char *doing) {
    _Atomic uint32_t *attached = &comm->shared->attached;
    atomic_fetch_add(attached, 1);
    futex_wake_all(attached);
    if (!await_at_least(attached, times * (uint32_t)comm->nranks, now_ns() + patience_ns)) {
        give_up(comm, doing, "timed out before all ranks had joined");
    }
}

/* Take a place in the segment, wait for all others to do so, and learn the bells of their GPUs. They meet twice: a rank
 * that ends right after must not take its bell away from one that has yet to find it. */
static ncclResult_t join(ncclComm_t *out, struct segment *shared, int nranks, int rank, const char *doing) {
    uint32_t unknown = 0;
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (!comm) {
        return ncclSystemError;
    }
    if (!atomic_compare_exchange_strong(&shared->nranks, &unknown, (uint32_t)nranks) && unknown != (uint32_t)nranks) {
        free(comm);
        return ncclInvalidArgument;
    }
    *comm = (struct ncclComm){.shared = shared, .rank = rank, .nranks = nranks};
    shared->member[rank].pid = getpid();
    shared->member[rank].gpu = gpu_address();
    meet(comm, 1, doing);
    for (int peer = 0; peer < nranks; peer++) {
        comm->bell[peer] = gpu_open_bell(shared->member[peer].gpu);
        if (!comm->bell[peer]) {
            give_up(comm, doing, "a rank died while it joined");
        }
    }
    meet(comm, 2, doing);
    *out = comm;
    return ncclSuccess;
}

ncclResult_t comm_join(ncclComm_t *out, int nranks, const ncclUniqueId *bytes, int rank) {
    struct id id;
    memcpy(&id, bytes, sizeof id);
    if (nranks < 1 || nranks > MAX_RANKS || rank < 0 || rank >= nranks || memcmp(id.magic, MAGIC, sizeof MAGIC) != 0) {
        return ncclInvalidArgument;
    }
    struct segment *shared = open_segment(id.pid, id.fd, id.nonce);
    if (!shared) {
        return ncclSystemError;
    }
    ncclResult_t result = join(out, shared, nranks, rank, "ncclCommInitRank");
    if (result != ncclSuccess) {
        munmap(shared, sizeof *shared);
    } else if (id.pid == getpid() && !atomic_exchange(&shared->creator_closed, 1)) {
        close(id.fd); /* everybody has it mapped */
    }
    return result;
}

/* The lowest parent rank of a color makes the memory of the child; the others take it from there. */
static struct segment *child_segment(const struct ncclComm *parent, struct split *split, uint32_t ordinal, int leader,
                                     int *own_fd) {
    *own_fd = -1;
    if (leader == parent->rank) {
        uint64_t nonce = parent->shared->nonce ^ ((uint64_t)(ordinal + 1) << 32 | (uint64_t)(leader + 1));
        *own_fd = make_segment(nonce);
        split->of[leader].fd = *own_fd;
        split->of[leader].nonce = nonce;
        atomic_store(&split->of[leader].made, ordinal + 1);
        futex_wake_all(&split->of[leader].made);
    } else if (!await_at_least(&split->of[leader].made, ordinal + 1, now_ns() + patience_ns)) {
        give_up(parent, "ncclCommSplit", "timed out waiting for the first rank of this color");
    }
    return open_segment(parent->shared->member[leader].pid, split->of[leader].fd, split->of[leader].nonce);
}

ncclResult_t comm_split(ncclComm_t parent, int color, int key, ncclComm_t *child) {
    uint32_t ordinal = parent->splits++;
    struct split *split = &parent->shared->split[ordinal % 2];
    uint32_t all_here = (ordinal / 2 + 1) * (uint32_t)parent->nranks;
    int leader = -1, nranks = 0, rank = 0, own_fd;

    *child = NULL;
    split->of[parent->rank].color = color;
    split->of[parent->rank].key = key;
    atomic_fetch_add(&split->arrived, 1);
    futex_wake_all(&split->arrived);
    if (!await_at_least(&split->arrived, all_here, now_ns() + patience_ns)) {
        give_up(parent, "ncclCommSplit", "timed out before all ranks had called it");
    }
    if (color == NCCL_SPLIT_NOCOLOR) {
        return ncclSuccess;
    }
    for (int other = 0; other < parent->nranks; other++) {
        if (split->of[other].color == color) {
            int other_key = split->of[other].key;
            leader = leader < 0 ? other : leader;
            nranks++;
            rank += other_key < key || (other_key == key && other < parent->rank);
        }
    }
    struct segment *shared = child_segment(parent, split, ordinal, leader, &own_fd);
    ncclResult_t result = shared ? join(child, shared, nranks, rank, "ncclCommSplit") : ncclSystemError;
    if (own_fd >= 0) {
        close(own_fd);
    }
    return result;
}

static bool is_idle(void *comm) { return atomic_load(&((struct ncclComm *)comm)->outstanding) == 0; }

void comm_drain(ncclComm_t comm) { gpu_wait_until(is_idle, comm); }

void comm_free(ncclComm_t comm) {
    for (int rank = 0; rank < comm->nranks; rank++) {
        gpu_close_bell(comm->bell[rank]);
    }
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
}
