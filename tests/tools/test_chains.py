"""Causal chains of a store: computed from events, read from what agents stored, kept by a server, one row each."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain as together
from pathlib import Path

import pytest

from ingero_mcp.analysis.chains.rows import context_batch
from ingero_mcp.cli.import_file import put as put_import
from ingero_mcp.importers.registry import open_file
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.found import ShownChain, chains, computed_chains
from ingero_mcp.tools.chains.report import AskedChains, report, told
from ingero_mcp.windows import Window, iso
from tests.importers import ingero_lookalike as agent
from tests.tools.slow_node import HOUR, LAUNCH, incident, launches, off_cpu, row, second, store_rows


def shown(store: Store, window: str | None = None, kind: str = "tail_latency") -> list[ShownChain]:
    return [one for one in chains(Call(store, None), window).shown if one.kind == kind]


def span(begin_s: float, end_s: float) -> str:
    return f"{iso(second(begin_s))}/{iso(second(end_s))}"


def test_an_incident_is_told_with_cause_time_ids_and_how_much_of_it_was_seen(store: Store) -> None:
    store_rows(store, incident(0))
    (one,) = shown(store)
    assert (one.node, one.origin, one.op, one.severity) == ("n1", "computed", LAUNCH, "MEDIUM")
    assert (one.start_ns, one.end_ns) == (str(second(20)), str(second(23.95) + 20_000_000))
    assert "1.44 s of 1.6 s lost" in one.root_cause
    assert "backup (pid 9)" in one.root_cause
    assert (one.p99_us, one.p50_us, one.job_id) == (20_000.0, 10.0, "job")
    ids = {event_id for fact in one.evidence for event_id in fact["event_ids"]}
    assert ids
    for event_id in ids:
        found = store.query(check(f"SELECT duration_ns FROM events WHERE id = '{event_id}'"), limit=2).rows
        assert len(found) == 1
        assert found[0][0] in (18_000_000, 20_000_000)
    (neighbour,) = shown(store, kind="noisy_neighbour")
    assert neighbour.summary.startswith("backup (pid 9) took the CPU of python3 (pid 100) for 1.44 s")


def test_two_identical_incidents_an_hour_apart_are_two_chains(store: Store) -> None:
    store_rows(store, [*incident(0), *incident(HOUR)])
    first, second_one = shown(store)
    assert (first.chain_id, second_one.chain_id) == (
        f"n1:tail-{LAUNCH}:{second(20)}",
        f"n1:tail-{LAUNCH}:{second(HOUR + 20)}",
    )
    assert first.severity == second_one.severity
    assert len(shown(store, kind="noisy_neighbour")) == 2


@pytest.mark.parametrize("window", [(HOUR, HOUR + 60), (HOUR - 60, HOUR + 25), (HOUR + 21, HOUR + 22), (0, HOUR + 30)])
def test_a_chain_has_the_same_id_in_whatever_window_it_is_found(store: Store, window: tuple[float, float]) -> None:
    store_rows(store, [*incident(0), *incident(HOUR), *launches(HOUR + 60, HOUR + 120)])
    assert f"n1:tail-{LAUNCH}:{second(HOUR + 20)}" in [one.chain_id for one in shown(store, span(*window))]


def test_a_window_beside_it_does_not_show_it(store: Store) -> None:
    store_rows(store, [*incident(0), *launches(60, 180)])
    assert shown(store, span(60, 180)) == []
    assert chains(Call(store, None), span(60, 180)).nodes == 1


def test_a_cold_start_is_nobodys_fault(store: Store) -> None:
    busy = [off_cpu(0.5, 40), *(off_cpu(one, 40) for one in range(1, 9))]
    # The context is made by the first allocation, and the first launches load their kernels.
    first = [row("cuMemAlloc", 0.5, 51, source="driver")]
    first += [row("cuMemAlloc", 1 + place / 10, 0.12, source="driver") for place in range(80)]
    loading = [row(LAUNCH, 0.6 + place, 40) for place in range(9)]
    store_rows(store, [*first, *loading, *busy, *launches(10, 60)])
    assert shown(store) == []


@pytest.mark.parametrize("state", ["blocked", "disk", "stopped"])
def test_calls_that_wait_by_their_own_will_are_not_contended(store: Store, state: str) -> None:
    rows = [one | ({"attrs_json": f'{{"sched.state":"{state}"}}'} if one["metric_name"] == "sched.offcpu" else {})
            for one in incident(0)]  # fmt: skip
    store_rows(store, rows)
    assert chains(Call(store, None), None).shown == ()


def test_no_data_is_not_called_healthy(store: Store) -> None:
    nothing = chains(Call(store, None), None)
    assert (nothing.nodes, nothing.shown, nothing.notes) == (
        0, (), ("no data: the database has neither events nor chains",)
    )  # fmt: skip
    assert report(nothing).startswith("INCIDENT REPORT: no data")
    store_rows(store, launches(0, 60))
    calm = chains(Call(store, None), None)
    assert (calm.nodes, calm.shown) == (1, ())
    assert calm.notes[0].startswith("no chains: nothing of their kinds shows in what 1 nodes recorded")
    beside = chains(Call(store, None), span(1000, 2000))
    assert beside.nodes == 0
    assert beside.notes[0].startswith("no data in this window; the database has events from")
    assert not any("healthy" in report(one).lower() for one in (nothing, calm, beside))


def test_a_node_is_not_blamed_for_another(store: Store) -> None:
    calm = [one | {"node_id": "n2"} for one in launches(0, 60)]
    store_rows(store, [*incident(0), *calm])
    assert {one.node for one in chains(Call(store, None), None).shown} == {"n1"}


def test_oom_retransmits_and_graphs_of_our_probe(store: Store) -> None:
    point = {"duration_ns": None, "timing_source": None}
    rows = [
        row("oom.kill", 30, None, source="host", **point),
        row("cudaStreamBeginCapture", 10, 0.1, source="graph"),
        row("cudaStreamEndCapture", 11, 0.1, source="graph", attrs={"cuda.return_code": 901}),
        *(row("tcp.retransmit", 40 + place / 10, None, source="tcp", **point) for place in range(150)),
        *launches(0, 60),
        *launches(60, 200),
    ]
    store_rows(store, rows)
    found = {one.kind: one for one in chains(Call(store, None), None).shown}
    assert found["oom"].severity == found["cuda_graph"].severity == "HIGH"
    assert "with code 901" in found["cuda_graph"].summary
    assert found["tcp_retransmit"].severity == "LOW"
    assert found["tcp_retransmit"].summary.startswith("150 TCP retransmits")


# What a server keeps


def keep(store: Store, window: Window, updated_ns: int) -> None:
    found = computed_chains(Call(store, None), window)
    store.append_context(context_batch(found, updated_ns)).result(timeout=10)


def test_what_is_kept_is_what_the_view_shows_and_is_not_shown_twice(store: Store) -> None:
    store_rows(store, incident(0))
    before = chains(Call(store, None), None).shown
    for updated_ns in (second(70), second(80)):
        keep(store, Window(second(0), second(60), ""), updated_ns)
    sql = (
        "SELECT chain_id, kind, severity, start_ns, end_ns, op, p99_us, p50_us, tail_ratio, updated_ns, job_id, summary"
    )
    kept = store.query(check(f"{sql} FROM chains WHERE kind = 'tail_latency'"), limit=10).rows
    (one,) = shown(store)
    assert kept == [
        (one.chain_id, one.kind, one.severity, second(20), int(one.end_ns or 0), LAUNCH, 20_000, 10, 2000.0,
         second(80), "job", one.summary)
    ]  # fmt: skip
    assert chains(Call(store, None), None).shown == before


def test_what_was_kept_stays_when_its_events_are_gone(store: Store, tmp_path: Path) -> None:
    store_rows(store, incident(0))
    found = computed_chains(Call(store, None), Window(second(0), second(60), ""))
    with open_store(tmp_path / "other.duckdb") as other:
        other.append_context(context_batch(found, second(70))).result(timeout=10)
        (one,) = shown(other)
        assert (one.origin, one.start_ns, one.evidence) == ("stored", str(second(20)), shown(store)[0].evidence)


def test_a_chain_that_began_before_the_window_keeps_its_start_once_it_was_kept(store: Store) -> None:
    store_rows(store, list(together.from_iterable(incident(60 * minute) for minute in range(20))))
    begun = f"n1:tail-{LAUNCH}:{second(20)}"
    late = span(60 * 18, 60 * 20)
    assert [one.chain_id for one in shown(store)] == [begun]
    assert begun not in [one.chain_id for one in shown(store, late)]
    keep(store, Window(second(0), second(1200), ""), second(1300))
    assert [one.chain_id for one in shown(store, late)] == [begun]


def test_a_chain_that_was_found_before_its_minute_was_over_keeps_its_id(store: Store) -> None:
    early = second(20) + 100_000_000
    store_rows(store, incident(0))
    (found,) = [one for one in computed_chains(Call(store, None), Window(second(0), second(60), "")) if one.op]
    store.append_context(context_batch([replace(found, start_ns=early)], second(25))).result(timeout=10)
    assert [one.chain_id for one in shown(store)] == [f"n1:tail-{LAUNCH}:{early}"]
    keep(store, Window(second(0), second(60), ""), second(70))
    assert [one.chain_id for one in shown(store)] == [f"n1:tail-{LAUNCH}:{early}"]


def test_a_wider_window_that_shows_an_earlier_start_replaces_what_was_kept(store: Store) -> None:
    store_rows(store, list(together.from_iterable(incident(60 * minute) for minute in range(20))))
    keep(store, Window(second(1080), second(1200), ""), second(1300))
    assert [one.chain_id for one in shown(store)] == [f"n1:tail-{LAUNCH}:{second(20)}"]


# What an agent recorded


def imported(store: Store, path: Path, **tables: list[agent.Row]) -> None:
    put_import(open_file(agent.write(path, "0.10", **tables)), store)


def agent_calls(slow_s: range, **values: int) -> list[agent.Row]:
    """Twenty launches a second for a minute, 20 ms long in some of them; the agent began long before."""
    rows = []
    for place in range(1200):
        at_ns = agent.START_NS + 20_000_000_000 + place * 50_000_000
        took = 20_000_000 if place // 20 in slow_s else 10_000
        rows.append({"id": f"n1:{place}", "node": "n1", "timestamp": at_ns, "pid": 7, "tid": 7, "source": 1, "op": 3,
                     "duration": took, "arg0": 1 + place % 5} | values)  # fmt: skip
    return rows


def agent_off_cpu(at_s: range, took_ns: int, arg1: int, pid: int = 7, number: int = 5000) -> list[agent.Row]:
    """A thread that comes back to a CPU; an agent stamps the end."""
    rows = []
    for place in range(at_s.start * 20, at_s.stop * 20):
        begin = agent.START_NS + 20_000_000_000 + place * 50_000_000
        rows.append({"id": f"n1:{number + place}", "node": "n1", "timestamp": begin + 1_000_000 + took_ns, "pid": pid,
                     "tid": pid, "source": 3, "op": 1, "duration": took_ns, "arg1": arg1})  # fmt: skip
    return rows


def test_an_agents_preemptor_is_named(store: Store, tmp_path: Path) -> None:
    slow = range(20, 24)
    imported(
        store,
        tmp_path / "a.db",
        events=[*agent_calls(slow), *agent_off_cpu(slow, 18_000_000, arg1=66)],
        process_names=[{"pid": 66, "name": "logrotate"}, {"pid": 7, "name": "python3"}],
    )
    (one,) = shown(store)
    assert "1.44 s of 1.6 s lost, taken by logrotate (pid 66)" in one.root_cause
    assert one.recommendations == [
        "give the training process its own cores, or move logrotate (pid 66) to others (taskset, cpuset, nice)"
    ]


def test_an_idle_thread_that_sleeps_for_seconds_is_no_contention(store: Store, tmp_path: Path) -> None:
    slow = range(20, 24)
    sleeping = agent_off_cpu(slow, 4_000_000_000, arg1=8, pid=8)
    imported(store, tmp_path / "a.db", events=[*agent_calls(slow), *sleeping])
    assert shown(store) == []


def test_the_agents_own_writing_and_swap_that_lies_there_are_no_causes(store: Store, tmp_path: Path) -> None:
    slow = range(20, 24)
    own = [{"id": f"n1:{9000 + place}", "node": "n1", "timestamp": agent.START_NS + 40_000_000_000 + place * 10**8,
            "pid": 55, "tid": 55, "source": 5, "op": 2, "duration": 90_000_000} for place in range(40)]  # fmt: skip
    snapshots = [{"timestamp": agent.START_NS + at * 10**9, "cpu_pct": 30.0, "mem_pct": 40.0, "mem_avail": 1000,
                  "swap_mb": 2048, "load_avg": 12.0} for at in range(100)]  # fmt: skip
    imported(
        store,
        tmp_path / "a.db",
        events=[*agent_calls(slow), *own],
        system_snapshots=snapshots,
        sessions=[agent.session(0, 100_000, cpu_cores=64, node="n1")],
        process_names=[{"pid": 55, "name": "ingero"}],
    )
    assert shown(store) == []


def test_numbered_chains_of_an_old_agent_are_one_for_each_operation_and_time(store: Store, tmp_path: Path) -> None:
    minute = 60 * 10**9
    stored = [
        agent.chain(f"chain-{place:03}", detected_at=agent.START_NS + place * 10**9, cuda_op=("a", "b")[place % 2],
                    severity=("MEDIUM", "HIGH")[place > 20], tail_ratio=4.0)
        for place in range(30)
    ]  # fmt: skip
    stored.append(agent.chain("chain-900", detected_at=agent.START_NS + 60 * minute, cuda_op="a", tail_ratio=4.0))
    path = agent.write(tmp_path / "a.db", "0.8", events=[agent.event(1, None)], causal_chains=stored)
    put_import(open_file(path), store)
    found = shown(store)
    assert [(one.op, one.severity, one.count, one.origin) for one in found] == [
        ("a", "HIGH", 15, "stored"), ("b", "HIGH", 15, "stored"), ("a", "HIGH", 1, "stored")
    ]  # fmt: skip
    assert found[0].start == iso(agent.START_NS)
    assert found[0].end == iso(agent.START_NS + 28 * 10**9)
    assert "no call of a is among the events" in (found[0].checked or "")


def test_what_an_agent_stored_about_the_same_trouble_is_told_with_ours(store: Store, tmp_path: Path) -> None:
    slow = range(20, 24)
    theirs = agent.chain("n1:tail-medium-cudaLaunchKernel", severity="MEDIUM", cuda_op=LAUNCH, node="n1",
                         detected_at=agent.START_NS + 60 * 10**9, summary="p99 777x", tail_ratio=777.0)  # fmt: skip
    imported(store, tmp_path / "a.db", causal_chains=[theirs],
             events=[*agent_calls(slow), *agent_off_cpu(slow, 18_000_000, arg1=66)])  # fmt: skip
    (one,) = shown(store)
    assert (one.origin, one.stored_as, one.count) == ("computed", "MEDIUM p99 777x", 1)
    assert one.tail_ratio == pytest.approx(2000)


def test_what_an_agent_stored_and_the_events_do_not_show_is_told_with_that(store: Store, tmp_path: Path) -> None:
    theirs = agent.chain("n1:tail-medium-cudaLaunchKernel", cuda_op=LAUNCH, node="n1", tail_ratio=777.0,
                         detected_at=agent.START_NS + 60 * 10**9)  # fmt: skip
    imported(store, tmp_path / "a.db", causal_chains=[theirs], events=agent_calls(range(0)))
    (one,) = shown(store)
    assert one.origin == "stored"
    assert "not confirmed: this is no long tail" in (one.checked or "")


def test_a_drop_names_the_workers_that_an_agent_only_counted(store: Store, tmp_path: Path) -> None:
    minute = 60 * 10**9
    bucket = (agent.START_NS + minute) // minute * minute
    calls = [one | {"timestamp": bucket + place * 50_000_000} for place, one in enumerate(agent_calls(range(0)))]
    alive = [{"id": "n1:7001", "node": "n1", "timestamp": bucket + 110 * 10**9, "pid": 7, "tid": 7, "source": 3,
              "op": 1, "duration": 1000, "arg1": 7}]  # fmt: skip
    fork = [{"id": "n1:7000", "node": "n1", "timestamp": bucket + 60 * 10**9, "pid": 7, "tid": 7, "source": 3, "op": 7,
             "duration": 0, "arg1": 21}]  # fmt: skip
    counted = [
        {"bucket": bucket, "source": 1, "op": 3, "pid": 7, "count": 9000, "stored": 1200, "sum_dur": 90_000_000},
        {"bucket": bucket + minute, "source": 1, "op": 3, "pid": 7, "count": 5, "stored": 0, "sum_dur": 50_000},
        {"bucket": bucket + minute, "source": 3, "op": 1, "pid": 21, "count": 90_000, "stored": 0,
         "sum_dur": 7_000_000_000, "max_dur": 5_000_000_000},
    ]  # fmt: skip
    snapshots = [{"timestamp": bucket + at * 10**9, "cpu_pct": 99.0 if at >= 60 else 20.0, "mem_pct": 40.0,
                  "mem_avail": 1000, "swap_mb": 0, "load_avg": 1.0} for at in range(120)]  # fmt: skip
    imported(
        store,
        tmp_path / "a.db",
        events=[*calls, *fork, *alive],
        event_aggregates=counted,
        system_snapshots=snapshots,
        process_names=[{"pid": 21, "name": "pt_data_worker"}, {"pid": 7, "name": "python3"}],
    )
    (one,) = shown(store, kind="throughput_drop")
    assert (one.severity, one.start_ns) == ("HIGH", str(bucket + minute))
    assert "0.1/s against 150/s before" in one.summary
    assert "pt_data_worker (pid 21, started by the process in trouble) with 90000 context switches" in one.root_cause
    assert any("sleep included: the longest of each process and minute alone are 5 s" in fact["statement"]
               for fact in one.evidence)  # fmt: skip


# What somebody else may send


def test_what_cannot_be_is_left_out_and_takes_nothing_else_with_it(store: Store) -> None:
    huge = 2**63 - 1
    hostile = [
        row(LAUNCH, 30, None, duration_ns=huge),
        row(LAUNCH, 31, None, timestamp_ns=huge, duration_ns=huge),
        row(LAUNCH, 32, None, duration_ns=-huge),
        row("cuda" + "x" * 5000, 33, 1),
        row("block.io", 34, None, source="io", duration_ns=huge, bytes=huge),
        row("sched.offcpu", 34, None, source="host", duration_ns=huge, attrs_json='{"sched.next_pid":"x"}'),
        row("oom.kill", 35, None, source="host", pid=None, process=None),
        *(row(f"cuda\u200e{place % 2}" + "y" * 3000, 36 + place / 100, 1 + place % 7 * 50) for place in range(60)),
    ]
    store_rows(store, [*incident(0), *hostile])
    found = chains(Call(store, None), None).shown
    assert sorted({one.kind for one in found}) == ["noisy_neighbour", "oom", "tail_latency"]


@pytest.mark.parametrize(
    "facts",
    [
        {"tail_ratio": "NaN", "confidence": "Infinity", "p99_us": 2**63 - 1},
        {"timeline": "[" * 5000},
        {"timeline": '[{"layer":"\\ud800"}]', "recommendations": '["\\ud800"]'},
        {"timeline": '[{"dur_us":NaN}]', "evidence": '[{"value":1e999}]'},
        {"timeline": '{"a":1}', "recommendations": "[1,[2]]", "severity": "\x1b[31mHIGH", "kind": "x" * 3000},
    ],
)
def test_a_chain_that_somebody_sent_is_shown_as_strict_json_and_safe_text(
    store: Store, facts: dict[str, object]
) -> None:
    attrs = {f"ingero.chain.{name}": value for name, value in ({"severity": "HIGH", "summary": "a\nb"} | facts).items()}
    store_rows(store, [row("causal_chain", 5, None, source="chain", causal_chain_id="n1:x", attrs=attrs)])
    said = told(Call(store, None), AskedChains())
    assert len(said.structured["chains"]) == 1
    json.dumps(said.structured, ensure_ascii=False, allow_nan=False).encode()
    assert all(line.isprintable() for line in said.text.split("\n"))
