"""explain_stall over what a store holds: which job, which ranks, and an answer that can be relied on in form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero_mcp.analysis.findings import Culprit, Finding, Statement
from ingero_mcp.errors import ConfigError
from ingero_mcp.store import Store, open_store
from ingero_mcp.synth.scenario import FAMILIES, View, generate
from ingero_mcp.tools.answer import MAX_BYTES
from ingero_mcp.tools.explain_stall import TOOL
from ingero_mcp.tools.explanation import (
    CulpritGroup,
    CulpritRank,
    Explanation,
    Fact,
    complete,
    facts_of,
    finished,
    rounded,
    share,
)
from tests.tools import fleet
from tests.tools.explained import MS, NOON, Row, Training, ask, check_answer, follow, put, put_case, ranks


@pytest.fixture
def memory() -> Iterator[Store]:
    with open_store(None) as opened:
        yield opened


def asked(rows: list[Row], **arguments: Any) -> dict[str, Any]:
    with open_store(None) as opened:
        put(opened, rows)
        return ask(opened, **arguments)


# Which job, which communicator, which window


def test_the_worst_of_several_jobs_is_explained_and_the_others_are_named(memory: Store) -> None:
    slow = Training(job="slow", node="a", comm="aaaaaaaaaaaaaaaa", late_ms={2: 40})
    stuck = Training(job="stuck", node="b", comm="bbbbbbbbbbbbbbbb", stops=(1, 20))
    fine = Training(job="fine", node="c", comm="cccccccccccccccc")
    put(memory, [*fine.rows(), *slow.rows(), *stuck.rows()])
    said = ask(memory)
    assert (said["verdict"], said["job_id"], ranks(said)) == ("hang", "stuck", [1])
    assert [(other["job_id"], other["culprits"]) for other in said["other_findings"]] == [("slow", [2])]
    assert "job_id chooses another" in said["notes"][0]
    assert ranks(ask(memory, job_id="slow")) == [2]
    assert ask(memory, job_id="fine")["verdict"] == "healthy"


def test_jobs_of_the_same_name_in_two_clusters_are_two_jobs(memory: Store) -> None:
    put(memory, [*Training(cluster="c1").rows(), *Training(cluster="c2", node="x", late_ms={0: 40}).rows()])
    assert ask(memory, cluster_id="c1")["verdict"] == "healthy"
    assert ranks(ask(memory, cluster_id="c2")) == [0]
    assert ask(memory)["cluster_id"] == "c2"


def test_a_job_and_a_cluster_without_a_name_are_explained_too(memory: Store) -> None:
    put(memory, Training(job=None, cluster=None, late_ms={3: 40}).rows())
    said = ask(memory)
    assert ranks(said) == [3]
    assert "job_id" not in said


def test_with_a_communicator_only_that_one_is_looked_at(memory: Store) -> None:
    put(memory, Training(comm="aaaaaaaaaaaaaaaa", stops=(1, 25)).rows())
    put(memory, [row | {"event_seq": row["event_seq"] + 100} for row in Training(comm="bbbbbbbbbbbbbbbb").rows()])
    assert ranks(ask(memory, comm_id="aaaaaaaaaaaaaaaa")) == [1]
    other = ask(memory, comm_id="bbbbbbbbbbbbbbbb")
    assert other["verdict"] == "healthy"
    assert "bbbbbbbbbbbbbbbb" in other["next_calls"][-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"job_id": "jo"}, "there is no job 'jo' in it; nearest: job"),
        ({"comm_id": "ffff"}, "existing: 5a17c0de00b1a5ed"),
        ({"cluster_id": "c2"}, "there is no cluster 'c2'"),
        ({"window": "2020-01-01T00:00Z/2020-01-02T00:00Z"}, "lie between 2026-11-30T12:00:00"),
    ],
)
def test_what_does_not_exist_is_said_with_what_does(memory: Store, arguments: dict[str, str], words: str) -> None:
    put(memory, Training().rows())
    said = ask(memory, **arguments)
    assert (said["verdict"], said["row_count"]) == ("undecidable", 0)
    assert words in said["summary"]
    assert words in said["text"]


def test_an_empty_database_is_said_to_be(memory: Store) -> None:
    said = ask(memory)
    assert (said["verdict"], said["confidence"]) == ("undecidable", 0.0)
    assert "no events yet" in said["summary"]
    assert said["enable"]


def test_events_of_other_kinds_are_nothing_to_judge_by(memory: Store) -> None:
    fleet.put(memory, fleet.samples({"n1": [0.9, 0.8]}))
    assert "no event in it belongs to a collective" in ask(memory)["summary"]


def test_more_jobs_than_are_looked_at_are_said_to_be_there(memory: Store) -> None:
    for number in range(10):
        put(memory, Training(job=f"job-{number}", comm=f"{number:016x}", steps=2).rows())
    said = ask(memory)
    assert said["truncated"]
    assert any("more than 8 jobs" in note for note in said["notes"])


def test_a_window_cuts_and_the_next_calls_stay_in_it(memory: Store) -> None:
    put(memory, Training(late_ms={2: 40}, since=20).rows())
    before = ask(memory, window="2026-11-30T12:00:00Z/2026-11-30T12:00:03Z")
    assert before["verdict"] == "healthy"
    assert f"enter_ns >= {NOON}" in before["next_calls"][-1]
    assert ranks(ask(memory)) == [2]


# The answer follows the data


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(order=st.permutations(range(4)), kind=st.sampled_from(["late", "stuck"]))
def test_the_answer_follows_the_ranks(order: list[int], kind: str) -> None:
    job = Training(late_ms={2: 40}) if kind == "late" else Training(stops=(2, 20))
    renamed = [row | {"rank": order[row["rank"]], "node_id": f"node-{order[row['rank']]}"} for row in job.rows()]
    said = asked(renamed)
    assert ranks(said) == [order[2]]
    assert said["culprits"][0]["node_id"] == f"node-{order[2]}"
    assert sorted(said["waiting_ranks"]) == sorted(set(range(4)) - {order[2]})


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shifts=st.lists(st.integers(-3_600_000, 3_600_000), min_size=4, max_size=4), late=st.booleans())
def test_a_clock_that_is_wrong_changes_nobody_s_blame(shifts: list[int], late: bool) -> None:
    job = Training(clock_ms=dict(enumerate(map(float, shifts))), late_ms={2: 40} if late else {})
    said = asked(job.rows())
    assert ranks(said) == ([2] if late else [])
    assert said["verdict"] == ("straggler" if late else "healthy")


def test_the_same_events_twice_and_in_another_order_are_the_same_evidence() -> None:
    rows = Training(late_ms={2: 40}).rows()
    again = [row | {"event_seq": row["event_seq"] + 1000} for row in rows]
    once, twice = asked(rows), asked([*again[::-1], *rows])
    assert ranks(once) == ranks(twice) == [2]
    assert once["affected_steps"] == twice["affected_steps"]


def test_two_communicators_per_rank_are_kept_apart() -> None:
    """The second one is numbered like the first, and has only half of the ranks."""
    whole = Training(late_ms={1: 40})
    half = replace(whole, ranks=(0, 1), comm="bbbbbbbbbbbbbbbb", start_ms=90)
    other = [row | {"event_seq": row["event_seq"] + 100, "world_size": 4} for row in half.rows()]
    assert ranks(asked([*whole.rows(), *other])) == [1]


def test_a_communicator_that_is_begun_anew_does_not_make_the_restart_a_hang() -> None:
    first = Training(steps=20)
    second = replace(first, start_ms=20 * 200 + 60_000)
    rows = [*first.rows(), *(row | {"event_seq": row["event_seq"] + 100} for row in second.rows())]
    assert asked(rows)["verdict"] in ("healthy", "undecidable")


def test_ranks_that_were_met_late_are_aligned_or_said_not_to_be() -> None:
    attached = json.dumps({"ingero.seq_origin": "attach"})
    rows = [
        row | {"coll_seq": row["coll_seq"] - 7, "step": None, "attrs_json": attached if row["rank"] == 3 else None}
        if row["rank"] == 3
        else row | {"step": None}
        for row in Training().rows()
        if row["rank"] != 3 or row["coll_seq"] >= 7
    ]
    said = asked(rows)
    assert ranks(said) == []
    assert "ranks 3 are unaligned" in said["gaps"]
    assert any("rank 3 was met in the middle of the job" in note for note in said["notes"])


def test_events_of_a_rank_that_moved_to_another_host_are_not_named_wrongly() -> None:
    rows = [
        row
        | ({"node_id": "spare", "event_seq": row["event_seq"] + 70} if row["rank"] == 2 and row["step"] >= 20 else {})
        for row in Training(late_ms={2: 40}).rows()
    ]
    said = asked(rows)
    assert [(one["rank"], one["node_id"]) for one in said["culprits"]] == [(2, "spare")]


def test_sampling_upstream_changes_nothing_about_who() -> None:
    rows = [row for row in Training(steps=90, late_ms={2: 40}, since=30).rows() if row["coll_seq"] % 3 == 0]
    assert ranks(asked(rows)) == [2]


def test_lost_events_are_said_and_blame_nobody() -> None:
    rows = [
        row for row in Training(steps=60).rows() if (row["rank"], row["coll_seq"]) not in {(1, 20), (1, 21), (2, 40)}
    ]
    attributes = {"probe.lost_events": 2, "probe.gap.start_ns": NOON, "probe.gap.end_ns": NOON + 5_000 * MS}
    gap = {"cluster_id": "c1", "node_id": "node-1", "event_seq": 900, "timestamp_ns": NOON + 5_000 * MS}
    gap |= {"source": "probe", "metric_name": "probe.gap", "attrs_json": json.dumps(attributes)}
    said = asked([*rows, gap])
    assert ranks(said) == []
    assert "node-1 lost 2 events" in said["gaps"]


def test_a_job_that_ended_while_others_go_on_does_not_hang() -> None:
    done = Training(job="done", steps=20)
    on = Training(job="on", node="x", comm="bbbbbbbbbbbbbbbb", steps=120)
    assert asked([*done.rows(), *on.rows()])["verdict"] == "healthy"


def test_ranks_that_nobody_watches_are_no_hang() -> None:
    rows = [row | {"nranks": 8, "world_size": 8, "timing_source": "host_api"} for row in Training(steps=40).rows()]
    on = Training(job="on", node="x", comm="bbbbbbbbbbbbbbbb", steps=200)
    said = asked([*rows, *on.rows()], job_id="job")
    assert said["verdict"] != "hang"
    assert "4 of 8 ranks were seen" in said["gaps"]


# Odd events


def test_events_without_a_rank_are_counted_and_left_out(memory: Store) -> None:
    rows = Training(late_ms={2: 40}).rows()
    put(memory, [*rows, *(row | {"rank": None, "event_seq": row["event_seq"] + 500} for row in rows[:8])])
    said = ask(memory)
    assert ranks(said) == [2]
    assert "8 events of collectives do not say their rank and were left out" in said["notes"]


@pytest.mark.parametrize("rank", [-1, -(2**31), 2**31 - 1, 1 << 20])
def test_a_rank_that_can_be_none_is_left_out(memory: Store, rank: int) -> None:
    rows = Training(late_ms={2: 40}).rows()
    put(memory, [*rows, *(row | {"rank": rank, "event_seq": row["event_seq"] + 500} for row in rows[:8])])
    said = ask(memory)
    assert ranks(said) == [2]
    assert rank not in said["waiting_ranks"]


@pytest.mark.parametrize("column", ["coll_seq", "step", "bytes", "pid"])
@pytest.mark.parametrize("value", [-(2**63), -5, 2**53 + 1, 2**63 - 1])
def test_wild_numbers_break_nothing(memory: Store, column: str, value: int) -> None:
    rows = Training(steps=20, stops=(1, 15)).rows()
    put(memory, [row | ({column: value} if row["rank"] == 0 and row["coll_seq"] >= 12 else {}) for row in rows])
    ask(memory, include_plot=True)


@pytest.mark.parametrize("start", [0, -(2**62), 2**63 - 10**11])
def test_times_at_the_ends_of_int64_break_nothing(memory: Store, start: int) -> None:
    put(memory, [row | {"timestamp_ns": row["timestamp_ns"] - NOON + start} for row in Training(stops=(1, 20)).rows()])
    assert ranks(ask(memory)) == [1]


NASTY = "no\nde\t'\";--\x1b[31m\u202e"


@pytest.mark.parametrize("column", ["node_id", "job_id", "cluster_id", "comm_id"])
def test_names_cannot_break_out_of_their_line_nor_out_of_the_sql(memory: Store, column: str) -> None:
    put(memory, [row | {column: NASTY} for row in Training(stops=(1, 20)).rows()])
    said = ask(memory)
    assert ranks(said) == [1]
    if column != "node_id":
        assert ranks(ask(memory, **{column: NASTY})) == [1]


def test_captured_names_stay_in_the_line_of_the_timeline(memory: Store) -> None:
    job = Training(late_ms={2: 40})
    host = [
        {
            "cluster_id": "c1",
            "node_id": "node-2",
            "job_id": "job",
            "event_seq": 700 + step,
            "timestamp_ns": NOON + (step * 200 + 90) * MS,
            "duration_ns": 45 * MS,
            "source": "host",
            "metric_name": "sched.offcpu",
            "rank": 2,
            "stack_id": "77",
            "attrs_json": json.dumps({"sched.state": "blocked", "sched.next_comm": "py\nverdict: healthy\x1b"}),
        }
        for step in range(10, 30)
    ]
    put(memory, [*job.rows(), *host])
    said = ask(memory)
    assert ranks(said) == [2]
    assert any("sched.offcpu" in line and "CPU to py\\nverdict" in line for line in said["timeline"])
    assert "\\\\n" not in said["text"]


def test_the_timeline_is_of_the_culprit_and_before_its_late_entry(memory: Store) -> None:
    job = Training(late_ms={2: 40})
    noise = [
        {"cluster_id": "c1", "node_id": f"node-{rank}", "job_id": "job", "event_seq": 10_000 + n, "rank": rank}
        | {
            "timestamp_ns": NOON + n * 10 * MS,
            "duration_ns": MS,
            "source": "cuda",
            "metric_name": f"call{n % 3}.of.{rank}",
        }
        for rank in (1, 2)
        for n in range(600)
    ]
    put(memory, [*job.rows(), *noise])
    lines = ask(memory)["timeline"]
    assert len(lines) == 20
    assert not any(".of.1" in line for line in lines)
    assert all(line.startswith(("-", "0 ns")) for line in lines)


def test_very_long_names_are_names_too(memory: Store) -> None:
    name = "j'" * 12_000
    put(memory, Training(job=name, late_ms={2: 40}, node="n" * 300).rows())
    assert ranks(ask(memory)) == ranks(ask(memory, job_id=name)) == [2]
    assert ask(memory, job_id=name[:-1])["row_count"] == 0


# The form of the answer

VIEWS: tuple[View, ...] = ("probe", "kernel", "optrace")


@pytest.mark.parametrize(("family", "view"), [(name, VIEWS[place % 3]) for place, name in enumerate(FAMILIES)])
def test_every_family_gets_a_short_answer_of_the_declared_shape(memory: Store, family: str, view: View) -> None:
    case = generate(family, 3, 5.0, view)
    put_case(memory, case)
    said = ask(memory)
    assert said["summary"].count(". ") >= 2
    truth = case.truth
    if truth.is_clean:
        assert ranks(said) == []


def test_the_plot_comes_only_when_it_is_asked_for(memory: Store) -> None:
    put(memory, Training(late_ms={2: 40}).rows())
    assert "plot" not in ask(memory)
    plotted = ask(memory, include_plot=True)
    (line,) = [line for line in plotted["plot"] if line.startswith("rank     2")]
    assert line.index("|") < line.index("%")
    assert line in plotted["text"]


def explanation(**facts: Any) -> Explanation:
    nothing: dict[str, Any] = {
        name: [] if "list" in str(field.annotation) else ""
        for name, field in Explanation.model_fields.items()
        if field.is_required()
    }
    usual = {"verdict": "hang", "cause": "unknown", "confidence": 0.5, "row_count": 1, "truncated": False}
    return Explanation(**(nothing | usual | {"summary": "One. Two. Three.", "timing_source": "none"} | facts))


def test_an_answer_with_nothing_but_what_is_required_validates(memory: Store) -> None:
    said = finished(explanation())
    check_answer(memory, said)
    whole = complete(said.structured)
    assert whole["onset"] is None and whole["plot"] is None
    assert set(whole) == set(Explanation.model_fields)


def test_a_very_large_answer_is_cut_and_says_so(memory: Store) -> None:
    everybody = list(range(8192))
    said = finished(
        explanation(
            culprits=[CulpritRank(rank=rank, node_id="node-" * 20) for rank in everybody],
            culprit_groups=[CulpritGroup(kind="job", id="x" * 100_000, ranks=everybody)],
            summary="word " * 100_000,
            evidence=[Fact(statement="s" * 9000, unit="", event_ids=[]) for _ in range(100)],
            next_calls=["fleet.cluster.run_analysis " + json.dumps({"sql": "SELECT '" + "x" * 9000 + "'"})] * 2,
        )
    )
    assert said.size <= MAX_BYTES
    assert "lists are cut" in said.structured["notes"][-1]
    assert len(said.text.encode()) < 2000
    assert said.text.startswith("verdict: hang")


def test_integers_beyond_two_to_the_53_are_absent_rather_than_wrong() -> None:
    said = finished(explanation(onset_step=2**60, period_steps=7, waiting_ranks=[1, 2**53, 3]))
    assert "onset_step" not in said.structured
    assert (said.structured["period_steps"], said.structured["waiting_ranks"]) == (7, [1, 3])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(68_701.0, 68_701.0), (26.0537, 26.05), (float("nan"), None), (float("inf"), None), (None, None), (2.0**60, None)],
)
def test_numbers_are_shown_with_the_digits_they_deserve(value: float | None, shown: float | None) -> None:
    assert rounded(value) == shown


def test_a_confidence_is_from_0_to_1_whatever_was_worked_out() -> None:
    assert [share(value) for value in (0.456, 7.0, -1.0, float("nan"))] == [0.46, 1.0, 0.0, 0.0]


def test_ids_of_events_that_have_none_are_left_out() -> None:
    one = Finding("hang", "unknown", 0.5, (Statement("so", event_ids=("", "n:1")),), culprits=(Culprit(1),))
    assert facts_of(one)[0].event_ids == ["n:1"]


# Through a client


@pytest.mark.anyio
async def test_a_client_asks_and_both_channels_agree(store: Store, era: str) -> None:
    put(store, Training(late_ms={2: 40}).rows())
    result = await fleet.ask(store, TOOL.name, {"window": None, "include_plot": None, "job_id": "null"}, era=era)
    assert not result.is_error
    assert [one["rank"] for one in result.structured_content["culprits"]] == [2]
    assert "culprit: rank 2 on node-2" in fleet.text_of(result)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"jobid": "x"}, "did you mean job_id"),
        ({"window": "yesterday-ish"}, "accepted are"),
        ({"include_plot": "perhaps"}, "true or false"),
        ({"job_id": 2.5}, "job_id must be a text"),
    ],
)
async def test_a_wrong_argument_is_refused_in_a_sentence(store: Store, arguments: dict[str, Any], words: str) -> None:
    result = await fleet.ask(store, TOOL.name, arguments)
    assert result.is_error
    assert words in fleet.text_of(result)


def test_the_example_of_the_tool_is_a_good_call(memory: Store) -> None:
    put(memory, Training().rows())
    follow(memory, f"{TOOL.name} {json.dumps(dict(TOOL.example))}")
    with pytest.raises(ConfigError):
        follow(memory, f'{TOOL.name} {{"nonsense": 1}}')
