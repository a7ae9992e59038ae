"""Generated cases: the same arguments give the same events, and the events of both forms are the same."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from ingero_mcp.clock import now_ns
from ingero_mcp.events import Point, Sample, Span
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.encode import encode_points, encode_samples, encode_spans
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.store import open_store
from ingero_mcp.synth.scenario import FAMILIES, VIEWS, Case, View, generate

from .events import rows


def received(case: Case) -> list[dict[str, Any]]:
    """The rows of the case after a way over OTLP."""
    decoder, found = Decoder(), []
    arrival = Arrival(now_ns())
    pairs = list(case.events())
    for kind, encode, signal in (
        (Span, encode_spans, "traces"),
        (Sample, encode_samples, "metrics"),
        (Point, encode_points, "logs"),
    ):
        chosen = [(resource, event) for resource, event in pairs if isinstance(event, kind)]
        for _, group in groupby(chosen, key=lambda pair: id(pair[0])):
            members = list(group)
            body = encode(members[0][0], [event for _, event in members])  # type: ignore[operator]
            decoded = decoder.decode(signal, body, arrival)  # type: ignore[arg-type]
            assert (decoded.rejected, decoded.repaired_times) == (0, 0)
            found += decoded.batch.to_pylist()
    return found


def comparable(found: list[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {
        (row["job_id"], row["node_id"], row["event_seq"]): row | {"attrs_json": json.loads(row["attrs_json"])}
        for row in found
    }


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("family", ["F1", "F3", "F4", "F5", "F6", "F7", "F9", "F10", "F11", "F14", "F17"])
def test_batches_hold_what_the_store_would_hold_after_receiving_the_events(family: str, view: View) -> None:
    case = min((generate(family, seed, 5.0, view) for seed in range(24)), key=lambda one: one.rows)
    straight, sent = comparable(rows(case)), comparable(received(case))
    assert straight.keys() == sent.keys()
    for key, row in straight.items():
        assert row == sent[key]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_same_arguments_give_the_same_case(family: str) -> None:
    first, second = (generate(family, 5, 3.0, VIEWS[len(family) % 3]) for _ in range(2))
    assert first.truth == second.truth
    assert list(first.batches()) == list(second.batches())


def test_another_seed_gives_another_case() -> None:
    assert list(generate("F1", 1).batches()) != list(generate("F1", 2).batches())


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_views_show_the_same_run(family: str) -> None:
    truths = [generate(family, 8, 5.0, view).truth for view in VIEWS]
    same = ("cause", "culprits", "group", "affected_steps", "spread_ns", "lost_ns", "hang_ns", "period_steps")
    assert len({tuple(getattr(truth, name) for name in same) for truth in truths}) == 1


def test_a_store_takes_a_case_as_it_is() -> None:
    case = generate("F2", 4)
    with open_store(None) as store:
        stored = sum(store.append(batch).result(timeout=10).rows for batch in case.batches())
    assert stored == case.rows


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(KeyError):
        generate("F19", 1)
