"""What the documents say is so: every command runs, every statement answers, every list is complete."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ingero_mcp.cli.main import COMMANDS
from ingero_mcp.config import ServeSettings
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store
from ingero_mcp.tools import TOOLS
from ingero_mcp.tools.guide import schema_text
from tests.processes import run_ingero

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("statement", blocks("sql"))
def test_every_statement_of_the_readme_runs(store: Store, statement: str) -> None:
    assert store.query(check(statement), limit=10).columns


def test_the_readme_lists_every_tool() -> None:
    assert set(re.findall(r"^\| `([\w.]+)` \|", README, flags=re.MULTILINE)) == {tool.name for tool in TOOLS}


def test_the_schema_page_is_what_agents_read() -> None:
    page = (ROOT / "docs" / "schema.md").read_text()
    assert page.endswith(f"```\n{schema_text()}```\n")


def test_the_demo_says_what_the_readme_shows_within_80_columns() -> None:
    done = run_ingero("demo")
    assert done.returncode == 0, done.stderr
    shown = next(block for block in blocks("") if "culprit: rank" in block)
    for line in shown.replace("...\n", "").splitlines():
        assert line in done.stdout.splitlines(), line
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert done.stderr == ""


def test_the_commands_of_the_readme_run_as_they_stand(tmp_path: Path, home: Path) -> None:
    [serve], commands = (block.splitlines() for block in blocks("sh") if block.startswith("ingero "))
    assert [line.split()[1] for line in [serve, *commands]] == ["serve", "stress", "query"]
    # On free ports, so that a server of somebody else on this host is left alone.
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "INGERO_OTLP_ADDR": "127.0.0.1:0",
        "INGERO_OTLP_HTTP_ADDR": "127.0.0.1:0",
        "INGERO_HTTP_ADDR": "127.0.0.1:0",
    }
    with subprocess.Popen(serve.split(), env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and "ingero serves" in server.stdout.readline()
            while "Ctrl-C" not in server.stdout.readline():
                continue
            outputs = [
                subprocess.run(
                    line, shell=True, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
                )
                for line in commands
            ]
        finally:
            server.terminate()
    assert [done.returncode for done in outputs] == [0, 0], [done.stderr for done in outputs]
    assert "1000 events acknowledged" in outputs[0].stdout
    assert outputs[1].stdout.splitlines()[-1].split() == ["node-a", "1000"]


@pytest.mark.parametrize("command", [name for name, _, _ in COMMANDS])
def test_every_command_explains_itself(command: str) -> None:
    done = run_ingero(command, "--help")
    assert done.returncode == 0
    assert f"usage: ingero {command}" in done.stdout


def test_wrong_usage_is_exit_2_and_leaves_stdout_empty() -> None:
    for arguments in (["nonsense"], ["query"], ["query", "--no-such-flag", "SELECT 1"], []):
        done = run_ingero(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage:")


def test_the_help_of_serve_lists_every_setting() -> None:
    shown = " ".join(run_ingero("serve", "--help").stdout.split())
    for field in dataclasses.fields(ServeSettings):
        assert f" --{field.name.replace('_', '-')}" in shown
        assert " ".join(field.metadata["doc"].split()) in shown
