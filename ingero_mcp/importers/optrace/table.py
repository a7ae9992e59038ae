"""The Parquet side of an op trace: reading it with bounded memory and refusing what cannot be true."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingero_mcp.importers.optrace.layout import Layout
from ingero_mcp.importers.text import one_line

MAX_ROWS: Final = 10_000_000
"""A trace is read whole, which takes about 300 bytes of memory for a row."""

MAX_STEP: Final = 1_000_000_000
MAX_SECONDS: Final = 86_400
"""The longest operation, and the latest start in a step, that is believed."""

NEEDED: Final = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
OPTIONAL: Final = ("mc", "mb_id")

_MAX_BYTES_PER_VALUE: Final = 64
_SLACK_BYTES: Final = 1 << 20
_MAX_OPTYPES: Final = 64
_MAX_NAME: Final = 64
_MAX_PER_STEP: Final = 1_000_000


def missing_columns(source: pa.NativeFile) -> list[str]:
    """The needed columns that a Parquet file lacks, or holds more than once; raises ValueError if it is broken."""
    schema = _open(source).schema_arrow
    return [name for name in NEEDED if schema.get_field_index(name) < 0]


def read_trace(data: bytes, layout: Layout) -> pa.Table:
    """The checked rows of a trace in file order.

    Columns: dp_rank, stage, rank, seq_id, mc, mb_id (int32; -1 where mc or mb_id do not apply), step (int64),
    optype (strings as a dictionary), start_ns (on the clock of the step) and duration_ns (int64).
    Raises ValueError.
    """
    table = _read_columns(data)
    columns: dict[str, Any] = {
        "optype": _optypes(table),
        "start_ns": _nanoseconds(table, "start_ts"),
        "duration_ns": _nanoseconds(table, "duration"),
        "step": _integers(table, "step", 0, MAX_STEP).cast(pa.int64()),
    }
    limits = {
        "dp_rank": (0, layout.replicas - 1),
        "stage": (0, layout.pp_size - 1),
        "rank": (0, layout.world_size - 1),
        "seq_id": (0, _MAX_PER_STEP),
        "mc": (-1, layout.vpp_size - 1),
        "mb_id": (-1, _MAX_PER_STEP),
    }
    columns |= {name: _integers(table, name, *limit).cast(pa.int32()) for name, limit in limits.items()}
    return pa.table(columns)


def _read_columns(data: bytes) -> pa.Table:
    missing = missing_columns(pa.BufferReader(data))
    if missing:
        raise ValueError(f"lacks the columns {', '.join(missing)}")
    # Names of operations stay dictionary-encoded: a long one that repeats is held once, and delta-encoded ones,
    # which can grow without limit, are not read at all.
    file = _open(pa.BufferReader(data), read_dictionary=["optype"])
    schema = file.schema_arrow
    wanted = [name for name in NEEDED + OPTIONAL if schema.get_field_index(name) >= 0]
    _refuse_types(schema, wanted)
    _refuse_bombs(file.metadata)
    try:
        table = file.read(columns=wanted)
        # The reader trusts the indices of a dictionary, and using one that lies reads foreign memory.
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"a broken or cut-off Parquet file ({one_line(error)})") from error
    if table.num_rows == 0:
        raise ValueError("holds no rows")
    for name in wanted:
        if table.column(name).null_count:
            raise ValueError(f"column {name} is empty in {table.column(name).null_count} rows")
    return table


def _open(source: pa.NativeFile, read_dictionary: list[str] | None = None) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source, read_dictionary=read_dictionary)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"a broken or cut-off Parquet file ({one_line(error)})") from error


def _refuse_types(schema: pa.Schema, wanted: list[str]) -> None:
    for name in wanted:
        type_ = schema.field(name).type
        if name == "optype":
            fits = pa.types.is_dictionary(type_) and pa.types.is_string(type_.value_type)
            needed = "strings"
        elif name in ("start_ts", "duration"):
            fits, needed = (
                pa.types.is_float32(type_) or pa.types.is_float64(type_),
                "seconds as float or double",
            )
        else:
            fits, needed = pa.types.is_integer(type_), "integers"
        if not fits:
            raise ValueError(f"column {name} is {type_}, needed are {needed}")


def _refuse_bombs(metadata: pq.FileMetaData) -> None:
    # A few kilobytes of Parquet can unpack to terabytes; the footer says so before anything is unpacked. What it
    # says of single columns is not asked for: where that is damaged, pyarrow ends the process.
    if metadata.num_rows > MAX_ROWS:
        raise ValueError(f"claims {metadata.num_rows} rows; at most {MAX_ROWS} are read")
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        if group.total_byte_size > group.num_rows * metadata.num_columns * _MAX_BYTES_PER_VALUE + _SLACK_BYTES:
            raise ValueError(f"claims {group.total_byte_size} bytes for {group.num_rows} rows")


def _integers(table: pa.Table, name: str, least: int, most: int) -> Any:
    if name not in table.column_names:
        return pa.repeat(-1, table.num_rows)
    column = table.column(name)
    for value in (pc.min(column).as_py(), pc.max(column).as_py()):
        if not least <= value <= most:
            raise ValueError(f"column {name} holds {value}, possible are {least} to {most}")
    return column


def _optypes(table: pa.Table) -> pa.ChunkedArray[Any]:
    column = table.column("optype").unify_dictionaries()
    names = pc.unique(column).to_pylist()
    if len(names) > _MAX_OPTYPES:
        raise ValueError(f"column optype holds {len(names)} different names, at most are {_MAX_OPTYPES}")
    for name in names:
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            raise ValueError(f"column optype holds {one_line(repr(name), 60)}, not the name of an operation")
    return column


def _nanoseconds(table: pa.Table, name: str) -> pa.ChunkedArray[Any]:
    column = table.column(name)
    if not pc.all(pc.is_finite(column)).as_py():
        raise ValueError(f"column {name} holds NaN or an infinity")
    for value in (pc.min(column).as_py(), pc.max(column).as_py()):
        if not 0 <= value <= MAX_SECONDS:
            raise ValueError(f"column {name} holds {value:g}, possible are 0 to {MAX_SECONDS} seconds")
    # A float is widened exactly, so that the rounding to a nanosecond is the only one, and happens per value.
    exact = pc.multiply(column.cast(pa.float64()), 1e9)
    return pc.round(exact).cast(pa.int64())
