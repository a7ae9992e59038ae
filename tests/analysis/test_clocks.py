"""How far clocks are apart is found from collectives alone, and the bound that is stated holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.analysis.calls import Calls, Floats, Int64s
from ingero_mcp.analysis.clocks import ClockFit, fit
from ingero_mcp.analysis.pulse_sources import ClockSample
from ingero_mcp.importers.registry import open_file
from tests.analysis.clock_job import BEGIN_NS, Job, Observed

MS = 1e6
WIDE = Job(steps=100, drift=30e-6, spread_s=200e-6)  # three minutes


def fitted(observed: Observed) -> ClockFit:
    return fit(observed.calls, observed.sends)


def errors(clocks: ClockFit, observed: Observed) -> tuple[Int64s, Int64s, Int64s, Floats]:
    """Of every entry: the clock, its time by the reference, the corrected time, and how wrong the latter is."""
    parts = []
    for shown, true in ((observed.calls, observed.true_calls), (observed.sends, observed.true_sends)):
        wanted = observed.shown(clocks.reference, true.enter_ns)
        got = clocks.corrected(shown.clock, shown.enter_ns)
        parts.append((shown.clock, wanted, got, (got - wanted).astype(np.float64)))
    clock, wanted, got, wrong = (np.concatenate(column) for column in zip(*parts, strict=True))
    return clock, wanted, got, wrong


def worst(clocks: ClockFit, observed: Observed) -> float:
    return float(np.abs(errors(clocks, observed)[3]).max())


def held(clocks: ClockFit, observed: Observed, pairs: int = 200) -> tuple[Floats, Floats]:
    """Of entries of two clocks at about the same time: how wrong they are against each other, and the stated bounds."""
    clock, wanted, got, wrong = errors(clocks, observed)
    order = np.argsort(wanted)
    dice = np.random.default_rng(0)
    at = dice.integers(0, len(order) - 1, pairs)
    first, second = order[at], order[at + 1]
    differ = clock[first] != clock[second]
    first, second = first[differ], second[differ]
    bounds = [clocks.bound_ns(int(clock[i]), int(clock[j]), int(got[i])) for i, j in zip(first, second, strict=True)]
    return np.abs(wrong[first] - wrong[second]), np.array(bounds)


JOBS = {
    "healthy": Job(),
    "ends close together": Job(spread_s=5e-6),
    "ends far apart": Job(spread_s=300e-6),
    "a straggler": Job(late_rank=3),
    "no collective of all": Job(meets=False, spread_s=300e-6),
    "a long pipeline": Job(pp=8, dp=2, meets=False, spread_s=300e-6),
    "one collective": Job(pp=1, dp=8, meets=False, spread_s=300e-6),
    "a long step and drift": Job(step_s=20.0, drift=30e-6),
    "several ranks per clock": Job(dp=8, ranks_per_clock=4),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_one_step_brings_clocks_within_two_milliseconds_and_the_bound_holds(job: Job) -> None:
    wrong, bounds = [], []
    for seed in range(35):
        observed = replace(job, seed=seed).run()
        clocks = fitted(observed)
        assert worst(clocks, observed) <= 2 * MS
        off, bound = held(clocks, observed, 50)
        wrong.append(off)
        bounds.append(bound)
    assert np.mean(np.concatenate(wrong) <= np.concatenate(bounds)) >= 0.99
    assert np.median(np.concatenate(bounds)) <= 1.5 * MS


def test_drift_is_followed_for_hours() -> None:
    observed = Job(seed=4, steps=720, step_s=10.0, micro_batches=1, drift=30e-6).run()
    clocks = fitted(observed)
    assert worst(clocks, observed) <= 0.2 * MS
    off, bound = held(clocks, observed)
    assert (off <= bound).all()
    assert np.median(bound) <= 1 * MS
    for clock in range(8):
        at = [one.at_ns for one in clocks.offsets if one.clock == clock]
        assert max(np.diff(at)) <= 60.1e9
        assert at[0] <= BEGIN_NS + 11e9
        assert at[-1] >= BEGIN_NS + 7190e9


def test_a_straggler_stays_late_by_what_it_is_late() -> None:
    observed = Job(seed=2, pp=1, dp=8, late_rank=5, late_s=0.3).run()
    clocks = fitted(observed)
    enter = clocks.corrected(observed.calls.clock, observed.calls.enter_ns)[:8]
    assert int(np.argmax(enter)) == 5
    late_ns = enter[5] - np.median(np.delete(enter, 5))
    true_ns = observed.true_calls.enter_ns[5] - np.median(np.delete(observed.true_calls.enter_ns[:8], 5))
    assert abs(late_ns - true_ns) <= 0.5 * MS


def test_lost_events_do_little_harm() -> None:
    for seed in range(5):
        observed = replace(WIDE, seed=seed).run()
        clocks = fitted(observed.lossy(0.5, seed))
        assert worst(clocks, observed) <= 0.5 * MS


def test_sends_that_are_done_before_anybody_receives_mislead_nobody() -> None:
    for seed in range(5):
        observed = replace(WIDE, seed=seed).run().eager()
        assert worst(fitted(observed), observed) <= 0.5 * MS
        # Where there is nothing but such sends, the error is that of their ends, and the bound knows.
        observed = replace(WIDE, seed=seed, dp=1, pp=4, meets=False).run().eager()
        off, bound = held(fitted(observed), observed)
        assert np.mean(off <= bound) >= 0.99
        assert np.median(bound) <= 5 * MS


def test_ends_that_come_at_random_widen_the_bound() -> None:
    """As on hosts that wait for the GPU and are woken up late."""
    quiet = fitted(replace(WIDE, seed=1).run())
    observed = replace(WIDE, seed=1).run()
    dice = np.random.default_rng(1)
    for clock in range(8):
        observed = observed.late(clock, 0, math.inf, lambda count: dice.exponential(0.005, count))
    clocks = fitted(observed)
    off, bound = held(clocks, observed)
    assert np.mean(off <= bound) >= 0.99
    assert clocks.bound_ns(0, 1, BEGIN_NS) > 4 * quiet.bound_ns(0, 1, BEGIN_NS)
    assert clocks.steps == ()


@pytest.mark.parametrize("delay_s", [0.002, 0.005, 0.05])
def test_a_host_that_is_woken_late_for_a_minute_does_not_move_its_clock(delay_s: float) -> None:
    dice = np.random.default_rng(6)
    for seed in range(5):
        observed = replace(WIDE, seed=seed).run().late(3, 60, 120, lambda count: dice.exponential(delay_s, count))
        clocks = fitted(observed)
        assert worst(clocks, observed) <= 0.5 * MS
        assert clocks.steps == ()


def test_ends_that_come_late_by_the_same_for_a_minute_are_no_jump_there_and_back() -> None:
    observed = replace(WIDE, seed=3).run().late(3, 60, 120, lambda count: np.full(count, 0.02))
    clocks = fitted(observed)
    assert clocks.steps == ()
    assert worst(clocks, observed) <= 0.5 * MS


def test_ends_that_come_late_from_then_on_may_be_a_jump_and_the_bound_says_so() -> None:
    observed = replace(WIDE, seed=3).run().late(3, 60, math.inf, lambda count: np.full(count, 0.02))
    clocks = fitted(observed)
    [step] = clocks.steps
    assert (step.clock, step.is_proven) == (3, False)
    off, bound = held(clocks, observed, 1000)
    assert (off <= bound).all()


@pytest.mark.parametrize("jump_s", [0.003, -0.003, 0.04, -0.04, 1.0, -1.0, 3600.0, -3600.0])
def test_a_clock_that_jumps_is_named_with_when_and_by_how_much(jump_s: float) -> None:
    for seed in range(3):
        observed = replace(WIDE, seed=seed).run()
        clocks = fitted(observed.stepped(3, 100.0, jump_s))
        [step] = clocks.steps
        assert step.clock == 3
        assert step.jump_ns == pytest.approx(jump_s * 1e9, abs=0.2 * MS)
        assert abs(step.after_ns - (BEGIN_NS + 100e9)) <= 1.6e9
        assert abs(step.before_ns - (BEGIN_NS + 100e9) - jump_s * 1e9) <= 1.6e9
        off, bound = held(clocks, observed.stepped(3, 100.0, jump_s), 1000)
        assert np.mean(off <= bound) >= 0.99
        assert np.median(off) <= 0.1 * MS


def test_causality_proves_a_jump_that_is_longer_than_a_collective() -> None:
    job = replace(WIDE, transfer_s=0.001)
    assert [step.is_proven for step in fitted(job.run().stepped(3, 100.0, 0.04)).steps] == [True]
    job = replace(WIDE, transfer_s=0.1)
    assert [step.is_proven for step in fitted(job.run().stepped(3, 100.0, 0.04)).steps] == [False]


def test_a_clock_in_a_chain_that_jumps_is_told_from_its_neighbours() -> None:
    for seed in range(3):
        job = replace(WIDE, seed=seed, dp=1, pp=4, meets=False)
        for clock in (1, 2):
            assert [step.clock for step in fitted(job.run().stepped(clock, 100.0, 0.04)).steps] == [clock]


def test_two_clocks_that_jump_are_two_steps() -> None:
    observed = WIDE.run().stepped(3, 60.0, 0.04).stepped(6, 140.0, -0.5)
    assert {step.clock for step in fitted(observed).steps} == {3, 6}


def test_who_jumped_is_not_the_reference() -> None:
    observed = replace(WIDE, pp=1, meets=False).run()
    assert fitted(observed).reference == 0
    assert fitted(observed.stepped(0, 100.0, 0.04)).reference == 1


def test_where_collectives_are_short_the_bound_is_as_short() -> None:
    observed = Job(seed=1, pp=1, dp=8, steps=50, meets=False, transfer_s=50e-6, spread_s=10e-6).run()
    clocks = fitted(observed)
    methods = {one.method for one in clocks.offsets if one.clock}
    assert methods == {"causality"}
    assert max(one.bound_ns for one in clocks.offsets) <= 0.2 * MS
    off, bound = held(clocks, observed)
    assert (off <= bound).all()


def test_the_bound_grows_where_nothing_was_seen() -> None:
    clocks = fitted(WIDE.run())
    near, far = clocks.bound_ns(0, 1, BEGIN_NS), clocks.bound_ns(0, 1, BEGIN_NS - 3600 * 10**9)
    assert far > near + 2 * 0.9 * 3600e9 * 30e-6
    both = clocks.bounds_ns(np.array([1, 1, 77]), np.array([BEGIN_NS, BEGIN_NS - 3600 * 10**9, BEGIN_NS]))
    assert both[0] < both[1] < both[2] == math.inf


def test_stages_that_never_meet_are_kept_apart() -> None:
    observed = Job(seed=5, dp=4, pp=3, meets=False).run()
    clocks = fit(observed.calls)
    assert set(clocks.connected) == {frozenset(range(4)), frozenset(range(4, 8)), frozenset(range(8, 12))}
    assert clocks.bound_ns(0, 5, BEGIN_NS) == math.inf
    assert clocks.bound_ns(8, 9, BEGIN_NS) < 1 * MS
    of_stage = observed.calls.clock >= 8
    got = clocks.corrected(observed.calls.clock, observed.calls.enter_ns)[of_stage]
    wanted = observed.shown(8, observed.true_calls.enter_ns[of_stage])
    assert np.abs(got - wanted).max() <= 0.5 * MS
    assert {one.reference for one in clocks.offsets} == {0, 4, 8}


def test_sends_alone_connect_clocks() -> None:
    observed = Job(seed=5, dp=1, pp=4).run()
    clocks = fit(observed.calls.where(np.zeros(len(observed.calls), np.bool_)), observed.sends)
    assert clocks.connected == (frozenset(range(4)),)
    assert worst(clocks, observed) <= 0.5 * MS


def test_nothing_is_known_without_calls_or_ends_or_a_second_clock() -> None:
    calls = Job(dp=4, pp=1).run().calls
    nobody = np.zeros(len(calls), np.bool_)
    assert fit(calls.where(nobody)).offsets == ()
    assert fit(calls.where(nobody)).reference == -1
    for few in (
        replace(calls, done_ns=np.full(len(calls), -1)),
        replace(calls, enter_ns=np.full(len(calls), -1), done_ns=np.full(len(calls), -1)),
        calls.where(calls.clock == 2),
        replace(calls, clock=np.zeros(len(calls), np.int64)),
        replace(calls, op=np.full(len(calls), 3)),
    ):
        clocks = fit(few)
        assert (clocks.corrected(few.clock, few.enter_ns) == few.enter_ns).all()
        assert {one.method for one in clocks.offsets} == {"unknown"}
        assert clocks.bound_ns(0, 1, BEGIN_NS) == math.inf
        assert clocks.bound_ns(0, 0, BEGIN_NS) == 0.0
        assert clocks.steps == ()


def test_calls_without_entry_are_pulses_and_calls_without_end_stay_unknown() -> None:
    observed = Job(seed=1).run()
    calls = replace(observed.calls, enter_ns=np.full(len(observed.calls), -1))
    assert worst(fit(calls, observed.sends), observed) <= 0.5 * MS
    done = observed.calls.done_ns.copy()
    done[:3] = -1
    clocks = fit(replace(observed.calls, done_ns=done), observed.sends)
    assert (clocks.corrected(observed.calls.clock, done)[:3] == -1).all()


def test_clocks_may_be_years_apart() -> None:
    observed = Job(seed=1, steps=3).run()
    age = 50 * 365 * 86_400 * 10**9

    def since_boot(times: Int64s, clock: Int64s) -> Int64s:
        return np.where(clock % 2 == 1, times - age, times)

    moved = replace(
        observed.calls,
        enter_ns=since_boot(observed.calls.enter_ns, observed.calls.clock),
        done_ns=since_boot(observed.calls.done_ns, observed.calls.clock),
    )
    clocks = fit(moved)
    assert clocks.reference == 0
    got = clocks.corrected(moved.clock, moved.enter_ns)
    assert np.abs(got - observed.shown(0, observed.true_calls.enter_ns)).max() <= 0.5 * MS
    assert clocks.bound_ns(0, 1, BEGIN_NS) <= 1 * MS


@settings(max_examples=25, deadline=None)
@given(shifts=st.lists(st.integers(-(10**12), 10**12), min_size=8, max_size=8))
def test_a_pure_shift_is_given_back(shifts: list[int]) -> None:
    observed = Job(seed=9, steps=2).run()
    shift = np.array(shifts)

    def shifted(calls: Calls) -> Calls:
        by = shift[calls.clock]
        return replace(calls, enter_ns=calls.enter_ns + by, done_ns=calls.done_ns + by)

    before, after = fitted(observed), fit(shifted(observed.calls), shifted(observed.sends))
    assert after.steps == ()
    assert after.reference == before.reference
    first = {one.clock: one.offset_ns for one in reversed(before.offsets)}
    for one in after.offsets:
        assert one.offset_ns == pytest.approx(first[one.clock] + shift[one.clock] - shift[0], abs=0.1 * MS)


def test_samples_do_where_there_is_nothing_else() -> None:
    calls = Job(dp=3, pp=1).run().calls
    nothing = calls.where(np.zeros(len(calls), np.bool_))
    samples = [
        ClockSample(clock, BEGIN_NS + second * 10**9, 10e6 * clock, 2e6) for clock in range(3) for second in (0, 5)
    ]
    clocks = fit(nothing, samples=samples)
    assert clocks.connected == (frozenset(range(3)),)
    assert {one.method for one in clocks.offsets} == {"reference", "samples"}
    assert [one.clock for one in clocks.offsets] == sorted(one.clock for one in clocks.offsets)
    for one in clocks.offsets:
        assert one.offset_ns == pytest.approx(10e6 * one.clock, abs=0.1 * MS)
        assert one.bound_ns <= 4 * MS
    assert 2 * MS <= clocks.bound_ns(1, 2, BEGIN_NS) <= 8 * MS


def test_samples_connect_stages_that_never_meet() -> None:
    observed = Job(seed=5, dp=2, pp=2, meets=False).run()
    samples = [
        ClockSample(clock, int(observed.shown(clock, np.array([BEGIN_NS]))[0]), observed.offset_ns[clock], 3e6)
        for clock in range(4)
    ]
    clocks = fit(observed.calls, samples=samples)
    assert clocks.connected == (frozenset(range(4)),)
    assert clocks.bound_ns(0, 1, BEGIN_NS) <= 1 * MS
    assert 3 * MS <= clocks.bound_ns(0, 2, BEGIN_NS) <= 15 * MS
    got = clocks.corrected(observed.calls.clock, observed.calls.enter_ns)
    assert np.abs(got - observed.shown(0, observed.true_calls.enter_ns)).max() <= 1 * MS


def test_a_close_sample_narrows_what_collectives_leave_open() -> None:
    observed = Job(seed=5, dp=2, pp=1, steps=5).run()
    at = observed.true_calls.done_ns[[0, -1]]
    samples = [
        ClockSample(clock, int(shown), observed.offset_ns[clock], 20e3)
        for clock in range(2)
        for shown in observed.shown(clock, at)
    ]
    clocks = fit(observed.calls, samples=samples)
    assert clocks.bound_ns(0, 1, int(at[0])) <= 0.1 * MS
    off, bound = held(clocks, replace(observed, sends=observed.calls, true_sends=observed.true_calls))
    assert (off <= bound).all()


@pytest.fixture
def published() -> Callable[[str], tuple[Calls, Calls]]:
    """Collectives and sends of a published trace; skips the test where it is not at hand."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "data" / "bytedance-straggler"

    def find(name: str) -> tuple[Calls, Calls]:
        path = folder / f"trace-{name}.parquet"
        if not path.is_file():
            pytest.skip(f"the published trace {path.name} is not beside this checkout")
        return _read(path)

    return find


@cache
def _read(path: Path) -> tuple[Calls, Calls]:
    table = pa.Table.from_batches(list(open_file(path).batches))
    table = table.filter(pc.is_valid(table["comm_id"]))
    numbers = {name: np.array(table[name]) for name in ("rank", "step", "coll_seq", "timestamp_ns", "duration_ns")}
    collective = np.unique(np.array(table["trace_id"]), return_inverse=True)[1]
    comms, comm = np.unique(np.array(table["comm_id"]), return_inverse=True)
    ops, op = np.unique(np.array(table["metric_name"]), return_inverse=True)
    unknown = np.full(len(table), -1)
    calls = Calls(
        collective=collective,
        comm=comm,
        seq=numbers["coll_seq"],
        op=op,
        rank=numbers["rank"].astype(np.int64),
        clock=numbers["rank"].astype(np.int64),
        step=numbers["step"],
        enter_ns=numbers["timestamp_ns"],
        done_ns=numbers["timestamp_ns"] + numbers["duration_ns"],
        wait_ns=numbers["duration_ns"],
        own_ns=unknown,
        sync_ns=unknown,
        bytes=unknown,
        row=np.arange(len(table)),
        comm_ids=tuple(comms),
        ops=tuple(ops),
    )
    is_send = np.isin(ops, ["ncclSend", "ncclRecv"])[op]
    return calls.where(~is_send), calls.where(is_send)


@pytest.mark.parametrize(("name", "seeds"), [("AR", 5), ("ST", 5)])
def test_offsets_put_into_a_real_trace_are_recovered_from_one_step(
    published: Callable[[str], tuple[Calls, Calls]], name: str, seeds: int
) -> None:
    calls, sends = published(name)
    wrong, bounds = [], []
    for step in np.unique(calls.step).tolist():
        own, transfers = calls.where(calls.step == step), sends.where(sends.step == step)
        for seed in range(seeds):
            offset = np.rint(np.random.default_rng([step, seed]).normal(0.0, 50e6, 64)).astype(np.int64)

            def moved(true: Calls, offset: Int64s = offset) -> Calls:
                by = offset[true.clock]
                return replace(true, enter_ns=true.enter_ns + by, done_ns=true.done_ns + by)

            clocks = fit(moved(own), moved(transfers))
            got = clocks.corrected(own.clock, moved(own).done_ns) - offset[clocks.reference]
            wrong.append(np.abs(got - own.done_ns))
            bounds.append(clocks.bounds_ns(own.clock, moved(own).done_ns))
    assert np.concatenate(wrong).max() <= 2 * MS
    assert np.mean(np.concatenate(wrong) <= np.concatenate(bounds)) >= 0.99
    assert np.median(np.concatenate(bounds)) <= 1 * MS
