"""What happens to an export request, whichever way it came: decode, queue, acknowledge after commit."""

from __future__ import annotations

from concurrent.futures import TimeoutError as CommitTimeout
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from ingero_mcp.clock import WallClock, now_ns
from ingero_mcp.errors import IngeroError, StoreBusy, WireError
from ingero_mcp.otlp.decode import Decoder, Signal
from ingero_mcp.store import Store

_MAX_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Counters:
    """What the receiver has seen, for /metrics."""

    requests: Counter
    events: Counter
    duplicates: Counter
    repaired_times: Counter
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
            refused=counter("refused_requests", "requests refused, by reason", "signal", "reason"),
        )


class Ingest:
    """Takes decompressed request bodies; returns once they are committed."""

    def __init__(self, store: Store, counters: Counters, *, clock: WallClock = now_ns) -> None:
        self._store = store
        self._counters = counters
        self._clock = clock
        self._decoder = Decoder()

    def accept(self, signal: Signal, body: bytes, token_name: str, wait_s: float = _MAX_WAIT_S) -> int:
        """Store one export request; returns how many events were new.

        Raises WireError when the bytes are not OTLP (sending them again will not help) and StoreBusy when they could
        not be committed now (sending the same bytes again is safe: they are recognised).
        """
        try:
            decoded = self._decoder.decode(signal, body, self._clock())
            appended = self._store.append(decoded.batch, key=_key(signal, body, token_name))
            result = appended.result(timeout=min(wait_s, _MAX_WAIT_S))
        except CommitTimeout:
            self._counters.refused.labels(signal, "slow_commit").inc()
            raise StoreBusy("not committed in time; the same batch may be sent again") from None
        except IngeroError as error:
            self.refuse(signal, "not_otlp" if isinstance(error, WireError) else "busy")
            raise
        self._counters.requests.labels(signal).inc()
        self._counters.events.labels(signal).inc(result.rows)
        self._counters.duplicates.labels(signal).inc(result.duplicate)
        self._counters.repaired_times.labels(signal).inc(0 if result.duplicate else decoded.repaired_times)
        return result.rows

    def refuse(self, signal: str, reason: str) -> None:
        """Count a request that was refused."""
        self._counters.refused.labels(signal, reason).inc()


def _key(signal: Signal, body: bytes, token_name: str) -> bytes:
    # A retry has the same bytes, the same token and the same signal; nothing else may be taken for one.
    digest = blake2b(digest_size=16)
    for part in (signal.encode(), token_name.encode()):
        digest.update(len(part).to_bytes(4, "big") + part)
    digest.update(body)
    return digest.digest()
