"""Two recordings side by side, as an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ingero_mcp.errors import QueryError
from ingero_mcp.store import Store, open_store
from ingero_mcp.synth.scenario import Truth, generate
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.compared import Asked, compared
from tests.tools.explained import put_case


@pytest.fixture(scope="module")
def throttled() -> Iterator[tuple[Store, Truth]]:
    """A job whose GPU is throttled from some step on."""
    case = next(
        case
        for case in (generate("F5", seed, 10.0, "optrace") for seed in range(50))
        if case.truth.onset_step and len(case.truth.affected_steps) < 110 and "no_steps" not in case.truth.traits
    )
    with open_store(None) as store:
        put_case(store, case)
        yield store, case.truth


def halves(store: Store, truth: Truth) -> tuple[str, str]:
    """The time before the onset, and from it on."""
    call = Call(store, None)
    rows = call.read(
        f"SELECT min(timestamp_ns) AS a, min(timestamp_ns) FILTER (WHERE step >= {truth.onset_step}) AS b, "
        "max(timestamp_ns) AS c FROM events",
        1,
    ).rows
    begin, onset, end = (int(str(value)) for value in rows[0])
    return f"{begin}-{onset}", f"{onset}-{end + 1}"


def asked(store: Store, before: str, after: str) -> tuple[dict[str, Any], str]:
    call = Call(store, None)
    said = compared(call, call, Asked(before=before, after=after))
    return dict(said.structured), said.text


def test_two_windows_of_a_store_tell_who_changed(throttled: tuple[Store, Truth]) -> None:
    store, truth = throttled
    said, text = asked(store, *halves(store, truth))
    assert next(one["id"] for one in said["ranks"] if one["beyond_chance"]) == truth.culprits[0]
    assert (said["before"]["verdict"], said["after"]["verdict"]) == ("healthy", "straggler")
    assert said["after"]["culprits"][0] == truth.culprits[0]
    assert f"rank {truth.culprits[0]} by +" in said["summary"]
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_half_with_nothing_in_it_is_said(throttled: tuple[Store, Truth]) -> None:
    with pytest.raises(QueryError, match="the second of the two"):
        asked(throttled[0], "all", "2020-01-01T00:00Z/2020-01-02T00:00Z")
