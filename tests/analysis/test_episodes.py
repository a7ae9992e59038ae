"""From looks to incidents: each is told once, and its end once, whatever the looks see in between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp.analysis.episodes import LEAST_CONFIDENCE, SURE, Change, Episode, Sighting, advance, severity_of
from ingero_mcp.analysis.findings import Group

S = 1_000_000_000
LOOK_S = 5
SEEN = Sighting(
    verdict="straggler",
    cause="data_loader",
    confidence=0.8,
    ranks=(5,),
    groups=(),
    nodes=("n",),
    since_ns=0,
    last_bad_ns=0,
    share_lost=0.1,
    summary=("Rank 5 is late.", "Others wait.", "Do this."),
)


def looks(seen_by_look: Sequence[Sequence[Sighting]]) -> list[tuple[int, Change]]:
    """What is told in which look, one every five seconds; `last_bad_ns` of None-like 0 is just now."""
    known: tuple[Episode, ...] = ()
    told = []
    for number, seen in enumerate(seen_by_look, start=1):
        now_ns = number * LOOK_S * S
        given = [replace(one, last_bad_ns=one.last_bad_ns or now_ns) for one in seen]
        known, changes = advance(known, given, job="j", now_ns=now_ns, newest_ns=now_ns)
        told += [(number, change) for change in changes]
    return told


def in_short(told: list[tuple[int, Change]]) -> list[tuple[int, str]]:
    return [(number, change.what) for number, change in told]


def test_what_is_sure_is_told_at_once_and_what_is_not_by_two_looks() -> None:
    assert in_short(looks([[SEEN]])) == [(1, "opened")]
    unsure = replace(SEEN, confidence=(LEAST_CONFIDENCE + SURE) / 2)
    assert in_short(looks([[unsure], [unsure]])) == [(2, "opened")]
    assert looks([[unsure], [], [], [], [], []]) == []
    assert looks([[replace(SEEN, confidence=LEAST_CONFIDENCE - 0.01)]] * 4) == []


def test_it_is_over_when_no_step_has_been_bad_for_a_while() -> None:
    last = replace(SEEN, last_bad_ns=10 * S)
    told = looks([[SEEN], [SEEN], *[[last]] * 6])
    assert in_short(told) == [(1, "opened"), (6, "closed")]
    assert told[-1][1].episode.end_ns == 10 * S


def test_what_recurs_is_waited_for_three_periods() -> None:
    rare = replace(SEEN, period_ns=20 * S)
    last = replace(rare, last_bad_ns=5 * S)
    told = looks([[rare], *[[last]] * 20])
    assert in_short(told) == [(1, "opened"), (14, "closed")]


def test_a_look_that_misses_it_does_not_end_it() -> None:
    told = looks([[SEEN], [], [SEEN], [], [], [SEEN]])
    assert in_short(told) == [(1, "opened")]


def test_what_comes_back_within_a_minute_is_the_same_and_later_another() -> None:
    again = replace(SEEN, since_ns=40 * S)
    told = looks([[SEEN], [], [], [], [], [], [], [again]])
    assert in_short(told) == [(1, "opened"), (4, "closed"), (8, "opened")]
    assert len({change.episode.id for _, change in told}) == 1
    later = replace(SEEN, since_ns=300 * S)
    told = looks([[SEEN], *[[]] * 60, [later]])
    assert in_short(told) == [(1, "opened"), (4, "closed"), (62, "opened")]
    assert len({change.episode.id for _, change in told}) == 2


def test_an_echo_of_what_is_over_is_not_told_again() -> None:
    old = replace(SEEN, last_bad_ns=5 * S)
    assert in_short(looks([[SEEN], *[[old]] * 20])) == [(1, "opened"), (5, "closed")]


def test_another_cause_is_told_once_two_looks_agree_on_it() -> None:
    other = replace(SEEN, cause="checkpoint_io")
    told = looks([[SEEN], [other], [SEEN], [other], [other], [other]])
    assert in_short(told) == [(1, "opened"), (5, "changed")]


def test_worse_is_news_and_better_is_not() -> None:
    worse = replace(SEEN, share_lost=0.5)
    assert in_short(looks([[SEEN], [worse], [worse], [SEEN], [SEEN], [SEEN]])) == [(1, "opened"), (3, "changed")]


def test_ranks_that_are_late_for_one_reason_are_one_incident() -> None:
    several = [replace(SEEN, ranks=(rank,), cause="gc_pause", nodes=(f"n{rank}",)) for rank in range(6)]
    told = looks([several[:4], several[2:], several[1:5]])
    assert in_short(told) == [(1, "opened")]
    opened = told[0][1].episode.latest
    assert opened.ranks == (0, 1, 2, 3)
    assert opened.nodes == ("n0", "n1", "n2", "n3")
    assert "The same holds for rank 3." in opened.summary


def test_two_ranks_with_different_causes_are_two_incidents() -> None:
    other = replace(SEEN, ranks=(2,), cause="gpu_throttle")
    assert in_short(looks([[SEEN, other]])) == [(1, "opened"), (1, "opened")]


def test_a_hang_has_no_more_bad_steps_and_goes_on() -> None:
    hang = replace(SEEN, verdict="hang", cause="host_hang", last_bad_ns=1)
    assert in_short(looks([[hang]] * 40)) == [(1, "opened")]
    assert in_short(looks([[hang], [], [], []])) == [(1, "opened"), (4, "closed")]


def test_groups_are_told_apart_by_name() -> None:
    link = replace(SEEN, verdict="network", cause="network", ranks=(), groups=(Group("link", "a|b", (0, 1)),))
    other = replace(link, groups=(Group("link", "c|d", (2, 3)),))
    assert in_short(looks([[link], [link], [other], [other]])) == [(1, "opened"), (3, "opened")]


@pytest.mark.parametrize(("share", "severity"), [(0.0, "LOW"), (0.05, "MEDIUM"), (0.2, "HIGH")])
def test_severity_is_the_share_of_the_time_lost(share: float, severity: str) -> None:
    assert severity_of("straggler", share) == severity
    assert severity_of("hang", share) == "HIGH"


SIGHTINGS = st.builds(
    Sighting,
    verdict=st.sampled_from(["straggler", "hang", "network", "imbalance"]),
    cause=st.sampled_from(["data_loader", "gc_pause", "unknown"]),
    confidence=st.floats(0, 1),
    ranks=st.lists(st.integers(0, 3), max_size=3, unique=True).map(tuple),
    groups=st.just(()),
    nodes=st.just(()),
    since_ns=st.integers(0, 200 * S),
    last_bad_ns=st.integers(0, 200 * S),
    share_lost=st.floats(0, 1),
    summary=st.just(("a", "b", "c")),
    period_ns=st.none() | st.integers(1, 30 * S),
)


@given(st.lists(st.lists(SIGHTINGS, max_size=3), max_size=30))
def test_whatever_is_seen_what_is_told_of_one_incident_makes_sense(seen: list[list[Sighting]]) -> None:
    by_id: dict[str, str] = {}
    for _, change in looks(seen):
        by_id[change.episode.id] = by_id.get(change.episode.id, "") + change.what[1]
        assert change.what != "closed" or change.episode.end_ns is not None
        assert change.what == "closed" or change.episode.end_ns is None
    # o[p]ened, c[h]anged, c[l]osed
    assert all(re.fullmatch("(ph*l)*(ph*)?", told) for told in by_id.values()), by_id
