"""The one decoder: request bytes in, a batch of events out. A faster one would replace this function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
from google.protobuf.message import DecodeError

from ingero_mcp.errors import WireError
from ingero_mcp.otlp.attributes import AttributeCache
from ingero_mcp.otlp.logs import decode_logs
from ingero_mcp.otlp.metrics import decode_metrics
from ingero_mcp.otlp.records import Records
from ingero_mcp.otlp.spans import decode_spans

Signal = Literal["traces", "metrics", "logs"]

_DECODERS: Final[dict[Signal, Callable[[bytes, int, AttributeCache], Records]]] = {
    "traces": decode_spans,
    "metrics": decode_metrics,
    "logs": decode_logs,
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """`batch` holds one row per record; `repaired_times` counts rows whose time was implausible."""

    batch: pa.RecordBatch
    repaired_times: int


class Decoder:
    """Decodes requests; remembers attributes it has seen, so one decoder should serve one receiver."""

    def __init__(self) -> None:
        self._cache = AttributeCache()

    def decode(self, signal: Signal, body: bytes, received_ns: int) -> Decoded:
        """The events of one export request (protobuf, decompressed).

        `received_ns` stands in for implausible times. Raises WireError when the bytes are not such a request.
        """
        try:
            records = _DECODERS[signal](body, received_ns, self._cache)
        except DecodeError as error:
            raise WireError(f"the body is not an OTLP {signal} export request: {error}") from error
        return Decoded(records.batch(), records.repaired_times)
