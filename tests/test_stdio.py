"""`ingero mcp`: stdout is the protocol and nothing else, over a file and through a running server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from ingero_mcp.events import Resource, Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.sender import Sender
from ingero_mcp.store import open_store
from ingero_mcp.tools import TOOLS
from tests.conftest import RunServer
from tests.processes import INGERO, ServerProcess, run_ingero

COUNT = {"sql": "SELECT count(*) AS n FROM events"}
BODY = encode_samples(Resource({}), [Sample("m", 1_796_000_000_000_000_000, 1.0)])
HANDSHAKE: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def speak(messages: list[dict[str, Any]], *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Write the messages, close stdin, wait for the end."""
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    environment = {"HOME": str(home), "PYTHONWARNINGS": "default", "PATH": ""}
    return subprocess.run(
        [*INGERO, "mcp", *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


def parameters(*arguments: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", "ingero_mcp.cli.main", "mcp", *arguments])


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_file_answers_over_stdio(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "a.duckdb"
    open_store(path).close()
    async with Client(parameters("-d", str(path)), mode=mode) as client:
        result = await client.call_tool("fleet.cluster.run_analysis", COUNT)
    assert result.structured_content is not None
    assert result.structured_content["rows"] == [[0]]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_running_server_answers_through_the_bridge(run_server: RunServer, mode: Any, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret")
    with run_server(auth_token_file=str(token_file)) as server:
        with Sender(server.otlp_addr, "s3cret") as sender:
            sender.send("metrics", BODY)
        flags = ("--server", server.url, "--token-file", str(token_file), "--tool-names", "underscore")
        async with Client(parameters(*flags), mode=mode) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            result = await client.call_tool("fleet_cluster_run_analysis", COUNT)
            refused = await client.call_tool("fleet_cluster_run_analysis", {"sql": "DROP TABLE events"})
            schema = await client.read_resource("fleet://schema")
    assert names == {
        "fleet_cluster_explain_stall",
        "fleet_cluster_event_history",
        "fleet_cluster_find_outlier_nodes",
        "fleet_cluster_run_analysis",
        "fleet_cluster_get_cost",
        "query_fleet",
    }
    assert result.structured_content is not None and result.structured_content["rows"] == [[1]]
    assert refused.is_error
    assert "timestamp_ns" in str(schema.contents)


def test_a_wrong_token_is_an_answer_that_says_so(run_server: RunServer, tmp_path: Path) -> None:
    for name in ("right", "wrong"):
        (tmp_path / name).write_text(name)
    with run_server(auth_token_file=str(tmp_path / "right")) as server:
        done = speak(HANDSHAKE, "--server", server.url, "--token-file", str(tmp_path / "wrong"), home=tmp_path)
    [answer] = [json.loads(line) for line in done.stdout.splitlines()]
    assert answer["id"] == 1
    assert "401" in answer["error"]["message"] and "--token-file" in answer["error"]["message"]


@pytest.mark.anyio
async def test_a_file_that_a_server_owns_is_answered_by_that_server(run_server: RunServer, tmp_path: Path) -> None:
    with run_server() as server:
        with Sender(server.otlp_addr) as sender:
            sender.send("metrics", BODY)
        async with Client(parameters("-d", server.db_path)) as client:
            result = await client.call_tool("fleet.cluster.run_analysis", COUNT)
    assert result.structured_content is not None and result.structured_content["rows"] == [[1]]


def test_a_server_that_was_restarted_is_greeted_again(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    server = ServerProcess.start(path)
    address = server.url.removeprefix("http://")
    command = [*INGERO, "mcp", "--server", server.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bridge:
        assert bridge.stdin is not None and bridge.stdout is not None

        def say(message: dict[str, Any]) -> None:
            assert bridge.stdin is not None
            bridge.stdin.write(json.dumps(message) + "\n")
            bridge.stdin.flush()

        try:
            for message in HANDSHAKE:
                say(message)
            assert json.loads(bridge.stdout.readline())["id"] == 1
            server.terminate()
            server = ServerProcess.start(path, f"--http-addr={address}")
            say(call(2, "fleet.cluster.run_analysis", COUNT))
            answer = json.loads(bridge.stdout.readline())
            assert (answer["id"], answer["result"]["structuredContent"]["rows"]) == (2, [[0]])
        finally:
            bridge.stdin.close()
            server.kill()


def test_a_request_before_the_handshake_is_refused_under_its_own_id(run_server: RunServer, tmp_path: Path) -> None:
    with run_server() as server:
        done = speak([call(9, "fleet.cluster.run_analysis", COUNT)], "--server", server.url, home=tmp_path)
    [answer] = [json.loads(line) for line in done.stdout.splitlines()]
    assert answer["id"] == 9 and "error" in answer


@pytest.mark.anyio
async def test_a_call_cancelled_through_the_bridge_stops_the_query(run_server: RunServer) -> None:
    rows = encode_samples(Resource({}), [Sample("m", 1_796_000_000_000_000_000 + n, 1.0) for n in range(3000)])
    endless = {"sql": "SELECT count(*) FROM events a, events b, events c, events d"}
    with run_server(query_timeout_s=60.0) as server:
        with Sender(server.otlp_addr) as sender:
            sender.send("metrics", rows)
        async with Client(parameters("--server", server.url)) as client:
            for _ in range(4):
                with anyio.move_on_after(1.0):
                    await client.call_tool("fleet.cluster.run_analysis", endless)
            # All places would still be taken by queries that nobody waits for.
            with anyio.fail_after(20):
                result = await client.call_tool("fleet.cluster.run_analysis", COUNT)
    assert not result.is_error


def test_every_line_of_stdout_is_the_protocol_and_it_ends_with_stdin(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    open_store(path).close()
    messages = [*HANDSHAKE, call(2, "fleet.cluster.run_analysis", {"sql": "SELECT oops"}), call(3, "no.such", {})]
    with subprocess.Popen(
        [*INGERO, "mcp", "-d", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"HOME": str(tmp_path), "PYTHONWARNINGS": "default", "PATH": ""},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        answered: set[int] = set()
        while not {1, 2, 3} <= answered:
            answer = json.loads(process.stdout.readline())
            assert answer["jsonrpc"] == "2.0"
            answered.add(answer.get("id"))
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, ""), errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-d", "none.duckdb"], "does not exist"),
        ([], "start a server with: ingero serve"),
        (["--server", "gpu-head"], "not the address of a server"),
        (["-d", "x", "--server", "http://h:1"], "not both"),
    ],
)
def test_a_start_that_fails_is_one_line_on_stderr(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = speak(HANDSHAKE, *arguments, home=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_a_server_that_is_gone_is_an_answer(tmp_path: Path) -> None:
    done = speak(HANDSHAKE, "--server", "http://127.0.0.1:1", home=tmp_path)
    [answer] = [json.loads(line) for line in done.stdout.splitlines()]
    assert "cannot be reached" in answer["error"]["message"]
    assert done.returncode == 0


LIES = {
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nhi!\n",
    "no json": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{no}",
    "another answer": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n"
    b'{"jsonrpc":"2.0","id":9,"result":{}}',
    "cut stream": b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {"jsonrpc"\n',
    "nothing": b"",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_is_an_answer_too(tmp_path: Path, lie: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve_once() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(LIES[lie])

        server = threading.Thread(target=serve_once)
        server.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        done = speak(HANDSHAKE[:1], "--server", url, home=tmp_path)
        server.join(10)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer for answer in answers if answer["id"] == 1 and "error" in answer], done


def test_the_bridge_starts_without_the_sdk_and_the_database() -> None:
    code = (
        "import sys, ingero_mcp.cli.mcp; print([m for m in ('mcp', 'duckdb', 'grpc', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_example_configuration_works_as_it_stands(run_server: RunServer) -> None:
    example = json.loads((Path(__file__).parent.parent / "examples" / "claude_desktop_config.json").read_text())
    [entry] = example["mcpServers"].values()
    assert entry["command"] == "ingero"
    with run_server() as server:
        assert server.url
        lines = "".join(
            json.dumps(message) + "\n" for message in [*HANDSHAKE, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}]
        )
        done = run_ingero(*entry["args"], input=lines)
    names = [
        tool["name"]
        for line in done.stdout.splitlines()
        for tool in json.loads(line).get("result", {}).get("tools", [])
    ]
    assert len(names) == len(TOOLS) and not any("." in name for name in names), done.stderr
