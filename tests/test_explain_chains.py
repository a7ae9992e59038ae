"""`ingero explain` and the chains of nodes: beside a stall, in its place, alone; from files and from servers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ingero_mcp.cli.main import main
from ingero_mcp.store import open_store
from tests.conftest import RunServer
from tests.importers import ingero_lookalike as agent
from tests.tools.explained import Training, put
from tests.tools.slow_node import incident, launches, store_rows


def explain(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    capsys.readouterr()
    assert main(["explain", *flags]) == 0
    return capsys.readouterr().out


def database(path: Path, *, with_job: bool = False) -> str:
    with open_store(path) as store:
        store_rows(store, incident(0))
        if with_job:
            put(store, Training(late_ms={2: 60}).rows())
    return str(path)


def test_where_there_is_nothing_to_judge_a_stall_by_the_chains_are_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = database(tmp_path / "a.duckdb")
    text = explain(capsys, "-d", path)
    assert text.startswith("INCIDENT REPORT: 2 causal chains (1 HIGH, 1 MEDIUM)\n\n[HIGH] [n1] backup (pid 9)")
    assert "There is nothing to judge a stall by" in text
    said = json.loads(explain(capsys, "-d", path, "--json"))
    assert said["verdict"] == "undecidable"
    assert [one["kind"] for one in said["chains"]] == ["noisy_neighbour", "tail_latency"]


def test_a_stall_comes_first_and_its_json_is_what_explain_stall_returns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = database(tmp_path / "a.duckdb", with_job=True)
    text = explain(capsys, "-d", path)
    assert text.startswith("verdict: straggler")
    assert "\n\nINCIDENT REPORT: 2 causal chains" in text
    said = json.loads(explain(capsys, "-d", path, "--json"))
    assert said["verdict"] == "straggler"
    assert "chains" not in said
    assert "INCIDENT REPORT" not in explain(capsys, "-d", path, "--job", "job")


def test_chains_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = database(tmp_path / "a.duckdb", with_job=True)
    assert explain(capsys, "-d", path, "--chains").startswith("INCIDENT REPORT: 2 causal chains")
    said = json.loads(explain(capsys, "-d", path, "--chains", "--json"))
    assert list(said) == ["chains", "nodes", "window", "notes"]
    assert said["chains"][1]["evidence"][0]["event_ids"]


def test_a_window_without_data_and_a_calm_one_are_not_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = database(tmp_path / "a.duckdb")
    beside = explain(capsys, "-d", path, "--chains", "--window", "2020-01-01/2020-01-02")
    assert beside.startswith("INCIDENT REPORT: no data\nnote: no data in this window; the database has events from")
    with open_store(tmp_path / "calm.duckdb") as store:
        store_rows(store, launches(0, 60))
    calm = explain(capsys, "-d", str(tmp_path / "calm.duckdb"), "--chains")
    assert calm.startswith("INCIDENT REPORT: 0 causal chains")
    assert "no chains: nothing of their kinds shows" in calm
    with open_store(tmp_path / "empty.duckdb"):
        pass
    assert explain(capsys, "-d", str(tmp_path / "empty.duckdb"), "--chains").startswith("INCIDENT REPORT: no data")


def test_the_database_of_an_agent_is_explained_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = [agent.chain("n1:tail-high-x", node="n1", cuda_op="cuMemAlloc", recommendations='["do this"]',
                          timeline='[{"layer":"HOST","op":"sched_switch","detail":"a\\nb","dur_us":5}]')]  # fmt: skip
    path = agent.write(tmp_path / "agent.db", events=[agent.event(1)], causal_chains=stored)
    text = explain(capsys, "-d", str(path))
    assert "[HIGH] [n1] slow\n  when: 2026-04-03T12:18:43Z; as stored, not computed again" in text
    assert "    [HOST  ] a\\nb (5 us)" in text
    assert "  do: do this" in text


def test_a_server_is_asked_for_both(run_server: RunServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = database(tmp_path / "served.duckdb")
    with run_server(db_path=path) as server:
        for flags in ((), ("-d", path)):
            assert explain(capsys, *flags, "--chains").startswith("INCIDENT REPORT: 2 causal chains")
            assert len(json.loads(explain(capsys, *flags, "--json"))["chains"]) == 2
        assert len(post(server.url, {"window": "all"})["structured"]["chains"]) == 2
        for asked in ({"window": 5}, {"windows": "all"}):
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(server.url, asked)
            assert refused.value.code == 400
            assert "accepted are the texts window, cluster_id" in refused.value.read().decode()


def post(url: str, asked: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{url}/api/v1/chains", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        said: dict[str, Any] = json.load(response)
    return said
