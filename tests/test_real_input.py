"""A real trace, the whole way a person would go: `ingero import`, then one statement through the SQL tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from ingero_mcp import mcp_server
from ingero_mcp.store import open_store
from tests.conftest import DATA
from tests.importers.test_optrace_straggler import STRAGGLERS
from tests.processes import run_ingero

TRACES = DATA / "bytedance-straggler"
needs_data = pytest.mark.skipif(not TRACES.exists(), reason="the published traces are not beside this checkout")


async def ask(path: Path, sql: str) -> Any:
    with open_store(path, read_only=True) as store:
        async with Client(mcp_server.build(store, live=False)) as client:
            result = await client.call_tool("fleet.cluster.run_analysis", {"sql": sql})
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content["rows"]


@needs_data
@pytest.mark.anyio
async def test_the_slowed_worker_is_named_in_every_step(tmp_path: Path) -> None:
    path = tmp_path / "ar.duckdb"
    for stored in (117_216, 0):
        imported = run_ingero("import", str(TRACES / "trace-AR.parquet"), "-d", str(path), "--json")
        assert imported.returncode == 0, imported.stderr
        [fact] = json.loads(imported.stdout)["files"]
        assert (fact["rows"], fact["stored"], fact["ranks"], fact["steps"]) == (117_216, stored, 16, 44)
    [[job, rank, steps, mean_excess_s, _]] = await ask(path, STRAGGLERS)
    assert (job, rank, steps) == ("AR-run0", 0, 44)
    assert mean_excess_s == pytest.approx(26.1, abs=0.1)


@needs_data
@pytest.mark.anyio
async def test_where_no_worker_is_slow_nobody_is_named(tmp_path: Path) -> None:
    path = tmp_path / "st.duckdb"
    assert run_ingero("import", str(TRACES / "trace-ST.parquet"), "-d", str(path)).returncode == 0
    assert await ask(path, STRAGGLERS) == []
