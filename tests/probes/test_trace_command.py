"""`ingero trace` where it cannot work says so in one line; the daemon needs no more than a node has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero_mcp.cli.main import main
from ingero_probes import attach


def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def without_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(attach, "HEADERS", (Path("/no/headers"),))


def without_tracefs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(attach, "HEADERS", (Path("/"),))
    monkeypatch.setattr(attach, "TRACEPOINTS", Path("/no/tracepoints"))


def without_bcc(monkeypatch: pytest.MonkeyPatch) -> None:
    without_tracefs(monkeypatch)
    monkeypatch.setattr(attach, "TRACEPOINTS", Path("/"))
    monkeypatch.setitem(sys.modules, "bcc", None)


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        (as_user, "sudo ingero trace"),
        (without_headers, "linux-headers-$(uname -r)"),
        (without_tracefs, "mount -t debugfs"),
        (without_bcc, "apt-get install python3-bpfcc"),
    ],
)
def test_what_is_missing_is_one_line_and_exit_1(
    missing: Callable[[pytest.MonkeyPatch], None],
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing(monkeypatch)
    assert main(["trace", "--otlp=127.0.0.1:1"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("ingero: ") and remedy in printed.err and printed.err.count("\n") == 1


def test_the_daemon_needs_neither_a_database_nor_an_agent_library() -> None:
    heavy = ("duckdb", "mcp", "sqlglot", "pyarrow", "starlette", "uvicorn", "bcc")
    code = (
        "import sys, ingero_probes.daemon, ingero_mcp.cli.trace\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
