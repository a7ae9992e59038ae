"""A server as its operator meets it: start, refusals, signals, who may connect."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
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
from tests.processes import INGERO, ServerProcess, run_ingero

JSON = {"Content-Type": "application/json"}
FREE = ("--otlp-addr=127.0.0.1:0", "--otlp-http-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0")
BODY = encode_samples(Resource({}), [Sample("m", 1_796_000_000_000_000_000, 1.0)])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_caller_in_doubt_and_nothing_behind(tmp_path: Path, number: int, home: Path) -> None:
    path = tmp_path / "events.duckdb"
    bodies = [
        encode_samples(Resource({}), [Sample("m", 1_796_000_000_000_000_000, sent, {"ingero.event.seq": sent})])
        for sent in range(400)
    ]
    with ServerProcess.start(path) as server, grpc.insecure_channel(server.otlp_addr) as channel:
        assert local_server() is not None
        call = channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
        futures = [call.future(body, timeout=30) for body in bodies]
        futures[0].result()
        os.kill(server.process.pid, number)
        acknowledged = {sent for sent, future in enumerate(futures) if future.exception() is None}
        _, errors = server.process.communicate(timeout=30)
        assert server.process.returncode == 0, errors
    assert local_server() is None
    assert not (home / ".ingero" / "run.json").exists()
    with open_store(path, read_only=True) as store:
        stored = [seq for (seq,) in store.query(check("SELECT event_seq FROM events"), limit=1000).rows]
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))


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
            assert list(tmp_path.iterdir()) == []


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
        (["--query-timeout-s=-1"], "--query-timeout-s is -1.0; it must be a number from 0.1 upward"),
        (["--query-timeout-s=nan"], "must be a number"),
        (["--max-message-mib=0"], "must be a number from 1 upward"),
        (["--threshold-k=5"], "--threshold-k is 5.0; it must be from 1 to 4"),
        (["--threshold-ema-alpha=0"], "--threshold-ema-alpha is 0.0; it must be a number from 0.001"),
        (["--threshold-ema-alpha=1.5"], "it must be from 0.001 to 1"),
        (["--threshold-least-nodes=0"], "must be a number from 1 upward"),
        (["--push-interval-s=0.5"], "must be a number from 1 upward"),
        (["--memory-mib=-5"], "must be a number from 0 upward"),
        (["--http-addr="], "a server has to answer somewhere"),
    ],
)
def test_wrong_settings_are_one_line_and_exit_1(tmp_path: Path, flags: list[str], words: str) -> None:
    refused = run_ingero("serve", f"--db-path={tmp_path / 'x.duckdb'}", *FREE, *flags)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_written_is_one_line_and_the_end(tmp_path: Path) -> None:
    environment = os.environ | {"HOME": "/dev/null"}
    refused = run_ingero("serve", f"--db-path={tmp_path / 'x.duckdb'}", *FREE, env=environment)
    assert refused.returncode == 1
    assert "cannot write" in refused.stderr and refused.stderr.splitlines()[-1].startswith("ingero: ")


def test_a_file_that_is_no_certificate_is_one_line(tmp_path: Path) -> None:
    wrong = tmp_path / "cert.pem"
    wrong.write_text("no certificate")
    for otlp in ("--otlp-addr=127.0.0.1:0", "--otlp-addr="):
        refused = run_ingero("serve", *FREE, otlp, f"--tls-cert={wrong}", f"--tls-key={wrong}")
        assert refused.returncode == 1
        assert "cannot be used" in refused.stderr and refused.stderr.count("\n") == 1


def test_no_thread_is_left_when_a_server_ends(run_server: RunServer) -> None:
    before = set(threading.enumerate())
    with run_server() as server, Sender(server.otlp_addr) as sender:
        sender.send("metrics", BODY)
    assert [thread.name for thread in set(threading.enumerate()) - before if "otlp" in thread.name] == []


def test_recorded_text_in_an_error_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    hostile = Resource({"ingero.node.id": "\x1b]0;owned\x07"})
    path = tmp_path / "events.duckdb"
    with ServerProcess.start(path) as server:
        with Sender(server.otlp_addr) as sender:
            sender.send("metrics", encode_samples(hostile, [Sample("m", 1_796_000_000_000_000_000, 1.0)]))
        server.terminate()
    done = run_ingero("query", "-d", str(path), "SELECT CAST(node_id AS INTEGER) FROM events")
    assert done.returncode == 1
    assert "\x1b" not in done.stderr and "owned" in done.stderr


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
            response = httpx2.post(f"{server.url}/api/v1/query", content=content, headers=JSON)
            return response.status_code, response.json().get("code", "")

        assert post(b'{"sql": "SELECT 1 AS one"}') == (200, "")
        assert post(b'{"sql": "DROP TABLE events"}') == (400, "refused_sql")
        assert post(b'{"sql": "SELECT nothing FROM events"}') == (400, "query_failed")
        assert post(b'{"sql": "SELECT 1", "limit": 0}') == (400, "bad_request")
        assert post(b"not json") == (400, "bad_request")
        assert post(b"[" * 100_000) == (400, "bad_request")
        plain = httpx2.post(f"{server.url}/api/v1/query", content=b'{"sql": "SELECT 1"}')
        assert (plain.status_code, plain.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize("path", ["/api/v1/query", "/metrics", "/mcp", "/"])
def test_a_page_of_another_site_is_not_answered(run_server: RunServer, path: str) -> None:
    body = {"sql": "SELECT 1"}
    with run_server() as server:
        rebound = httpx2.post(f"{server.url}{path}", json=body, headers={"Host": "evil.example:8080"})
        foreign = httpx2.post(f"{server.url}{path}", json=body, headers={"Origin": "http://evil.example"})
        sender = httpx2.post(f"{server.otlp_http_url}/v1/traces", content=b"", headers={"Host": "evil.example"})
    assert (rebound.status_code, foreign.status_code, sender.status_code) == (421, 403, 421)


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


@pytest.mark.parametrize("command", ["serve", "demo", "query", "mcp"])
def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path: Path, command: str) -> None:
    path = tmp_path / "events.duckdb"
    open_store(path).close()
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
    arguments = {
        "serve": [f"--db-path={path}", *FREE],
        "demo": ["--keep"],
        "query": ["-d", str(path), endless],
        "mcp": ["-d", str(path)],
    }
    with subprocess.Popen(
        [*INGERO, command, *arguments[command]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            # Until it is at work: the commands that speak have spoken, the others have the file open.
            if command in ("serve", "demo"):
                assert process.stdout is not None
                while "Ctrl-C" not in process.stdout.readline():
                    assert process.poll() is None
            else:
                wait_until(lambda: has_open(process.pid, path))
                if command == "query":
                    # The statement never ends, so whatever goes beyond starting up goes into it.
                    wait_until(lambda: cpu_s(process.pid) > 3)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert "Traceback" not in errors
    assert process.returncode in (0, 130, -signal.SIGINT)


def has_open(pid: int, path: Path) -> bool:
    """Seen from outside: opening the file ourselves would keep the other process out."""
    try:
        return any(descriptor.readlink() == path for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wait_until(claim: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not claim():
        assert time.monotonic() < give_up
        time.sleep(0.05)
