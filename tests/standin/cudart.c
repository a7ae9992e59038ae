/* libcudart.so.12: stands in for CUDA's runtime on a machine without a GPU. Names, arguments, return values and who
 * blocks are true; "device" memory is the process's own, so nothing stops the host from touching it. No exported call
 * makes use of another one, as in the real library: a probe counts what the program called.
 *
 * STANDIN_ALLOC_NS: how long each cudaMalloc and each cudaFree takes (asleep, as one that waits for the driver),
 * besides what cudaFree waits for the device. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define DEVICES 8

struct CUevent_st {
    cudaStream_t stream;
    uint64_t number; /* of the last record; 0: never recorded */
};

struct copy {
    void *to;
    const void *from;
    size_t count;
};

struct kernel {
    uint64_t lasts, until;
};

static uint64_t allocation_ns;

__attribute__((constructor)) static void read_settings(void) {
    allocation_ns = env_number("STANDIN_ALLOC_NS", 0);
}

static void take_allocation_time(void) {
    if (allocation_ns) {
        sleep_until(now_ns() + allocation_ns);
    }
}

static uint64_t poll_copy(void *argument, uint64_t now) {
    struct copy *copy = argument;
    (void)now;
    memmove(copy->to, copy->from, copy->count);
    free(copy);
    return GPU_DONE;
}

static uint64_t poll_kernel(void *argument, uint64_t now) {
    struct kernel *kernel = argument;
    if (!kernel->until) {
        kernel->until = now + kernel->lasts; /* from when it is its turn, not from the launch */
    }
    if (now < kernel->until) {
        return kernel->until;
    }
    free(kernel);
    return GPU_DONE;
}

static uint64_t poll_nothing(void *argument, uint64_t now) {
    (void)argument;
    (void)now;
    return GPU_DONE;
}

static uint64_t enqueue_copy(void *to, const void *from, size_t count, cudaStream_t stream) {
    struct copy *copy = malloc(sizeof *copy);
    if (!copy) {
        return 0;
    }
    *copy = (struct copy){.to = to, .from = from, .count = count};
    return gpu_enqueue(stream, poll_copy, copy);
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = DEVICES;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return device >= 0 && device < DEVICES ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaMalloc(void **address, size_t size) {
    take_allocation_time();
    *address = aligned_alloc(256, (size + 255) / 256 * 256);
    return *address ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *address) {
    if (address) {
        device_drain();
        take_allocation_time();
    }
    free(address);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind) {
    (void)kind;
    uint64_t number = enqueue_copy(to, from, count, NULL);
    if (!number) {
        return cudaErrorMemoryAllocation;
    }
    gpu_wait(NULL, number);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    return enqueue_copy(to, from, count, stream) ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                             cudaStream_t stream) {
    (void)grid, (void)block, (void)shared_bytes;
    if (!function || !args || !args[0]) {
        return cudaErrorInvalidValue;
    }
    struct kernel *kernel = malloc(sizeof *kernel);
    if (!kernel) {
        return cudaErrorMemoryAllocation;
    }
    *kernel = (struct kernel){.lasts = *(const uint64_t *)args[0]};
    gpu_enqueue(stream, poll_kernel, kernel);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    *stream = stream_create();
    return *stream ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if ((uintptr_t)stream <= 2) { /* the default streams stay */
        return cudaErrorInvalidValue;
    }
    stream_destroy(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    stream_drain(stream);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    device_drain();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = calloc(1, sizeof **event);
    return *event ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    event->stream = stream;
    event->number = gpu_enqueue(stream, poll_nothing, NULL);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->number) {
        gpu_wait(event->stream, event->number); /* an event outlives no stream here */
    }
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}
