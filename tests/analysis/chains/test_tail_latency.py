"""Slow calls of the GPU: told with what can have held them up, and not told where nothing can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingero_mcp.analysis.chains.record import BLOCK_NS, Allocations, Io, Starts, Switches
from ingero_mcp.analysis.chains.rules import find_chains
from tests.analysis.chains.node import LAUNCH, MS, NOON, PID, at, away, calls, kinds, loads, only, record, slow

TAKEN = {"slow": (slow(200, off_cpu_ns=700 * MS),), "away": (away(200),)}


def test_a_taken_cpu_is_named_with_its_taker_and_how_much_of_the_lost_time_it_is() -> None:
    chain = only(find_chains(record(**TAKEN)), "tail_latency")
    assert (chain.severity, chain.op, chain.start_ns, chain.end_ns) == ("MEDIUM", LAUNCH, at(200), at(202))
    assert "700 ms of 800 ms" in chain.root_cause
    assert "backup (pid 9)" in chain.root_cause
    assert "does not prove" in chain.root_cause
    assert any("backup (pid 9)" in text for text in chain.recommendations)
    assert {event_id for fact in chain.evidence for event_id in fact.event_ids} == {"n1:7", "n1:8"}
    assert chain.tail_ratio == 2000
    assert [line.layer for line in chain.timeline] == ["HOST", "CUDA"]


def test_without_anything_beside_it_a_tail_is_no_chain() -> None:
    assert kinds(record(slow=(slow(200),))) == []


def test_two_identical_incidents_an_hour_apart_are_two_and_two_within_two_minutes_one() -> None:
    hour = 3600
    twice = record(
        seen=replace(record().seen, end_ns=at(hour + 600)),
        calls=(*calls(), *(replace(one, block_ns=one.block_ns + hour * 10**9) for one in calls())),
        slow=(slow(200, off_cpu_ns=700 * MS), slow(200 + hour, off_cpu_ns=700 * MS)),
        away=(away(200), away(200 + hour)),
    )
    first, second = [one for one in find_chains(twice) if one.kind == "tail_latency"]
    assert first.chain_id == f"n1:tail-{LAUNCH}:{at(200)}"
    assert second.chain_id == f"n1:tail-{LAUNCH}:{at(200 + hour)}"
    assert replace(first, start_ns=0, end_ns=0, evidence=(), root_cause="", summary="", timeline=()) == replace(
        second, start_ns=0, end_ns=0, evidence=(), root_cause="", summary="", timeline=()
    )
    soon = record(slow=(slow(200, off_cpu_ns=700 * MS), slow(260, off_cpu_ns=700 * MS)), away=(away(200), away(260)))
    assert only(find_chains(soon), "tail_latency").end_ns == at(262)


@pytest.mark.parametrize(
    ("state", "named"), [("runqueue", True), ("blocked", False), ("disk", False), ("stopped", False)]
)
def test_a_thread_that_waits_by_its_own_will_is_not_contention(state: str, named: bool) -> None:
    # The reader sums what lies inside the calls without the blocked states.
    given = record(slow=(slow(200, off_cpu_ns=700 * MS if named else 0),), away=(away(200, state=state),))
    assert ("tail_latency" in kinds(given)) == named


def test_busy_cpus_make_it_high_and_count_only_within_its_own_time() -> None:
    there = record(slow=(slow(200),), loads=loads(195, 210, cpu_pct=99.0))
    chain = only(find_chains(there), "tail_latency")
    assert chain.severity == "HIGH"
    assert "99% busy, 20% in the rest" in chain.root_cause
    assert kinds(record(slow=(slow(200),), loads=loads(400, 450, cpu_pct=99.0))) == []
    assert kinds(record(slow=(slow(200),), loads=loads(0, 600, cpu_pct=99.0))) == []  # as busy as ever


def test_where_nothing_calm_was_sampled_it_is_not_compared() -> None:
    within = tuple(
        one for one in loads(195, 210, cpu_pct=99.0) if one.cpu_pct == 99.0 and at(200) <= one.at_ns < at(205)
    )
    chain = only(find_chains(record(slow=(slow(200),), loads=within)), "tail_latency")
    assert "(99% busy; load 0.25 per core of 4)" in chain.root_cause


def test_load_is_judged_by_the_number_of_cores() -> None:
    twelve = loads(195, 210, load_avg=12.0)
    assert kinds(record(slow=(slow(200),), loads=twelve, cores=64)) == []
    always = tuple(replace(one, load_avg=12.0) for one in twelve)
    assert kinds(record(slow=(slow(200),), loads=always, cores=4)) == []
    chain = only(find_chains(record(slow=(slow(200),), loads=twelve, cores=4)), "tail_latency")
    assert "load 3.00 per core of 4" in chain.root_cause


def test_swap_that_lies_there_is_no_cause_and_swap_that_grows_is() -> None:
    lying = tuple(replace(one, swap_mb=3000) for one in loads(0, 0))
    assert kinds(record(slow=(slow(200),), loads=lying)) == []
    grown = loads(201, 210, swap_mb=900)
    assert "900 MB swapped out" in only(find_chains(record(slow=(slow(200),), loads=grown)), "tail_latency").root_cause


def io(begin_s: float, **values: object) -> Io:
    """Half a second of reading by the process itself, within five seconds."""
    one = Io("block.io", PID, "python3", at(begin_s), 50, 500 * MS, 60 * MS, 10**8, "n1:5")
    return replace(one, **values)  # type: ignore[arg-type]


def test_the_disk_counts_where_it_is_material_and_not_what_the_recorder_writes() -> None:
    chain = only(find_chains(record(slow=(slow(200),), io=(io(200),))), "tail_latency")
    assert chain.severity == "HIGH"
    assert "python3 (pid 100) used the disk: 50 block and file operations, 500 ms" in chain.root_cause
    assert kinds(record(slow=(slow(200),), io=(io(200, total_ns=20 * MS),))) == []
    assert kinds(record(slow=(slow(200),), io=(io(200, process="ingero"),))) == []
    usual = tuple(io(begin) for begin in range(0, 600, 5))
    assert kinds(record(slow=(slow(200),), io=usual)) == []


def test_switches_alone_need_to_be_many_more_than_usual_and_then_say_that_no_time_was_lost_to_them() -> None:
    few = tuple(away(begin, state="", by="", by_pid=None, count=10) for begin in range(0, 600, 5))
    assert kinds(record(slow=(slow(200),), away=few)) == []
    many = (*few, away(200, state="", by="", by_pid=None, count=90))
    chain = only(find_chains(record(slow=(slow(200),), away=many)), "tail_latency")
    assert chain.severity == "LOW"
    assert "100 context switches of its threads, 10x its rate in the rest of the recording" in chain.root_cause
    assert "none of the 800 ms lost was off the CPU" in chain.root_cause


def test_slow_calls_that_are_the_big_ones_are_only_more_work() -> None:
    copies = {
        "slow": (slow(200, op="cudaMemcpyAsync", p50_bytes=8_000_000),),
        "calls": calls("cudaMemcpyAsync", p50_bytes=200_000),
    }
    assert kinds(record(**copies)) == []
    both = only(find_chains(record(**copies, loads=loads(195, 210, cpu_pct=99.0))), "tail_latency")
    assert "the slow calls are also the big ones: 8 MB each, against 200 kB" in both.root_cause


def test_a_call_that_waits_for_the_gpu_is_only_told_where_its_thread_had_no_cpu() -> None:
    waits = {"calls": calls("cudaStreamSynchronize"), "slow": (slow(200, op="cudaStreamSynchronize"),)}
    assert kinds(record(**waits, loads=loads(195, 210, cpu_pct=99.0))) == []
    lost = {"slow": (slow(200, op="cudaStreamSynchronize", off_cpu_ns=700 * MS),), "calls": waits["calls"]}
    assert "tail_latency" in kinds(record(**lost, away=(away(200),)))


def test_a_few_slow_calls_among_many_seconds_are_nothing() -> None:
    rare = tuple(slow(begin, count=1, excess_ns=MS) for begin in range(100, 200, 4))
    assert kinds(record(slow=rare, loads=loads(95, 210, cpu_pct=99.0))) == []


def test_the_processes_that_were_switched_to_most_are_named_as_own_workers_or_others() -> None:
    block = NOON + 3 * BLOCK_NS
    given = record(
        slow=(slow(200),),
        loads=loads(195, 210, cpu_pct=99.0),
        children={PID: frozenset((201,))},
        switches=(
            Switches(201, "pt_data_worker", block, 90_000, 9 * 10**9, 10**9),
            Switches(300, "ingero", block, 50_000, 10**9, 10**9),
            Switches(301, "backup", block, 10_000, 10**9, 10**9),
            Switches(201, "pt_data_worker", NOON, 100, 10**7, 10**6),
        ),
    )
    chain = only(find_chains(given), "tail_latency")
    assert "pt_data_worker (pid 201, started by the process in trouble) with 90000 context switches" in chain.root_cause
    assert "backup (pid 301) with 10000" in chain.root_cause
    assert "ingero" not in chain.root_cause
    assert any("start fewer than its 4 cores" in text for text in chain.recommendations)
    assert any(
        "in the whole recording 150100 sched_switch and 11 s off the CPU" in one.statement for one in chain.evidence
    )


def test_programs_that_start_in_the_same_seconds_and_not_otherwise_are_named() -> None:
    many = Starts("cc1plus", at(200), 5, "n1:4")
    chain = only(find_chains(record(slow=(slow(200),), starts=(many,))), "tail_latency")
    assert chain.severity == "LOW"
    assert "5 programs were started (cc1plus x5), none in the rest of the recording" in chain.root_cause
    assert (
        kinds(record(slow=(slow(200),), starts=tuple(replace(many, cell_ns=at(5 * cell)) for cell in range(120)))) == []
    )
    assert kinds(record(slow=(slow(200),), starts=(replace(many, process="ingero"),))) == []
    assert kinds(record(slow=(slow(200),), starts=(replace(many, count=2),))) == []


def test_memory_that_is_given_back_in_a_burst_is_the_allocators() -> None:
    frees = {
        "calls": calls("cudaFree", p50_ns=400_000, p99_ns=1_900_000),
        "counted": {"cudaFree": 54, "cudaMalloc": 51},
    }
    burst = Allocations("cudaFree", PID, "python3", at(200), at(200) + 20 * MS, 40, 19 * MS, 1_900_000, ("n1:6",))
    chain = only(find_chains(record(**frees, allocations=(burst,))), "tail_latency")
    assert (chain.severity, chain.op, chain.p99_ns) == ("MEDIUM", "cudaFree", 1_900_000)
    assert "40 cudaFree in 19 ms" in chain.root_cause
    assert "54 cudaFree, 51 cudaMalloc in the whole recording" in chain.root_cause
    assert kinds(record(**frees, allocations=(replace(burst, count=4),))) == []
    assert kinds(record(**frees, allocations=(replace(burst, end_ns=at(201)),))) == []
