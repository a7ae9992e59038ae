/* The part of CUDA's runtime API that the stand-in has, with the true names and the true ABI (values and layouts of
 * CUDA 12). A kernel is the one thing that cannot be true: see cudaLaunchKernel. */
#ifndef STANDIN_CUDA_RUNTIME_H
#define STANDIN_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidDevice = 101,
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct {
    unsigned int x, y, z;
} dim3;

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void **address, size_t size);
cudaError_t cudaFree(void *address);
cudaError_t cudaMemcpy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream);
/* The stand-in's kernels do nothing but last: `args[0]` points to a uint64_t, how long in ns; `function` is any address
 * but NULL. */
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                             cudaStream_t stream);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);

#endif
