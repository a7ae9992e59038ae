"""Batches have exactly the stored columns of events, of exactly their types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ingero_mcp.batches import ARROW_SCHEMA, batch
from ingero_mcp.events import STORED

NAMES = {"VARCHAR": "string", "BIGINT": "int64", "INTEGER": "int32", "DOUBLE": "double"}


def test_the_schema_is_the_stored_columns_in_order() -> None:
    assert [(field.name, str(field.type)) for field in ARROW_SCHEMA] == [
        (column.name, NAMES[column.type]) for column in STORED
    ]


def test_a_batch_repeats_single_values_takes_columns_and_leaves_the_rest_null() -> None:
    made = batch(
        {
            "cluster_id": "a",
            "rank": [0, None, 2],
            "timestamp_ns": pa.array([1, 2, 3], pa.int64()),
            "value_double": 0.5,
            "step": pa.chunked_array([pa.array([7], pa.int64()), pa.array([8, 9], pa.int64())]),
        },
        3,
    )
    assert made.schema == ARROW_SCHEMA
    assert [{name: value for name, value in row.items() if value is not None} for row in made.to_pylist()] == [
        {"cluster_id": "a", "rank": 0, "timestamp_ns": 1, "value_double": 0.5, "step": 7},
        {"cluster_id": "a", "timestamp_ns": 2, "value_double": 0.5, "step": 8},
        {"cluster_id": "a", "rank": 2, "timestamp_ns": 3, "value_double": 0.5, "step": 9},
    ]


def test_a_batch_may_be_empty() -> None:
    empty = batch({"cluster_id": "a", "step": pa.chunked_array([], pa.int64())}, 0)
    assert (empty.num_rows, empty.schema) == (0, ARROW_SCHEMA)


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ValueError, match="not columns of events: colour, node"):
        batch({"node": "a", "colour": "b", "rank": 1}, 1)


@pytest.mark.parametrize("values", [[1, 2], pa.array([1, 2], pa.int32())])
def test_a_column_of_another_length_is_named(values: pa.Int32Array | list[int]) -> None:
    with pytest.raises(ValueError, match="column rank has 2 values for 3 rows"):
        batch({"rank": values}, 3)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("rank", pa.array([1], pa.int64())),
        ("rank", [2**31]),
        ("rank", 2**31),
        ("rank", "1"),
        ("step", ["1"]),
        ("step", [2**63]),
        ("step", [1.5]),
        ("step", 1.0),
        ("step", [True]),
        ("rank", [0, "1"]),
        ("cluster_id", [1]),
        ("cluster_id", 1),
        ("value_double", ["x"]),
        ("attrs_json", pa.array(["{}"]).dictionary_encode()),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_column(column: str, values: object) -> None:
    with pytest.raises(TypeError, match=column):
        batch({column: values}, len(values) if isinstance(values, list) else 1)  # type: ignore[dict-item]
