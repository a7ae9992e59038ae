"""OTLP/gRPC: what is refused, with which code, and that nothing of it is stored."""

from __future__ import annotations

from pathlib import Path

import grpc
import httpx2
import pytest

from ingero_mcp.events import Resource, Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.run_file import RunningServer
from ingero_mcp.tokens import Tokens
from tests.conftest import RunServer

EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
BODY = encode_samples(Resource({}), [Sample("m", 1_796_000_000_000_000_000, 1.0)])


def export(address: str, body: bytes, token: str | None = None, method: str = EXPORT) -> grpc.StatusCode | str:
    """The status of one call: OK, or the code; details are appended after a blank."""
    metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(method)
        try:
            call(body, metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            return f"{error.code().name} {error.details()}"
        return "OK"


def stored(server: RunningServer, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    response = httpx2.post(f"{server.url}/api/v1/query", json={"sql": "SELECT count(*) FROM events"}, headers=headers)
    count: int = response.json()["rows"][0][0]
    return count


def test_without_the_right_token_nothing_is_stored(run_server: RunServer, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret\n")
    with run_server(auth_token_file=str(token_file)) as server:
        assert str(export(server.otlp_addr, BODY)).startswith("UNAUTHENTICATED")
        assert str(export(server.otlp_addr, BODY, "wrong")).startswith("UNAUTHENTICATED")
        assert stored(server, "s3cret") == 0
        assert export(server.otlp_addr, BODY, "s3cret") == "OK"
        assert stored(server, "s3cret") == 1


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Bearer right", "a"),
        ("bearer right", "a"),
        ("Bearer  right ", "a"),
        ("Bearer other", "b"),
        ("Basic right", None),
        ("Bearer", None),
        ("right", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_is_told_by_name(header: str | None, name: str | None) -> None:
    assert Tokens({"a": "right", "b": "other"}).name_of(header) == name


def test_bytes_that_are_not_otlp_are_an_invalid_argument(run_server: RunServer) -> None:
    with run_server() as server:
        status = str(export(server.otlp_addr, b"\xff\xff\xffnot otlp"))
        assert status.startswith("INVALID_ARGUMENT")
        assert "not an OTLP metrics export request" in status
        assert stored(server) == 0


def test_a_message_above_the_limit_says_size_limit_and_remedy(run_server: RunServer) -> None:
    with run_server(max_message_mib=1) as server:
        status = str(export(server.otlp_addr, bytes(2 << 20)))
        assert status.startswith("RESOURCE_EXHAUSTED")
        assert str(2 << 20) in status and str(1 << 20) in status and "--max-message-mib" in status
        metrics = httpx2.get(f"{server.url}/metrics").text
        assert 'refused_requests_total{reason="too_large",signal="metrics"} 1.0' in metrics
        assert stored(server) == 0


def test_an_unknown_service_is_unimplemented(run_server: RunServer) -> None:
    with run_server() as server:
        assert str(export(server.otlp_addr, BODY, method="/some.Other/Call")).startswith("UNIMPLEMENTED")


def test_thousands_of_calls_in_flight_are_all_answered(run_server: RunServer) -> None:
    with run_server() as server, grpc.insecure_channel(server.otlp_addr) as channel:
        call = channel.unary_unary(EXPORT)
        bodies = [
            encode_samples(Resource({}), [Sample("m", 1_796_000_000_000_000_000 + number, 1.0)])
            for number in range(3000)
        ]
        for future in [call.future(body, timeout=60) for body in bodies]:
            future.result()
        assert stored(server) == 3000
