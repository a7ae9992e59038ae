"""`ingero explain`: which rank holds a job up, since when and why it is thought so; and the causal chains of its nodes.

What explain_stall answers comes first. Where there is nothing to judge a stall by (the database of an Ingero agent) the
chains are the answer. Over a database file, over any file or folder that can be imported (read into memory), or over
the local server.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ingero_mcp import run_file
from ingero_mcp.cells import escaped
from ingero_mcp.cli.import_file import add_names, names
from ingero_mcp.cli.opened import ask, interruptible, is_database, opened, path_of
from ingero_mcp.errors import ConfigError, IngeroError, StoreLocked
from ingero_mcp.importers.imported import Names
from ingero_mcp.store import Store
from ingero_mcp.tools.answer import Finished
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.report import AskedChains, told
from ingero_mcp.tools.compared import Asked, compared
from ingero_mcp.tools.explain_stall import ExplainStall, explain_stall
from ingero_mcp.tools.explanation import complete
from ingero_mcp.turns import Cancellation
from ingero_mcp.windows import WINDOW_FORMS

_PATH: Final = "/api/v1/explain"
_CHAINS_PATH: Final = "/api/v1/chains"
_COMPARE_PATH: Final = "/api/v1/compare"


@dataclass(frozen=True, slots=True)
class _Said:
    """What was answered, in both channels; None where it was not asked for."""

    stall: dict[str, Any] | None
    chains: dict[str, Any] | None


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """What to explain, and where it is."""
    parser.add_argument(
        "-d", "--db", help="database file, or a trace, dump or folder of them (default: the local server)"
    )
    add_names(parser)
    parser.add_argument("--window", help=f"time range: {WINDOW_FORMS} (default: all)")
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="what changed from A to B, per rank and stage: two windows, or two files or folders",
    )
    parser.add_argument("--chains", action="store_true", help="only the causal chains: what was slow on which node")
    parser.add_argument("--job", metavar="NAME", help="only this job (default: the jobs with most events)")
    parser.add_argument("--comm", metavar="ID", help="only collectives of this communicator")
    parser.add_argument("--plot", action="store_true", help="add a plot in text: ranks by steps, how late each was")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON: what explain_stall answers; beside it, where nothing can be said of a stall, the key chains",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    if arguments.compare:
        return _compare(arguments)
    path = None if arguments.db is None else path_of(arguments.db)
    given = ExplainStall(
        window=arguments.window,
        # For a file that is imported it is the name of the cluster, and not a choice among several.
        cluster_id=arguments.cluster if path is None or is_database(path) else None,
        job_id=arguments.job,
        comm_id=arguments.comm,
        include_plot=arguments.plot,
    )
    said = _from_local_server(arguments, given) if path is None else _from_file(path, arguments, given)
    print(json.dumps(_as_json(said), allow_nan=False) if arguments.json else _as_text(said))
    return 0


def _as_json(said: _Said) -> dict[str, Any]:
    """What explain_stall answers. Where it has nothing to judge by, `chains` stands beside it."""
    chains: dict[str, Any] = said.chains["structured"] if said.chains else {}
    if said.stall is None:
        return chains
    whole = complete(said.stall["structured"])
    return whole if whole["row_count"] or not chains else whole | {"chains": chains["chains"]}


def _as_text(said: _Said) -> str:
    if said.stall is None:
        return str(said.chains["text"]) if said.chains else ""
    stall, chains = str(said.stall["text"]), said.chains
    if not chains:
        return stall
    if not said.stall["structured"]["row_count"]:
        is_empty = not chains["structured"]["nodes"]
        return stall if is_empty else f"{chains['text']}\n\n{escaped(said.stall['structured']['summary'])}"
    return f"{stall}\n\n{chains['text']}" if chains["structured"]["chains"] else stall


def _compare(arguments: argparse.Namespace) -> int:
    """Two files, or two windows of one file or of the local server."""
    if arguments.window or arguments.plot or arguments.chains:
        raise ConfigError("--compare names two windows or files itself; --window, --plot, --chains do not go with it")
    before, after = arguments.compare
    asked = Asked(before=before, after=after, cluster_id=None, job_id=arguments.job, comm_id=arguments.comm)
    paths = [path_of(name) for name in (before, after)]
    if all(path.exists() for path in paths):
        if arguments.db is not None:
            raise ConfigError("--compare of two files takes no -d")
        said = _of_files(paths, names(arguments), asked.model_copy(update={"before": None, "after": None}))
    elif arguments.db is not None:
        said = _of_windows(path_of(arguments.db), names(arguments), asked)
    else:
        said = _of_local_server(_COMPARE_PATH, asked.model_dump(exclude_none=True))
    print(json.dumps(said["structured"], allow_nan=False) if arguments.json else said["text"])
    return 0


def _of_files(paths: list[Path], named: Names, asked: Asked) -> dict[str, Any]:
    before, after = paths
    with opened(before, named, []) as one, opened(after, named, []) as other:
        return _shown(_answered(lambda cancelled: compared(_call(one, cancelled), _call(other, cancelled), asked)))


def _of_windows(path: Path, named: Names, asked: Asked) -> dict[str, Any]:
    try:
        with opened(path, named, []) as store:
            return _shown(
                _answered(lambda cancelled: compared(_call(store, cancelled), _call(store, cancelled), asked))
            )
    except StoreLocked as owned:
        return _of_owner(owned, _COMPARE_PATH, asked.model_dump(exclude_none=True))


def _from_file(path: Path, arguments: argparse.Namespace, given: ExplainStall) -> _Said:
    warnings: list[str] = []
    try:
        with opened(path, names(arguments), warnings) as store:
            said = _asked(
                arguments,
                lambda: _shown(_answered(lambda cancelled: explain_stall(_call(store, cancelled), given))),
                lambda: _shown(_answered(lambda cancelled: told(_call(store, cancelled), _about(given)))),
            )
    except StoreLocked as owned:
        return _of_server(arguments, given, partial(_of_owner, owned))
    for part in (said.stall, said.chains):
        if part:
            part["structured"] = part["structured"] | {"notes": [*part["structured"]["notes"], *warnings]}
    return said


def _from_local_server(arguments: argparse.Namespace, given: ExplainStall) -> _Said:
    return _of_server(arguments, given, _of_local_server)


def _of_server(
    arguments: argparse.Namespace, given: ExplainStall, asked_of: Callable[[str, dict[str, Any]], dict[str, Any]]
) -> _Said:
    return _asked(
        arguments,
        lambda: asked_of(_PATH, given.model_dump(exclude_none=True)),
        lambda: asked_of(_CHAINS_PATH, _about(given).model_dump(exclude_none=True)),
    )


def _asked(
    arguments: argparse.Namespace, stall: Callable[[], dict[str, Any]], chains: Callable[[], dict[str, Any]]
) -> _Said:
    """Both answers; a fault in the second does not take the first away."""
    if arguments.chains:
        return _Said(None, chains())
    said = stall()
    if arguments.job or arguments.comm:  # chains are about nodes, not about one job
        return _Said(said, None)
    try:
        return _Said(said, chains())
    except IngeroError as error:
        print(f"ingero: no causal chains: {error}", file=sys.stderr)
        return _Said(said, None)


def _about(given: ExplainStall) -> AskedChains:
    return AskedChains(window=given.window, cluster_id=given.cluster_id)


def _answered(answer: Callable[[Cancellation], Finished]) -> Finished:
    """The answer, which Ctrl-C ends."""
    cancellation = Cancellation()

    def work(tell: Callable[[Callable[[], None]], None]) -> Finished:
        tell(cancellation.cancel)
        return answer(cancellation)

    return interruptible(work)


def _call(store: Store, cancellation: Cancellation) -> Call:
    return Call(store, None, cancellation=cancellation)


def _shown(said: Finished) -> dict[str, Any]:
    return {"structured": said.structured, "text": said.text}


def _of_owner(owned: StoreLocked, path: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What the server that owns the file answers."""
    if not owned.url:
        raise owned
    return _ask(owned.url, owned.token_file, path, asked)


def _of_local_server(path: str, asked: dict[str, Any]) -> dict[str, Any]:
    local = run_file.local_server()
    if local is None:
        raise ConfigError("no local server is running; name a file with -d, or start one with ingero serve")
    return _ask(local.url, local.token_file, path, asked)


def _ask(url: str, token_file: str, path: str, asked: dict[str, Any]) -> dict[str, Any]:
    return ask(url, token_file, path, asked, {"structured", "text"})
