"""How a run was recorded: lost events leave notes, late attaching and sampling leave what such recorders leave."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.synth.scenario.arrow import batches
from ingero_mcp.synth.scenario.block import Block, join
from ingero_mcp.synth.scenario.conditions import Attach, Conditions, numbers, record
from ingero_mcp.synth.scenario.generate import Incident, run_incident
from ingero_mcp.synth.scenario.views import Sight
from ingero_mcp.synth.scenario.who import Sender

INCIDENT = run_incident("F2", 9, 5.0)


def recorded(conditions: Conditions, incident: Incident = INCIDENT) -> Block:
    calls = join(Sight(incident.run, "probe").blocks())
    return record(calls, incident.run, conditions, np.random.default_rng(1))


def test_as_many_events_are_noted_as_lost_as_are_missing() -> None:
    whole, lossy = recorded(Conditions()), recorded(Conditions(loss=0.01))
    notes = lossy.columns[semconv.LOST_EVENTS]
    gaps = lossy.where(notes >= 0)
    assert len(gaps) > 0
    assert len(whole) - (len(lossy) - len(gaps)) == notes[notes >= 0].sum()
    assert {lossy.templates[index].name for index in gaps.template} == {semconv.PROBE_GAP}


def test_what_is_lost_lies_in_the_noted_gaps() -> None:
    whole, lossy = recorded(Conditions()), recorded(Conditions(loss=0.01))
    kept = Counter(zip(lossy.rank.tolist(), lossy.start_ns.tolist(), lossy.template.tolist(), strict=True))
    gone = [
        (host, seen)
        for host, seen, key in zip(
            whole.host.tolist(),
            whole.seen_ns.tolist(),
            zip(whole.rank.tolist(), whole.start_ns.tolist(), whole.template.tolist(), strict=True),
            strict=True,
        )
        if key not in kept
    ]
    is_gap = lossy.columns[semconv.LOST_EVENTS] >= 0
    gaps = list(
        zip(
            lossy.host[is_gap].tolist(),
            lossy.columns[semconv.GAP_START_NS][is_gap].tolist(),
            lossy.columns[semconv.GAP_END_NS][is_gap].tolist(),
            strict=True,
        )
    )
    assert gone
    assert all(any(host == at and first <= seen < last for at, first, last in gaps) for host, seen in gone)


def test_a_rank_attached_late_counts_from_zero_and_says_so() -> None:
    for knows_comm in (True, False):
        late = recorded(Conditions(attach=Attach(1, 20, knows_comm)))
        own = late.where((late.rank == 1) & (late.columns[semconv.NCCL_SEQ] >= 0))
        assert own.start_ns.min() >= INCIDENT.run.base_ns[20]
        assert own.columns[semconv.NCCL_SEQ].min() == 0
        attributes = [late.templates[index].attributes for index in set(own.template.tolist())]
        assert {attribute[semconv.SEQ_ORIGIN] for attribute in attributes} == {"attach"}
        others = {comm.id for comm in INCIDENT.run.job.layout.comms}
        assert all((attribute[semconv.NCCL_COMM] in others) == knows_comm for attribute in attributes)


def test_of_sampled_collectives_every_so_many_is_there() -> None:
    sampled = recorded(Conditions(every=3))
    seq = sampled.columns[semconv.NCCL_SEQ][sampled.trace >= 0]
    assert set(seq % 3) == {0}


def test_a_clock_shifts_starts_and_ends_alike_and_keeps_lengths() -> None:
    hosts = len(INCIDENT.run.job.layout.hosts)
    right = recorded(Conditions())
    wrong = recorded(Conditions(offset_ns=(40_000_000,) * hosts, drift_ppm=(10.0,) * hosts))
    assert sorted(right.end_ns - right.start_ns) == sorted(wrong.end_ns - wrong.start_ns)
    shift = np.sort(wrong.start_ns) - np.sort(right.start_ns)
    assert shift.min() >= 40_000_000
    assert shift.max() > shift.min()


def test_events_are_numbered_per_host_in_the_order_in_which_they_ended() -> None:
    block = recorded(Conditions())
    seq = numbers(block)
    for host in np.unique(block.host).tolist():
        own = block.host == host
        assert seq[own].tolist() == list(range(1, own.sum() + 1))
        assert (np.diff(block.seen_ns[own]) >= 0).all()


def test_a_host_of_an_op_trace_is_unknown() -> None:
    sender = Sender(replace(INCIDENT.run.job.layout), "optrace", "synthetic")
    block = replace(recorded(Conditions()), host=np.zeros(len(recorded(Conditions())), np.int64))
    first = next(batches(block, numbers(block), sender))
    assert set(first.column("node_id").to_pylist()) == {semconv.UNKNOWN}
    assert semconv.SERVICE_NAME not in json.loads(first.column("attrs_json")[0].as_py())
