"""A generated run obeys what every real one obeys, whatever is planted in it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp import semconv
from ingero_mcp.synth.scenario import FAMILIES
from ingero_mcp.synth.scenario.block import ABSENT, OPEN, Block, join
from ingero_mcp.synth.scenario.generate import Incident, run_incident
from ingero_mcp.synth.scenario.timeline import happens
from ingero_mcp.synth.scenario.truth import View
from ingero_mcp.synth.scenario.views import Sight

# Arguments rather than runs: a run is too large to print when a test fails.
incidents = st.tuples(
    st.sampled_from(sorted(FAMILIES)),
    st.integers(0, 5_000),
    st.sampled_from([0.5, 3.0, 10.0]),
)
few = settings(max_examples=25, deadline=None)


Arguments = tuple[str, int, float]


def calls(incident: Incident, view: View) -> Block:
    return join(Sight(incident.run, view).blocks())


def by_collective(block: Block) -> list[np.ndarray]:
    """Positions of the calls that are the same collective, of ended calls on whole communicators."""
    seq = block.columns[semconv.NCCL_SEQ]
    chosen = np.flatnonzero((block.trace >= 0) & (block.end_ns != OPEN))
    order = chosen[np.lexsort((seq[chosen], block.trace[chosen]))]
    key = np.stack([block.trace[order], seq[order]])
    edges = np.flatnonzero((key[:, 1:] != key[:, :-1]).any(axis=0)) + 1
    return np.split(order, edges)


@few
@given(incidents)
def test_no_rank_leaves_a_collective_before_the_last_one_is_in_it(arguments: Arguments) -> None:
    incident = run_incident(*arguments)
    block = calls(incident, "kernel")
    for together in by_collective(block):
        assert block.end_ns[together].min() >= block.start_ns[together].max()


@few
@given(incidents)
def test_all_ranks_leave_a_collective_together(arguments: Arguments) -> None:
    incident = run_incident(*arguments)
    block = calls(incident, "kernel")
    for together in by_collective(block):
        assert np.ptp(block.end_ns[together]) <= 3_000_000


@few
@given(incidents)
def test_how_long_a_kernel_ran_is_how_long_it_waited(arguments: Arguments) -> None:
    """The longest wait less one's own is how much later one came than the first, but for the spread of the ends."""
    incident = run_incident(*arguments)
    block = calls(incident, "kernel")
    for together in by_collective(block):
        start = block.start_ns[together]
        waited = block.end_ns[together] - start
        error = (waited.max() - waited) - (start - start.min())
        assert np.abs(error).max() <= np.ptp(block.end_ns[together])


@few
@given(incidents)
def test_own_work_and_synchronize_calls_fill_the_time_between_collectives(arguments: Arguments) -> None:
    incident = run_incident(*arguments)
    block = calls(incident, "probe")
    windows = (semconv.CPU_NS, semconv.BLOCKED_NS, semconv.RUNQ_NS, semconv.SYNC_NS)
    spent = np.sum([block.columns[key] for key in windows], axis=0)
    for rank in range(incident.run.job.layout.world):
        own = np.flatnonzero((block.rank == rank) & (block.trace >= 0))
        own = own[np.argsort(block.start_ns[own])]
        assert (block.columns[semconv.CPU_NS][own[:1]] == ABSENT).all()
        assert (np.diff(block.start_ns[own]) == spent[own[1:]]).all()


@few
@given(incidents)
def test_a_thread_makes_one_call_after_the_other(arguments: Arguments) -> None:
    incident = run_incident(*arguments)
    block = calls(incident, "probe")
    for rank in range(incident.run.job.layout.world):
        own = np.flatnonzero(block.rank == rank)
        own = own[np.argsort(block.start_ns[own])]
        assert (block.start_ns[own[1:]] >= block.end_ns[own[:-1]]).all()
        assert (np.diff(block.columns[semconv.STEP][own]) >= 0).all() if semconv.STEP in block.columns else True


@few
@given(incidents)
def test_collectives_of_a_communicator_are_counted_from_zero_on_every_rank(arguments: Arguments) -> None:
    incident = run_incident(*arguments)
    block = calls(incident, "probe")
    seq = block.columns[semconv.NCCL_SEQ]
    for comm in np.unique(block.trace[block.trace >= 0]).tolist():
        for rank in incident.run.job.layout.comms[comm].ranks:
            own = (block.trace == comm) & (block.rank == rank)
            assert sorted(seq[own].tolist()) == list(range(own.sum()))


@few
@given(incidents)
def test_nothing_is_received_before_it_is_sent(arguments: Arguments) -> None:
    incident = run_incident(*arguments)
    for op in incident.run.ops:
        if op.kind == "recv":
            assert (op.done >= op.begin).all()
    sent = {(op.group, op.micro_batch, int(op.ranks[0])): op for op in incident.run.ops if op.kind == "send"}
    layout = incident.run.job.layout
    per_stage = layout.dp * layout.tp
    for op in incident.run.ops:
        if op.kind == "recv":
            back = -per_stage if op.group.endswith("forward") else per_stage
            source = sent[op.group, op.micro_batch, int(op.ranks[0]) + back]
            assert (op.done >= source.begin).all()


@few
@given(incidents)
def test_a_step_begins_where_the_one_before_ended(arguments: Arguments) -> None:
    incident = run_incident(*arguments)
    run = incident.run
    last = run.ops[-1]
    left = run.base_ns[:, None] + last.leave
    begun = run.base_ns[:, None] + run.phases[0].start
    assert happens(last.leave[: run.last_step]).all()
    # Ranks that have ended begin nothing.
    begins = happens(run.phases[0].start)[1 : run.last_step + 1]
    assert (left[: run.last_step] == begun[1 : run.last_step + 1])[begins].all()
