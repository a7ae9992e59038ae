"""Exports of a running server: what the file would give, behind the same gate, and an end when nobody listens."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from ingero_mcp.api.export import MOST_AT_ONCE
from ingero_mcp.cli.main import main
from ingero_mcp.errors import QueryError
from ingero_mcp.exported.begun import Begun
from tests.conftest import RunServer
from tests.watch.live import START_NS

FORMATS = ("perfetto", "parquet", "csv")


@pytest.mark.parametrize("form", FORMATS)
def test_a_server_exports_what_it_owns_as_the_file_would(
    database: Path, tmp_path: Path, run_server: RunServer, form: str
) -> None:
    flags = ["export", "--format", form, "--window", f"{START_NS}-{START_NS + 2 * 10**9}"]
    assert main([*flags, "-d", str(database), "-o", str(tmp_path / "direct")]) == 0
    with run_server(db_path=str(database)):
        assert main([*flags, "-d", str(database), "-o", str(tmp_path / "owned")]) == 0
        assert main([*flags, "-o", str(tmp_path / "local")]) == 0
    direct, owned, local = ((tmp_path / name).read_bytes() for name in ("direct", "owned", "local"))
    assert len(direct) > 5_000
    assert direct == owned == local


def test_the_api_answers_with_codes_and_wants_the_token(database: Path, run_server: RunServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    with run_server(db_path=str(database), auth_token_file=str(token)) as server:
        url = f"{server.url}/api/v1/export"
        headers = {"Authorization": "Bearer s3cret"}

        def get(**parameters: str) -> tuple[int, str]:
            response = httpx2.get(url, params=parameters, headers=headers)
            return response.status_code, response.json().get("code", "")

        assert httpx2.get(url, params={"format": "csv"}).status_code == 401
        assert httpx2.get(url, params={"format": "csv"}, headers=headers | {"Host": "evil.example"}).status_code == 421
        for wrong in ({}, {"format": "xml"}, {"format": "csv", "what": "x"}, {"format": "csv", "spreadsheets": "1"},
                      {"format": "csv", "window": "yesterday"}, {"format": "perfetto", "sql": "SELECT 1"}):  # fmt: skip
            assert get(**wrong) == (400, "bad_request"), wrong
        assert get(format="csv", sql="DROP TABLE events") == (400, "refused_sql")
        assert get(format="csv", sql="SELECT nothing FROM events") == (400, "query_failed")
        answer = httpx2.get(url, params={"format": "csv", "sql": "SELECT 1 AS one"}, headers=headers)
        assert (answer.status_code, answer.text) == (200, "one\r\n1\r\n")
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert answer.headers["ingero-rows"] == "1"
        assert 'filename="ingero.csv"' in answer.headers["content-disposition"]


class Endless:
    """An export without an end, in place of the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended = threading.Semaphore(0)
        monkeypatch.setattr("ingero_mcp.api.export.begin", lambda call, asked: Begun(0, self.pieces()))

    def pieces(self) -> Generator[bytes, None, None]:
        try:
            while True:
                yield b"x" * 65_536
        finally:
            self.ended.release()


def test_an_export_ends_when_its_client_goes_away(run_server: RunServer, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(monkeypatch)
    with run_server() as server:
        for _ in range(2 * MOST_AT_ONCE):
            with httpx2.stream("GET", f"{server.url}/api/v1/export", params={"format": "csv"}) as response:
                assert next(response.iter_bytes())
            assert endless.ended.acquire(timeout=30)


def test_an_export_ends_when_its_client_takes_nothing(run_server: RunServer, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(monkeypatch)
    monkeypatch.setattr("ingero_mcp.api.export.LONGEST_SEND_S", 0.2)
    with run_server() as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"GET /api/v1/export?format=csv HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            assert endless.ended.acquire(timeout=30)


def test_only_a_few_exports_run_at_once(run_server: RunServer, monkeypatch: pytest.MonkeyPatch) -> None:
    Endless(monkeypatch)
    with run_server() as server, ExitStack() as opened:
        url, asked = f"{server.url}/api/v1/export", {"format": "csv"}
        for _ in range(MOST_AT_ONCE):
            opened.enter_context(httpx2.stream("GET", url, params=asked))
        refused = httpx2.get(url, params=asked)
        assert (refused.status_code, refused.json()["code"]) == (503, "busy")
        assert "Retry-After" in refused.headers


def test_an_export_that_breaks_off_is_no_shorter_file(
    run_server: RunServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def pieces() -> Generator[bytes, None, None]:
        yield b"a,b\r\n"
        raise QueryError("the engine gave up")

    monkeypatch.setattr("ingero_mcp.api.export.begin", lambda call, asked: Begun(1, pieces()))
    with run_server():
        assert main(["export", "--format", "csv", "-o", str(tmp_path / "out")]) == 1
    assert "broke the export off" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*.partial"))
