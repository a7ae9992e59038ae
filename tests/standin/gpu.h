/* What the two stand-in libraries share and nobody else calls: the queue of the one GPU of this process. The real
 * libraries meet in the driver instead. libcudart.so.12 exports these under a version of their own. */
#ifndef STANDIN_GPU_H
#define STANDIN_GPU_H

#include <stdbool.h>

#include "cuda_runtime.h"
#include "waiting.h"

#define GPU_DONE 0

/* One look at an operation at the head of its stream, by the GPU thread: GPU_DONE, or the time to look again at the
 * latest (NEVER: only when a bell rings). It must not block, since other streams wait for the same thread. */
typedef uint64_t gpu_poll(void *argument, uint64_t now);

/* Put an operation at the end of a stream; its number orders it among those of all streams of this process. */
uint64_t gpu_enqueue(cudaStream_t stream, gpu_poll *poll, void *argument);
/* Block the calling thread until a stream is past the operation of that number. */
void gpu_wait(cudaStream_t stream, uint64_t number);
/* Block the calling thread until `done`, asked each time an operation ends. */
void gpu_wait_until(bool (*done)(void *), void *argument);

/* The bell of a GPU: a counter in shared memory that another process may raise, to say that it is worth a look. */
typedef _Atomic uint32_t gpu_bell;
struct gpu_address {
    int32_t pid, fd;
};
struct gpu_address gpu_address(void);
gpu_bell *gpu_open_bell(struct gpu_address address); /* NULL when its process has gone */
void gpu_close_bell(gpu_bell *bell);
void gpu_ring(gpu_bell *bell);

#endif
