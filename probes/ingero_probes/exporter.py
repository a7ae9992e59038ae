"""Sends events to an OTLP/gRPC receiver in batches, in a thread of its own; what cannot be kept is counted."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Final

import grpc

from ingero_mcp.clock import monotonic_s
from ingero_mcp.events import Event, Point, Resource, Sample, Span
from ingero_mcp.otlp.encode import encode_points, encode_samples, encode_spans

BATCH: Final = 500
"""Events in one request."""

_QUEUED_BATCHES: Final = 256
_SERVICE: Final = "/opentelemetry.proto.collector."
_METHODS: Final[dict[type, str]] = {
    Span: f"{_SERVICE}trace.v1.TraceService/Export",
    Sample: f"{_SERVICE}metrics.v1.MetricsService/Export",
    Point: f"{_SERVICE}logs.v1.LogsService/Export",
}
# The codes that the OTLP specification calls retryable.
_RETRYABLE: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
# gRPC's own pauses grow to two minutes: too long for a server that is back in seconds.
_RECONNECT: Final = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000))
_CALL_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Batch:
    kind: type
    body: bytes
    events: int


class Exporter:
    """A connection to a receiver. A batch is sent, the same bytes each time, until the receiver has committed it.

    `acknowledged` and `lost` count events; `problem` says what keeps it from sending, "" while nothing does.
    """

    def __init__(self, address: str, token: str = "") -> None:
        self.acknowledged = 0
        self.lost = 0
        self.problem = ""
        self._address = address
        self._channel = grpc.insecure_channel(address, options=_RECONNECT)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._queue: Queue[_Batch] = Queue(_QUEUED_BATCHES)
        self._collecting: dict[tuple[int, type], tuple[Resource, list[Event]]] = {}
        self._ending = threading.Event()
        self._give_up_s = float("inf")
        self._thread = threading.Thread(target=self._run, name="ingero-export", daemon=True)
        self._thread.start()

    def add(self, resource: Resource, event: Event) -> None:
        """Take an event; it is sent when its batch is full or flushed."""
        key = (id(resource), type(event))
        _, events = self._collecting.setdefault(key, (resource, []))
        events.append(event)
        if len(events) >= BATCH:
            self._enqueue(type(event), *self._collecting.pop(key))

    def flush(self) -> None:
        """Send what has been taken so far."""
        for (_, kind), (resource, events) in self._collecting.items():
            self._enqueue(kind, resource, events)
        self._collecting.clear()

    def close(self, patience_s: float) -> int:
        """Send the rest, for at most so long; returns how many events were left unsent."""
        self.flush()
        self._give_up_s = monotonic_s() + patience_s
        self._ending.set()
        self._thread.join(patience_s + 1)
        self._channel.close()
        return sum(batch.events for batch in self._queue.queue)

    def _enqueue(self, kind: type, resource: Resource, events: list[Event]) -> None:
        body = _encode(resource, events)
        try:
            self._queue.put_nowait(_Batch(kind, body, len(events)))
        except Full:
            self.lost += len(events)

    def _run(self) -> None:
        while not (self._ending.is_set() and self._queue.empty()):
            try:
                batch = self._queue.get(timeout=0.1)
            except Empty:
                continue
            if not self._send(batch):
                # Put back for the count of what was left.
                self._queue.queue.appendleft(batch)
                return

    def _send(self, batch: _Batch) -> bool:
        """True when the receiver is done with it; False when the time is up."""
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(_METHODS[batch.kind])
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                call(batch.body, metadata=self._metadata, timeout=min(_CALL_S, self._left_s()))
            except grpc.RpcError as error:
                code = error.code()
                self.problem = self._explain(code, error.details() or "")
                if code is not grpc.StatusCode.UNAUTHENTICATED and code not in _RETRYABLE:
                    self.lost += batch.events
                    return True
            else:
                self.acknowledged += batch.events
                self.problem = ""
                return True
            if monotonic_s() + pause_s > self._give_up_s:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _explain(self, code: grpc.StatusCode, details: str) -> str:
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return f"{self._address} refuses the token; give the server's own with --token-file FILE"
        if code in _RETRYABLE:
            return f"{self._address} does not take the events ({code.name}); they are kept, and sent when it does"
        return f"{self._address} answered {code.name} to a batch, which is dropped: {details}"

    def _left_s(self) -> float:
        return max(0.1, self._give_up_s - monotonic_s())


def _encode(resource: Resource, events: list[Event]) -> bytes:
    spans = [event for event in events if isinstance(event, Span)]
    if spans:
        return encode_spans(resource, spans)
    points = [event for event in events if isinstance(event, Point)]
    if points:
        return encode_points(resource, points)
    return encode_samples(resource, [event for event in events if isinstance(event, Sample)])
