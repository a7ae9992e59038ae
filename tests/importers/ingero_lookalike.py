"""SQLite databases as the Ingero agent writes them, with what a test puts into them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

START_NS = 1_775_218_723_000_000_000
MS = 1_000_000

_EVENT = """timestamp INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL, source INTEGER NOT NULL,
    op INTEGER NOT NULL, duration INTEGER NOT NULL, gpu_id INTEGER NOT NULL DEFAULT 0, arg0 INTEGER NOT NULL DEFAULT 0,
    arg1 INTEGER NOT NULL DEFAULT 0, ret_code INTEGER NOT NULL DEFAULT 0, stack_hash INTEGER NOT NULL DEFAULT 0"""
_RANKS = "rank INTEGER, local_rank INTEGER, world_size INTEGER"
_NODE = "node TEXT NOT NULL DEFAULT ''"
_MIGRATED = "stack_ips TEXT NOT NULL DEFAULT '', cgroup_id INTEGER NOT NULL DEFAULT 0"

EVENTS = {
    "0.8": f"CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, {_EVENT}, {_MIGRATED})",
    "0.9": f"CREATE TABLE events (id TEXT PRIMARY KEY, {_EVENT}, {_NODE}, {_RANKS}, {_MIGRATED})",
    "0.10": f"CREATE TABLE events (id TEXT PRIMARY KEY, {_EVENT}, {_NODE}, {_RANKS}, comm TEXT NOT NULL DEFAULT '', "
    f"{_MIGRATED})",
}
_AGGREGATE = """(bucket INTEGER NOT NULL, source INTEGER NOT NULL, op INTEGER NOT NULL, pid INTEGER NOT NULL DEFAULT 0,
    count INTEGER NOT NULL DEFAULT 0, stored INTEGER NOT NULL DEFAULT 0, sum_dur INTEGER NOT NULL DEFAULT 0,
    min_dur INTEGER NOT NULL DEFAULT 0, max_dur INTEGER NOT NULL DEFAULT 0, sum_arg0 INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (bucket, source, op, pid))"""
_CHAIN = """id TEXT PRIMARY KEY, detected_at INTEGER NOT NULL, severity TEXT NOT NULL, summary TEXT NOT NULL,
    root_cause TEXT NOT NULL, explanation TEXT NOT NULL, recommendations TEXT NOT NULL DEFAULT '',
    cuda_op TEXT NOT NULL DEFAULT '', cuda_p99_us INTEGER NOT NULL DEFAULT 0, cuda_p50_us INTEGER NOT NULL DEFAULT 0,
    tail_ratio REAL NOT NULL DEFAULT 0, timeline TEXT NOT NULL DEFAULT ''"""
_SESSION = """id INTEGER PRIMARY KEY AUTOINCREMENT, started_at INTEGER NOT NULL, stopped_at INTEGER NOT NULL DEFAULT 0,
    gpu_model TEXT NOT NULL DEFAULT '', gpu_driver TEXT NOT NULL DEFAULT '', cpu_model TEXT NOT NULL DEFAULT '',
    cpu_cores INTEGER NOT NULL DEFAULT 0, mem_total INTEGER NOT NULL DEFAULT 0, kernel TEXT NOT NULL DEFAULT '',
    os_release TEXT NOT NULL DEFAULT '', cuda_ver TEXT NOT NULL DEFAULT '', python_ver TEXT NOT NULL DEFAULT '',
    ingero_ver TEXT NOT NULL DEFAULT '', pid_filter TEXT NOT NULL DEFAULT '', flags TEXT NOT NULL DEFAULT ''"""
OTHERS = (
    "CREATE TABLE schema_info (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE stack_traces (hash INTEGER PRIMARY KEY, ips TEXT NOT NULL, frames TEXT NOT NULL DEFAULT '')",
    """CREATE TABLE system_snapshots (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL UNIQUE,
    cpu_pct REAL NOT NULL, mem_pct REAL NOT NULL, mem_avail INTEGER NOT NULL, swap_mb INTEGER NOT NULL,
    load_avg REAL NOT NULL)""",
    """CREATE TABLE process_names (pid INTEGER NOT NULL, name TEXT NOT NULL, seen_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (pid))""",
    f"CREATE TABLE event_aggregates {_AGGREGATE}",
    """CREATE TABLE cgroup_metadata (cgroup_id INTEGER PRIMARY KEY, container_id TEXT NOT NULL DEFAULT '',
    cgroup_path TEXT NOT NULL DEFAULT '', pod_name TEXT NOT NULL DEFAULT '', namespace TEXT NOT NULL DEFAULT '')""",
    """CREATE TABLE cgroup_schedstat (cgroup_id INTEGER NOT NULL, p99_off_cpu INTEGER NOT NULL,
    total_off_cpu INTEGER NOT NULL, event_count INTEGER NOT NULL, window_start INTEGER NOT NULL DEFAULT 0,
    window_end INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (cgroup_id, window_end))""",
    "CREATE INDEX idx_events_timestamp ON events(timestamp)",
)
_NEW = (
    f"CREATE TABLE event_aggregates_5s {_AGGREGATE}",
    """CREATE TABLE annotations (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL, labels TEXT NOT NULL,
    pid INTEGER NOT NULL DEFAULT 0, start_time INTEGER NOT NULL DEFAULT 0, span_start INTEGER NOT NULL DEFAULT 0,
    span_end INTEGER NOT NULL DEFAULT 0, peer_uid INTEGER, peer_gid INTEGER, peer_pid INTEGER)""",
)


def statements(version: str) -> list[str]:
    """The schema of an agent of that version."""
    chain, session = _CHAIN, _SESSION
    if version != "0.8":
        chain, session = f"{_CHAIN}, {_NODE}", f"{_SESSION}, {_NODE}, {_RANKS}"
    found = [EVENTS[version], f"CREATE TABLE causal_chains ({chain})", f"CREATE TABLE sessions ({session})", *OTHERS]
    found.append(f"INSERT INTO schema_info VALUES ('version', '{version}')")
    return [*found, *_NEW, "PRAGMA user_version = 10"] if version == "0.10" else found


def event(number: int, node: str | None = "n1", **values: Any) -> dict[str, Any]:
    """A cudaMalloc, unless `values` say otherwise; without a node as agents of 0.8 wrote it."""
    row = {"timestamp": START_NS + number * MS, "pid": 7, "tid": 8, "source": 1, "op": 1, "duration": 1000}
    row |= {"id": number} if node is None else {"id": f"{node}:{number}", "node": node}
    return row | values


def chain(chain_id: str, **values: Any) -> dict[str, Any]:
    """A stored causal chain."""
    row = {"id": chain_id, "detected_at": START_NS, "severity": "HIGH", "summary": "slow", "root_cause": "why",
           "explanation": "because"}  # fmt: skip
    return row | values


def session(start_ms: int, stop_ms: int, **values: Any) -> dict[str, Any]:
    """A run of the agent, in milliseconds from START_NS."""
    return {"started_at": START_NS + start_ms * MS, "stopped_at": START_NS + stop_ms * MS} | values


def write(path: Path, version: str = "0.9", **tables: Iterable[Row]) -> Path:
    """Make a database with these rows."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements(version):
            connection.execute(statement)
        insert(connection, **tables)
        connection.commit()
    return path


def insert(connection: sqlite3.Connection, **tables: Iterable[Row]) -> None:
    """Add rows to the tables of an open database."""
    for table, rows in tables.items():
        for row in rows:
            names = ", ".join(row)
            connection.execute(
                f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values())
            )


def change(path: Path, *changes: str) -> Path:
    """Run statements on a database that is there."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in changes:
            connection.execute(statement)
        connection.commit()
    return path
