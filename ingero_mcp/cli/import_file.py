"""`ingero import`: files people already have, into a database. The same file twice adds nothing."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import Future
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.imported import Import
from ingero_mcp.importers.registry import open_file
from ingero_mcp.store import Store, open_store
from ingero_mcp.store.writer import Appended


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """What to import, and where to."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="files to import")
    parser.add_argument("-d", "--db", required=True, help="database file; made if it does not exist")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Import every file. All are read and checked before the first is stored."""
    paths = [Path(name) for name in arguments.files]
    for path in paths:
        if not path.exists():
            raise ImportFileError(f"{path} does not exist")
    imports = [open_file(path) for path in paths]
    with open_store(arguments.db) as store:
        facts = [_store(path, read, store) for path, read in zip(paths, imports, strict=True)]
    for fact in facts:
        for warning in fact["warnings"]:
            print(f"ingero: {fact['file']}: {warning}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"files": facts}))
        return 0
    for fact in facts:
        already = "" if fact["stored"] == fact["rows"] else f", {fact['rows'] - fact['stored']} were there already"
        print(
            f"{fact['file']}: {fact['kind']}, {fact['rows']} events of {fact['ranks']} ranks in {fact['steps']} steps"
            f"{already}"
        )
    return 0


def _store(path: Path, read: Import, store: Store) -> dict[str, Any]:
    waiting: list[Future[Appended]] = []
    stored = 0
    for number, batch in enumerate(read.batches):
        key = blake2b(f"import/{read.digest}/{number}".encode(), digest_size=16).digest()
        # One batch ahead of the writer at most: a large file must not pile up in the queue.
        while len(waiting) > 1:
            stored += waiting.pop(0).result().rows
        waiting.append(store.append(batch, key=key))
    stored += sum(future.result().rows for future in waiting)
    return {
        "file": str(path),
        "kind": read.kind,
        "rows": read.rows,
        "stored": stored,
        "ranks": read.ranks,
        "steps": read.steps,
        "world_size": read.world_size,
        "warnings": list(read.warnings),
    }
