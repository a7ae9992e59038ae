"""Own work: what a rank did itself, from whatever the events know, and never what it waited for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingero_mcp.analysis.calls import UNKNOWN, Calls, Floats
from ingero_mcp.analysis.evidence import Evidence, Matrix, Work
from ingero_mcp.analysis.gpu_work import outside_of_all
from ingero_mcp.analysis.roles import find_roles
from ingero_mcp.analysis.steps import find_steps
from ingero_mcp.analysis.whole import is_sampled
from ingero_mcp.analysis.work import computing, own_work
from tests.analysis.slow_job import MS, START_NS, TRANSFER_NS, calls, evidence, noise


def measured(made: Evidence) -> Matrix:
    matrix = own_work(made, find_steps(made.calls), find_roles(made))
    assert matrix is not None
    return matrix


def buckets(work_ms: Floats, transfer_ms: float) -> Calls:
    """Steps that send their gradients in three buckets while computing goes on, and end when all are sent."""
    steps, ranks = work_ms.shape
    rows = []
    begin = 0.0
    for step in range(steps):
        ready, sent = np.full(ranks, begin), np.full(ranks, begin)
        for place, share in enumerate((0.4, 0.3, 0.3)):
            ready = ready + share * work_ms[step]
            enter = np.maximum(ready, sent)
            sent = np.full(ranks, enter.max() + transfer_ms)
            rows += [(3 * step + place, rank, step, enter[rank], sent[rank]) for rank in range(ranks)]
        begin = float(sent[0])
    seq, rank, step_of, enter_ms, done_ms = np.array(rows).T
    made = calls(np.ones((3 * steps, ranks)), timed=True)
    enter_ns, done_ns = ((START_NS + (times * MS).astype(np.int64)) for times in (enter_ms, done_ms))
    return replace(
        made, collective=seq.astype(np.int64), seq=seq.astype(np.int64), rank=rank.astype(np.int64),
        step=step_of.astype(np.int64), enter_ns=enter_ns, done_ns=done_ns, wait_ns=done_ns - enter_ns,
    )  # fmt: skip


def test_what_the_thread_did_itself_is_its_work() -> None:
    work = noise(20, 4)
    matrix = measured(evidence(calls(work)))
    assert np.allclose(matrix.values, (work * MS).astype(np.int64))
    assert not matrix.is_gpu_work


def test_of_timed_collectives_the_waiting_is_taken_off() -> None:
    work = noise(20, 4)
    work[:, 2] += 40
    matrix = measured(evidence(calls(work, timed=True), "kernel_gpu"))
    assert matrix.is_gpu_work
    assert np.isnan(matrix.values[0]).all()
    assert np.allclose(matrix.values[1:], work[1:] * MS, atol=2)


@pytest.mark.parametrize("transfer_ms", [3.0, 60.0])
def test_buckets_that_are_sent_beside_computing_do_not_hide_who_is_late(transfer_ms: float) -> None:
    work = noise(60, 8)
    work[:, 5] += 10
    matrix = measured(evidence(buckets(work, transfer_ms), "kernel_gpu"))
    above = np.nanmedian(matrix.values, axis=0) - np.nanmedian(matrix.values)
    assert int(above.argmax()) == 5
    assert above[5] > 3.5 * MS
    assert np.abs(np.delete(above, 5)).max() < 1 * MS


def test_with_collectives_missing_the_one_that_waits_least_is_late() -> None:
    work = noise(90, 4)
    work[:, 1] += 20
    made = calls(work, timed=True)
    made = made.where(made.seq % 3 == 0)
    assert is_sampled(made)
    matrix = measured(evidence(made, "kernel_gpu"))
    assert int(np.nanmedian(matrix.values, axis=0).argmax()) == 1
    assert matrix.steps.tolist() == list(range(0, 90, 3))


def test_a_host_that_is_late_shows_where_computing_was_recorded_as_time_without_it() -> None:
    work = noise(40, 4)
    host = np.full(work.shape, 2.0)
    host[10:20, 3] += 9
    made = calls(work + host, timed=True)
    begin = made.enter_ns - (work * MS).astype(np.int64).reshape(-1)
    recorded = Work(made.rank, made.step, begin, made.enter_ns, np.zeros(len(made), dtype=np.bool_))
    known = replace(evidence(made, "kernel_gpu"), work=recorded)
    matrix = outside_of_all(known, find_steps(made), find_roles(known))
    assert matrix is not None
    assert np.allclose(matrix.values[1:], host[1:] * MS, atol=10)
    assert np.allclose(measured(known).values[1:], (work + host)[1:] * MS, atol=10)
    gpus = computing(known, find_steps(made))
    assert gpus is not None
    assert np.allclose(gpus.values, work * MS, atol=10)


def test_computing_that_does_not_name_its_step_is_of_the_step_that_ends_next() -> None:
    work = noise(40, 4)
    work[20, 1] += 7
    made = calls(work, timed=True, named=False)
    begin = made.enter_ns - (work * MS).astype(np.int64).reshape(-1)
    recorded = Work(made.rank, made.step, begin, made.enter_ns, np.zeros(len(made), dtype=np.bool_))
    known = replace(evidence(made, "kernel_gpu"), work=recorded)
    gpus = computing(known, find_steps(made))
    assert gpus is not None
    assert gpus.steps.tolist() == list(range(1, 40))
    assert np.allclose(gpus.values, work[1:] * MS, atol=10)


def test_enqueued_calls_alone_say_nothing_of_work() -> None:
    made = calls(noise(20, 4))
    unknown = np.full(len(made), UNKNOWN)
    made = replace(made, own_ns=unknown, done_ns=unknown)
    assert own_work(evidence(made, "host_api"), find_steps(made), find_roles(evidence(made))) is None


def test_with_synchronize_calls_the_time_between_them_is_work() -> None:
    work = noise(20, 4)
    made = replace(calls(work), own_ns=np.full(80, UNKNOWN))
    matrix = measured(evidence(made, "host_api"))
    assert np.allclose(matrix.values[1:], work[1:] * MS, atol=2)
    assert TRANSFER_NS > 0


def test_a_step_in_which_calls_of_a_rank_are_missing_is_not_known() -> None:
    made = buckets(noise(20, 4), 3.0)
    own = replace(made, own_ns=np.full(len(made), 7 * MS))
    gone = (own.rank == 2) & (own.seq == 31)
    matrix = measured(evidence(own.where(~gone)))
    assert np.flatnonzero(np.isnan(matrix.values[:, 2])).tolist() == [10]
    assert np.isfinite(np.delete(matrix.values, 2, axis=1)).all()
