"""Fixtures: a store in a temporary folder, a server in this process, an isolated home."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from ingero_mcp.config import ServeSettings
from ingero_mcp.run_file import RunningServer
from ingero_mcp.server import Server
from ingero_mcp.store import Store, open_store

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
"""Real inputs, where this checkout has them beside it."""

RunServer = Callable[..., AbstractContextManager[RunningServer]]


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, so that no test sees or touches the user's server."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "events.duckdb") as opened:
        yield opened


@pytest.fixture
def run_server(tmp_path: Path) -> RunServer:
    """`with run_server(db_path=...) as server:` runs a real server in this process, on free ports of loopback."""

    @contextmanager
    def run(**changes: object) -> Iterator[RunningServer]:
        settings = ServeSettings(
            db_path=str(tmp_path / "events.duckdb"),
            otlp_addr="127.0.0.1:0",
            otlp_http_addr="127.0.0.1:0",
            http_addr="127.0.0.1:0",
        )
        with start_blocking_portal() as portal:
            server = portal.call(Server, replace(settings, **changes))  # type: ignore[arg-type]
            stop = portal.call(anyio.Event)

            async def serve(*, task_status: TaskStatus[None]) -> None:
                async def until() -> None:
                    # Called once the server has told others where it answers; a test that looks before finds nobody.
                    task_status.started()
                    await stop.wait()

                await server.serve(until)

            done, _ = portal.start_task(serve)
            try:
                yield server.started.server
            finally:
                portal.call(stop.set)
                done.result(timeout=30)

    return run
