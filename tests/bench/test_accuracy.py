"""The accuracy suite counts what it says it counts."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from bench.accuracy import Scored
from bench.accuracy_report import document, rows_of, table
from bench.baselines import RULES, latest_arriver, longest_wait, named
from bench.score import Answer, Tally
from bench.suite import CLEAN, HELD_OUT, SEVERITIES, VIEWS, Spec, suite
from ingero_mcp.batches import batch
from ingero_mcp.synth.scenario import FAMILIES, Group, Truth, generate
from ingero_mcp.synth.scenario.truth import Verdict

STRAGGLER = Truth("F1", "probe", "straggler", "data_loader", ("straggler",), culprits=(5,), is_single=True, severity=5)
CLEAN_CASE = Truth("F18", "probe", "healthy", "none", ("healthy",))


def tally(*pairs: tuple[Truth, Answer]) -> Tally:
    counts = Tally()
    for truth, answer in pairs:
        counts.add(truth, answer, 0)
    return counts


def test_a_quarter_of_the_cases_or_more_is_clean() -> None:
    for seeds in (range(1), range(8)):
        specs = suite(seeds)
        assert sum(spec.family in CLEAN for spec in specs) >= len(specs) / 4


def test_the_suite_has_every_family_severity_and_view() -> None:
    specs = suite(range(HELD_OUT, HELD_OUT + 2))
    slow = {name for name, family in FAMILIES.items() if family.is_slow}
    assert {(s.family, s.severity, s.view) for s in specs if s.family in slow} == {
        (family, severity, view) for family in slow for severity in SEVERITIES for view in VIEWS
    }
    assert {(s.family, s.view) for s in specs} == {(family, view) for family in FAMILIES for view in VIEWS}
    assert all(spec.seed >= HELD_OUT for spec in specs)
    assert len(set(specs)) == len(specs)


def test_the_right_rank_named_first_is_a_hit_and_a_second_one_costs_precision() -> None:
    counts = tally((STRAGGLER, Answer("straggler", (5, 3))))
    assert (counts.verdict_rate, counts.top1_rate, counts.precision, counts.recall) == (1, 1, 0.5, 1)
    assert counts.f1 == pytest.approx(2 / 3)


def test_another_rank_named_first_is_a_miss_though_the_verdict_is_right() -> None:
    counts = tally((STRAGGLER, Answer("straggler", (3,))), (STRAGGLER, Answer("healthy")))
    assert (counts.verdict_rate, counts.top1_rate, counts.precision, counts.recall) == (0.5, 0, 0, 0)
    assert counts.f1 is None


def test_a_clean_case_is_blamed_by_any_incident_but_not_by_doubt() -> None:
    blamed: tuple[Verdict, ...] = ("straggler", "hang", "imbalance", "network")
    for verdict in blamed:
        assert tally((CLEAN_CASE, Answer(verdict))).blame_rate == 1
    assert tally((CLEAN_CASE, Answer("undecidable"))).blame_rate == 0
    assert tally((CLEAN_CASE, Answer("healthy"))).blame_rate == 0


def test_a_host_at_fault_is_found_by_its_name_or_by_its_ranks() -> None:
    group = Group("host", "gpu-node-2", (4, 5, 6, 7))
    truth = replace(STRAGGLER, culprits=group.ranks, group=group, is_single=False)
    whole = tally((truth, Answer("straggler", (), (("host", "gpu-node-2", group.ranks),))))
    assert (whole.top1_rate, whole.precision, whole.recall) == (1, 1, 1)
    part = tally((truth, Answer("straggler", (4,))))
    assert (part.top1_rate, part.precision, part.recall) == (1, 1, 0.25)


def test_a_stage_or_a_link_is_found_by_its_ranks_and_blames_nobody() -> None:
    stage = replace(
        STRAGGLER, verdict="imbalance", accepted=("imbalance",), culprits=(), group=Group("stage", "3", (6, 7))
    )
    counts = tally((stage, Answer("imbalance", (), (("stage", "of ranks 6, 7", (6, 7)),))))
    assert (counts.top1_rate, counts.recall, counts.precision) == (1, 1, None)
    assert tally((stage, Answer("straggler", (6,)))).precision == 0


def test_who_it_is_is_not_asked_where_the_view_cannot_tell() -> None:
    hidden = replace(STRAGGLER, verdict="undecidable", accepted=("undecidable", "healthy"), is_hidden=True)
    assert tally((hidden, Answer("undecidable"))).top1_rate is None


def test_a_cause_counts_where_the_view_shows_it_and_must_not_be_invented_where_it_does_not() -> None:
    answer = Answer("straggler", (5,), (), (STRAGGLER.cause, "gc_pause"))
    assert tally((STRAGGLER, answer)).cause_rates == (1, 1, None)
    second = replace(answer, causes=("gc_pause", STRAGGLER.cause))
    assert tally((STRAGGLER, second)).cause_rates == (0, 1, None)
    from_gpu = replace(STRAGGLER, view="kernel")
    assert tally((from_gpu, replace(answer, causes=("unknown",)))).cause_rates == (None, None, 1)
    assert tally((from_gpu, replace(answer, causes=("gc_pause",)))).cause_rates == (None, None, 0)
    wrong_rank = replace(answer, ranks=(3,))
    assert tally((STRAGGLER, wrong_rank)).cause_rates == (None, None, None)


def calls(**columns: list[int]) -> pa.Table:
    size = len(columns["rank"])
    made = batch(
        {"metric_name": "ncclAllReduce", "source": "nccl", "comm_id": "0a", "timing_source": "kernel_gpu", **columns},
        size,
    )
    return pa.Table.from_batches([made])


def test_the_two_rules_name_the_last_one_in_and_the_one_that_waits_least() -> None:
    events = calls(
        rank=[0, 1, 2, 0, 1, 2],
        coll_seq=[0, 0, 0, 1, 1, 1],
        timestamp_ns=[10, 30, 20, 110, 130, 120],
        duration_ns=[25, 5, 15, 25, 6, 4],
    )
    assert latest_arriver(events) == 1
    assert longest_wait(events) == 1


@pytest.mark.parametrize("view", VIEWS)
def test_the_rules_name_some_rank_of_a_generated_case(view: str) -> None:
    case = generate("F5", 1, 10.0, view)  # type: ignore[arg-type]
    for rule in (latest_arriver, longest_wait):
        (rank,) = named(rule, list(case.batches()))
        assert 0 <= rank < 64


def test_the_document_says_what_was_measured_and_holds_every_table() -> None:
    answers = {"explain_stall": Answer("straggler", (5,)), **dict.fromkeys(RULES, Answer("straggler", (3,)))}
    scored = [
        Scored(Spec("F1", HELD_OUT, 5.0, "probe"), STRAGGLER, answers, 0.1),
        Scored(Spec("F18", HELD_OUT, 0.0, "probe"), CLEAN_CASE, answers, 0.1),
    ]
    text = document(scored, range(HELD_OUT, HELD_OUT + 1))
    assert "2 generated cases, 1 of them clean, seeds from 10000" in text
    assert "| F1 | 5 | 1 | 1 | 1 | 1 | 1 | 1 | - | - | - | - | 0, 0 | 0, 0 |" in text
    assert "| F18 | - | 1 | 0 | - | 0 | - | - | 1 | - | - | - | -, 0 | -, 0 |" in text
    for name in dict.fromkeys(row["table"] for row in rows_of(scored)):
        assert name.lower() in text.lower()


def test_no_cases_make_empty_tables() -> None:
    assert table(rows_of([])) == ""
