/* Inside libcudart.so.12: what its calls ask of the queues. */
#ifndef STANDIN_STREAM_H
#define STANDIN_STREAM_H

#include "gpu.h"

struct operation;

struct CUstream_st {
    struct CUstream_st *next;
    struct operation *head, *tail;
    bool dying;
};

cudaStream_t stream_create(void);
void stream_destroy(cudaStream_t stream);
void stream_drain(cudaStream_t stream);
void device_drain(void);

#endif
