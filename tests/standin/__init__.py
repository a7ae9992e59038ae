"""Stand-ins for NCCL and CUDA's runtime, and a training job on them, for tests of the probes on machines without a GPU.

libcudart.so.12: cudart.c (the calls), gpu.c (streams and the GPU thread). libnccl.so.2: nccl.c (the calls), comm.c
(communicators), exchange.c (what ranks do with each other). train: train.c (the parent), rank.c (a rank), faults.c,
calls.c, options.c, report.c. `build.build()` compiles them, `job.run_job()` runs a job and reads what it says.
"""
