"""Calls that become rare, kills, pods, retransmits, neighbours and graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingero_mcp.analysis.chains.record import BLOCK_NS, Moment, Rate, Retransmits, Scheduled, Span
from ingero_mcp.analysis.chains.rules import find_chains
from tests.analysis.chains.node import MS, NOON, PID, WHOLE, at, away, kinds, loads, only, rates, record, slow

CALM, RARE = (500,) * 40, (20,) * 12
DROP = {"rates": rates(*CALM, *RARE, *CALM[:20]), "loads": loads(200, 260, cpu_pct=99.0)}


def test_a_process_that_calls_less_while_the_cpus_are_busy_is_a_drop() -> None:
    chain = only(find_chains(record(**DROP)), "throughput_drop")
    assert (chain.severity, chain.start_ns, chain.end_ns) == ("HIGH", at(200), at(260))
    assert chain.summary.startswith("GPU calls of python3 (pid 100) dropped 96% (4/s against 100/s before)")


def test_a_drop_without_a_cause_is_a_job_that_has_nothing_to_do() -> None:
    assert kinds(record(rates=DROP["rates"])) == []
    assert kinds(record(rates=DROP["rates"], loads=loads(0, 100, cpu_pct=99.0))) == []


def test_a_process_that_has_ended_has_not_dropped() -> None:
    ended = {PID: Span(NOON, at(200))}
    assert kinds(record(**DROP, lives=ended)) == []


def test_a_slower_pace_of_two_thirds_is_no_drop_and_a_slow_process_has_none() -> None:
    assert kinds(record(rates=rates(*CALM, *(350,) * 12), loads=DROP["loads"])) == []
    assert kinds(record(rates=rates(*(3,) * 40, *(0,) * 12), loads=DROP["loads"])) == []


def test_where_only_minutes_were_counted_it_begins_with_the_last_call_that_was_kept() -> None:
    minutes = tuple(
        Rate(PID, "python3", Span(at(60 * place), at(60 * place + 60)), BLOCK_NS, count, last_ns=last)
        for place, (count, last) in enumerate([(300, at(55)), (10, at(63))])
    )
    given = record(rates=minutes, loads=loads(63, 120, cpu_pct=99.0), lives={PID: Span(NOON, at(110))})
    chain = only(find_chains(given), "throughput_drop")
    assert (chain.start_ns, chain.end_ns) == (at(63), at(110))


def test_ranks_that_drop_together_are_one_chain() -> None:
    both = (*DROP["rates"], *rates(*CALM, *RARE, *CALM[:20], pid=101))
    given = record(rates=both, loads=DROP["loads"], lives={PID: WHOLE, 101: WHOLE})
    assert "python3 (pid 100), python3 (pid 101)" in only(find_chains(given), "throughput_drop").summary


def moment(name: str, at_s: float, **values: object) -> Moment:
    return replace(Moment(name, at(at_s), PID, "python3", "", "n1:3"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("oom.kill", "oom"),
        ("oom_kill", "oom"),
        ("pod_oom_kill", "oom"),
        ("pod_restart", "pod_restart"),
        ("pod_eviction", "pod_eviction"),
    ],
)
def test_what_the_kernel_and_kubernetes_end_is_high_and_names_whom(name: str, kind: str) -> None:
    chain = only(find_chains(record(moments=(moment(name, 100), moment(name, 101, about="pid 5")))), kind)
    assert chain.severity == "HIGH"
    assert "python3 (pid 100), pid 5" in chain.summary
    assert chain.evidence[0].event_ids == ("n1:3",)
    assert (chain.start_ns, chain.end_ns) == (at(100), at(101))


def test_kills_far_apart_are_two() -> None:
    assert kinds(record(moments=(moment("oom.kill", 100), moment("oom.kill", 400)))) == ["oom", "oom"]


def sent(*counts: int) -> tuple[Retransmits, ...]:
    return tuple(Retransmits(NOON + place * BLOCK_NS, count, "n1:2") for place, count in enumerate(counts))


def test_retransmits_are_as_severe_as_they_are_many_and_something_is_slow_beside() -> None:
    beside = {"slow": (slow(200),)}
    assert kinds(record(retransmits=sent(0, 0, 0, 8), **beside)) == []
    assert only(find_chains(record(retransmits=sent(0, 0, 0, 50), **beside)), "tcp_retransmit").severity == "MEDIUM"
    assert only(find_chains(record(retransmits=sent(0, 0, 0, 500), **beside)), "tcp_retransmit").severity == "HIGH"
    assert only(find_chains(record(retransmits=sent(0, 0, 0, 500))), "tcp_retransmit").severity == "LOW"


def test_retransmits_that_are_usual_here_are_none() -> None:
    assert kinds(record(retransmits=sent(9, 9, 9, 11, 9, 9, 9, 9, 9, 9))) == []


def test_a_neighbour_is_named_with_what_it_took_and_own_workers_are_none() -> None:
    taken = (away(200, off_cpu_ns=1400 * MS), away(205, off_cpu_ns=1400 * MS))
    chain = only(find_chains(record(away=taken)), "noisy_neighbour")
    assert (chain.severity, chain.start_ns, chain.end_ns) == ("HIGH", at(200), at(210))
    assert "backup (pid 9) took the CPU of python3 (pid 100) for 2.8 s, 28.0% of 10 s" in chain.summary
    assert "backup (pid 9)" in chain.recommendations[0]
    assert kinds(record(away=taken, children={PID: frozenset((9,))})) == []
    assert kinds(record(away=tuple(replace(one, by="ingero") for one in taken))) == []
    assert kinds(record(away=tuple(replace(one, off_cpu_ns=20 * MS) for one in taken))) == []


def test_cgroups_are_compared_only_while_the_cpus_are_busy() -> None:
    window = Span(at(200), at(210))
    given = {
        "scheduled": (Scheduled(1, "/job", window, 50 * MS), Scheduled(2, "/other", window, 5 * MS)),
        "cgroups": frozenset((1,)),
    }
    assert kinds(record(**given)) == []
    chain = only(find_chains(record(**given, loads=loads(195, 215, cpu_pct=99.0))), "noisy_neighbour")
    assert chain.severity == "MEDIUM"
    assert "10.0x as long" in chain.summary


def test_graphs_that_fail_stay_open_or_are_never_launched() -> None:
    failed = record(moments=(moment("graphBeginCapture", 100), moment("graphEndCapture", 101, about="901")))
    assert [(one.kind, one.severity) for one in find_chains(failed)] == [("cuda_graph", "HIGH")]
    left = record(moments=(moment("cudaStreamBeginCapture", 100),))
    assert [(one.kind, one.severity) for one in find_chains(left)] == [("cuda_graph", "MEDIUM")]
    unused = record(moments=(moment("cudaGraphInstantiate", 100),))
    assert [(one.kind, one.severity) for one in find_chains(unused)] == [("cuda_graph", "LOW")]
    fine = ("graphBeginCapture", "graphEndCapture", "graphInstantiate", "graphLaunch")
    assert kinds(record(moments=tuple(moment(name, 100 + place) for place, name in enumerate(fine)))) == []
    at_the_end = record(moments=(moment("graphBeginCapture", 599), moment("graphInstantiate", 590)))
    assert kinds(at_the_end) == []


def test_chains_come_by_severity_and_then_by_time() -> None:
    found = find_chains(
        record(
            moments=(moment("oom.kill", 400), moment("graphInstantiate", 10), moment("oom.kill", 100)),
            retransmits=sent(0, 0, 0, 50),
            slow=(slow(200),),
        )
    )
    assert [(one.severity, one.kind) for one in found] == [
        ("HIGH", "oom"), ("HIGH", "oom"), ("MEDIUM", "tcp_retransmit"), ("LOW", "cuda_graph")
    ]  # fmt: skip
    assert found[0].start_ns < found[1].start_ns


def test_nothing_recorded_is_no_chain() -> None:
    assert kinds(record(calls=(), lives={})) == []
