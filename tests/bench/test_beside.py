"""The tables beside those of the families: costs, two incidents in one run, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import goals
from bench.accuracy import Scored, judge
from bench.accuracy_report import document, rows_of
from bench.baselines import RULES
from bench.beside_report import beside as tables
from bench.double_score import Doubles
from bench.score import Answer
from bench.suite import HELD_OUT, Spec, beside
from bench.waste_score import close_share, errors, median_error, over_share
from ingero_mcp.synth.scenario import DOUBLES, UNSEEN, UNTOLD, Fault, Group, Truth

LINK = Group("link", "a|b", (2, 3, 4, 5))
RANK = Fault("cpu_contention", "straggler", (5,), None, 900)
NETWORK = Fault("network", "network", (), LINK, 300)
TWO = Truth("M4", "probe", "straggler", "cpu_contention", ("straggler", "network"), (5,), faults=(RANK, NETWORK))
SLOW = Truth("F1", "probe", "straggler", "data_loader", ("straggler",), (5,), is_single=True, severity=5, lost_ns=1000)


def scores(*answers: Answer, truth: Truth = TWO) -> dict[str, float | None]:
    counts = Doubles()
    for answer in answers:
        counts.add(truth, answer)
    return counts.rates


def named(rank: int, cause: str = "cpu_contention", *others: Answer) -> Answer:
    return Answer("straggler", (rank,), (), (cause,), others=others)


def network(*ranks: int) -> Answer:
    return Answer("network", (), (("link", "a|b", ranks),), ("network",))


def test_both_incidents_named_in_the_order_of_their_costs_is_all_there_is_to_say() -> None:
    assert scores(named(5, "cpu_contention", network(2, 3))) == {
        "named": 1, "both": 1, "first": 1, "cause": 1, "precision": 1,
    }  # fmt: skip


def test_the_cheaper_one_first_is_found_but_not_first() -> None:
    said = scores(replace(network(2, 3), others=(named(5),)))
    assert (said["both"], said["first"]) == (1, 0)
    alike = replace(TWO, faults=(RANK, replace(NETWORK, lost_ns=800)))
    assert scores(network(2, 3), truth=alike)["first"] == 1


def test_one_of_two_is_half_and_another_rank_costs_precision() -> None:
    said = scores(named(5, "gc_pause", named(1)))
    assert (said["named"], said["both"], said["first"], said["cause"], said["precision"]) == (0.5, 0, 1, 0, 0.5)


def test_a_link_is_named_by_ranks_that_lie_on_it_only() -> None:
    assert scores(network(1, 2))["named"] == 0


def test_what_the_view_does_not_show_is_not_asked_for() -> None:
    hidden = replace(TWO, faults=(RANK, replace(NETWORK, is_hidden=True)))
    said = scores(named(5), truth=hidden)
    assert (said["named"], said["both"]) == (1, None)


def test_costs_are_judged_where_the_verdict_is_right_and_bounds_by_themselves() -> None:
    answers = [
        replace(named(5), lost_ns=1050.0),
        replace(named(5), lost_ns=1500.0),
        replace(named(5), lost_ns=3000.0, is_bound=True),
        replace(network(2, 3), lost_ns=77.0),
        named(5),
    ]
    pairs = [(SLOW, answer) for answer in answers]
    found, bounds = errors(pairs), errors(pairs, bounds=True)
    assert found == pytest.approx([0.05, 0.5])
    assert (median_error(found), close_share(found)) == (pytest.approx(0.275), 0.5)
    assert (bounds, over_share(bounds)) == ([2.0], 1)
    assert (median_error([]), close_share([]), over_share([])) == (None, None, None)


def test_a_finding_about_one_of_several_is_not_held_against_the_cost_of_all() -> None:
    answer = replace(named(5), lost_ns=10.0)
    for truth in (replace(SLOW, traits=("rotating",)), replace(SLOW, is_hidden=True), replace(TWO, lost_ns=1000)):
        assert errors([(truth, answer)]) == []


def test_the_cases_beside_are_of_every_kind_and_held_out() -> None:
    specs = beside(range(HELD_OUT, HELD_OUT + 2))
    assert {spec.family for spec in specs} == {*UNSEEN, *DOUBLES, *UNTOLD}
    assert all(spec.seed >= HELD_OUT for spec in specs)
    assert {spec.view for spec in specs if spec.family == "N3"} == {"probe"}
    assert len(set(specs)) == len(specs)


def scored(family: str, truth: Truth, answer: Answer) -> Scored:
    answers = {"explain_stall": answer, **dict.fromkeys(RULES, Answer("straggler", (3,)))}
    return Scored(Spec(family, HELD_OUT, 5.0, truth.view), truth, answers, 0.1)


def test_the_document_has_their_tables_and_the_goals_and_keeps_them_apart() -> None:
    untold = Truth("N2", "kernel", "undecidable", "unknown", ("undecidable", "healthy"), (1,), is_hidden=True)
    cases = [
        scored("F1", SLOW, replace(named(5), lost_ns=1050.0)),
        scored("U1", replace(SLOW, family="U1"), named(3)),
        scored("M4", TWO, named(5)),
        scored("N2", untold, Answer("undecidable")),
    ]
    text = document(cases, range(HELD_OUT, HELD_OUT + 1))
    for table in tables(cases):
        assert table.name in text
        assert table.rows
        assert len(table.text) == len(table.rows) + 2
    assert "| N2 | kernel | 1 | 1 | 0 | 0 |" in text
    assert "| unseen families: top-1 | >= 0.95 | 0 | no |" in text
    assert "| precision | >= 0.95 | 1 | yes |" in text
    assert {row["of"] for row in rows_of(cases) if row["table"] == "family and severity"} == {"F1"}
    assert all(goal.measure([]) is None for goal in goals.GOALS)


def test_a_case_with_two_incidents_is_asked_and_scored() -> None:
    one = judge(Spec("M3", 3, 10.0, "probe"))
    assert not one.crash
    assert one.answers["explain_stall"].others
    (table,) = tables([one])
    assert table.name.startswith("Two incidents")
