"""Records become events: joined by communicator and number, with rank, step and what the contract says."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ingero_mcp.events import Point, Span
from ingero_probes.decode import Call, Record, decode
from ingero_probes.discover import Process
from ingero_probes.join import HOLD_NS, Job, Joiner
from ingero_probes.ranks import fold, hash_of_unique_id
from tests.probes.records import EXIT, HAS_WINDOW, MARK, MS, OFF_CPU, UNFINISHED, WORLD, call, init, raw

UNIX_NS = 10**18
NEVER = 2**63
COMM = 0x7F00_0000
WORLD_ID = f"{hash_of_unique_id(WORLD):016x}"
LAUNCH = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "run"}


def process(pid: int, start_ticks: int = 1, launch: dict[str, str] | None = None) -> Process:
    return Process(pid, start_ticks, "python3", LAUNCH if launch is None else launch, (), False)


def joiner(*known: Process) -> Joiner:
    return Joiner({one.pid: one for one in known}.get, lambda mono_ns: mono_ns + UNIX_NS)


def joined(records: Iterable[Record], *known: Process) -> list[tuple[Job, Span | Point]]:
    joins = joiner(*(known or (process(100),)))
    for record in records:
        joins.join(record)
    return list(joins.ready(NEVER))


def reduce(number: int, at: int = 0, **fields: int | bytes) -> Record:
    return call("ncclAllReduce", number=number, at=at, comm=COMM, count=256, made=9, **fields)


def test_a_collective_of_a_known_communicator() -> None:
    payload = struct.pack("<4Q", 1, 2, 3, 4)
    events = joined([init(2, 4, COMM), reduce(6, at=5 * MS, flags=HAS_WINDOW, payload=payload)])
    job, span = events[1]
    assert job == Job("run", 4)
    assert isinstance(span, Span)
    assert (span.name, span.start_ns, span.end_ns) == ("ncclAllReduce", UNIX_NS + 5 * MS, UNIX_NS + 6 * MS)
    assert dict(span.attributes) == {
        "process.pid": 100,
        "thread.id": 100,
        "process.executable.name": "python3",
        "ingero.timing_source": "host_api",
        "ingero.rank": 2,
        "ingero.rank_source": "nccl",
        "ingero.local_rank": 1,
        "nccl.op_type": "ncclAllReduce",
        "nccl.comm_id_hash": WORLD_ID,
        "nccl.seq": 6,
        "nccl.rank": 2,
        "nccl.nranks": 4,
        "nccl.count": 256,
        "nccl.datatype": "float32",
        "nccl.bytes": 1024,
        "nccl.reduce_op": "sum",
        "nccl.return_code": 0,
        "cuda.stream": 9,
        "ingero.seq_origin": "init",
        "ingero.cpu_ns": 1,
        "ingero.blocked_ns": 2,
        "ingero.runq_ns": 3,
        "ingero.sync_ns": 4,
    }


def test_one_collective_is_one_trace_on_all_ranks() -> None:
    known = [process(100 + rank, launch={"TORCHELASTIC_RUN_ID": "run"}) for rank in range(4)]
    records = [
        record
        for rank in range(4)
        for record in (init(rank, 4, COMM, pid=100 + rank), call("ncclAllReduce", pid=100 + rank, comm=COMM, number=0))
    ]
    spans = [event for _, event in joined(records, *known) if isinstance(event, Span)]
    collectives = [span for span in spans if span.name == "ncclAllReduce"]
    assert len({span.trace_id for span in collectives}) == 1
    assert len({span.span_id for span in collectives}) == 4


def test_a_communicator_met_late_joins_with_nobody() -> None:
    known = process(100), process(101)
    events = joined([reduce(0), call("ncclAllReduce", pid=101, comm=COMM, number=0)], *known)
    ids = [event.attributes["nccl.comm_id_hash"] for _, event in events]
    assert len(set(ids)) == 2
    assert [event.attributes["ingero.seq_origin"] for _, event in events] == ["attach", "attach"]
    assert [event.attributes["ingero.rank_source"] for _, event in events] == ["environ", "environ"]
    assert all("nccl.nranks" not in event.attributes for _, event in events)


def test_a_child_of_a_split_has_the_same_id_wherever_its_color_is_the_same() -> None:
    def child_of(pid: int, color: int) -> object:
        records = [
            init(pid - 100, 4, COMM, pid=pid),
            call("ncclCommSplit", pid=pid, comm=COMM, number=1, op=color, peer=7, made=0x99),
            call("ncclAllReduce", pid=pid, comm=0x99, number=0),
        ]
        return joined(records, process(pid))[2][1].attributes["nccl.comm_id_hash"]

    parent = hash_of_unique_id(WORLD)
    assert child_of(100, 0) == child_of(102, 0) == f"{fold([parent, 1, 0]):016x}"
    assert child_of(101, 1) != child_of(100, 0)


def test_an_address_used_again_is_another_communicator() -> None:
    other = bytes(reversed(WORLD))
    records = [
        init(0, 4, COMM),
        call("ncclCommDestroy", comm=COMM, at=2 * MS),
        init(0, 4, COMM, unique_id=other, at=4 * MS),
        reduce(0, at=6 * MS),
    ]
    events = joined(records)
    assert events[1][1].attributes["nccl.comm_id_hash"] == WORLD_ID
    assert events[3][1].attributes["nccl.comm_id_hash"] == f"{hash_of_unique_id(other):016x}"


def test_a_destroy_that_ends_late_leaves_the_new_communicator_alone() -> None:
    other = bytes(reversed(WORLD))
    records = [
        init(0, 4, COMM),
        init(0, 4, COMM, unique_id=other, at=4 * MS),
        call("ncclCommDestroy", comm=COMM, at=2 * MS, lasts=9 * MS),
        reduce(0, at=20 * MS),
    ]
    assert joined(records)[3][1].attributes["nccl.comm_id_hash"] == f"{hash_of_unique_id(other):016x}"


def test_an_init_that_failed_made_nothing() -> None:
    events = joined([init(0, 4, COMM, result=3), reduce(0)])
    assert "nccl.comm_id_hash" not in events[0][1].attributes
    assert events[1][1].attributes["ingero.seq_origin"] == "attach"


def test_a_pid_that_is_used_again_is_another_process() -> None:
    joins = joiner(process(100))
    joins.meet(process(100, start_ticks=1))
    joins.join(init(0, 4, COMM))
    joins.meet(process(100, start_ticks=2, launch={"RANK": "9"}))
    joins.join(reduce(0))
    events = [event for _, event in joins.ready(NEVER)]
    assert [event.attributes["ingero.rank"] for event in events] == [0, 9]
    assert events[1].attributes["ingero.seq_origin"] == "attach"


def test_the_first_steps_wait_for_the_period_and_get_their_numbers() -> None:
    joins = joiner(process(100))
    joins.join(init(0, 4, COMM, at=0))
    for number in range(15):
        joins.join(reduce(number, at=(number + 1) * MS))
    assert list(joins.ready(17 * MS)) == []
    joins.join(reduce(15, at=16 * MS))
    events = [event for _, event in joins.ready(17 * MS)]
    assert [event.attributes.get("ingero.step") for event in events] == [None, *range(16)]
    assert {event.attributes.get("ingero.step_source") for event in events[1:]} == {"period"}


def test_nothing_waits_for_ever() -> None:
    joins = joiner(process(100))
    joins.join(init(0, 4, COMM))
    joins.join(reduce(0, at=MS))
    assert len(list(joins.ready(HOLD_NS + 3 * MS))) == 2
    # A process without a communicator has no steps to wait for.
    joins.join(call("cudaMalloc", pid=101))
    assert len(list(joins.ready(2 * MS))) == 1


def test_a_marker_names_the_step_and_is_an_annotation() -> None:
    marked = decode(raw("ingero_step", kind=MARK, number=41, pid=100))
    events = [event for _, event in joined([marked, call("cudaFree")])]
    assert isinstance(events[0], Point) and events[0].name == "annotation"
    assert [(event.attributes["ingero.step"], event.attributes["ingero.step_source"]) for event in events] == [
        (41, "marker")
    ] * 2


def test_send_and_receive_carry_peer_and_number() -> None:
    events = joined([init(0, 4, COMM), call("ncclSend", comm=COMM, number=2, peer=3, count=8)])
    attributes = events[1][1].attributes
    assert (attributes["nccl.peer_rank"], attributes["nccl.seq"], attributes["nccl.bytes"]) == (3, 2, 32)
    assert "ingero.cpu_ns" not in attributes and "nccl.reduce_op" not in attributes


def test_a_time_off_the_cpu_is_split_where_the_thread_could_run_again() -> None:
    payload = struct.pack("<QIII16s16s", 6 * MS, 2, 0, 77, b"swapper/0", b"burner")
    off = decode(raw(kind=OFF_CPU, at=MS, lasts=9 * MS, payload=payload))
    spans = [event for _, event in joined([off])]
    assert all(isinstance(span, Span) for span in spans)
    told = [(s.attributes["sched.state"], s.attributes.get("sched.next_comm"), s.end_ns - s.start_ns) for s in spans]  # type: ignore[union-attr]
    assert told == [("blocked", None, 5 * MS), ("runqueue", "burner", 4 * MS)]


def test_a_preempted_thread_says_who_took_its_cpu() -> None:
    payload = struct.pack("<QIII16s16s", MS, 1, 77, 78, b"burner", b"other")
    [(_, span)] = joined([decode(raw(kind=OFF_CPU, at=MS, lasts=9 * MS, payload=payload))])
    assert (span.attributes["sched.state"], span.attributes["sched.next_pid"]) == ("runqueue", 77)


def test_an_open_call_is_told_with_the_span_id_that_it_will_have() -> None:
    joins = joiner(process(100))
    joins.join(init(2, 4, COMM))
    running = decode(raw("ncclAllReduce", at=MS, lasts=-MS, comm=COMM, number=4))
    assert isinstance(running, Call)
    job, point = joins.open_call(running, 12_000 * MS)
    joins.join(reduce(4, at=MS, lasts=30_000 * MS))
    span = [event for _, event in joins.ready(NEVER)][1]
    assert isinstance(span, Span)
    assert job == Job("run", 4)
    assert point.name == "call.open" and point.attributes["call.span_id"] == span.span_id.hex()
    assert point.attributes["call.start_ns"] == UNIX_NS + MS == span.start_ns
    assert point.attributes["call.last_seen_ns"] == UNIX_NS + 12_000 * MS == point.time_ns
    assert (point.attributes["nccl.seq"], point.attributes["ingero.rank"]) == (4, 2)
    assert "nccl.return_code" not in point.attributes


def test_a_process_that_dies_inside_a_call_leaves_it_unfinished() -> None:
    events = [event for _, event in joined([reduce(0, flags=UNFINISHED), decode(raw(kind=EXIT, at=2 * MS, lasts=0))])]
    assert isinstance(events[0], Span) and events[0].failed and events[0].attributes["ingero.unfinished"] is True
    assert "nccl.return_code" not in events[0].attributes
    assert isinstance(events[1], Point) and events[1].name == "process.exit"


def test_sizes_and_addresses_that_make_no_sense_stay_within_the_wire() -> None:
    wild = call("ncclAllReduce", comm=COMM, number=0, count=-1, made=-1, datatype=99, op=99)
    attributes = joined([wild])[0][1].attributes
    assert (attributes["nccl.datatype"], attributes["nccl.reduce_op"]) == ("99", "user-99")
    assert "nccl.bytes" not in attributes
