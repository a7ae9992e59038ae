"""What an export of a store holds: every event once, in order, in pieces of bounded size."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ingero_mcp.batches import batch
from ingero_mcp.cli.import_file import put
from ingero_mcp.errors import ConfigError, GuardError, QueryError
from ingero_mcp.events import COLUMNS
from ingero_mcp.exported import pieces
from ingero_mcp.exported.asked import Asked
from ingero_mcp.exported.begun import SCHEMA, begin
from ingero_mcp.importers.registry import open_file
from ingero_mcp.store import Store, open_store
from ingero_mcp.tools.call import Call
from tests.conftest import DATA
from tests.export.traces import Event, assert_sound, ns, of, read
from tests.importers.ingero_lookalike import chain, event, write
from tests.watch.live import START_NS

AGENTS = sorted((DATA / "ingero").glob("sample-gpu-node-0?.db"))
FORMATS = ("perfetto", "parquet", "csv")


def exported(store: Store, **asked: Any) -> bytes:
    return b"".join(begin(Call(store, None), Asked(**asked)).pieces)


def timeline(store: Store, **asked: Any) -> Event:
    made = read(exported(store, format="perfetto", **asked))
    assert_sound(made)
    return made


def events(store: Store, **asked: Any) -> pa.Table:
    return pq.read_table(io.BytesIO(exported(store, format="parquet", **asked)))


def fill(store: Store, rows: int, **columns: Any) -> None:
    given = {"cluster_id": "c", "node_id": "n", "event_seq": list(range(rows)), "metric_name": "m", "source": "cuda"}
    store.append(batch({**given, "timestamp_ns": [START_NS + n for n in range(rows)], **columns}, rows)).result(
        timeout=30
    )


@pytest.mark.skipif(len(AGENTS) != 3, reason="the agents' databases are not beside this checkout")
def test_three_nodes_of_an_agent_are_600_spans_and_6_chains() -> None:
    with open_store(None) as store:
        for path in AGENTS:
            put(open_file(path), store)
        made = timeline(store)
        ends = events(store)
    chains = [mark for mark in of(made, "i") if mark["cat"] == "causal_chain"]
    happened = [one for one in of(made, "X", "i") if one["cat"] != "causal_chain"]
    assert (len(happened), len(chains)) == (600, 6)
    assert Counter(one["cat"] for one in happened) == {"io": 305, "host": 219, "driver": 76}
    assert Counter(mark["cname"] for mark in chains) == {"bad": 2, "yellow": 4}
    names = [one["args"]["name"] for one in of(made, "M") if one["name"] == "process_name"]
    assert sorted(names) == ["gpu-node-01", "gpu-node-02", "gpu-node-03"]
    # An agent stamps what the host did with its end: here all begin at their begin.
    base = int(made["otherData"]["base_time_ns"])
    drawn = Counter((one["name"], base + ns(one["ts"]), ns(one.get("dur", 0))) for one in happened)
    stored = zip(*(ends[name].to_pylist() for name in ("metric_name", "timestamp_ns", "duration_ns")), strict=True)
    assert drawn == Counter((name, at_ns, length_ns or 0) for name, at_ns, length_ns in stored)


def test_an_agents_completion_times_become_begins(tmp_path: Path, store: Store) -> None:
    rows = [event(1, source=3, op=1, timestamp=START_NS + 900, duration=400),
            event(2, source=4, op=1, timestamp=START_NS + 900, duration=400)]  # fmt: skip
    put(open_file(write(tmp_path / "a.db", events=rows, causal_chains=[chain("n1:a", node="n1")])), store)
    made = timeline(store)
    base = int(made["otherData"]["base_time_ns"])
    begins = {one["name"]: base + ns(one["ts"]) for one in of(made, "X")}
    assert begins == {"sched_switch": START_NS + 500, "cuLaunchKernel": START_NS + 900}
    assert [mark["cat"] for mark in of(made, "i")] == ["causal_chain"]


def test_every_column_of_every_event_is_exported(store: Store) -> None:
    fill(store, 3, value_double=[0.5, float("nan"), None], attrs_json=['{"a":1}', None, ""], rank=[0, 1, None])
    table = events(store)
    assert table.schema.names == [column.name for column in COLUMNS]
    assert table.schema == SCHEMA
    assert table["id"].to_pylist() == ["n:0", "n:1", "n:2"]
    text = exported(store, format="csv").decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["value_double"] for row in rows] == ["0.5", "NaN", ""]
    assert text.splitlines()[2].count('""') == 0 and text.splitlines()[3].count('""') == 1


def test_events_come_in_bounded_pieces_and_in_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MOST_ROWS", 100)
    monkeypatch.setattr(pieces, "MOST_TEXT_BYTES", 20_000)
    # Dense and sparse, a crowd at one nanosecond, one far off either way, long texts; stored out of order.
    times = [START_NS + (n * 7919) % 1000 for n in range(1000)] + [START_NS + 5_000] * 450 + [-(2**63), 2**63 - 1]
    times += [START_NS + 10_000 + n for n in range(50)]
    texts = ["{}"] * 1452 + [json.dumps({"a": "x" * 2_000})] * 50
    fill(store, len(times), timestamp_ns=times, attrs_json=texts)
    held: list[tuple[int, int]] = []
    collect = Call.table

    def table(call: Call, sql: Any, most: int) -> pa.Table:
        found = collect(call, sql, most)
        held.append((found.num_rows, pc.sum(pc.binary_length(found["attrs_json"])).as_py()))
        return found

    monkeypatch.setattr(Call, "table", table)
    read_back = events(store)
    assert sorted(read_back["event_seq"].to_pylist()) == list(range(len(times)))
    assert read_back["timestamp_ns"].to_pylist() == sorted(times)
    # The crowd is told apart by a hash, so its pieces are about as large.
    assert len(held) > 12 and max(rows for rows, _ in held) <= 150 and max(size for _, size in held) <= 22_100
    held.clear()
    made = timeline(store)
    assert len(of(made, "i")) == len(times)
    assert max(rows for rows, _ in held) <= 150


def test_what_is_asked_for_is_what_is_exported(store: Store) -> None:
    fill(store, 4, cluster_id=["a", "a", "b", "b"], job_id=["j", None, "j", "k"])

    def numbers(**asked: str) -> list[int]:
        found: list[int] = events(store, **asked)["event_seq"].to_pylist()
        return found

    assert numbers() == numbers(window="all") == [0, 1, 2, 3]
    assert numbers(cluster="b") == [2, 3]
    assert numbers(job="j") == [0, 2]
    assert numbers(window=f"{START_NS + 1}-{START_NS + 3}") == [1, 2]
    assert numbers(cluster="nobody") == []
    for form in FORMATS:
        assert exported(store, format=form, cluster="nobody")
    assert timeline(store, cluster="nobody")["traceEvents"] == []


def test_rows_of_a_statement_are_exported_through_the_guard(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 4)
    sql = "SELECT metric_name, count(*) AS n, [1, 2] AS list, sum(event_seq) AS wide FROM events GROUP BY 1"
    assert exported(store, format="csv", sql=sql).decode() == 'metric_name,n,list,wide\r\nm,4,"[1,2]",6\r\n'
    assert pq.read_table(io.BytesIO(exported(store, format="parquet", sql=sql)))["n"].to_pylist() == [4]
    for sql in ("DROP TABLE events", "SELECT * FROM read_csv('/etc/passwd')"):
        with pytest.raises(GuardError):
            exported(store, format="csv", sql=sql)
    for wrong in ({"format": "perfetto"}, {"format": "csv", "job": "j"}, {"format": "parquet", "window": "all"}):
        with pytest.raises(ConfigError, match="sql"):
            exported(store, sql="SELECT 1", **wrong)
    monkeypatch.setattr("ingero_mcp.exported.begun.MOST_RESULT_BYTES", 1000)
    with pytest.raises(QueryError, match="narrow"):
        exported(store, format="csv", sql="SELECT * FROM range(1000)")
