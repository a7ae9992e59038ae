"""What a probe on the hosts sees besides the calls: times off the CPU, and the events that betray a cause."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue
from ingero_mcp.synth.scenario.block import Block, Template, block
from ingero_mcp.synth.scenario.counters import counters
from ingero_mcp.synth.scenario.gaps import Gap, gaps_of
from ingero_mcp.synth.scenario.host_events import EVENTS_OF
from ingero_mcp.synth.scenario.plan import Plan
from ingero_mcp.synth.scenario.run import Run
from ingero_mcp.synth.scenario.timeline import happens
from ingero_mcp.synth.scenario.truth import View

Int64s = npt.NDArray[np.int64]
MS = 1_000_000


def symptoms(run: Run, view: View, random: np.random.Generator) -> list[Block]:
    """The events that go with the calls; none in views of the GPU alone."""
    if view != "probe":
        return []
    found = [*_off_cpu(run), *_inits(run), *_exits(run), *_background(run, random), *counters(run, random)]
    for layer in run.plan.layers:
        events_of = EVENTS_OF.get(layer.symptom)
        if events_of is not None:
            found += [made for gap in gaps_of(run, layer) for made in events_of(run, gap, random)]
    return found


def _off_cpu(run: Run) -> Iterator[Block]:
    """Times of 1 ms and more off the CPU before the first launch of a step."""
    layout, cut = run.job.layout, run.last_step + 1
    hosts = np.array([layout.host_of(rank) for rank in range(layout.world)])
    columns = {semconv.STEP: np.arange(cut)[:, None] + run.job.first_step} if run.job.step_known else {}
    for phase in run.phases:
        start = phase.start[:cut] + phase.cpu[:cut] + run.base_ns[:cut, None]
        blocked = "disk" if run.plan.shows("swap") else "blocked"
        parts = ((blocked, start, phase.blocked[:cut]), ("runqueue", start + phase.blocked[:cut], phase.runq[:cut]))
        for state, begin, length in parts:
            attributes: dict[str, AttributeValue] = {semconv.SCHED_STATE: state}
            if state == "runqueue":
                name = _taker(run.plan)
                attributes |= {semconv.SCHED_NEXT_COMM: name, semconv.SCHED_NEXT_PID: 9001}
            template = Template("span", semconv.SCHED_OFFCPU, attributes)
            made = block(template, np.arange(layout.world), hosts, begin, begin + length, columns=columns)
            yield made.where(((length >= MS) & happens(phase.start[:cut])).reshape(-1))


def _taker(plan: Plan) -> str:
    """Who has the CPU while the thread waits for one; with a quota nobody."""
    return "stress-ng" if plan.shows("contention") else "swapper/3" if plan.shows("quota") else "logrotate"


def _inits(run: Run) -> Iterator[Block]:
    """How the communicators were made, shortly before the first step."""
    layout = run.job.layout
    for number, comm in enumerate(layout.comms):
        for comm_rank, rank in enumerate(comm.ranks):
            template = Template(
                "span",
                "ncclCommInitRank",
                {
                    semconv.NCCL_OP_TYPE: "ncclCommInitRank",
                    semconv.NCCL_COMM: comm.id,
                    semconv.NCCL_RANK: comm_rank,
                    semconv.NCCL_NRANKS: len(comm.ranks),
                    semconv.SEQ_ORIGIN: "init",
                    semconv.TIMING_SOURCE: semconv.HOST_API,
                    semconv.NCCL_RETURN_CODE: 0,
                },
            )
            start = np.array([run.base_ns[0] - 2_000 * MS + 100 * MS * number + 100_000 * comm_rank])
            yield block(template, rank, layout.host_of(rank), start, start + 80 * MS)


def _exits(run: Run) -> Iterator[Block]:
    stop = run.plan.stop
    if stop is not None and stop.kind == "exit":
        template = Template("point", semconv.PROCESS_EXIT, {})
        for rank in stop.ranks:
            yield block(template, rank, run.job.layout.host_of(rank), run.base_ns[stop.step : stop.step + 1] + MS)


def _background(run: Run, random: np.random.Generator) -> Iterator[Block]:
    """What goes on on every host and means nothing: now and then a program is started, a block is written."""
    first, last = int(run.base_ns[0]), int(run.base_ns[run.last_step])
    for host in range(len(run.job.layout.hosts)):
        for event in ("exec", "write"):
            count = int(random.poisson(3))
            start = np.sort(random.integers(first, max(last, first + 1), count))
            if event == "exec":
                yield from EVENTS_OF["host_jitter"](run, Gap(host, -1, start, np.zeros(count, np.int64)), random)
            else:
                template = Template("span", "block.io", {"io.operation": "write", "io.device": "nvme0n1"})
                yield block(template, -1, host, start, start + random.integers(50_000, 900_000, count))
