"""The bytes of a trace, plain or gzipped, in portions of bounded size."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from ingero_mcp.importers.text import one_line

MAX_JSON_BYTES: Final = 4 << 30
"""A trace is read as a stream, so this bounds time and not memory: about a minute for each GiB."""

_CHUNK_BYTES: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_TRAILER_BYTES: Final = 8
_PIECE_BYTES: Final = 1 << 10
_GZIP_WINDOW: Final = 31  # zlib's way of saying: gzip, with the largest window


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """The JSON of a trace, inflated where it is gzipped.

    Raises ValueError if the file cannot be read, is damaged, cut off or too large.
    """
    zipped = _peek(file) == _GZIP
    stream: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=file) if zipped else file
    total = 0
    while chunk := _read(stream, total):
        total += len(chunk)
        if total > MAX_JSON_BYTES:
            raise ValueError(f"holds more than {MAX_JSON_BYTES} bytes of JSON; profile fewer steps in one trace")
        yield chunk


def beginning(path: Path, size: int) -> bytes:
    """The first bytes of the JSON in a file, inflated, at most `size`; of a damaged file what can be read."""
    with path.open("rb") as file:
        raw = file.read(size)
    if not raw.startswith(_GZIP):
        return raw
    inflate, pieces, left = zlib.decompressobj(_GZIP_WINDOW), list[bytes](), size
    try:
        # The checksum at the end is left out: who reads the whole file will be told.
        for start in range(0, len(raw) - _TRAILER_BYTES, _PIECE_BYTES):
            piece = raw[start : min(start + _PIECE_BYTES, len(raw) - _TRAILER_BYTES)]
            pieces.append(inflate.decompress(piece, left))
            left -= len(pieces[-1])
            if left <= 0:
                break
    except zlib.error:
        pass  # a damaged file is still of the kind that its beginning shows
    return b"".join(pieces)


def _peek(file: BinaryIO) -> bytes:
    begin = file.read(len(_GZIP))
    file.seek(0)
    return begin


def _read(stream: BinaryIO | gzip.GzipFile, total: int) -> bytes:
    try:
        return stream.read(_CHUNK_BYTES)
    except EOFError as error:
        raise ValueError("ends early: its gzip data is truncated") from error
    except (OSError, zlib.error) as error:
        raise ValueError(f"cannot be read after {total} bytes of JSON: {one_line(error)}") from error
