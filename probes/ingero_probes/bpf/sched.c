// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
//
// When traced threads leave the CPU, and why; two hash misses per switch for everybody else.

#define LONG_OFF_CPU_NS 1000000

static __always_inline u32 state_of(long prev_state)
{
	// Bits of the tracepoint, not of task_struct: 0 running, 1 sleeping, 2 disk sleep, 4 and 8 stopped; what lies above
	// says "preempted".
	if ((prev_state & 0xff) == 0)
		return RUNQUEUE;
	if (prev_state & 2)
		return DISK;
	if (prev_state & 12)
		return STOPPED;
	return BLOCKED;
}

TRACEPOINT_PROBE(sched, sched_switch)
{
	u64 now = bpf_ktime_get_ns();
	u32 prev = args->prev_pid, next = args->next_pid;
	struct thread *thread = threads.lookup(&prev);

	if (thread) {
		account(thread, now);
		thread->state = thread->off_state = state_of(args->prev_state);
		thread->out_ns = now;
		thread->wake_ns = thread->state == RUNQUEUE ? now : 0;
		thread->next_pid = next;
		__builtin_memcpy(thread->next, args->next_comm, sizeof(thread->next));
	}
	thread = threads.lookup(&next);
	if (!thread || thread->state == ON_CPU)
		return 0;
	account(thread, now);
	thread->state = ON_CPU;
	if (now - thread->out_ns < LONG_OFF_CPU_NS)
		return 0;
	struct record record = {};
	record.start_ns = thread->out_ns;
	record.end_ns = now;
	record.pid = thread->pid;
	record.tid = next;
	record.kind = OFF_CPU;
	record.off.wake_ns = thread->wake_ns ? thread->wake_ns : now;
	record.off.state = thread->off_state;
	record.off.next_pid = thread->next_pid;
	record.off.before_pid = prev;
	__builtin_memcpy(record.off.next, thread->next, sizeof(record.off.next));
	__builtin_memcpy(record.off.before, args->prev_comm, sizeof(record.off.before));
	send(&record);
	return 0;
}

static __always_inline int woken(u32 tid)
{
	struct thread *thread = threads.lookup(&tid);

	if (!thread || thread->state == ON_CPU || thread->state == RUNQUEUE)
		return 0;
	u64 now = bpf_ktime_get_ns();
	account(thread, now);
	thread->state = RUNQUEUE;
	thread->wake_ns = now;
	return 0;
}

TRACEPOINT_PROBE(sched, sched_wakeup)
{
	return woken(args->pid);
}

// The thread that ends takes its entry along; the process is over for us when its first thread is.
TRACEPOINT_PROBE(sched, sched_process_exit)
{
	u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	u32 pid = id >> 32, tid = id;
	struct thread *thread = threads.lookup(&tid);

	if (thread) {
		if (thread->in_call) {
			thread->in_call = 0;
			thread->call.end_ns = now;
			thread->call.flags |= UNFINISHED;
			send(&thread->call);
		}
		threads.delete(&tid);
	}
	if (pid != tid || !processes.lookup(&pid))
		return 0;
	processes.delete(&pid);
	struct record record = {};
	record.start_ns = record.end_ns = now;
	record.pid = pid;
	record.tid = tid;
	record.kind = EXIT;
	send(&record);
	return 0;
}
