"""A real server watches: the store, the API, the webhook and the command line all tell the same."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import httpx2
import pytest

from ingero_mcp.clock import now_ns
from ingero_mcp.otlp.encode import encode_points, encode_spans
from ingero_mcp.run_file import RunningServer
from ingero_mcp.sender import Sender
from ingero_mcp.synth.story import Story
from tests.conftest import RunServer
from tests.processes import INGERO, run_ingero
from tests.watch.told import told

FINDINGS = "/api/v1/findings"


def send_story(server: RunningServer) -> None:
    """The job of the demo; it ends just now."""
    story = Story(now_ns() - 8_000_000_000)
    with Sender(server.otlp_addr) as sender:
        for node, spans, points in story.tell():
            if spans:
                sender.send("traces", encode_spans(story.resource(node), spans))
            if points:
                sender.send("logs", encode_points(story.resource(node), points))


def test_a_stall_reaches_whoever_listens(run_server: RunServer) -> None:
    with told() as hook, run_server(watch_every_s=0.2, webhook_url=hook.url, webhook_severity="LOW") as server:
        waiting: list[httpx2.Response] = []

        def wait() -> None:
            address = f"{server.url}{FINDINGS}"
            waiting.append(httpx2.get(address, params={"after": "0", "wait_s": "50"}, timeout=60))

        listener = threading.Thread(target=wait)
        listener.start()
        send_story(server)
        (first, *_) = hook.wait_for(1)
        listener.join(timeout=60)
        assert (first["what"], first["ranks"], first["nodes"]) == ("opened", [5], ["gpu-node-2"])
        assert first["server"] == server.url
        answer = waiting[0].json()
        assert [one["id"] for one in answer["findings"]] == [first["id"]]
        assert answer["next"] == first["updated_ns"]
        stored = run_ingero("query", "--json", "SELECT kind, verdict, rank FROM chains")
        assert json.loads(stored.stdout)["rows"] == [["stall", "straggler", 5]]
        explained = run_ingero("explain", "--json")
        said = json.loads(explained.stdout)
        assert said["verdict"] == "straggler"
        assert any("latest finding of the watch" in note for note in said["notes"])
        metrics = httpx2.get(f"{server.url}/metrics").text
        assert 'ingero_watch_notices_total{what="opened"} 1.0' in metrics
        assert "ingero_watch_failures_total 0.0" in metrics


def test_ingero_watch_prints_what_goes_on_and_then_each_change(run_server: RunServer) -> None:
    with run_server(watch_every_s=0.2) as server:
        quiet = run_ingero("watch", "--once")
        assert (quiet.returncode, quiet.stdout) == (0, "nothing holds a job up just now\n")
        command = [*INGERO, "watch", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            try:
                send_story(server)
                assert watching.stdout is not None
                one = json.loads(watching.stdout.readline())
            finally:
                watching.terminate()
        assert (one["what"], one["ranks"]) == ("opened", [5])
        shown = run_ingero("watch", "--once", "--server", server.url)
        assert shown.returncode == 0
        assert "straggler job llm-pretrain-7: rank 5 on gpu-node-2" in shown.stdout


def test_without_a_watch_that_is_said(run_server: RunServer) -> None:
    with run_server(watch_every_s=0.0):
        done = run_ingero("watch", "--once")
    assert done.returncode == 1
    assert "does not watch" in done.stderr


def test_without_a_server_that_is_said() -> None:
    done = run_ingero("watch")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no local server is running" in done.stderr


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"state": "closed"}, "state must be open or all"),
        ({"after": "-1"}, "after must be"),
        ({"after": "9" * 19}, "after must be"),
        ({"wait_s": "61"}, "wait_s must be"),
        ({"wait_s": "nan"}, "wait_s must be"),
        ({"limit": "0"}, "limit must be"),
        ({"since": "5m"}, "'since' is not known"),
    ],
)
def test_wrong_questions_are_answered_with_what_is_right(
    run_server: RunServer, asked: dict[str, str], words: str
) -> None:
    with run_server() as server:
        answer = httpx2.get(f"{server.url}{FINDINGS}", params=asked)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert answer.json()["code"] == "bad_request"


def test_findings_need_the_token(run_server: RunServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret")
    with run_server(auth_token_file=str(file)) as server:
        assert httpx2.get(f"{server.url}{FINDINGS}").status_code == 401
        done = run_ingero("watch", "--once", "--server", server.url, "--token-file", str(file))
    assert done.returncode == 0, done.stderr


def test_a_sender_cannot_make_the_watch_say_anything(run_server: RunServer) -> None:
    from ingero_mcp import semconv
    from ingero_mcp.events import Point, Resource

    with run_server(watch_every_s=0.0) as server:
        attributes = {
            "ingero.chain.kind": "stall",
            "ingero.chain.updated_ns": str(now_ns()),
            "ingero.chain.verdict": "hang",
            semconv.CAUSAL_CHAIN_ID: "forged",
        }
        with Sender(server.otlp_addr) as sender:
            sender.send("logs", encode_points(Resource({}), [Point("causal_chain", now_ns(), attributes)]))
        assert httpx2.get(f"{server.url}{FINDINGS}").json()["findings"] == []
        shown = run_ingero("query", "--json", "SELECT chain_id, updated_ns FROM chains")
        assert json.loads(shown.stdout)["rows"] == [["forged", None]]
