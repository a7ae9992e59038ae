"""`ingero merge`: several databases become one, in which every event, chain, stack and process keeps its node.

Sources are databases of ours and whatever can be imported (databases of the Ingero agent); they are only read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingero_mcp.cells import text
from ingero_mcp.cli.backup import download
from ingero_mcp.cli.clock_warnings import Apart, apart
from ingero_mcp.cli.ended import ended_like_ctrl_c
from ingero_mcp.cli.import_file import add_names, names
from ingero_mcp.cli.opened import is_database, path_of
from ingero_mcp.clocks import NodeClock
from ingero_mcp.errors import ImportFileError, IngeroError, StoreLocked
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.registry import open_file
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from ingero_mcp.store.lock import FileLock
from ingero_mcp.store.merging import Merged, Part, merge
from ingero_mcp.store.new_file import new_file
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.node_clocks import METHOD, node_clocks
from ingero_mcp.views import KINDS
from ingero_mcp.windows import DURATION_FORMS, parse_duration

_OURS: Final = "ingero database"
_MUCH_BYTES: Final = 64 << 20  # with more it takes so long that one wants to hear of it


@dataclass(frozen=True, slots=True)
class _Source:
    """A file to merge, and what an importer read in it (None: it is a database of ours)."""

    name: str
    path: Path
    read: Import | None

    @property
    def part(self) -> Part:
        return Part(self.path, self.read)


@dataclass(frozen=True, slots=True)
class _Result:
    """What the new database holds, by view; clocks that are apart; what could not be done."""

    merged: Merged
    holds: dict[str, int]
    apart: list[Apart]
    warnings: list[str]


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """What to merge, and where to."""
    parser.add_argument("sources", nargs="+", metavar="SRC", help="database of ours, or file that can be imported")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the new database file")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    add_names(parser)
    parser.add_argument(
        "--clock-skew-threshold",
        default="100ms",
        metavar="TIME",
        help=f"warn of clocks that are further apart (default %(default)s; {DURATION_FORMS})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Merge; the output is complete or not there at all."""
    given, threshold_ns = names(arguments), parse_duration(arguments.clock_skew_threshold)
    output, found = path_of(arguments.output), _distinct(arguments.sources)
    paths = [path for _, path in found]
    with ExitStack() as held:
        held.enter_context(ended_like_ctrl_c())
        new = held.enter_context(new_file(output, overwrite=arguments.overwrite, sources=paths))
        sources = [_open(name, path, given, new.parent, held) for name, path in found]
        is_much = sum(path.stat().st_size for path in paths) > _MUCH_BYTES
        merged = merge([source.part for source in sources], new, tell=_note if is_much else None)
        result = _completed(new, merged, threshold_ns)
    _tell(arguments, sources, result)
    return 0


def _distinct(given: Sequence[str]) -> list[tuple[str, Path]]:
    """The files by name; one that is named twice, by whatever names, is read once."""
    found: dict[tuple[int, int], tuple[str, Path]] = {}
    for name in given:
        path = path_of(name)
        if not path.is_file():
            said = "is a folder; name the files in it" if path.is_dir() else "does not exist"
            raise ImportFileError(f"{name} {said}")
        facts = path.stat()
        same = found.setdefault((facts.st_dev, facts.st_ino), (name, path.resolve()))
        if same[0] != name:
            _note(f"{text(name)} is {text(same[0])}; it is read once")
    return list(found.values())


def _open(name: str, path: Path, given: Names, folder: Path, held: ExitStack) -> _Source:
    """Of a database that a server owns, that server is asked for a copy, which lies in `folder`."""
    if is_database(path):
        try:
            held.callback(FileLock(path, shared=True).release)
        except StoreLocked as owned:
            if not owned.url:
                raise
            copy = folder / f"copy-{path.stat().st_ino}.duckdb"
            download(owned.url, owned.token_file, copy)
            _note(f"{text(name)} is in use; {owned.url} gave a copy of it")
            return _Source(name, copy, None)
        return _Source(name, path, None)
    read = open_file(path, given)
    for warning in read.warnings:
        _note(f"{text(name)}: {warning}")
    return _Source(name, path, read)


def _completed(new: Path, merged: Merged, threshold_ns: int) -> _Result:
    """Keep how far the clocks are apart, as the collectives of the result show it; say what is in it."""
    with open_store(new) as store:
        warnings: list[str] = []
        found: tuple[NodeClock, ...] = ()
        try:
            found = _found_clocks(store)
        except IngeroError as error:
            warnings.append(f"clocks were not compared: {error}")
        if clocks := (*_still_good(merged.clocks, found), *found):
            store.keep_clocks(clocks).result()
        holds = {view: _count(store, view) for view in ("events", *(kind.view for kind in KINDS))}
        return _Result(merged, holds, apart(found, threshold_ns), warnings)


def _found_clocks(store: Store) -> tuple[NodeClock, ...]:
    call = Call(store, None)
    window = call.window(None)
    return () if window is None else node_clocks(call, window)


def _still_good(known: Sequence[NodeClock], found: Sequence[NodeClock]) -> list[NodeClock]:
    """Readings of the sources, without those off collectives that were now read off all of them together."""
    read = {(clock.cluster_id, clock.node_id, clock.rank) for clock in found}
    return [
        clock
        for clock in known
        if not clock.method.startswith(METHOD) or (clock.cluster_id, clock.node_id, clock.rank) not in read
    ]


def _count(store: Store, view: str) -> int:
    [[count]] = store.query(check(f"SELECT count(*) FROM {view}"), limit=1).rows
    return int(str(count))


def _tell(arguments: argparse.Namespace, sources: Sequence[_Source], result: _Result) -> None:
    merged, holds = result.merged, {view: count for view, count in result.holds.items() if count}
    for warning in result.warnings:
        _note(warning)
    for one in result.apart:
        print(text(str(one)), file=sys.stderr)
    already = sum(merged.events_read) - merged.events
    if arguments.json:
        facts: dict[str, Any] = {
            "output": arguments.output,
            "sources": [
                {"file": source.name, "kind": source.read.kind if source.read else _OURS, "events": events}
                | {"warnings": list(source.read.warnings) if source.read else []}
                for source, events in zip(sources, merged.events_read, strict=True)
            ],
            "holds": {"events": merged.events} | holds,
            "more_than_once": already,
            "renumbered": merged.renumbered,
            "clock_warnings": [str(one) for one in result.apart],
            "warnings": result.warnings,
        }
        print(json.dumps(facts))
        return
    held = ", ".join(f"{view} {count}" for view, count in holds.items() if view != "events")
    line = f"{text(arguments.output)}: {merged.events} events of {len(sources)} files{f' ({held})' if held else ''}"
    if already:
        line += f", {already} were there more than once"
    if merged.renumbered:
        line += f", {merged.renumbered} have a new number since theirs was taken"
    print(line)


def _note(message: str) -> None:
    print(f"ingero: {message}", file=sys.stderr)
