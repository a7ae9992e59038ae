"""The fuzzer is tested: its oracle sees each kind of harm, and with a layer gone it finds what that layer stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sqlguard.fuzz.bait import FILE, OUT
from tests.sqlguard.fuzz.campaign import fuzz
from tests.sqlguard.fuzz.layers import ALL, Layer
from tests.sqlguard.fuzz.oracle import Kind
from tests.sqlguard.fuzz.overlaps import OVERLAPS, Overlap
from tests.sqlguard.fuzz.runner import Runner

_SEED = 0
_QUICK = 3_000
_LONG = 40_000
# Found only after a thousand statements, or after some that hang.
_SLOW = (Layer.TEXT, Layer.RENDERED, Layer.ONE_STATEMENT)


@pytest.fixture(scope="module")
def unguarded() -> Iterator[Runner]:
    with Runner(frozenset()) as runner:
        yield runner


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("FROM vault", Kind.LEAK),
        ("SELECT upper(token) FROM vault", Kind.LEAK),
        ("SELECT md5(token) FROM vault", Kind.LEAK),
        ("SELECT count(*) FROM vault", Kind.LEAK),
        ("SELECT rank FROM events WHERE (SELECT count(*) FROM vault) > 1", Kind.LEAK),
        ("SELECT error(token) FROM vault", Kind.LEAK),
        ("FROM duckdb_tables()", Kind.LEAK),
        ("SELECT path FROM duckdb_databases()", Kind.LEAK),
        ("SELECT content FROM read_text('/proc/self/environ')", Kind.LEAK),
        ("SELECT 'x'::mood", Kind.TYPE),
        (f"SELECT count(*) FROM '{FILE}'", Kind.FILE),
        ("FROM glob('*')", Kind.FILE),
        (f"COPY events TO '{OUT}/x.csv'", Kind.FILE),
        ("DELETE FROM vault", Kind.CHANGE),
        ("CREATE TABLE made AS SELECT 1", Kind.CHANGE),
        ("SET threads = 3", Kind.SETTINGS),
        ("ATTACH ':memory:' AS m", Kind.SETTINGS),
        ("BEGIN TRANSACTION", Kind.TRANSACTION),
        ("SELECT length(repeat('x', 2000000000))", Kind.MEMORY),
        ("SELECT json_contains(repeat('[', 1000000) || repeat(']', 1000000), '1')", Kind.DEATH),
    ],
)
def test_the_oracle_sees(sql: str, kind: Kind, unguarded: Runner) -> None:
    assert kind in {fault.kind for fault in unguarded.examine(sql).faults}


@pytest.mark.parametrize(
    "sql",
    ["SELECT 1", "FROM events", "SELECT now(), random()", "SELECT nosuch", "FROM range(1000000) a, range(1000000) b"],
)
def test_the_oracle_has_nothing_against(sql: str, unguarded: Runner) -> None:
    assert unguarded.examine(sql).faults == ()


def test_every_layer_has_its_overlaps_told() -> None:
    assert {overlap.layer for overlap in OVERLAPS} == ALL


def _found(overlap: Overlap, most: int) -> None:
    without = fuzz(overlap.without_layer, _SEED, range(most), until=overlap.kinds)
    print(f"\nwithout {', '.join(sorted(ALL - overlap.without_layer))}: {without}")
    assert {finding.fault.kind for finding in without.findings} & overlap.kinds, (
        "the fuzzer did not find what gets through"
    )
    with_it = fuzz(overlap.with_layer, _SEED, range(without.tried), until=overlap.kinds)
    assert [finding for finding in with_it.findings if finding.fault.kind in overlap.kinds] == []


@pytest.mark.parametrize("overlap", [one for one in OVERLAPS if one.layer not in _SLOW], ids=lambda one: str(one.layer))
def test_a_layer_is_needed_where_those_like_it_are_gone(overlap: Overlap) -> None:
    _found(overlap, _QUICK)


@pytest.mark.nightly
@pytest.mark.parametrize("overlap", [one for one in OVERLAPS if one.layer in _SLOW], ids=lambda one: str(one.layer))
def test_a_layer_is_needed_for_what_is_found_slowly(overlap: Overlap) -> None:
    _found(overlap, _LONG)
