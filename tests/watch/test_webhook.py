"""The webhook: what is sent in which shape, and what becomes of it when the other side is slow, down or says no."""

from __future__ import annotations

import json
from dataclasses import replace

import anyio
import jsonschema
import pytest

from ingero_mcp.errors import ConfigError
from ingero_mcp.notice import Cost, Fact, GroupAtFault, Notice, as_json
from ingero_mcp.watch.payloads import FORMATS, headline
from ingero_mcp.watch.webhook import Webhook
from tests.watch.told import Told, told

NS = 1_796_000_000_000_000_000
NOTICE = Notice(
    what="opened",
    id="llm-7:straggler-5:1796000000000000000",
    cluster_id="prod",
    job_id="llm-7",
    verdict="straggler",
    cause="allocator_retry",
    confidence=0.88,
    severity="HIGH",
    ranks=(5,),
    nodes=("gpu-node-2",),
    groups=(GroupAtFault("host", "gpu-node-2", (4, 5)),),
    start_ns=NS,
    last_bad_ns=NS + 5,
    detected_ns=NS + 10,
    updated_ns=NS + 10,
    window_start_ns=NS - 100,
    window_end_ns=NS + 100,
    summary=("Rank 5 is late.", "7 ranks wait for it.", "Free memory."),
    timeline=("-360 ms  40 x cudaFree, 176 ms",),
    facts=(Fact("rank 5: own work above its peers'", 290.3, "ms", ("gpu-node-2:17",)),),
    cost=Cost(35.8, 71.0, 179.0),
)
CLOSED = replace(NOTICE, what="closed", end_ns=NS + 60_000_000_000, updated_ns=NS + 20)
# As the documentation of Alertmanager describes what its webhooks send (version 4).
ALERTMANAGER = {
    "type": "object",
    "required": [
        "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels",
        "commonAnnotations", "externalURL", "alerts",
    ],
    "properties": {
        "version": {"const": "4"},
        "groupKey": {"type": "string"},
        "truncatedAlerts": {"type": "integer"},
        "status": {"enum": ["firing", "resolved"]},
        "groupLabels": {"additionalProperties": {"type": "string"}},
        "commonLabels": {"additionalProperties": {"type": "string"}},
        "commonAnnotations": {"additionalProperties": {"type": "string"}},
        "alerts": {
            "minItems": 1,
            "items": {
                "required": ["status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"],
                "properties": {
                    "labels": {"additionalProperties": {"type": "string"}, "required": ["alertname"]},
                    "startsAt": {"type": "string", "format": "date-time"},
                    "endsAt": {"type": "string", "format": "date-time"},
                    "fingerprint": {"pattern": "^[0-9a-f]{16}$"},
                },
            },
        },
    },
}  # fmt: skip


def deliver(notices: list[Notice], to: Told, requests: int, **settings: object) -> None:
    """Tell until so many requests have come."""
    given: dict[str, object] = {"format": "json", "server": "http://gpu-head:8080", "pauses_s": (0.01, 0.01, 0.01)}
    webhook = Webhook(to.url, **(given | settings))  # type: ignore[arg-type]

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(webhook.run)
            webhook.put(notices)
            await anyio.to_thread.run_sync(to.wait_for, requests)
            tasks.cancel_scope.cancel()

    anyio.run(run)


def test_plain_json_is_the_notice_and_where_to_ask() -> None:
    with told() as server:
        deliver([NOTICE, CLOSED], server, 2)
    opened, closed = server.bodies
    assert opened == json.loads(json.dumps(as_json(NOTICE))) | {"server": "http://gpu-head:8080"}
    assert (opened["state"], opened["end"]) == ("open", None)
    assert (closed["state"], closed["id"]) == ("closed", opened["id"])
    assert closed["end"].endswith("Z")
    assert opened["evidence"][0]["event_ids"] == ["gpu-node-2:17"]


def test_alertmanagers_shape_fires_and_resolves_the_same_alert() -> None:
    with told() as server:
        deliver([NOTICE, CLOSED], server, 2, format="alertmanager")
    for body in server.bodies:
        jsonschema.validate(body, ALERTMANAGER)
    first, last = server.bodies
    assert (first["status"], last["status"]) == ("firing", "resolved")
    assert first["alerts"][0]["fingerprint"] == last["alerts"][0]["fingerprint"]
    assert first["alerts"][0]["labels"]["severity"] == "critical"
    assert first["alerts"][0]["endsAt"].startswith("0001-01-01")
    assert last["alerts"][0]["endsAt"] > last["alerts"][0]["startsAt"]


def test_slacks_shape_cannot_be_made_to_mention_or_link_by_recorded_names() -> None:
    hostile = replace(NOTICE, nodes=("<!channel>",), job_id="<http://evil|x>&", timeline=("``` <!here> ```",))
    body = FORMATS["slack"](hostile, "http://gpu-head:8080")
    text = json.dumps(body)
    assert "<" not in text and "<!" not in text
    assert "&lt;!channel&gt;" in body["text"]
    assert body["blocks"][-1]["text"]["text"].count("```") == 2
    assert all(len(block["text"]["text"]) <= 3000 for block in body["blocks"])


def test_a_long_summary_fits_slack() -> None:
    body = FORMATS["slack"](replace(NOTICE, summary=("&" * 5000,)), "")
    assert all(len(block["text"]["text"]) <= 3000 for block in body["blocks"])


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_passing_trouble_is_tried_again(status: int) -> None:
    with told(status, status) as server:
        deliver([NOTICE, CLOSED], server, 4)
    assert [body["what"] for body in server.bodies] == ["opened", "opened", "opened", "closed"]


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_no_is_said_once_and_the_next_notice_goes_out(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with told(status) as server:
        deliver([NOTICE, CLOSED], server, 2)
    assert [body["what"] for body in server.bodies] == ["opened", "closed"]
    assert f"did not take a notice: status {status}" in caplog.text
    assert "secret-path" not in caplog.text


def test_the_token_is_sent() -> None:
    with told() as server:
        deliver([NOTICE], server, 1, token="s3cret")
    assert server.headers[0]["Authorization"] == "Bearer s3cret"


def test_what_is_below_the_severity_is_not_told_nor_its_end() -> None:
    low = replace(NOTICE, id="low", severity="LOW")
    with told() as server:
        deliver([low, replace(low, what="closed", end_ns=NS), NOTICE, CLOSED], server, 2)
    assert {body["id"] for body in server.bodies} == {NOTICE.id}


def test_what_becomes_worse_is_told_then_and_its_end_too() -> None:
    low = replace(NOTICE, severity="LOW")
    with told() as server:
        deliver([low, replace(NOTICE, what="changed"), CLOSED], server, 2)
    assert [body["what"] for body in server.bodies] == ["changed", "closed"]


@pytest.mark.parametrize("address", ["hooks.example.com", "ftp://x/y", "http://", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="--webhook-url must be an address like"):
        Webhook(address, "json", "")


def test_the_headline_is_one_line_whatever_was_recorded() -> None:
    line = headline(replace(NOTICE, job_id="a\nb\x1b[31m", nodes=("n\u202e",)))
    assert line.isprintable()
    assert "rank 5" in line and "71 to 179 USD" in line


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:99999/x", "http://127.0.0.1:abc/x", "http://exa mple/x", "http://[::1/x"]
)
def test_an_address_that_no_request_can_go_to_is_refused_at_the_start(address: str) -> None:
    with pytest.raises(ConfigError, match="--webhook-url must be an address like"):
        Webhook(address, "json", "")


def test_an_answer_that_makes_no_sense_ends_nothing() -> None:
    with told(503) as server:
        server.retry_after = "\xb2"
        deliver([NOTICE, CLOSED], server, 3)
    assert [body["what"] for body in server.bodies] == ["opened", "opened", "closed"]
