"""A server as its operator meets it: start, refusals, signals, who may connect."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import httpx2
import pytest

from ingero_mcp.addresses import Address, parse_address
from ingero_mcp.errors import ConfigError
from ingero_mcp.events import Resource, Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.run_file import local_server
from ingero_mcp.sender import Sender
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from tests.conftest import RunServer
from tests.processes import ServerProcess, run_ingero

FREE = ("--otlp-addr=127.0.0.1:0", "--otlp-http-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0")
BODY = encode_samples(Resource({}), [Sample("m", 1_796_000_000_000_000_000, 1.0)])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_commits_what_was_accepted_and_leaves_nothing_behind(tmp_path: Path, number: int, home: Path) -> None:
    path = tmp_path / "events.duckdb"
    with ServerProcess.start(path) as server:
        assert local_server() is not None
        with Sender(server.otlp_addr) as sender:
            sender.send("metrics", BODY)
        os.kill(server.process.pid, number)
        _, errors = server.process.communicate(timeout=30)
        assert server.process.returncode == 0, errors
    assert local_server() is None
    assert not (home / ".ingero" / "run.json").exists()
    with open_store(path, read_only=True) as store:
        assert store.query(check("SELECT count(*) FROM events"), limit=1).rows == [(1,)]


def test_a_second_server_on_the_file_is_told_the_owners_pid(tmp_path: Path) -> None:
    path = tmp_path / "events.duckdb"
    with ServerProcess.start(path) as server:
        second = run_ingero("serve", f"--db-path={path}", *FREE)
        assert second.returncode == 1
        assert second.stdout == ""
        assert second.stderr.count("\n") == 1
        assert f"process {server.process.pid}" in second.stderr and server.url in second.stderr


def test_a_live_file_is_queried_through_its_owner_and_after_a_kill_directly(tmp_path: Path) -> None:
    path = tmp_path / "events.duckdb"
    alias = tmp_path / "alias.duckdb"
    with ServerProcess.start(path) as server:
        alias.symlink_to(path)
        with Sender(server.otlp_addr) as sender:
            sender.send("metrics", BODY)
        for name in (path, alias):
            answer = run_ingero("query", "-d", str(name), "--json", "SELECT count(*) AS n FROM events")
            assert json.loads(answer.stdout) == {"columns": ["n"], "rows": [[1]], "truncated": False}, answer.stderr
        local = run_ingero("query", "--json", "SELECT count(*) AS n FROM events")
        assert json.loads(local.stdout)["rows"] == [[1]]
        server.kill()
        after = run_ingero("query", "-d", str(path), "--json", "SELECT count(*) AS n FROM events")
        assert json.loads(after.stdout)["rows"] == [[1]], after.stderr


def test_a_port_in_use_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for flag in ("--otlp-addr", "--otlp-http-addr", "--http-addr"):
            refused = run_ingero("serve", f"--db-path={tmp_path / 'x.duckdb'}", *FREE, f"{flag}=127.0.0.1:{port}")
            assert refused.returncode == 1
            assert refused.stderr.count("\n") == 1, refused.stderr
            assert f"127.0.0.1:{port}" in refused.stderr and flag in refused.stderr
            assert local_server() is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--auth-token-file=none"], "cannot read the token file none"),
        (["--http-addr=0.0.0.0:0"], "--insecure-no-auth"),
        (["--http-addr=0.0.0.0:0", "--insecure-no-auth"], "--insecure-no-tls"),
        (["--tls-cert=x.pem"], "belong together"),
        (["--http-addr=8080"], "write host:port"),
        (["--tool-names=loud"], "auto, dotted, underscore"),
        (["--db-path=/nonexistent/folder/x.duckdb"], "the folder /nonexistent/folder does not exist"),
    ],
)
def test_wrong_settings_are_one_line_and_exit_1(tmp_path: Path, flags: list[str], words: str) -> None:
    refused = run_ingero("serve", f"--db-path={tmp_path / 'x.duckdb'}", *FREE, *flags)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_http_asks_for_the_token_and_for_a_known_host(run_server: RunServer, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret")
    with run_server(auth_token_file=str(token_file)) as server:
        assert httpx2.get(f"{server.url}/healthz").json() == {"status": "ok"}
        for path in ("/metrics", "/", "/mcp"):
            refused = httpx2.get(f"{server.url}{path}")
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        headers = {"Authorization": "Bearer s3cret"}
        assert "MCP" in httpx2.get(f"{server.url}/", headers=headers).text
        evil = httpx2.post(f"{server.url}/mcp", headers=headers | {"Host": "evil.example"}, json={})
        assert evil.status_code == 421
        foreign = httpx2.post(f"{server.url}/mcp", headers=headers | {"Origin": "http://evil.example"}, json={})
        assert foreign.status_code == 403


def test_the_query_api_answers_with_codes(run_server: RunServer) -> None:
    with run_server() as server:

        def post(content: bytes) -> tuple[int, str]:
            response = httpx2.post(f"{server.url}/api/v1/query", content=content)
            return response.status_code, response.json().get("code", "")

        assert post(b'{"sql": "SELECT 1 AS one"}') == (200, "")
        assert post(b'{"sql": "DROP TABLE events"}') == (400, "refused_sql")
        assert post(b'{"sql": "SELECT nothing FROM events"}') == (400, "query_failed")
        assert post(b'{"sql": "SELECT 1", "limit": 0}') == (400, "bad_request")
        assert post(b"not json") == (400, "bad_request")


@pytest.mark.parametrize("text", ["127.0.0.1:8080", "[::1]:8080", "node-1:0"])
def test_addresses_are_read_and_written_alike(text: str) -> None:
    assert str(parse_address(text, "--flag")) == text


@pytest.mark.parametrize("text", ["", "8080", ":8080", "host:", "host:99999", "host:http"])
def test_what_is_no_address_is_said_with_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="--flag"):
        parse_address(text, "--flag")


def test_only_this_host_is_loopback() -> None:
    assert Address("127.0.0.9", 1).is_loopback and Address("::1", 1).is_loopback and Address("localhost", 1).is_loopback
    assert not Address("0.0.0.0", 1).is_loopback and not Address("gpu-1", 1).is_loopback
