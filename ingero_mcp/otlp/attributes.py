"""One OTLP attribute: its key, the column it fills, and its JSON text.

Most attributes of a stream repeat (`nccl.nranks = 8` on every span of a communicator), so what was learned about the
bytes of one is kept and looked up.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from ingero_mcp import semconv
from ingero_mcp.errors import WireError
from ingero_mcp.events import FIRST_SERVER_SEQ, STORED, AttributeValue, Column, ColumnType

NO_COLUMN: Final = -1
_MAX_DEPTH: Final = 64
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_MAX_CACHED_BYTES: Final = 256
_MAX_CACHED: Final = 65_536
# Different on nearly every event: remembering them would only push out those that repeat.
_NEVER_REPEATS: Final = frozenset(
    {
        semconv.EVENT_SEQ,
        semconv.NCCL_SEQ,
        semconv.CPU_NS,
        semconv.BLOCKED_NS,
        semconv.RUNQ_NS,
        semconv.SYNC_NS,
    }
)
_RANGES: Final[dict[ColumnType, tuple[int, int]]] = {
    "BIGINT": (-(2**63), 2**63 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
}
_COLUMN_OF: Final[dict[str, tuple[int, int]]] = {
    key: (slot, place) for slot, column in enumerate(STORED) for place, key in enumerate(column.attributes)
}


class Attribute(NamedTuple):
    """`slot` is the index in `events.STORED` of the column that `fitted` fills, or `NO_COLUMN`.

    `place` is the key's place in `Column.attributes` (0 wins). `json_member` is `"key":value`, empty where the
    column alone holds the attribute without loss. `value` is what was sent.
    """

    key: str
    slot: int
    place: int
    fitted: Any
    json_member: str
    value: AttributeValue


class AttributeCache:
    """Attributes by their bytes; bounded, and safe to share between threads (dictionary operations only)."""

    def __init__(self) -> None:
        self._known: dict[bytes, Attribute] = {}
        self.get = self._known.get

    def learn(self, raw: bytes) -> Attribute:
        """Decode the bytes of one `KeyValue`; WireError if they are not one."""
        pair = _parse(raw)
        attribute = attribute_of(pair.key, plain_value(pair.value))
        if len(raw) <= _MAX_CACHED_BYTES and pair.key not in _NEVER_REPEATS:
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            self._known[raw] = attribute
        return attribute


def _parse(raw: bytes) -> KeyValue:
    try:
        return KeyValue.FromString(raw)
    except DecodeError as error:
        raise WireError(f"an attribute is not an OTLP KeyValue: {error}") from error


def attribute_of(key: str, value: AttributeValue) -> Attribute:
    """Decide which column the attribute fills and what of it goes into attrs_json."""
    slot, place = _COLUMN_OF.get(key, (NO_COLUMN, 0))
    if slot == NO_COLUMN:
        return Attribute(key, NO_COLUMN, 0, None, json_member(_json_key(key), value), value)
    fitted, lossless = _fit(value, STORED[slot])
    if fitted is None:
        return Attribute(key, NO_COLUMN, 0, None, json_member(key, value), value)
    # A key that is only a fallback may lose its column to a better one, so JSON keeps it. A chain id is in JSON in any
    # case: queries written for Ingero Echo read it there.
    in_column_only = lossless and place == 0 and key != semconv.CAUSAL_CHAIN_ID
    return Attribute(key, slot, place, fitted, "" if in_column_only else json_member(key, value), value)


def _json_key(key: str) -> str:
    # `otlp.` belongs to what the decoder itself records; nobody may forge it.
    return f"otlp.attribute.{key}" if key.startswith("otlp.") else key


def _fit(value: AttributeValue, column: Column) -> tuple[str | int | None, bool]:
    """The value as its column's type (None where it cannot be), and whether nothing was lost by that."""
    if column.type == "VARCHAR":
        if isinstance(value, str):
            return value, True
        return (str(value), False) if isinstance(value, int) and not isinstance(value, bool) else (None, False)
    low, high = _RANGES[column.type]
    if column.attributes == (semconv.EVENT_SEQ,):
        low, high = 0, FIRST_SERVER_SEQ - 1
    number, lossless = _integer(value)
    if number is None or not low <= number <= high:
        return None, False
    return number, lossless


def _integer(value: AttributeValue) -> tuple[int | None, bool]:
    if isinstance(value, bool):
        return None, False
    if isinstance(value, int):
        return value, True
    if isinstance(value, float) and value.is_integer():
        return int(value), False
    # Some SDKs send every attribute as text.
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value), False
    return None, False


def plain_value(value: AnyValue, depth: int = 0) -> AttributeValue:
    """An AnyValue as plain Python data; WireError when it is nested absurdly deep."""
    if depth > _MAX_DEPTH:
        raise WireError(f"an attribute is nested more than {_MAX_DEPTH} levels deep")
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [plain_value(item, depth + 1) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain_value(pair.value, depth + 1) for pair in value.kvlist_value.values}
    plain: AttributeValue = getattr(value, kind)
    return plain


def plain_attributes(raws: Iterable[bytes]) -> dict[str, AttributeValue]:
    """Attributes that are kept as JSON as a whole (of span events, links, exemplars); the last of one key wins."""
    pairs = [_parse(raw) for raw in raws]
    return {pair.key: plain_value(pair.value) for pair in pairs}


def json_member(key: str, value: AttributeValue) -> str:
    """`"key":value` as strict JSON."""
    return f"{json.dumps(key, ensure_ascii=False)}:{json_text(value)}"


def json_text(value: AttributeValue) -> str:
    """The value as strict JSON; what JSON cannot say becomes an object that says it.

    Bytes are `{"otlp.bytes": base64}`, non-finite numbers `{"otlp.double": "NaN"}`.
    """
    return json.dumps(_jsonable(value), ensure_ascii=False, separators=(",", ":"))


def _jsonable(value: AttributeValue) -> Any:
    if isinstance(value, bytes):
        return {"otlp.bytes": b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {"otlp.double": name}
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    return value
