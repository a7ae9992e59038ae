"""Parquet, as its bytes come: one row group for each table that is handed in."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingero_mcp.errors import QueryError


def parquet_bytes(schema: pa.Schema, tables: Iterable[pa.Table]) -> Generator[bytes, None, None]:
    """The file, piece by piece; it is complete only with its last piece. QueryError for a type that it cannot hold."""
    written = _Written()
    sink: Any = written
    try:
        with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)
                yield written.take()
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise QueryError(
            f"a column has a type that Parquet does not have ({error}); cast it, to VARCHAR say"
        ) from error
    yield written.take()


class _Written(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        """What was written since the last time."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
