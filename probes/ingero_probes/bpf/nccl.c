// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
//
// NCCL. Numbers are counted here, at entry, so that they stay right when a record is lost.

struct comm_key {
	u64 comm;
	u32 pid;
	u32 pad;
};

struct comm_state {
	u64 seq;
	u32 generation; // the address of a destroyed communicator may be used again
	u32 pad;
};

enum use { SENT, RECEIVED, SPLIT };

struct channel {
	u64 comm;
	u32 pid;
	u32 generation;
	s32 peer;
	u32 use;
};

BPF_HASH(comms, struct comm_key, struct comm_state, 16384);
BPF_HASH(channels, struct channel, u64, 65536);

static __always_inline struct comm_state *comm_of(struct record *call)
{
	struct comm_key key = {.comm = call->comm, .pid = call->pid};
	struct comm_state first = {}, *comm = comms.lookup_or_try_init(&key, &first);

	if (!comm)
		lose(COUNTERS_FULL);
	return comm;
}

static __always_inline void count_on_channel(struct record *call, u32 use)
{
	struct comm_state *comm = comm_of(call);
	u64 none = 0, *number;

	if (!comm)
		return;
	struct channel channel = {
		.comm = call->comm, .pid = call->pid, .generation = comm->generation, .peer = call->peer, .use = use,
	};
	number = channels.lookup_or_try_init(&channel, &none);
	if (!number) {
		lose(COUNTERS_FULL);
		return;
	}
	call->seq = *number;
	// NCCL wants the calls on one communicator serialised, so read and add need not be one operation.
	__sync_fetch_and_add(number, 1);
}

static __always_inline void describe(struct pt_regs *ctx, struct record *call, const int count, const int datatype,
				     const int op, const int peer, const int comm)
{
	call->count = argument(ctx, count);
	call->datatype = argument(ctx, datatype);
	call->op = argument(ctx, op);
	call->peer = argument(ctx, peer);
	call->comm = argument(ctx, comm);
	call->stream = argument(ctx, comm + 1);
}

static __always_inline int collective(struct pt_regs *ctx, u16 function, const int count, const int datatype,
				      const int op, const int peer, const int comm)
{
	struct thread *thread = enter(ctx, function);
	struct comm_state *state;

	if (!thread)
		return 0;
	describe(ctx, &thread->call, count, datatype, op, peer, comm);
	state = comm_of(&thread->call);
	if (state) {
		thread->call.seq = state->seq;
		__sync_fetch_and_add(&state->seq, 1);
	}
	if (thread->has_window) {
		thread->call.flags |= HAS_WINDOW;
		thread->call.window.cpu_ns = thread->cpu_ns;
		thread->call.window.blocked_ns = thread->blocked_ns;
		thread->call.window.runq_ns = thread->runq_ns;
		thread->call.window.sync_ns = thread->sync_ns;
	}
	thread->has_window = 1;
	thread->cpu_ns = thread->blocked_ns = thread->runq_ns = thread->sync_ns = 0;
	return 0;
}

static __always_inline int point_to_point(struct pt_regs *ctx, u16 function, u32 use)
{
	struct thread *thread = enter(ctx, function);

	if (!thread)
		return 0;
	describe(ctx, &thread->call, 2, 3, 0, 4, 5);
	count_on_channel(&thread->call, use);
	return 0;
}

static __always_inline int init(struct pt_regs *ctx, u16 function, u64 unique_id)
{
	struct thread *thread = enter(ctx, function);

	if (!thread)
		return 0;
	thread->call.flags |= MAKES_COMM;
	thread->call.stream = PT_REGS_PARM1(ctx);
	thread->call.nranks = PT_REGS_PARM2(ctx);
	thread->call.rank = PT_REGS_PARM3(ctx);
	bpf_probe_read_user(thread->call.unique_id, sizeof(thread->call.unique_id), (void *)unique_id);
	return 0;
}

static __always_inline int on_comm(struct pt_regs *ctx, u16 function, int is_last)
{
	struct thread *thread = enter(ctx, function);
	struct comm_state *comm;

	if (!thread)
		return 0;
	thread->call.comm = PT_REGS_PARM1(ctx);
	comm = is_last ? comm_of(&thread->call) : 0;
	if (comm) {
		comm->generation++;
		comm->seq = 0;
	}
	return 0;
}

#define ENTER(name) int enter_##name(struct pt_regs *ctx)

//                       count, datatype, op, root, comm; the stream comes after the communicator
ENTER(ncclAllReduce) { return collective(ctx, FN_ncclAllReduce, 3, 4, 5, 0, 6); }
ENTER(ncclReduceScatter) { return collective(ctx, FN_ncclReduceScatter, 3, 4, 5, 0, 6); }
ENTER(ncclAllGather) { return collective(ctx, FN_ncclAllGather, 3, 4, 0, 0, 5); }
ENTER(ncclAlltoAll) { return collective(ctx, FN_ncclAlltoAll, 3, 4, 0, 0, 5); }
ENTER(ncclBroadcast) { return collective(ctx, FN_ncclBroadcast, 3, 4, 0, 5, 6); }
ENTER(ncclGather) { return collective(ctx, FN_ncclGather, 3, 4, 0, 5, 6); }
ENTER(ncclScatter) { return collective(ctx, FN_ncclScatter, 3, 4, 0, 5, 6); }
ENTER(ncclReduce) { return collective(ctx, FN_ncclReduce, 3, 4, 5, 6, 7); }
ENTER(ncclBcast) { return collective(ctx, FN_ncclBcast, 2, 3, 0, 4, 5); }

ENTER(ncclSend) { return point_to_point(ctx, FN_ncclSend, SENT); }
ENTER(ncclRecv) { return point_to_point(ctx, FN_ncclRecv, RECEIVED); }

// The unique id travels by value: 128 bytes above the return address.
ENTER(ncclCommInitRank) { return init(ctx, FN_ncclCommInitRank, PT_REGS_SP(ctx) + 8); }
ENTER(ncclCommInitRankConfig) { return init(ctx, FN_ncclCommInitRankConfig, PT_REGS_SP(ctx) + 8); }
ENTER(ncclCommInitRankScalable) { return init(ctx, FN_ncclCommInitRankScalable, PT_REGS_PARM5(ctx)); }

ENTER(ncclCommSplit)
{
	struct thread *thread = enter(ctx, FN_ncclCommSplit);

	if (!thread)
		return 0;
	thread->call.flags |= MAKES_COMM;
	thread->call.comm = PT_REGS_PARM1(ctx);
	thread->call.op = PT_REGS_PARM2(ctx);
	thread->call.peer = -1; // the ordinal counts splits of the parent, whatever their key
	count_on_channel(&thread->call, SPLIT);
	thread->call.peer = PT_REGS_PARM3(ctx);
	thread->call.stream = PT_REGS_PARM4(ctx);
	return 0;
}

ENTER(ncclCommFinalize) { return on_comm(ctx, FN_ncclCommFinalize, 0); }
ENTER(ncclCommDestroy) { return on_comm(ctx, FN_ncclCommDestroy, 1); }
ENTER(ncclCommAbort) { return on_comm(ctx, FN_ncclCommAbort, 1); }
ENTER(ncclGroupStart) { enter(ctx, FN_ncclGroupStart); return 0; }
ENTER(ncclGroupEnd) { enter(ctx, FN_ncclGroupEnd); return 0; }
