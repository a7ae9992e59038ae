"""What happens to an export request, whichever way it came: decode, queue, acknowledge after commit."""

from __future__ import annotations

import logging
from concurrent.futures import TimeoutError as CommitTimeout
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from ingero_mcp.analysis.threshold import Threshold
from ingero_mcp.clock import WallClock, now_ns
from ingero_mcp.errors import IngeroError, InternalError, StoreBusy, WireError
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.json_request import FromJson, from_json
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.otlp.signal import Signal
from ingero_mcp.semconv import UNKNOWN
from ingero_mcp.store import Store
from ingero_mcp.thresholds import Thresholds

_log = logging.getLogger(__name__)
_MAX_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Export:
    """An export request as it arrived: decompressed `body`, in JSON or protobuf, under which token.

    `cluster_id` is that of senders who do not name theirs.
    """

    signal: Signal
    body: bytes
    token_name: str
    is_json: bool = False
    cluster_id: str = UNKNOWN


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a request: `rows` new events; `rejected` records were unusable, the first because of `reason`.

    `threshold` is what the sender is to be told, if it is one that asks for it by what it sent.
    """

    rows: int
    rejected: int = 0
    reason: str = ""
    threshold: Threshold | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """What the receiver has seen, for /metrics."""

    requests: Counter
    events: Counter
    duplicates: Counter
    repaired_times: Counter
    rejected: Counter
    refused: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Counters:
        """The counters, made in `registry`."""

        def counter(name: str, doc: str, *labels: str) -> Counter:
            return Counter(f"ingero_receiver_{name}", doc, labels, registry=registry)

        return cls(
            requests=counter("requests", "export requests acknowledged", "signal"),
            events=counter("events", "events stored", "signal"),
            duplicates=counter("duplicate_requests", "requests that had been stored before", "signal"),
            repaired_times=counter("repaired_times", "events that got the receive time", "signal"),
            rejected=counter("rejected_events", "records that could not be read, left out of their request", "signal"),
            refused=counter("refused_requests", "requests refused, by reason", "signal", "reason"),
        )


class Ingest:
    """Takes decompressed request bodies; returns once they are committed."""

    def __init__(self, store: Store, counters: Counters, thresholds: Thresholds, *, clock: WallClock = now_ns) -> None:
        self._store = store
        self._counters = counters
        self._thresholds = thresholds
        self._clock = clock
        self._decoder = Decoder()

    def accept(self, request: Export, wait_s: float = _MAX_WAIT_S) -> Accepted:
        """Store one export request.

        Raises WireError when the bytes are not OTLP (sending them again will not help) and StoreBusy when they could
        not be committed now (sending the same bytes again is safe: they are recognised).
        """
        signal = request.signal
        arrival = Arrival(self._clock(), request.cluster_id)
        try:
            body = from_json(signal, request.body) if request.is_json else FromJson(request.body)
            decoded = self._decoder.decode(signal, body.body, arrival)
            appended = self._store.append(decoded.batch, key=_key(request)).result(timeout=min(wait_s, _MAX_WAIT_S))
        except CommitTimeout:
            self.refuse(signal, "slow_commit")
            raise StoreBusy("not committed in time; the same batch may be sent again") from None
        except IngeroError as error:
            self.refuse(signal, "not_otlp" if isinstance(error, WireError) else "busy")
            raise
        except MemoryError as error:
            self.refuse(signal, "busy")
            raise StoreBusy(
                "not enough memory for this request now; send it again later, or in smaller parts"
            ) from error
        except Exception as error:
            _log.exception("a %s request of %d bytes could not be taken", signal, len(request.body))
            self.refuse(signal, "internal")
            raise InternalError("a fault in the server; its log says more. Sending this again will not help") from error
        self._counters.requests.labels(signal).inc()
        self._counters.events.labels(signal).inc(appended.rows)
        self._counters.duplicates.labels(signal).inc(appended.duplicate)
        if not appended.duplicate:
            self._counters.repaired_times.labels(signal).inc(decoded.repaired_times)
            self._counters.rejected.labels(signal).inc(body.rejected + decoded.rejected)
        threshold = None
        if signal == "metrics":
            if not appended.duplicate:
                self._thresholds.learn(decoded.batch)
            threshold = self._thresholds.of_push(decoded.batch, request.cluster_id)
        return Accepted(appended.rows, body.rejected + decoded.rejected, body.reason or decoded.reason, threshold)

    def refuse(self, signal: str, reason: str) -> None:
        """Count a request that was refused."""
        self._counters.refused.labels(signal, reason).inc()


def _key(request: Export) -> bytes:
    # A retry has the same bytes, the same token and the same signal; nothing else may be taken for one.
    digest = blake2b(digest_size=16)
    for part in (request.signal.encode(), request.token_name.encode(), request.cluster_id.encode()):
        digest.update(len(part).to_bytes(4, "big") + part)
    digest.update(request.body)
    return digest.digest()
