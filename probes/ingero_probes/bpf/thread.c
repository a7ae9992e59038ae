// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
//
// One entry per thread that made a traced call: the call it is in, and where its time went since its previous collective.

struct thread {
	u64 since_ns; // when `state` began
	u32 state;
	u32 off_state; // why it left the CPU
	u64 out_ns;
	u64 wake_ns;
	u32 next_pid; // who took the CPU
	u32 pid;
	char next[16];
	u64 cpu_ns; // since the previous collective entry, without what lies in calls that wait for the GPU
	u64 blocked_ns;
	u64 runq_ns;
	u64 sync_ns; // in those calls
	u32 has_window;
	u32 in_call;
	u64 sp; // stack pointer at entry of that call
	struct record call;
};

BPF_HASH(threads, u32, struct thread, 16384);
BPF_HASH(processes, u32, u32, 4096);
BPF_HASH(wanted, u32, u32, 4096);
BPF_ARRAY(blank, struct thread, 1); // zeros: a struct thread does not fit on the BPF stack

static __always_inline void account(struct thread *thread, u64 now)
{
	u64 spent = now - thread->since_ns;
	int fresh = thread->since_ns == 0 || now < thread->since_ns;

	thread->since_ns = now;
	if (fresh || (thread->in_call && (thread->call.flags & WAITS)))
		return;
	if (thread->state == ON_CPU)
		thread->cpu_ns += spent;
	else if (thread->state == RUNQUEUE)
		thread->runq_ns += spent;
	else
		thread->blocked_ns += spent;
}

// With ONLY_WANTED (from attach.py) the daemon has named the processes that it is for.
static __always_inline int is_wanted(u32 pid)
{
	return !ONLY_WANTED || wanted.lookup(&pid);
}

static __always_inline struct thread *thread_of(u32 pid, u32 tid)
{
	struct thread *thread = threads.lookup(&tid);
	int zero = 0;
	u32 one = 1;

	if (thread)
		return thread;
	if (!is_wanted(pid))
		return 0;
	thread = blank.lookup(&zero);
	if (!thread)
		return 0;
	threads.insert(&tid, thread);
	processes.insert(&pid, &one);
	thread = threads.lookup(&tid);
	if (thread)
		thread->pid = pid;
	else
		lose(THREADS_FULL);
	return thread;
}

// A traced call begins. Calls made inside it are part of it and get 0 here.
static __always_inline struct thread *enter(struct pt_regs *ctx, u16 function)
{
	u64 now = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid(), sp = PT_REGS_SP(ctx);
	struct thread *thread = thread_of(id >> 32, id);

	if (!thread)
		return 0;
	if (thread->in_call) {
		// At the same depth it is inside only by a tail call; otherwise the return of the outer call was never
		// seen (longjmp, an exception), and that call is over.
		if (sp < thread->sp || (sp == thread->sp && thread->call.function != function))
			return 0;
		lose(ABANDONED);
	}
	account(thread, now);
	__builtin_memset(&thread->call, 0, sizeof(thread->call));
	thread->call.start_ns = now;
	thread->call.pid = id >> 32;
	thread->call.tid = id;
	thread->call.function = function;
	thread->call.seq = NO_NUMBER;
	thread->sp = sp;
	thread->in_call = 1;
	return thread;
}

// The return of any traced call. The stack pointer tells the outer call from those inside it.
int leave(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid();
	u32 tid = id;
	struct thread *thread = threads.lookup(&tid);
	struct record *call;

	if (!thread || !thread->in_call) {
		if (is_wanted(id >> 32))
			lose(EXIT_WITHOUT_ENTRY);
		return 0;
	}
	if (PT_REGS_SP(ctx) <= thread->sp)
		return 0;
	account(thread, now);
	call = &thread->call;
	thread->in_call = 0;
	call->end_ns = now;
	call->result = PT_REGS_RC(ctx);
	if (call->flags & WAITS)
		thread->sync_ns += now - call->start_ns;
	if (call->flags & MAKES_COMM)
		bpf_probe_read_user(&call->stream, sizeof(call->stream), (void *)call->stream);
	send(call);
	return 0;
}
