"""`~/.ingero/run.json`: where the local server answers, for commands that are not told."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from ingero_mcp.config import home
from ingero_mcp.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server of this user: its process, its addresses, the file with its token ("" for none), its database."""

    pid: int
    url: str
    otlp_addr: str
    otlp_http_url: str
    token_file: str
    db_path: str


def publish(server: RunningServer) -> RunningServer:
    """Write run.json, readable by this user only, unless it names another live server.

    Returns the server that local commands now ask.
    """
    path = home() / "run.json"
    first = local_server()
    if first is not None:
        return first
    temporary = path.with_name(f"run.json.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(server), file)
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}, in which local commands find this server: {error.strerror}") from error
    return server


def withdraw(server: RunningServer) -> None:
    """Remove run.json if it still speaks of this server."""
    if local_server() == server:
        (home() / "run.json").unlink(missing_ok=True)


def local_server() -> RunningServer | None:
    """The server that run.json names, if its process is alive."""
    try:
        server = RunningServer(**json.loads((home() / "run.json").read_text()))
        os.kill(server.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return server
