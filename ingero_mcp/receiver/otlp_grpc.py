"""OTLP over gRPC: the three collector services, with raw request bytes handed to the decoder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import grpc

from ingero_mcp.addresses import listen, parse_address
from ingero_mcp.errors import ConfigError, InternalError, StoreError, WireError
from ingero_mcp.limits import MIB
from ingero_mcp.otlp.response import encode_response
from ingero_mcp.otlp.signal import Signal
from ingero_mcp.receiver.ingest import Export, Ingest
from ingero_mcp.thresholds import as_text
from ingero_mcp.tokens import Tokens

_log = logging.getLogger(__name__)
_SIGNALS: Final[dict[str, Signal]] = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": "logs",
}
_METADATA: Final = ("ingero-threshold", "ingero-quorum-met")
_PATIENCE_S: Final = 30.0
# A call's message is read only when a worker takes the call, so thousands of calls in flight wait with the sender and
# none has to be refused (exporters take RESOURCE_EXHAUSTED for permanent, and lose the data).
_WORKERS: Final = 16
# gRPC itself refuses far above our own limit, in words that name no remedy; between the two we answer.
_HARD_LIMIT_FACTOR: Final = 8


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """Where to listen and what to accept; `tls` is (private key, certificate chain, client CA or None), PEM bytes."""

    address: str
    max_message_bytes: int = 32 * MIB
    tls: tuple[bytes, bytes, bytes | None] | None = None


class GrpcReceiver:
    """A gRPC server for OTLP: bound from construction on, answers from `start` to `stop`. `port` is its own."""

    def __init__(self, settings: GrpcSettings) -> None:
        self._settings = settings
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="otlp-grpc")
        self._server = grpc.server(
            self._workers,
            options=[
                ("grpc.max_receive_message_length", settings.max_message_bytes * _HARD_LIMIT_FACTOR),
                # Else a second server could listen on the same port, and each would get half of the data.
                ("grpc.so_reuseport", 0),
            ],
        )
        self.port = _listen(self._server, settings)

    def start(self, ingest: Ingest, tokens: Tokens) -> None:
        """Answer from now on."""
        self._server.add_generic_rpc_handlers([_Services(ingest, tokens, self._settings.max_message_bytes)])
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, wait `grace_s` for those in flight; may be called twice, and without a start."""
        self._server.stop(grace_s).wait()
        self._workers.shutdown(wait=False, cancel_futures=True)


def _listen(server: grpc.Server, settings: GrpcSettings) -> int:
    # gRPC reports a port in use with a line of its own on stderr; finding out first keeps that to one sentence.
    listen(parse_address(settings.address, "--otlp-addr"), "--otlp-addr").close()
    try:
        if settings.tls is None:
            return server.add_insecure_port(settings.address)
        key, chain, client_ca = settings.tls
        credentials = grpc.ssl_server_credentials(
            [(key, chain)], root_certificates=client_ca, require_client_auth=client_ca is not None
        )
        return server.add_secure_port(settings.address, credentials)
    except RuntimeError as error:
        raise ConfigError(
            f"cannot listen on {settings.address} for OTLP/gRPC: {error}; choose another with --otlp-addr HOST:PORT"
        ) from error


class _Services(grpc.GenericRpcHandler):
    def __init__(self, ingest: Ingest, tokens: Tokens, max_message_bytes: int) -> None:
        self._ingest = ingest
        self._tokens = tokens
        self._max_message_bytes = max_message_bytes

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        signal = _SIGNALS.get(handler_call_details.method)
        if signal is None:
            return None
        # Before the message is read: nobody without a token makes us buffer or decode anything.
        token_name = self._tokens.name_of(_authorization(handler_call_details.invocation_metadata))
        if token_name is None:
            self._ingest.refuse(signal, "unauthenticated")
            return grpc.unary_unary_rpc_method_handler(_refuse_token)
        return grpc.unary_unary_rpc_method_handler(self._export(signal, token_name))

    def _export(self, signal: Signal, token_name: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def export(body: bytes, context: grpc.ServicerContext) -> bytes:
            if len(body) > self._max_message_bytes:
                self._ingest.refuse(signal, "too_large")
                context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"the message has {len(body)} bytes, the limit is {self._max_message_bytes}; send smaller "
                    "batches, or raise the limit with --max-message-mib",
                )
            try:
                accepted = self._ingest.accept(
                    Export(signal, body, token_name), wait_s=context.time_remaining() or _PATIENCE_S
                )
            except WireError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except StoreError as error:
                context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            except InternalError as error:
                context.abort(grpc.StatusCode.INTERNAL, str(error))
            if accepted.threshold is not None:
                # Initial, not trailing: clients of every language can read it, and it is where a proxy looks.
                context.send_initial_metadata(tuple(zip(_METADATA, as_text(accepted.threshold), strict=True)))
            return encode_response(signal, accepted.rejected, accepted.reason)

        return export


def _refuse_token(body: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "a token is needed: send the metadata authorization: Bearer <token>, with the token of the server's "
        "--auth-token-file",
    )


def _authorization(metadata: Sequence[Any] | None) -> str | None:
    for key, value in metadata or ():
        if key == "authorization":
            return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return None
