"""CSV as RFC 4180 has it: a line of names, CRLF, quotes doubled.

A NULL is an empty field without quotes, an empty text has quotes, NaN is `NaN`, infinities are `Infinity` and
`-Infinity`. Doubles have as many digits as bring the same double back. Lists and structures are JSON, bytes are hex.

A spreadsheet takes a cell that begins with = + - or @ for a formula, whoever recorded it, and quotes do not stop it.
For files that one will open, `for_spreadsheets` puts an apostrophe before such texts; without it a file holds what was
recorded, character by character.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp.cells import structured

# The stubs do not know that a kernel takes arrays and plain values together.
_kernels: Final[Any] = pc
_END: Final = "\r\n"
_NEEDS_QUOTES: Final = '^$|[",\r\n]'
_FORMULA: Final = r"^[=+\-@\t\r]"
_ROWS_AT_ONCE: Final = 8_192


def csv_lines(
    schema: pa.Schema, tables: Iterable[pa.Table], *, for_spreadsheets: bool = False
) -> Generator[bytes, None, None]:
    """The lines, some thousand at a time; the first piece is the line of names."""
    names = _texts(pa.array(schema.names, pa.string()), for_spreadsheets).to_pylist()
    yield (",".join(map(str, names)) + _END).encode()
    for table in tables:
        for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            if batch.num_rows:
                yield _lines(batch, for_spreadsheets)


def _lines(batch: pa.RecordBatch, for_spreadsheets: bool) -> bytes:
    cells = [_cells(column, for_spreadsheets) for column in batch.columns]
    lines = _kernels.binary_join_element_wise(*cells, ",")
    return (_END.join(lines.to_pylist()) + _END).encode()


def _cells(column: pa.Array[Any], for_spreadsheets: bool) -> pa.Array[Any]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = _texts(column.cast(pa.string()), for_spreadsheets)
    elif pa.types.is_floating(kind):
        texts = _doubles(column.cast(pa.float64()))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        texts = column.cast(pa.string())
    else:
        texts = _texts(pa.array([_plain(value) for value in column.to_pylist()], pa.string()), for_spreadsheets)
    return texts.fill_null("")


def _texts(texts: pa.Array[Any], for_spreadsheets: bool) -> pa.Array[Any]:
    if for_spreadsheets:
        harmless = _kernels.binary_join_element_wise("'", texts, "")
        texts = _kernels.if_else(_kernels.match_substring_regex(texts, _FORMULA), harmless, texts)
    doubled = _kernels.replace_substring(texts, '"', '""')
    quoted = _kernels.binary_join_element_wise('"', doubled, '"', "")
    shown: pa.Array[Any] = _kernels.if_else(_kernels.match_substring_regex(texts, _NEEDS_QUOTES), quoted, texts)
    return shown


def _doubles(values: pa.Array[Any]) -> pa.Array[Any]:
    texts = values.cast(pa.string())
    for odd, shown in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = _kernels.if_else(_kernels.equal(texts, odd), shown, texts)
    return texts


def _plain(value: object) -> str | None:
    """A value of a type without a spelling of its own in CSV."""
    if value is None:
        return None
    plain = structured(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
