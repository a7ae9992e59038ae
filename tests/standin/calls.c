/* --calls N: one process that calls each function of both libraries N times and ends. What is counted is what this
 * program calls: the N calls of ncclBroadcast that ncclBcast makes come on top, and each of the two ways to make a
 * communicator from an id needs an id (2 N calls of ncclGetUniqueId). */
#include "control.h"

#define FLOATS 64

struct buffers {
    cudaStream_t stream;
    float *from, *to;
};

static void call_collectives(struct job *job, ncclComm_t comm, const struct buffers *b) {
    CALL(ncclAllReduce, b->from, b->to, FLOATS, ncclFloat32, ncclSum, comm, b->stream);
    CALL(ncclReduceScatter, b->from, b->to, FLOATS, ncclFloat32, ncclMax, comm, b->stream);
    CALL(ncclReduce, b->from, b->to, FLOATS, ncclFloat32, ncclMin, 0, comm, b->stream);
    CALL(ncclBroadcast, b->from, b->to, FLOATS, ncclFloat16, 0, comm, b->stream);
    CALL(ncclBcast, b->to, FLOATS, ncclFloat32, 0, comm, b->stream);
    CALL(ncclAllGather, b->from, b->to, FLOATS, ncclBfloat16, comm, b->stream);
    CALL(ncclAlltoAll, b->from, b->to, FLOATS, ncclFloat32, comm, b->stream);
    CALL(ncclGroupStart);
    CALL(ncclSend, b->from, FLOATS, ncclFloat32, 0, comm, b->stream);
    CALL(ncclRecv, b->to, FLOATS, ncclFloat32, 0, comm, b->stream);
    CALL(ncclGroupEnd);
}

static void call_nccl(struct job *job, const struct buffers *buffers) {
    ncclComm_t comm, child, second;
    ncclUniqueId id;
    int number;

    CALL(ncclGetVersion, &number);
    count_call(job, "ncclGetErrorString"); /* what it returns is no error code */
    ncclGetErrorString(ncclSuccess);
    CALL(ncclGetUniqueId, &id);
    CALL(ncclCommInitRank, &comm, 1, id, 0);
    CALL(ncclCommCount, comm, &number);
    CALL(ncclCommUserRank, comm, &number);
    call_collectives(job, comm, buffers);
    CALL(ncclCommSplit, comm, 0, 0, &child, NULL); /* stays until the process ends */
    CALL(ncclCommFinalize, comm);
    CALL(ncclCommDestroy, comm);
    CALL(ncclGetUniqueId, &id);
    CALL(ncclCommInitRankConfig, &second, 1, id, 0, NULL);
    CALL(ncclCommAbort, second);
}

static void call_cuda(struct job *job, struct buffers *b) {
    cudaEvent_t event;
    uint64_t kernel_ns = 1000;
    void *kernel_args[] = {&kernel_ns};
    dim3 one = {1, 1, 1};
    int devices;
    void *block;

    CALL(cudaGetDeviceCount, &devices);
    CALL(cudaSetDevice, 0);
    CALL(cudaMalloc, &block, 4096);
    CALL(cudaMemcpy, b->to, b->from, FLOATS * sizeof(float), cudaMemcpyDeviceToHost);
    CALL(cudaMemcpyAsync, b->to, b->from, FLOATS * sizeof(float), cudaMemcpyHostToDevice, b->stream);
    CALL(cudaLaunchKernel, (const void *)call_cuda, one, one, kernel_args, 0, b->stream);
    CALL(cudaEventCreate, &event);
    CALL(cudaEventRecord, event, b->stream);
    CALL(cudaEventSynchronize, event);
    CALL(cudaEventDestroy, event);
    CALL(cudaStreamSynchronize, b->stream);
    CALL(cudaDeviceSynchronize);
    CALL(cudaFree, block);
}

int run_calls(struct job *job) {
    static float from[FLOATS], to[FLOATS];
    struct buffers buffers = {.from = from, .to = to};
    for (int i = 0; i < job->control->options.calls; i++) {
        CALL(cudaStreamCreate, &buffers.stream);
        call_nccl(job, &buffers);
        call_cuda(job, &buffers);
        CALL(cudaStreamDestroy, buffers.stream);
    }
    return 0;
}
