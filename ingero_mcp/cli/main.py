"""The `ingero` command line: finds the command, runs it, turns errors into one line and an exit code.

Exit codes: 0 also for a partial answer, 1 on failure, 2 on wrong usage.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Final, Protocol

from ingero_mcp import __version__
from ingero_mcp.cells import escaped
from ingero_mcp.errors import IngeroError

_DISK_IS_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


class Command(Protocol):
    """A module of `ingero_mcp.cli`: declares its arguments, does its work, returns the exit code."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do the work; returns the exit code."""


# Name, module, help: a module is imported only when its command is used, so that --help stays quick.
COMMANDS: Final[tuple[tuple[str, str, str], ...]] = (
    ("demo", "demo", "see it work: eight ranks, one late, and who it is (no GPU, no root)"),
    ("serve", "serve", "receive telemetry, answer agents and people"),
    ("mcp", "mcp", "speak MCP on stdin and stdout: for the local server, a file, another server"),
    ("explain", "explain", "say which rank holds a job up, since when, and with what evidence"),
    ("watch", "watch", "print what holds jobs up as a server finds it, and when it is over"),
    ("query", "query", "run one SQL statement over a database file or the local server"),
    ("export", "export", "write a timeline for Perfetto, or events as Parquet or CSV"),
    ("import", "import_file", "import files people already have into a database"),
    ("merge", "merge", "make one database of several; every event and process keeps its node"),
    ("backup", "backup", "copy a database into a file, also while a server writes to it"),
    ("trace", "trace", "trace the NCCL and CUDA calls of this host and send them to a server (root, eBPF)"),
    ("stress", "stress", "send generated events to a server and print what was sent"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `ingero`."""
    try:
        return _main(argv)
    except KeyboardInterrupt:
        return 130


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    modules = {command: module for command, module, _ in COMMANDS}
    parser = argparse.ArgumentParser(
        prog="ingero", description="Ask your GPU cluster why a step was slow.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"ingero {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen: Command | None = None
    for command, _, text in COMMANDS:
        subparser = commands.add_parser(command, help=text, description=text, allow_abbrev=False)
        if command == name:
            chosen = importlib.import_module(f"ingero_mcp.cli.{modules[command]}")
            chosen.prepare_parser(subparser)
    parsed = parser.parse_args(arguments)
    assert chosen is not None
    return _run(chosen, parsed)


def main_mcp() -> int:
    """Entry point of `ingero-mcp`, which is `ingero mcp`."""
    return main(["mcp", *sys.argv[1:]])


def _run(command: Command, arguments: argparse.Namespace) -> int:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    try:
        code = command.run(arguments)
        print(end="", flush=True)
        return code
    except IngeroError as error:
        # A message may quote recorded text, which must not write to somebody's terminal what it likes.
        for line in str(error).splitlines():
            print(f"ingero: {escaped(line)}", file=sys.stderr)
        if getattr(arguments, "json", False):
            print(json.dumps({"error": str(error)}))
        return 1
    except RuntimeError as error:
        # How DuckDB says that Ctrl-C came while it was at work in the main thread.
        if str(error) == "Query interrupted":
            return 130
        raise
    except BrokenPipeError:
        # The reader of our output went away (`ingero query ... | head`); nothing is left to tell it.
        _forget_stdout()
        return 1
    except OSError as error:
        if error.errno not in _DISK_IS_FULL:
            raise
        # `ingero query ... > file` on a full disk: half an answer must not pass for one.
        print(f"ingero: cannot write the answer: {error.strerror}", file=sys.stderr)
        _forget_stdout()
        return 1


def _forget_stdout() -> None:
    """Python would fail a second time, with a trace, when it flushes what is left on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
