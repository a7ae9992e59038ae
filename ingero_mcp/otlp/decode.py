"""The one decoder: request bytes in, a batch of events out. A faster one would replace this function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from google.protobuf.message import DecodeError

from ingero_mcp.errors import WireError
from ingero_mcp.otlp.attributes import AttributeCache
from ingero_mcp.otlp.logs import decode_logs
from ingero_mcp.otlp.metrics import decode_metrics
from ingero_mcp.otlp.records import Arrival, Records
from ingero_mcp.otlp.signal import Signal
from ingero_mcp.otlp.spans import decode_spans

_DECODERS: Final[dict[Signal, Callable[[bytes, Arrival, AttributeCache], Records]]] = {
    "traces": decode_spans,
    "metrics": decode_metrics,
    "logs": decode_logs,
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """`batch` holds one row per usable record; `repaired_times` counts rows whose time was implausible.

    `rejected` records were unusable, the first because of `reason`.
    """

    batch: pa.RecordBatch
    repaired_times: int
    rejected: int = 0
    reason: str = ""


class Decoder:
    """Decodes requests; remembers attributes it has seen, so one decoder should serve one receiver."""

    def __init__(self) -> None:
        self._cache = AttributeCache()

    def decode(self, signal: Signal, body: bytes, arrival: Arrival) -> Decoded:
        """The events of one export request (protobuf, decompressed). WireError if the bytes are not one."""
        try:
            records = _DECODERS[signal](body, arrival, self._cache)
        except DecodeError as error:
            raise WireError(f"the body is not an OTLP {signal} export request: {error}") from error
        return Decoded(records.batch(), records.repaired_times, len(records.rejected), records.reason)
