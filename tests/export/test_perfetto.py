"""The timeline: what a viewer is told, and that it can rely on it whatever was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.export import tracks
from ingero_mcp.export.happenings import Clock, Clocks, Happening, Item, Marker, Reading
from ingero_mcp.export.perfetto import microseconds, trace
from tests.export import story
from tests.export.story import AHEAD_NS, CLOCKS, MS, START_NS, happening, reduce
from tests.export.traces import Event, assert_sound, ns, of, read

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "perfetto" / "story.json"
BIG = 2**63 - 1


def drawn(items: Iterable[Item], clocks: Clocks = CLOCKS) -> Event:
    made = read("".join(trace(items, story.PLACES, clocks, {"producer": "a test"})))
    assert_sound(made)
    return made


def named(made: Event, phase: str, name: str) -> list[Event]:
    return [event for event in of(made, phase) if event["name"] == name]


def process_names(made: Event) -> dict[int, str]:
    return {event["pid"]: event["args"]["name"] for event in named(made, "M", "process_name")}


def thread_names(made: Event) -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in named(made, "M", "thread_name")}


def test_the_story_is_drawn_as_reviewed() -> None:
    assert story.text() == GOLDEN.read_text()
    assert_sound(read(story.text()))


def test_an_empty_trace_is_a_trace() -> None:
    made = drawn([])
    assert made["traceEvents"] == []
    assert made["otherData"]["base_time_ns"] == "0"


def test_nanoseconds_are_kept_beyond_what_a_double_of_the_epoch_could() -> None:
    made = drawn([happening(0, 0, 1, "a"), happening(0, 3, 2_000_001, "b")])
    one, other = of(made, "X")
    base = int(made["otherData"]["base_time_ns"])
    assert [base + ns(event["ts"]) for event in (one, other)] == [START_NS, START_NS + 3]
    assert [ns(event["dur"]) for event in (one, other)] == [1, 2_000_001]
    assert (microseconds(1_500), microseconds(-1_500), microseconds(7)) == ("1.500", "-1.500", "0.007")
    # As a viewer reads them: doubles, 50 days after the base.
    far = 50 * 86_400 * 10**9 + 1
    assert round(float(microseconds(far)) * 1000) == far


def test_processes_are_nodes_and_ranks_in_order() -> None:
    made = drawn([happening(rank, 1, 1, "a") for rank in (3, 0, 2, 1)])
    order = {event["pid"]: event["args"]["sort_index"] for event in named(made, "M", "process_sort_index")}
    assert [name for _, name in sorted((order[pid], name) for pid, name in process_names(made).items())] == [
        "node-1 rank 0", "node-1 rank 1", "node-2 rank 2", "node-2 rank 3"
    ]  # fmt: skip
    assert set(thread_names(made).values()) == {f"python3 {100 + rank}" for rank in range(4)}


def test_what_only_overlaps_goes_to_a_lane_of_its_own() -> None:
    made = drawn(
        [happening(0, 0, 10, "a"), happening(0, 2, 8, "in a"), happening(0, 5, 10, "over"), happening(0, 15, 1, "c")]
    )
    lane = {event["name"]: event["tid"] for event in of(made, "X")}
    assert lane["a"] == lane["in a"] == lane["c"] != lane["over"]
    assert thread_names(made)[lane["over"]] == "python3 100 (+1)"


def test_arrows_lead_from_the_last_rank_to_those_that_waited() -> None:
    made = drawn([reduce(rank, 0, at * MS, 50 * MS) for rank, at in ((0, 1), (1, 2), (3, 39), (2, 40))])
    names = process_names(made)
    starts, finishes = of(made, "s"), of(made, "f")
    assert {names[event["pid"]] for event in starts} == {"node-2 rank 2"}
    # Rank 3 waited for a millisecond, and is on the same node.
    assert [names[event["pid"]] for event in finishes] == ["node-1 rank 0", "node-1 rank 1", "node-2 rank 3"]
    assert {ns(event["ts"]) for event in starts + finishes} == {39 * MS}


def test_a_host_that_only_enqueues_is_found_waiting_in_its_next_call() -> None:
    calls = [
        reduce(rank, 0, at * MS, at * MS + 12_000, timing_source="host_api") for rank, at in ((0, 1), (1, 1), (3, 2))
    ]
    waits = [happening(rank, 3 * MS, 40 * MS, "cudaStreamSynchronize", source="cuda") for rank in (0, 1)]
    made = drawn([*calls, *waits, reduce(2, 0, 20 * MS, 20 * MS + 12_000, timing_source="host_api")])
    # Rank 3 was in no call at that moment: there is nothing for an arrow to point at.
    assert [process_names(made)[event["pid"]] for event in of(made, "f")] == ["node-1 rank 0", "node-1 rank 1"]


def test_no_arrow_where_clocks_do_not_tell_or_a_rank_is_missing() -> None:
    calls = [reduce(rank, 0, at * MS, 50 * MS) for rank, at in ((0, 1), (1, 2), (3, 9), (2, 10))]
    assert len(of(drawn(calls), "s")) == 3
    unknown = drawn(calls, Clocks())
    assert [process_names(unknown)[event["pid"]] for event in of(unknown, "f")] == ["node-2 rank 3"]
    loose = Clocks({name: replace(clock, bound_ns=5 * MS) for name, clock in CLOCKS.known.items()})
    assert [process_names(made)[event["pid"]] for made in [drawn(calls, loose)] for event in of(made, "f")] == [
        "node-2 rank 3"
    ]
    # Ranks whose hosts nobody knows have a clock each.
    nowhere = [call._replace(node_id="unknown") for call in calls]
    assert of(drawn(nowhere), "s") == []
    compared = {("lab", "unknown", rank): Clock(0, 100_000) for rank in (0, 2)}
    assert len(of(drawn(nowhere, Clocks(compared)), "s")) == 1
    assert of(drawn(calls[1:]), "s") == []
    attached = [call._replace(attrs_json='{"ingero.seq_origin":"attach"}', step=None) for call in calls]
    assert of(drawn(attached), "s") == []
    assert of(drawn([call._replace(metric_name="ncclSend") for call in calls]), "s") == []


def test_a_communicator_that_begins_anew_waits_for_nobody_of_before() -> None:
    before = [reduce(rank, 0, 1 * MS, 2 * MS) for rank in range(3)]
    after = [reduce(rank, 0, at * MS, 90 * MS) for rank, at in ((0, 60), (1, 60), (2, 61), (3, 80))]
    arrows = of(drawn([*before, *after]), "f")
    assert [ns(event["ts"]) for event in arrows] == [79 * MS] * 3


def test_a_gap_is_drawn_for_the_time_that_is_missing() -> None:
    facts = {
        "probe.lost_events": 7,
        "probe.gap.start_ns": START_NS + 2 * MS + AHEAD_NS,
        "probe.gap.end_ns": START_NS + 5 * MS + AHEAD_NS,
    }
    made = drawn([happening(2, 0, 1, "a"), happening(2, 9 * MS, None, "probe.gap", attrs_json=json.dumps(facts))])
    [gap] = [event for event in of(made, "X") if event["cat"] == "gap"]
    assert (gap["name"], ns(gap["ts"]), ns(gap["dur"])) == ("lost events: 7", 2 * MS, 3 * MS)
    assert thread_names(made)[gap["tid"]] == "lost events"


def test_samples_are_counters_and_what_is_no_number_is_said() -> None:
    made = drawn(
        [
            happening(0, 0, None, "gpu.memory.used", value_double=1.5, gpu_uuid="GPU-0"),
            happening(0, 1, None, "gpu.memory.used", value_double=2.5, gpu_uuid="GPU-1"),
            happening(0, 2, None, "gpu.memory.used", value_double=float("inf"), gpu_uuid="GPU-1"),
            happening(0, 3, None, "latency", value_int=BIG, value_double=float(BIG), attrs_json='{"percentile":"p99"}'),
        ]
    )
    counters = [(event["name"], float(event["args"]["value"])) for event in of(made, "C")]
    assert counters == [
        ("gpu.memory.used GPU-0", 1.5),
        ("gpu.memory.used GPU-1", 2.5),
        ("latency percentile=p99", float(BIG)),
    ]
    [odd] = of(made, "i")
    assert odd["args"]["value"] == "Infinity"


def test_chains_are_markers_in_the_colour_of_their_severity() -> None:
    given = ("CRITICAL", "HIGH", "MEDIUM", "LOW", None, "odd")
    made = drawn(
        [Marker(START_NS, "lab", "node-1", None, None, severity, "why", {"root_cause": "x"}) for severity in given]
    )
    marks = of(made, "i")
    assert [mark.get("cname") for mark in marks] == ["terrible", "bad", "yellow", "good", None, None]
    assert [mark["name"] for mark in marks][:2] == ["CRITICAL: why", "HIGH: why"]
    # Those that came as events are shown once, as chains.
    assert drawn([happening(0, 0, None, "causal_chain"), happening(0, 0, None, "stack")])["traceEvents"] == []


def test_recorded_text_stays_text() -> None:
    hostile = '"},{"ph":"M\u2028</script>\x00\ud800\u202e'
    made = drawn(
        [
            happening(0, 0, 1, hostile, process=hostile, status=hostile, attrs_json=json.dumps({hostile: hostile})),
            happening(0, 1, 1, "a", attrs_json='{"broken'),
            happening(
                0,
                2,
                1,
                "a",
                attrs_json='{"n":NaN,"i":123456789012345678901,"f":1e999,"deep":' + "[" * 9_000 + "]" * 9_000 + "}",
            ),
            happening(0, 3, 1, "a", attrs_json="[1e999,NaN,9007199254740993]"),
            Marker(
                START_NS + 4, hostile, hostile, None, hostile, hostile, hostile, {hostile: hostile, "n": float("nan")}
            ),
        ]
    )
    assert of(made, "X")[0]["args"]["attributes"] == {hostile: hostile}
    assert of(made, "X")[1]["args"]["attributes"] == '{"broken'
    assert of(made, "X")[3]["args"]["attributes"] == ["1e999", "NaN", "9007199254740993"]


def test_many_threads_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks, "_MOST_TRACKS", 50)
    names = tracks.Tracks(story.PLACES)
    place = story.PLACES[0]
    for number in range(1_000):
        names.tid(names.track(place, tracks.THREAD, number, "python3", number * 10), number * 10, number * 10 + 5)
    assert len(names._tracks) <= 50


SMALL = st.integers(min_value=0, max_value=60)
TEXT = st.none() | st.sampled_from(["a", "b", "node-1"]) | st.text(max_size=8)
WHOLE = st.none() | SMALL | st.integers(min_value=-(2**63), max_value=BIG)
TIME = SMALL.map(lambda time: START_NS + time) | st.integers(min_value=-(2**63), max_value=BIG)
HAPPENINGS = st.builds(
    Happening,
    at_ns=TIME, timestamp_ns=TIME, duration_ns=WHOLE, cluster_id=TEXT, node_id=TEXT, job_id=TEXT, event_seq=WHOLE,
    source=st.sampled_from(["nccl", "cuda", None, "io"]) | TEXT,
    metric_name=st.sampled_from(["ncclAllReduce", "probe.gap", "gpu.x", "causal_chain"]) | TEXT,
    value_double=st.none() | st.floats(), value_int=st.none() | WHOLE, rank=st.none() | st.integers(0, 3),
    nranks=st.sampled_from([None, 2, 3]), pid=WHOLE, tid=st.sampled_from([None, 1, 2]) | WHOLE, process=TEXT,
    comm_id=st.sampled_from(["c", None]), coll_seq=st.sampled_from([0, 1, None]), step=WHOLE,
    timing_source=st.sampled_from(["kernel_gpu", "host_api", None]), status=TEXT,
    attrs_json=st.none() | st.text(max_size=12) | st.sampled_from(
        ['{"cuda.stream":7}', '{"probe.gap.start_ns":1,"probe.gap.end_ns":"x"}', '{"ingero.seq_origin":"attach"}', "{}"]
    ),
)  # fmt: skip
ITEMS = st.one_of(
    HAPPENINGS,
    st.builds(
        Marker, TIME, TEXT, TEXT, st.none() | SMALL, TEXT, TEXT, TEXT, st.dictionaries(st.text(max_size=3), WHOLE)
    ),
    st.builds(
        Reading, TIME, TEXT, TEXT, st.none() | SMALL, st.just("load"), st.dictionaries(st.just("value"), st.floats())
    ),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(ITEMS, max_size=30))
def test_whatever_was_recorded_the_trace_is_sound(items: list[Item]) -> None:
    drawn(sorted(items, key=lambda item: item.at_ns))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=100))
def test_spans_nest_however_they_overlap_and_in_whatever_order(spans: list[tuple[int, int]]) -> None:
    made = drawn(
        [Happening(START_NS - 1, START_NS - 1), *(happening(0, start, length, "s") for start, length in spans)]
    )
    assert len(of(made, "X")) == len(spans)
