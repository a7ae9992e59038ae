"""Batches of events in Arrow: the shape in which decoders and importers hand rows to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ingero_mcp.events import STORED, ColumnType

Scalar = str | int | float | None
Values: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any] | Sequence[Scalar] | Scalar"

_ARROW_TYPES: Final[dict[ColumnType, pa.DataType]] = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "DOUBLE": pa.float64(),
}

ARROW_SCHEMA: Final = pa.schema([(column.name, _ARROW_TYPES[column.type]) for column in STORED])
"""The stored columns of `events` in order; every column may be null."""

_NAMES: Final = frozenset(ARROW_SCHEMA.names)


def batch(columns: Mapping[str, Values], rows: int) -> pa.RecordBatch:
    """Assemble `rows` events from some of their columns.

    A column is an Arrow array or a sequence of Python values, both of length `rows`, or one value that all
    rows share; absent columns are null. An Arrow array must have the column's type already, so that a wrong
    one is an error here and not a silent cast.

    Raises ValueError for an unknown column or a wrong length, TypeError for a wrong type.
    """
    unknown = columns.keys() - _NAMES
    if unknown:
        raise ValueError(f"not columns of events: {', '.join(sorted(unknown))}")
    arrays = [_array(field, columns.get(field.name), rows) for field in ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _array(field: pa.Field[Any], values: Values, rows: int) -> pa.Array[Any]:
    array: pa.Array[Any]
    if values is None:
        array = pa.nulls(rows, field.type)
    elif isinstance(values, pa.ChunkedArray):
        array = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)
    elif isinstance(values, pa.Array):
        array = values
    else:
        array = _from_python(field, values, rows)
    if array.type != field.type:
        raise TypeError(f"column {field.name} is {array.type}, events need {field.type}")
    if len(array) != rows:
        raise ValueError(f"column {field.name} has {len(array)} values for {rows} rows")
    return array


def _from_python(field: pa.Field[Any], values: Any, rows: int) -> pa.Array[Any]:
    array: pa.Array[Any]
    try:
        if isinstance(values, str | int | float):
            array = pa.repeat(_typed(field, [values])[0], rows)
        else:
            array = _typed(field, values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise TypeError(f"column {field.name} needs {field.type}: {error}") from error
    return array


def _typed(field: pa.Field[Any], values: Any) -> pa.Array[Any]:
    array: pa.Array[Any]
    if not pa.types.is_integer(field.type):
        array = pa.array(values, type=field.type)
        return array
    # Told to make integers, pyarrow cuts 1.5 down to 1: let it say what the values are, and then narrow them.
    array = pa.array(values)
    if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise TypeError(f"column {field.name} is {array.type}, events need {field.type}")
    return array.cast(field.type)
