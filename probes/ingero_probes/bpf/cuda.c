// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
//
// CUDA runtime calls that wait, allocate or copy, and the step marker. Launches are not traced: at 5 us a hit, 20,000 of
// them a second would cost the training thread a tenth of its time.

static __always_inline int waiting(struct pt_regs *ctx, u16 function, u64 stream, u64 bytes, s32 copy_kind)
{
	struct thread *thread = enter(ctx, function);

	if (!thread)
		return 0;
	thread->call.flags |= WAITS;
	thread->call.stream = stream;
	thread->call.count = bytes;
	thread->call.op = copy_kind;
	return 0;
}

static __always_inline int memory(struct pt_regs *ctx, u16 function, u64 stream, u64 bytes, s32 copy_kind)
{
	struct thread *thread = enter(ctx, function);

	if (!thread)
		return 0;
	thread->call.stream = stream;
	thread->call.count = bytes;
	thread->call.op = copy_kind;
	return 0;
}

ENTER(cudaStreamSynchronize) { return waiting(ctx, FN_cudaStreamSynchronize, PT_REGS_PARM1(ctx), 0, 0); }
ENTER(cudaEventSynchronize) { return waiting(ctx, FN_cudaEventSynchronize, 0, 0, 0); }
ENTER(cudaDeviceSynchronize) { return waiting(ctx, FN_cudaDeviceSynchronize, 0, 0, 0); }
ENTER(cudaMemcpy) { return waiting(ctx, FN_cudaMemcpy, 0, PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx)); }
ENTER(cudaMemcpyAsync)
{
	return memory(ctx, FN_cudaMemcpyAsync, PT_REGS_PARM5(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx));
}
ENTER(cudaMalloc) { return memory(ctx, FN_cudaMalloc, 0, PT_REGS_PARM2(ctx), 0); }
ENTER(cudaFree) { return memory(ctx, FN_cudaFree, 0, 0, 0); }

ENTER(ingero_step)
{
	u64 id = bpf_get_current_pid_tgid();
	struct record record = {};

	if (!is_wanted(id >> 32))
		return 0;
	record.start_ns = record.end_ns = bpf_ktime_get_ns();
	record.pid = id >> 32;
	record.tid = id;
	record.kind = MARK;
	record.function = FN_ingero_step;
	record.seq = PT_REGS_PARM1(ctx);
	send(&record);
	return 0;
}
