"""How much cells take in an answer, told from Arrow: before the Python values are made, which take far more.

A value of two million structs is 50 MB for the engine and a gigabyte as dictionaries.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FIXED_BYTES: Final = 8
"""Of a number, and of each level of a nested value."""

Sizes: TypeAlias = npt.NDArray[np.int64]
_NESTED: Final = frozenset({"list", "struct", "map", "array", "union"})


def is_nested(types: list[Any]) -> bool:
    """Whether one of the types of DuckDB is made of others."""
    return any(one.id in _NESTED for one in types)


def row_sizes(batch: pa.RecordBatch) -> Sizes:
    """About how many bytes each row adds to an answer."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in batch.columns:
        sizes += _sizes(column)
    return sizes


def _sizes(array: Any) -> Sizes:
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return FIXED_BYTES + _summed(array)
    if pa.types.is_fixed_size_list(kind):
        inner = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return np.asarray(FIXED_BYTES + _sizes(inner).reshape(len(array), kind.list_size).sum(axis=1))
    if pa.types.is_struct(kind):
        names = sum(len(field.name) for field in kind)
        return sum((_sizes(array.field(place)) for place in range(kind.num_fields)), _fixed(array) + names)
    if pa.types.is_union(kind):
        # Whichever of its members a value is: as if it were all of them.
        return sum((_sizes(array.field(place)) for place in range(kind.num_fields)), _fixed(array))
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return _lengths(array)
    return _fixed(array)


def _fixed(array: Any) -> Sizes:
    return np.full(len(array), FIXED_BYTES, dtype=np.int64)


def _summed(array: Any) -> Sizes:
    """The sizes of the elements of each list together."""
    offsets = array.offsets.to_numpy()
    is_map = pa.types.is_map(array.type)
    below = _sizes(array.keys) + _sizes(array.items) if is_map else _sizes(array.values)
    total = np.concatenate(([0], np.cumsum(below)))
    found: Sizes = np.asarray(total[offsets[1:]] - total[offsets[:-1]])
    return found


def _lengths(array: Any) -> Sizes:
    lengths = pc.binary_length(array)
    return np.asarray(pc.fill_null(lengths, FIXED_BYTES).to_numpy(zero_copy_only=False), dtype=np.int64)
