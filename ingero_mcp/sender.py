"""Sends OTLP request bodies over gRPC and waits for their acknowledgement; passing trouble is tried again."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final

import grpc

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import ConfigError, WireError
from ingero_mcp.otlp.signal import Signal

_METHODS: Final[dict[Signal, str]] = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
# The codes that the OTLP specification calls retryable.
_RETRYABLE: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
    }
)
_CALL_S: Final = 30.0
# gRPC's own pauses grow to two minutes: too long for a server that is back in seconds.
_RECONNECT: Final = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000))
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class Sender:
    """A connection to an OTLP/gRPC receiver. `send` returns once the receiver has committed the request."""

    def __init__(self, address: str, token: str = "", *, patience_s: float = 30.0) -> None:
        self._address = address
        self._channel = grpc.insecure_channel(address, options=_RECONNECT)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._patience_s = patience_s

    def send(self, signal: Signal, body: bytes) -> None:
        """Send one request. Raises ConfigError when nobody answers or the token is refused, WireError when the
        receiver says that the bytes themselves are wrong."""
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(_METHODS[signal])
        give_up_s = monotonic_s() + self._patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                call(body, metadata=self._metadata, timeout=_CALL_S)
                return
            except ValueError as error:
                raise ConfigError(f"sending to {self._address} was given up") from error  # closed meanwhile
            except grpc.RpcError as error:
                code, details = error.code(), error.details()
                if code not in _RETRYABLE or monotonic_s() + pause_s > give_up_s:
                    raise self._explain(code, details or "") from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._channel.close()

    def _explain(self, code: grpc.StatusCode, details: str) -> ConfigError | WireError:
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return ConfigError(f"{self._address} refuses the token; give the server's own with --token-file FILE")
        if code in _RETRYABLE:
            why = details.splitlines()[0][:60] if details else code.name
            return ConfigError(
                f"{self._address} did not take the data within {self._patience_s:g} s ({why}); is a server running "
                "there? Start one with: ingero serve"
            )
        return WireError(f"{self._address} answered {code.name}: {details}")

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
