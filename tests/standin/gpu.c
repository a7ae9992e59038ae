/* The GPU of a process, as far as its host can tell: streams are queues, each in order, and one thread works on the
 * heads of all of them. Stands in for the device and its driver. It computes nothing by itself, has no limit to what
 * runs at once, and has one kind of stream (blocking ones: they order themselves against the default stream, as
 * cudaStreamCreate's do). */
#include "gpu.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include "stream.h"

struct operation {
    struct operation *next;
    uint64_t number;
    gpu_poll *poll;
    void *argument;
};

static pthread_once_t started = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t operation_ended = PTHREAD_COND_INITIALIZER;
static struct CUstream_st default_stream;
static struct CUstream_st *streams = &default_stream;
static uint64_t last_number;
static int bell_fd;
static gpu_bell *bell;

static struct CUstream_st *resolve(cudaStream_t stream) {
    /* 1 and 2 are CUDA's names for the legacy and the per-thread default stream. */
    return (uintptr_t)stream <= 2 ? &default_stream : stream;
}

/* Work on the default stream waits for what was enqueued before it on all other streams, and the other way round. */
static bool may_run(const struct CUstream_st *stream) {
    if (stream != &default_stream) {
        return !default_stream.head || default_stream.head->number > stream->head->number;
    }
    for (const struct CUstream_st *other = streams; other; other = other->next) {
        if (other != stream && other->head && other->head->number < stream->head->number) {
            return false;
        }
    }
    return true;
}

/* Work on the head of a stream until it has to wait; the lock is open while the operation runs. */
static bool run_stream(struct CUstream_st *stream, uint64_t *look_again) {
    bool progress = false;
    while (stream->head && may_run(stream)) {
        struct operation *head = stream->head;
        pthread_mutex_unlock(&lock);
        uint64_t again = head->poll(head->argument, now_ns());
        pthread_mutex_lock(&lock);
        if (again != GPU_DONE) {
            *look_again = again < *look_again ? again : *look_again;
            break;
        }
        stream->head = head->next;
        if (!stream->head) {
            stream->tail = NULL;
        }
        free(head);
        progress = true;
        pthread_cond_broadcast(&operation_ended);
    }
    return progress;
}

/* Only this thread takes streams off the list, so that it can walk the list with the lock open in between. */
static void drop_dying_streams(void) {
    for (struct CUstream_st **link = &streams; *link;) {
        struct CUstream_st *stream = *link;
        if (stream->dying && !stream->head) {
            *link = stream->next;
            free(stream);
        } else {
            link = &stream->next;
        }
    }
}

static void *run_gpu(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        uint32_t seen = atomic_load(bell);
        uint64_t look_again = NEVER;
        bool progress = false;
        for (struct CUstream_st *stream = streams; stream; stream = stream->next) {
            progress |= run_stream(stream, &look_again);
        }
        drop_dying_streams();
        if (!progress) {
            pthread_mutex_unlock(&lock);
            futex_wait(bell, seen, look_again);
            pthread_mutex_lock(&lock);
        }
    }
    return NULL;
}

static void start(void) {
    pthread_t thread;
    bell_fd = memfd_create("standin-gpu", MFD_CLOEXEC);
    if (bell_fd < 0 || ftruncate(bell_fd, sizeof *bell)) {
        perror("standin cudart: memfd");
        abort();
    }
    bell = mmap(NULL, sizeof *bell, PROT_READ | PROT_WRITE, MAP_SHARED, bell_fd, 0);
    if (bell == MAP_FAILED || pthread_create(&thread, NULL, run_gpu, NULL)) {
        perror("standin cudart: the GPU thread");
        abort();
    }
    pthread_setname_np(thread, "standin-gpu");
    pthread_detach(thread);
}

uint64_t gpu_enqueue(cudaStream_t handle, gpu_poll *poll, void *argument) {
    struct CUstream_st *stream = resolve(handle);
    struct operation *operation = malloc(sizeof *operation);
    pthread_once(&started, start);
    if (!operation) {
        abort();
    }
    pthread_mutex_lock(&lock);
    uint64_t number = ++last_number;
    *operation = (struct operation){.number = number, .poll = poll, .argument = argument};
    if (stream->tail) {
        stream->tail->next = operation;
    } else {
        stream->head = operation;
    }
    stream->tail = operation;
    pthread_mutex_unlock(&lock);
    gpu_ring(bell);
    return number;
}

static bool is_past(const struct CUstream_st *stream, uint64_t number) {
    return !stream->head || stream->head->number > number;
}

void gpu_wait(cudaStream_t handle, uint64_t number) {
    const struct CUstream_st *stream = resolve(handle);
    pthread_mutex_lock(&lock);
    while (!is_past(stream, number)) {
        pthread_cond_wait(&operation_ended, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void gpu_wait_until(bool (*done)(void *), void *argument) {
    pthread_mutex_lock(&lock);
    while (!done(argument)) {
        pthread_cond_wait(&operation_ended, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static bool all_past(void *number) {
    for (const struct CUstream_st *stream = streams; stream; stream = stream->next) {
        if (!is_past(stream, *(uint64_t *)number)) {
            return false;
        }
    }
    return true;
}

/* Only what was enqueued before counts: another thread that keeps enqueuing must not keep the caller here. */
static uint64_t newest(void) {
    pthread_mutex_lock(&lock);
    uint64_t number = last_number;
    pthread_mutex_unlock(&lock);
    return number;
}

void stream_drain(cudaStream_t stream) { gpu_wait(stream, newest()); }

void device_drain(void) {
    uint64_t number = newest();
    gpu_wait_until(all_past, &number);
}

cudaStream_t stream_create(void) {
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (stream) {
        pthread_mutex_lock(&lock);
        stream->next = streams;
        streams = stream;
        pthread_mutex_unlock(&lock);
    }
    return stream;
}

void stream_destroy(cudaStream_t stream) {
    pthread_once(&started, start);
    pthread_mutex_lock(&lock);
    stream->dying = true; /* freed when it has run empty, as CUDA does */
    pthread_mutex_unlock(&lock);
    gpu_ring(bell);
}

struct gpu_address gpu_address(void) {
    pthread_once(&started, start);
    return (struct gpu_address){.pid = getpid(), .fd = bell_fd};
}

gpu_bell *gpu_open_bell(struct gpu_address address) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", address.pid, address.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    gpu_bell *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return found == MAP_FAILED ? NULL : found;
}

void gpu_close_bell(gpu_bell *other) { munmap((void *)other, sizeof *other); }

void gpu_ring(gpu_bell *other) {
    atomic_fetch_add(other, 1);
    futex_wake_all(other);
}
