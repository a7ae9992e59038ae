"""`ingero import`: files people already have, into a database. The same file twice adds nothing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.cells import text
from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.imported import Import, Names, batch_key
from ingero_mcp.importers.registry import open_file, sort_out
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from ingero_mcp.store.writer import Appended
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.node_clocks import node_clocks

_MOST_NOTES: Final = 10
_IDENTITY: Final = ("node_id", "event_seq", "timestamp_ns", "metric_name")
_MOST_ALIKE: Final = 100_000


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """What to import, and where to."""
    parser.add_argument("files", nargs="+", metavar="FILE_OR_FOLDER", help="what to import; told apart by content")
    parser.add_argument("-d", "--db", required=True, help="database file; made if it does not exist")
    add_names(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_names(parser: argparse.ArgumentParser) -> None:
    """The flags for what a file may not say itself."""
    parser.add_argument("--force-node", metavar="NAME", help="node of events that do not say theirs")
    parser.add_argument("--cluster", metavar="NAME", help="cluster of files that do not say theirs")


def names(arguments: argparse.Namespace) -> Names:
    """Those flags; ConfigError for a name that cannot be one."""
    node, cluster = arguments.force_node, arguments.cluster
    return Names(semconv.UNKNOWN if node is None else node, semconv.UNKNOWN if cluster is None else cluster)


def run(arguments: argparse.Namespace) -> int:
    """Import every file. All are read and checked before the first is stored."""
    given = names(arguments)
    paths = found_files([Path(name) for name in arguments.files], Path(arguments.db))
    imports = [open_file(path, given) for path in paths]
    with open_store(arguments.db) as store:
        facts = [_facts(path, read, put(read, store)) for path, read in zip(paths, imports, strict=True)]
        if any(fact["stored"] for fact in facts):
            keep_clocks(store)
    for fact in facts:
        for warning in fact["warnings"]:
            _note(f"{text(fact['file'])}: {warning}")
        if fact["stored"] < fact["rows"] and given != Names():
            _note(f"{text(fact['file'])}: what was there already keeps the names that it was imported under")
    if arguments.json:
        print(json.dumps({"files": facts}))
        return 0
    for fact in facts:
        print(_line(fact))
    return 0


def keep_clocks(store: Store) -> None:
    """Keep how far the clocks of the nodes are apart, as their collectives show it."""
    call = Call(store, None)
    window = call.window(None)
    if window is not None and (found := node_clocks(call, window)):
        store.keep_clocks(found).result()


def put(read: Import, store: Store) -> int:
    """Store what was read; returns the number of events that were not there already."""
    first = not store.query(check("SELECT 1 FROM events LIMIT 1"), limit=1).rows
    batches = (batch if first else _new(batch, store) for batch in read.batches)
    events = _append(batches, partial(batch_key, read.digest), partial(store.append, lasting=True))
    keys = partial(batch_key, read.digest, context=True)
    _append(read.context, keys, partial(store.append_context, lasting=True))
    return events


def _new(batch: pa.RecordBatch, store: Store) -> pa.RecordBatch:
    """The events that the store does not have: files overlap (a copy taken earlier, the merge of several nodes).

    The number alone does not tell, since the counter of a node begins again with a new database.
    """
    rows = list(zip(*(batch.column(name).to_pylist() for name in _IDENTITY), strict=True))
    numbers = [number for _, number, time_ns, _ in rows if number is not None and time_ns is not None]
    if not numbers:
        return batch
    times = [time_ns for _, _, time_ns, _ in rows if time_ns is not None]
    there = store.query(
        check(
            f"SELECT {', '.join(_IDENTITY)} FROM events WHERE event_seq BETWEEN {min(numbers)} AND {max(numbers)} "
            f"AND timestamp_ns BETWEEN {min(times)} AND {max(times)}"
        ),
        limit=_MOST_ALIKE,
    )
    if there.truncated and batch.num_rows > 1:
        half = batch.num_rows // 2
        halves = [_new(batch.slice(0, half), store), _new(batch.slice(half), store)]
        return next(iter(pa.Table.from_batches(halves).combine_chunks().to_batches()), batch.slice(0, 0))
    known = set(there.rows)
    return batch.filter(pa.array([row not in known for row in rows])) if known else batch


def found_files(given: list[Path], database: Path | None = None) -> list[Path]:
    """The files to read: those given, and what can be imported in folders given. What is skipped is said on stderr."""
    files: list[Path] = []
    for path in given:
        if not path.exists():
            raise ImportFileError(f"{path} does not exist")
        if not path.is_dir():
            files.append(path)
            continue
        found = sort_out(path)
        files.extend(found.files)
        skipped = [(path, reason) for path, reason in found.skipped if not (database and _belongs_to(path, database))]
        for path, reason in skipped[:_MOST_NOTES]:
            _note(f"{text(str(path))}: skipped, {reason}")
        if len(skipped) > _MOST_NOTES:
            _note(f"{len(skipped) - _MOST_NOTES} more files were skipped")
    return files


def _belongs_to(path: Path, database: Path) -> bool:
    # The database that is written to may lie in the folder, with its log and its lock.
    return path.resolve().parent == database.resolve().parent and path.name.startswith(database.name)


def _append(
    batches: Iterator[pa.RecordBatch],
    key_of: Callable[[int], bytes],
    append: Callable[[pa.RecordBatch, bytes], Future[Appended]],
) -> int:
    waiting: list[Future[Appended]] = []
    stored = 0
    for number, batch in enumerate(batches):
        if not batch.num_rows:
            continue
        # One batch ahead of the writer at most: a large file must not pile up in the queue.
        while len(waiting) > 1:
            stored += waiting.pop(0).result().rows
        waiting.append(append(batch, key_of(number)))
    return stored + sum(future.result().rows for future in waiting)


def _facts(path: Path, read: Import, stored: int) -> dict[str, Any]:
    return {
        "file": str(path),
        "kind": read.kind,
        "rows": read.rows,
        "stored": stored,
        "ranks": read.ranks,
        "steps": read.steps,
        "world_size": read.world_size,
        "context": dict(read.context_rows),
        "warnings": list(read.warnings),
    }


def _line(fact: dict[str, Any]) -> str:
    line = f"{text(fact['file'])}: {fact['kind']}, {fact['rows']} events"
    if fact["ranks"]:
        line += f" of {fact['ranks']} ranks"
    if fact["steps"]:
        line += f" in {fact['steps']} steps"
    if fact["context"]:
        line += f" ({', '.join(f'{kind} {count}' for kind, count in fact['context'].items())})"
    already = fact["rows"] - fact["stored"]
    return f"{line}, {already} were there already" if already else line


def _note(message: str) -> None:
    print(f"ingero: {message}", file=sys.stderr)
