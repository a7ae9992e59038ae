"""The watch in simulated time: when it names who is late, and when it says that it is over."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bench.live import Live, S
from ingero_mcp.errors import QueryError
from ingero_mcp.notice import STALL
from ingero_mcp.store import Store
from ingero_mcp.synth.scenario import generate
from ingero_mcp.synth.story import Truth
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import ExplainStall, explain_stall
from ingero_mcp.tools.kept_stalls import kept_stalls
from ingero_mcp.watch import watcher
from tests.watch.live import Phases, story, whats


@pytest.fixture(scope="module")
def phases() -> pa.Table:
    """Healthy for half a minute, half a minute in which rank 5 is late every 14th step, healthy for half a minute."""
    return story(Phases(steps=900, bad_from=280, bad_until=560))


def bad_times_ns(events: pa.Table) -> tuple[int, int]:
    """When the first allocation of the first burst began, and when the last one ended."""
    bursts = [
        (at, at + length)
        for name, at, length in zip(
            events["metric_name"].to_pylist(),
            events["timestamp_ns"].to_pylist(),
            events["duration_ns"].to_pylist(),
            strict=True,
        )
        if name in ("cudaFree", "cudaMalloc")
    ]
    return min(begin for begin, _ in bursts), max(end for _, end in bursts)


def test_the_culprit_is_named_within_15_s_of_its_first_bad_step_and_closed_after_recovery(
    store: Store, phases: pa.Table
) -> None:
    first_ns, last_ns = bad_times_ns(phases)
    live = Live(store, phases)
    told = live.pass_all(more_s=0)
    assert [(one.what, one.ranks, one.cause) for one in told] == [
        ("opened", (5,), "allocator_retry"),
        ("closed", (5,), "allocator_retry"),
    ]
    opened, closed = told
    assert opened.updated_ns - first_ns <= 15 * S
    assert opened.verdict == "straggler" and opened.nodes == ("gpu-node-2",) and opened.severity == "MEDIUM"
    assert abs(opened.start_ns - first_ns) <= S
    assert opened.timeline and "cudaFree" in " ".join(opened.timeline)
    assert opened.cost is not None and opened.cost.usd_per_day_low is not None
    # Over means: over for good, so it is waited for; the end is when the last bad step was.
    assert closed.id == opened.id
    assert closed.end_ns is not None and abs(closed.end_ns - last_ns) <= S
    assert closed.updated_ns - last_ns <= 30 * S


def test_what_was_found_is_kept_with_its_history_and_evidence(store: Store, phases: pa.Table) -> None:
    live = Live(store, phases)
    told = live.pass_all(more_s=0)
    call = Call(store, lambda: live.now_ns)
    columns = "kind, verdict, cause, severity, start_ns, end_ns, job_id, node_id, rank"
    rows = call.read(f"SELECT {columns} FROM chains", 10).rows
    assert [row[:4] for row in rows] == [(STALL, "straggler", "allocator_retry", "MEDIUM")]
    assert rows[0][4:] == (told[0].start_ns, told[-1].end_ns, "llm-pretrain-7", "gpu-node-2", 5)
    (kept,) = kept_stalls(call)
    assert kept.id == told[0].id
    assert kept.facts and kept.facts[0].event_ids
    assert kept.timeline == told[0].timeline


def test_explain_stall_without_a_window_is_about_what_was_found_last(store: Store, phases: pa.Table) -> None:
    live = Live(store, phases)
    live.pass_all(more_s=0)
    said = explain_stall(Call(store, lambda: live.now_ns), ExplainStall()).structured
    assert said["verdict"] == "straggler"
    assert [culprit["rank"] for culprit in said["culprits"]] == [5]
    assert "latest finding of the watch, which ended at" in said["notes"][0]
    whole = explain_stall(Call(store, lambda: live.now_ns), ExplainStall(window="all")).structured
    assert not any("watch" in note for note in whole["notes"])
    # A file has no watch: all of it is asked about.
    of_file = explain_stall(Call(store, None), ExplainStall()).structured
    assert of_file["window"] == whole["window"]


def test_two_incidents_an_hour_apart_are_two(store: Store) -> None:
    start_ns = 1_796_000_000_000_000_000
    truth = Phases(steps=560, bad_from=140, bad_until=280)
    first = Live(store, story(truth, start_ns))
    told = first.pass_all(more_s=60)
    second = Live(store, story(truth, start_ns + 3600 * S))
    second.watcher = first.watcher
    first.watcher.clock = lambda: second.now_ns
    told += second.pass_all(more_s=60)
    assert list(whats(told)) == ["opened", "closed", "opened", "closed"]
    assert len({one.id for one in told}) == 2
    assert len(kept_stalls(Call(store, None))) == 2


def test_a_restarted_watch_goes_on_where_the_other_was(store: Store, phases: pa.Table) -> None:
    live = Live(store, phases)
    told = live.pass_time(45)
    assert list(whats(told)) == ["opened"]
    live.begin_watch()
    after = live.pass_all(more_s=0)
    assert list(whats(after)) == ["closed"]
    assert after[0].id == told[0].id
    assert after[0].timeline == told[0].timeline


def test_a_job_that_disappears_ends_what_held_it_up(store: Store) -> None:
    live = Live(store, story(Truth(steps=400)))
    told = live.pass_all(more_s=20)
    assert list(whats(told))[:1] == ["opened"]
    told += live.pass_time(900)
    assert told[-1].what == "closed"
    assert not kept_stalls(Call(store, None), only_open=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_is_never_told_of(store: Store, seed: int) -> None:
    case = generate("F18", seed, 5.0, "probe")
    live = Live(store, pa.Table.from_batches(list(case.batches())))
    assert live.pass_time(120) == []


def test_a_pause_that_goes_around_is_told_once(store: Store) -> None:
    case = generate("F3", 1, 10.0, "probe")  # a collector on each rank in turn
    assert len(case.truth.culprits) > 4
    live = Live(store, pa.Table.from_batches(list(case.batches())))
    told = live.pass_all()
    assert list(whats(told)) == ["opened", "closed"]
    assert told[0].cause == "gc_pause"


def test_a_hang_is_told_and_stays_open(store: Store) -> None:
    case = generate("F16", 1, 5.0, "probe")
    live = Live(store, pa.Table.from_batches(list(case.batches())))
    told = live.pass_all(more_s=120)
    assert [(one.what, one.verdict, one.ranks, one.severity) for one in told] == [
        ("opened", "hang", case.truth.culprits, "HIGH")
    ]


def test_one_job_that_cannot_be_looked_at_does_not_blind_the_watch(
    store: Store, phases: pa.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = watcher.look_at

    def fails_for_one(call: Call, running: watcher.Running, until_ns: int, back: int) -> watcher.Look:
        if running.job_id == "broken":
            raise ZeroDivisionError
        return real(call, running, until_ns, back)

    monkeypatch.setattr(watcher, "look_at", fails_for_one)
    broken = story(Truth(steps=200))
    at = broken.schema.get_field_index("job_id")
    broken = broken.set_column(at, "job_id", pa.array(["broken"] * len(broken)))
    live = Live(store, pa.concat_tables([phases, broken]))
    assert list(whats(live.pass_time(45))) == ["opened"]
    assert live.watcher.failures > 1
    assert caplog.text.count("job broken cannot be watched") == 1


def test_a_job_with_too_much_for_one_look_is_looked_at_over_a_shorter_time(
    store: Store, phases: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = watcher.look_at

    def has_little_room(call: Call, running: watcher.Running, until_ns: int, back: int) -> watcher.Look:
        if back > 40 * S:
            raise QueryError("the result needs more than 400 MiB of memory")
        return real(call, running, until_ns, back)

    monkeypatch.setattr(watcher, "look_at", has_little_room)
    live = Live(store, phases)
    told = live.pass_all(more_s=0)
    assert list(whats(told)) == ["opened", "closed"]
    assert live.watcher.failures == 2


def test_a_rank_whose_clock_is_far_ahead_does_not_blind_the_watch(store: Store, phases: pa.Table) -> None:
    rank, name = phases["rank"].to_pylist(), phases["metric_name"].to_pylist()
    at = next(i for i in range(len(phases)) if (rank[i], name[i]) == (3, "ncclAllReduce"))
    one = phases.slice(at, 1)
    column = one.schema.get_field_index("timestamp_ns")
    ahead = one.set_column(column, "timestamp_ns", pa.array([one["timestamp_ns"][0].as_py() + 23 * 3600 * S]))
    store.append(ahead.combine_chunks().to_batches()[0]).result(timeout=30)
    assert list(whats(Live(store, phases).pass_all(more_s=0))) == ["opened", "closed"]


def test_many_jobs_take_turns_and_none_is_forgotten(
    store: Store, phases: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "_MOST_JOBS", 1)
    others = []
    for number in range(2):
        other = story(Truth(steps=900, every=10_000))
        column = other.schema.get_field_index("job_id")
        others.append(other.set_column(column, "job_id", pa.array([f"other-{number}"] * len(other))))
    told = Live(store, pa.concat_tables([phases, *others])).pass_all(more_s=0)
    assert [one.what for one in told if one.job_id == "llm-pretrain-7"] == ["opened", "closed"]


def test_what_cannot_be_read_beside_it_does_not_hold_a_notice_back(
    store: Store, phases: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> list[str]:
        raise QueryError("no memory")

    monkeypatch.setattr(watcher, "timeline", fails)
    told = Live(store, phases).pass_all(more_s=0)
    assert list(whats(told)) == ["opened", "closed"]
    assert len({one.updated_ns for one in told}) == 2
