"""What the guard lets pass gives the rows of the original; what it refuses, it refuses for the right reason."""

from __future__ import annotations

import duckdb
import pytest

from ingero_mcp.errors import GuardError
from ingero_mcp.sqlguard import check
from tests.sqlguard import statements

VOLATILE = ("SAMPLE", "now()", "current_", "localtime")


@pytest.mark.parametrize("sql", statements.allowed())
def test_allowed_statement_gives_what_the_original_gives(sql: str, database: duckdb.DuckDBPyConnection) -> None:
    cursor = database.cursor()
    after = _result(cursor, check(sql).sql)
    try:
        before = _result(cursor, sql)
    except duckdb.BinderException as error:
        # Agents still write `x -> x + 1`; the engine refuses it, the rendered text has the new spelling.
        assert "Deprecated lambda arrow" in str(error)
        return
    if not any(word in sql for word in VOLATILE):
        assert after == before


def _result(cursor: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], list[str], list[str]]:
    rows = sorted(map(repr, cursor.execute(sql).fetchall()))
    described = cursor.description or []
    # A column that has no name is named after its text, in which relations are now qualified.
    names = [str(column[0]).replace("main.", "") for column in described]
    return names, [str(column[1]) for column in described], rows


@pytest.mark.parametrize(("sql", "codes"), statements.denied())
def test_denied_statement_is_refused_for_its_reasons(sql: str, codes: frozenset[str]) -> None:
    with pytest.raises(GuardError) as refused:
        check(sql)
    assert {reason.code for reason in refused.value.reasons} == codes
    assert all(reason.message and reason.hint for reason in refused.value.reasons)
