"""OTLP over HTTP: protobuf and JSON, gzip, with limits that hold while inflating."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from anyio import CapacityLimiter, to_thread
from google.protobuf.json_format import MessageToJson
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ingero_mcp.errors import InternalError, StoreError, WireError
from ingero_mcp.gate import RequireHost, RequireToken
from ingero_mcp.otlp.response import response
from ingero_mcp.otlp.signal import Signal
from ingero_mcp.receiver.ingest import Accepted, Export, Ingest
from ingero_mcp.semconv import UNKNOWN
from ingero_mcp.thresholds import as_text
from ingero_mcp.tokens import ANONYMOUS, Tokens

_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_THRESHOLD_HEADERS: Final = ("X-Ingero-Threshold", "X-Ingero-Quorum-Met")
_RETRY_AFTER_S: Final = "5"
_WORKERS: Final = 16
# google.rpc.Code, as the body of an error carries it beside the HTTP status.
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _INTERNAL, _UNAVAILABLE = 3, 8, 13, 14
_GZIP: Final = 16 + zlib.MAX_WBITS


class _Refused(Exception):
    """A request that is not looked into: the HTTP status, the google.rpc code, and why."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


def otlp_http_app(
    ingest: Ingest, tokens: Tokens, max_body_bytes: int, hosts: Sequence[str] | None, further: Sequence[Route] = ()
) -> Starlette:
    """The app with /v1/traces, /v1/metrics and /v1/logs, and `further` routes that senders ask.

    `max_body_bytes` bounds a body before and after inflating; `hosts` are the names under which it answers, None any.
    """
    workers = CapacityLimiter(_WORKERS)

    def exporter(signal: Signal) -> Route:
        async def export(request: Request) -> Response:
            is_json = _content_type(request) == _JSON
            try:
                body = await _body(request, max_body_bytes)
                asked = Export(
                    signal, body, _token_name(request), is_json, request.query_params.get("cluster_id") or UNKNOWN
                )
                accepted = await to_thread.run_sync(ingest.accept, asked, limiter=workers)
            except _Refused as refused:
                ingest.refuse(signal, "too_large" if refused.code == _RESOURCE_EXHAUSTED else "not_otlp")
                return _failure(refused.status, refused.code, str(refused), is_json)
            except WireError as error:
                return _failure(400, _INVALID_ARGUMENT, str(error), is_json)
            except StoreError as error:
                return _failure(503, _UNAVAILABLE, str(error), is_json)
            except InternalError as error:
                return _failure(500, _INTERNAL, str(error), is_json)
            message = response(signal, accepted.rejected, accepted.reason)
            headers = _threshold(accepted)
            if is_json:
                return Response(MessageToJson(message) if message else "{}", headers=headers, media_type=_JSON)
            body = message.SerializeToString() if message else b""
            return Response(body, headers=headers, media_type=_PROTOBUF)

        return Route(f"/v1/{signal}", export, methods=["POST"])

    named = [Middleware(RequireHost, hosts=hosts)] if hosts is not None else []
    return Starlette(
        routes=[*(exporter(signal) for signal in _SIGNALS), *further],
        middleware=[*named, Middleware(RequireToken, tokens=tokens)],
    )


def _threshold(accepted: Accepted) -> dict[str, str] | None:
    """What an Ingero agent reads off the answer to its push: both headers or none."""
    if accepted.threshold is None:
        return None
    return dict(zip(_THRESHOLD_HEADERS, as_text(accepted.threshold), strict=True))


async def _body(request: Request, most: int) -> bytes:
    """The decompressed body; inflating stops at the limit, so a small bomb stays small."""
    if _content_type(request) not in (_JSON, _PROTOBUF):
        raise _Refused(415, _INVALID_ARGUMENT, f"send Content-Type: {_PROTOBUF} or {_JSON}")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise _Refused(415, _INVALID_ARGUMENT, f"Content-Encoding {encoding!r} is not supported; send gzip or none")
    inflater = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
    parts: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        part = chunk if inflater is None else _inflate(inflater, chunk, most + 1 - size)
        size += len(part)
        if size > most:
            raise _Refused(
                413,
                _RESOURCE_EXHAUSTED,
                f"the body is larger than {most} bytes after decompression; send smaller batches, or raise the limit "
                "with --max-message-mib",
            )
        parts.append(part)
    if inflater is not None and (not inflater.eof or inflater.unused_data):
        wrong = "goes on after its end" if inflater.eof else "ends early"
        raise _Refused(400, _INVALID_ARGUMENT, f"the gzip body {wrong}")
    return b"".join(parts)


def _inflate(inflater: zlib._Decompress, chunk: bytes, most: int) -> bytes:
    try:
        return inflater.decompress(chunk, most)
    except zlib.error as error:
        raise _Refused(400, _INVALID_ARGUMENT, f"the body is not gzip: {error}") from None


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def _token_name(request: Request) -> str:
    name = request.scope.get("ingero.token_name", ANONYMOUS)
    return str(name)


def _failure(status: int, code: int, text: str, is_json: bool) -> Response:
    message = Status(code=code, message=text)
    headers = {"Retry-After": _RETRY_AFTER_S} if status == 503 else None
    if is_json:
        return Response(MessageToJson(message), status_code=status, headers=headers, media_type=_JSON)
    return Response(message.SerializeToString(), status_code=status, headers=headers, media_type=_PROTOBUF)
