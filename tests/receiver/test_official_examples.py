"""The official OTLP/JSON examples are taken whole."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.conftest import DATA, RunServer

EXAMPLES = DATA / "otlp-examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="the official examples are not beside this checkout")


def records(value: Any, keys: tuple[str, ...]) -> int:
    """How many objects the lists named `keys` hold, at any depth."""
    if isinstance(value, list):
        return sum(records(item, keys) for item in value)
    if not isinstance(value, dict):
        return 0
    own = sum(len(held) for key, held in value.items() if key in keys)
    return own + sum(records(held, keys) for key, held in value.items() if key not in keys)


@pytest.mark.parametrize(
    ("name", "signal"), [("trace", "traces"), ("metrics", "metrics"), ("logs", "logs"), ("events", "logs")]
)
def test_an_official_example_is_stored_whole(run_server: RunServer, name: str, signal: str) -> None:
    body = (EXAMPLES / f"{name}.json").read_bytes()
    expected = records(json.loads(body), ("spans", "dataPoints", "logRecords"))
    with run_server() as server:
        answer = httpx2.post(
            f"{server.otlp_http_url}/v1/{signal}", content=body, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()) == (200, {})
        count = httpx2.post(f"{server.url}/api/v1/query", json={"sql": "SELECT count(*) FROM events"}).json()
    assert count["rows"] == [[expected]]
    assert expected > 0
