"""A corpus of attacks and of ordinary questions that was collected by others, where this checkout has it beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from ingero_mcp.errors import GuardError
from ingero_mcp.sqlguard import check

CORPUS = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "sqlguard"
pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}")


def _lines(verdict: str) -> list[dict[str, str]]:
    lines = map(json.loads, (CORPUS / "corpus.jsonl").read_text().splitlines())
    return [line for line in lines if line["verdict"] == verdict]


@pytest.fixture(scope="module")
def bait() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.execute((CORPUS / "bait.sql").read_text())
        yield connection


def test_every_attack_is_refused() -> None:
    assert [line["sql"] for line in _lines("reject") if _refusal(line["sql"]) is None] == []


def test_every_question_runs(bait: duckdb.DuckDBPyConnection) -> None:
    for line in _lines("allow"):
        refusal = _refusal(line["sql"])
        if refusal is None:
            bait.cursor().execute(check(line["sql"]).sql).fetchall()
        else:
            assert line.get("optional"), refusal
            assert all(reason.hint for reason in refusal.reasons)


def _refusal(sql: str) -> GuardError | None:
    try:
        check(sql)
    except GuardError as error:
        return error
    return None
