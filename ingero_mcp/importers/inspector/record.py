"""What one record of a log says, checked: JSON in, a call out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, TypeGuard

from ingero_mcp.importers.text import one_line

Json: TypeAlias = Mapping[str, Any]
TimeBase = Literal["kernel", "enqueue", "dump"]

COLLECTIVE: Final = "coll"
P2P: Final = "p2p"
PERF: Final = {COLLECTIVE: "coll_perf", P2P: "p2p_perf"}
"""The member of a record that describes the operation, by the prefix of its own members."""

MAX_RANKS: Final = 1 << 20
_MAX_SEQ: Final = (1 << 53) - 1
_MAX_PID: Final = (1 << 32) - 1
_MAX_BYTES: Final = (1 << 63) - 1
_MAX_EXEC_US: Final = 10 * 86_400 * 10**6
_MOST_GBS: Final = 1e12
_MAX_TEXT: Final = 255
_EARLIEST_US, _LATEST_US = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 10**6 for year in (2020, 2200))
_HASH: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_FUNCTION: Final = re.compile(r"[A-Za-z0-9]{1,32}")
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator as one of its ranks sees it: `hash` as a number, `rank` within it, its `nranks`, its `name`."""

    hash: int
    rank: int
    nranks: int
    name: str


@dataclass(frozen=True, slots=True)
class Context:
    """What the header and the metadata of a record say: who wrote it, and when it was written (`dump_us`)."""

    communicator: Communicator
    host: str
    pid: int
    dump_us: int
    version: str


@dataclass(frozen=True, slots=True)
class Call:
    """One completed operation.

    `function` is NCCL's name for it (AllReduce), `seq` the number that Inspector gave it: of collectives per
    communicator and function from 0, of sends and receives per communicator from 1. `peer` is set for the latter.
    `start_ns` is Unix nanoseconds; `time_base` says of what: of the kernel, of the enqueueing, or the time of the
    dump less the duration. `timing` is what timed the duration, as it is written ("" where it is not),
    and `details` are further attributes.
    """

    context: Context
    function: str
    seq: int
    peer: int | None
    bytes: int | None
    duration_ns: int
    start_ns: int
    time_base: TimeBase
    timing: str
    details: tuple[tuple[str, str | float], ...]

    @property
    def timed_on_gpu(self) -> bool:
        """Whether the duration was measured on the GPU, not watched from the CPU."""
        return self.timing == "kernel_gpu"


def read_context(record: Json) -> Context:
    """The context of a record that has its own; raises ValueError where that cannot be true."""
    header, metadata = _object(record, "header"), _object(record, "metadata")
    matched = _HASH.fullmatch(_text(header, "id"))
    if not matched:
        raise ValueError("id is not the hash of a communicator")
    nranks = _integer(header, "n_ranks", 1, MAX_RANKS)
    name = _text(header, "comm_name")
    return Context(
        communicator=Communicator(
            hash=int(matched[1], 16),
            rank=_integer(header, "rank", 0, nranks - 1),
            nranks=nranks,
            name="" if name == _UNKNOWN else name,
        ),
        host=_text(metadata, "hostname"),
        pid=_integer(metadata, "pid", 0, _MAX_PID),
        dump_us=_integer(metadata, "dump_timestamp_us", _EARLIEST_US, _LATEST_US),
        version=_text(metadata, "inspector_output_format_version"),
    )


def read_call(record: Json, kind: str, context: Context) -> Call:
    """The operation of a record, which is of `kind` COLLECTIVE or P2P; raises ValueError where it cannot be true."""
    perf = _object(record, PERF[kind])
    function = _text(perf, kind)
    if not _FUNCTION.fullmatch(function):
        raise ValueError(f"{kind} is not the name of an operation")
    duration_ns = _exec_ns(perf, f"{kind}_exec_time_us")
    start_us, time_base = _start(perf.get("event_trace_ts"), f"{kind}_start_ts")
    size = perf.get(f"{kind}_msg_size_bytes")
    return Call(
        context=context,
        function=function,
        seq=_integer(perf, f"{kind}_sn", 0, _MAX_SEQ),
        peer=_integer(perf, "p2p_peer", 0, context.communicator.nranks - 1) if kind == P2P else None,
        # A datatype that Inspector does not know has a size of -1 there, which makes the product absurd.
        bytes=size if _is_integer(size) and 0 <= size <= _MAX_BYTES else None,
        duration_ns=duration_ns,
        start_ns=context.dump_us * 1000 - duration_ns if start_us is None else start_us * 1000,
        time_base=time_base,
        timing=_text(perf, f"{kind}_timing_source"),
        details=tuple(_details(perf, kind)),
    )


def count_of(record: Json, key: str) -> int:
    """A count in a record, 0 where there is none."""
    value = record.get(key)
    return value if _is_integer(value) and 0 <= value <= _MAX_SEQ else 0


def _details(perf: Json, kind: str) -> list[tuple[str, str | float]]:
    found: list[tuple[str, str | float]] = []
    for key in ("algobw_gbs", "busbw_gbs"):
        value = perf.get(f"{kind}_{key}")
        if _is_number(value) and abs(value) < _MOST_GBS:
            found.append((f"nccl.{key}", value))
    for key in ("algo", "proto"):
        text = _text(perf, f"{kind}_{key}")
        if text and text != _UNKNOWN:
            found.append((f"nccl.{key}", text))
    return found


def _exec_ns(perf: Json, key: str) -> int:
    value = perf.get(key)
    if not _is_number(value) or not 0 <= value <= _MAX_EXEC_US:
        raise ValueError(f"{key} is not a time in microseconds")
    return round(value * 1000)


def _start(trace: object, enqueue_key: str) -> tuple[int | None, TimeBase]:
    """When an operation started, if the log is verbose."""
    if not isinstance(trace, dict):
        return None, "dump"
    channels = trace.get("kernel_events")
    kernels = [
        channel["kernel_start_ts"]
        for channel in (channels if isinstance(channels, list) else ())
        if isinstance(channel, dict) and _is_time(channel.get("kernel_start_ts"))
    ]
    if kernels:
        return min(kernels), "kernel"
    enqueued = trace.get(enqueue_key)
    return (enqueued, "enqueue") if _is_time(enqueued) else (None, "dump")


def _object(record: Json, key: str) -> Json:
    value = record.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"{key} is not an object")
    return value


def _text(record: Json, key: str) -> str:
    value = record.get(key)
    return one_line(value, _MAX_TEXT) if isinstance(value, str) else ""


def _integer(record: Json, key: str, least: int, most: int) -> int:
    value = record.get(key)
    if not _is_integer(value) or not least <= value <= most:
        raise ValueError(f"{key} is not a number from {least} to {most}")
    return value


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_time(value: object) -> TypeGuard[int]:
    return _is_integer(value) and _EARLIEST_US <= value < _LATEST_US
