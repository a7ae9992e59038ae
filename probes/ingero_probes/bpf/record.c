// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0)
//
// What the kernel side tells the daemon, and how it says it. These files are joined in the order record, thread, sched,
// nccl, cuda into one BCC module.
//
// Two rules keep this right on any kernel, whatever headers it was compiled with: no struct of the kernel is ever
// dereferenced (tracepoint arguments, registers and BPF calls only), and nothing but ptrace.h is included.
#include <uapi/linux/ptrace.h>

enum kind { CALL, OFF_CPU, EXIT, MARK };
enum state { ON_CPU, RUNQUEUE, BLOCKED, DISK, STOPPED };
enum flag { HAS_WINDOW = 1, UNFINISHED = 2, WAITS = 4, MAKES_COMM = 8 };
enum loss { RING_FULL, THREADS_FULL, COUNTERS_FULL, ABANDONED, EXIT_WITHOUT_ENTRY, LOSSES };

#define NO_NUMBER (~0ULL)

// Read by decode.py, which spells out the same fields in the same order.
struct record {
	u64 start_ns; // CLOCK_MONOTONIC
	u64 end_ns;
	u32 pid;
	u32 tid;
	u16 kind;
	u16 function; // FN_*, from functions.py
	s32 result;
	u64 comm;   // address of the communicator
	u64 seq;    // number of the call on the communicator; of a split: its ordinal; of a mark: the step
	u64 count;  // elements, or bytes of a CUDA call
	u64 stream; // of init and split: the communicator that the call made
	s32 datatype;
	s32 op; // reduction, copy kind or color
	s32 peer; // peer, root or key
	s32 rank;
	s32 nranks;
	u32 flags;
	union {
		struct {
			u64 cpu_ns;
			u64 blocked_ns;
			u64 runq_ns;
			u64 sync_ns;
		} window;
		struct {
			u64 wake_ns;
			u32 state;
			u32 next_pid;
			u32 before_pid;
			char next[16];
			char before[16];
		} off;
		u8 unique_id[128];
	};
};

BPF_RINGBUF_OUTPUT(ring, 1024);
BPF_ARRAY(losses, u64, LOSSES);

static __always_inline void lose(int reason)
{
	losses.atomic_increment(reason);
}

static __always_inline void send(struct record *record)
{
	// No wake-up per record: the daemon polls, and wake-ups would cost the traced thread more than the record does.
	if (ring.ringbuf_output(record, sizeof(*record), 1 /* BPF_RB_NO_WAKEUP */))
		lose(RING_FULL);
}

// The n-th integer argument of a call, at its first instruction (SysV ABI of x86-64).
static __always_inline u64 argument(struct pt_regs *ctx, const int n)
{
	u64 value = 0;

	switch (n) {
	case 0: return 0;
	case 1: return PT_REGS_PARM1(ctx);
	case 2: return PT_REGS_PARM2(ctx);
	case 3: return PT_REGS_PARM3(ctx);
	case 4: return PT_REGS_PARM4(ctx);
	case 5: return PT_REGS_PARM5(ctx);
	case 6: return PT_REGS_PARM6(ctx);
	}
	bpf_probe_read_user(&value, sizeof(value), (void *)(PT_REGS_SP(ctx) + 8 * (n - 6)));
	return value;
}
