"""Records of the ring buffer become dataclasses."""

from __future__ import annotations

import struct

from ingero_probes.decode import Call, Exit, Mark, OffCpu, Window, decode
from tests.probes.records import EXIT, HAS_WINDOW, MARK, OFF_CPU, UNFINISHED, WORLD, call, init, raw


def test_a_collective_carries_its_arguments_number_and_window() -> None:
    payload = struct.pack("<4Q", 1, 2, 3, 4)
    record = call(
        "ncclReduce", at=10, lasts=5, pid=7, tid=8, comm=0xC0, number=6, count=1024, made=0x5, op=2, peer=3,
        flags=HAS_WINDOW, payload=payload,
    )  # fmt: skip
    assert isinstance(record, Call)
    assert (record.function.name, record.start_ns, record.end_ns, record.pid, record.tid) == (
        "ncclReduce",
        10,
        15,
        7,
        8,
    )
    assert (record.comm, record.number, record.count, record.made, record.op, record.peer) == (0xC0, 6, 1024, 5, 2, 3)
    assert record.window == Window(1, 2, 3, 4)
    assert not record.unfinished


def test_a_call_that_was_not_counted_has_no_number() -> None:
    record = call("cudaMalloc", flags=UNFINISHED)
    assert isinstance(record, Call)
    assert record.number is None and record.window is None and record.unfinished


def test_only_an_init_has_a_unique_id() -> None:
    made, other = init(5, 8, 0xC0), call("ncclAllReduce", payload=WORLD)
    assert isinstance(made, Call) and isinstance(other, Call)
    assert made.unique_id == WORLD and (made.rank, made.nranks) == (5, 8)
    assert other.unique_id == b""


def test_an_off_cpu_time_says_who_took_the_cpu() -> None:
    payload = struct.pack("<QIII16s16s", 60, 4, 9, 0, b"burner", b"\xff\xfe")
    record = decode(raw(kind=OFF_CPU, at=50, lasts=20, pid=7, tid=8, payload=payload))
    assert record == OffCpu(50, 60, 70, 7, 8, "stopped", 9, "burner", 0, "\ufffd\ufffd")


def test_marks_and_exits() -> None:
    assert decode(raw("ingero_step", kind=MARK, at=5, pid=7, tid=8, number=3)) == Mark(7, 8, 5, 3)
    assert decode(raw(kind=EXIT, at=5, lasts=0, pid=7)) == Exit(7, 5)
