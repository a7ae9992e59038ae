"""The house: imports point down, no cycles, and what only one place may do is done only there."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (ROOT / "ingero_mcp", ROOT / "probes" / "ingero_probes")
# From the bottom up; a module may import from its own layer and from those below.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "errors",
            "semconv",
            "events",
            "views",
            "windows",
            "clock",
            "clocks",
            "batches",
            "addresses",
            "cells",
            "limits",
            "notice",
            "reader",
            "tokens",
            "turns",
        }
    ),
    frozenset({"otlp", "sqlguard", "analysis", "importers", "export", "synth"}),
    frozenset({"store", "fleet"}),
    frozenset({"gate", "thresholds"}),
    frozenset({"tools"}),
    frozenset({"exported"}),
    frozenset({"receiver", "api", "web", "watch"}),
    frozenset(
        {
            "config",
            "run_file",
            "sender",
            "exposure",
            "mcp_server",
            "http_app",
            "http_server",
            "clock_keeper",
            "score_recall",
            "process_memory",
            "server",
            "bridge",
        }
    ),
    frozenset({"cli"}),
)
# Siblings of these layers may use each other; those of the others stand side by side.
OPEN_LAYERS = (0, 7)
PROBES_MAY_IMPORT = {"semconv", "events", "clock", "otlp.encode", "errors"}
MAX_LINES = 500
ATTICS = {"utils", "helpers", "common", "misc", "manager", "base", "types"}
EXTERNAL_TIME = {("time", "time"), ("time", "time_ns"), ("time", "monotonic"), ("time", "monotonic_ns")}


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text())


@cache
def imports(name: str) -> frozenset[str]:
    """The project's own modules that `name` imports, wherever in the file."""
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            children = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {child if child in modules() else node.module for child in children}
    return frozenset(target for target in found if target in modules() and target != name)


def part_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def layer_of(name: str) -> int | None:
    return next((level for level, parts in enumerate(LAYERS) if part_of(name) in parts), None)


def test_every_module_has_a_place_in_the_layers() -> None:
    homeless = [
        name for name in modules() if part_of(name) and name.startswith("ingero_mcp") and layer_of(name) is None
    ]
    assert homeless == []


def test_imports_point_down() -> None:
    upward = []
    for name in modules():
        for target in imports(name):
            here, there = layer_of(name), layer_of(target)
            if here is None or there is None or part_of(name) == part_of(target):
                continue
            if there > here or (there == here and here not in OPEN_LAYERS):
                upward.append(f"{name} -> {target}")
    assert upward == []


def test_there_are_no_import_cycles() -> None:
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in imports(name):
                walk(target, (*path, name))
            done.add(name)

    for name in modules():
        walk(name, ())


def test_probes_import_only_what_a_node_has() -> None:
    for name in modules():
        if name.startswith("ingero_probes"):
            own = {target for target in imports(name) if target.startswith("ingero_mcp.")}
            assert {target.removeprefix("ingero_mcp.") for target in own} <= PROBES_MAY_IMPORT


@pytest.mark.parametrize("name", sorted(modules()))
def test_module_keeps_the_house_rules(name: str) -> None:
    path = modules()[name]
    assert len(path.read_text().splitlines()) <= MAX_LINES
    assert path.stem not in ATTICS
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = (node.value.id, node.attr)
            assert used not in EXTERNAL_TIME or name.endswith(".clock"), f"{name} reads the time"
            assert used[1] != "now" or used[0] != "datetime", f"{name} reads the time"
            assert used != ("os", "environ") or name.endswith(".config"), f"{name} reads the environment"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "exit"):
            assert ".cli" in name, f"{name} prints or exits"


def test_help_is_quick_since_it_imports_nothing_heavy() -> None:
    heavy = ("mcp", "duckdb", "grpc", "pyarrow", "sqlglot", "starlette")
    code = (
        "import sys\n"
        "from ingero_mcp.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stderr.strip() == "[]"


def test_encoding_needs_neither_pyarrow_nor_duckdb() -> None:
    code = (
        "import sys, ingero_mcp.otlp.encode; print([m for m in ('pyarrow', 'duckdb', 'sqlglot') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
