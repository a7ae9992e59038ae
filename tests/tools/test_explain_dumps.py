"""explain_stall over dumps of recorders in a store: which of them count, and that all are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ingero_mcp.store import Store, open_store
from tests.tools.explained import MS, NOON, Row, Training, ask, put, ranks


@pytest.fixture
def memory() -> Iterator[Store]:
    with open_store(None) as opened:
        yield opened


def recorded(ranks: int, entries: int, *, first_seq: int = 0, behind: int | None = None, **facts: Any) -> list[Row]:
    """What `ingero import` makes of dumps: the last collective is open, and one rank has not entered it."""
    found: list[Row] = []
    for rank in range(ranks):
        place = {"cluster_id": "c1", "node_id": f"node-{rank}", "job_id": "job", "rank": rank, "world_size": ranks}
        last = entries - 2 if rank == behind else entries - 1
        for number in range(last + 1):
            is_open = number == entries - 1
            said = {
                "nccl.count": 64,
                "nccl.datatype": "bfloat16",
                "nccl.state": "scheduled" if is_open else "completed",
            }
            call = {"event_seq": number, "timestamp_ns": NOON + number * MS, "source": "nccl", "nranks": ranks}
            call |= {"metric_name": "ncclAllReduce", "comm_id": "aa", "coll_seq": first_seq + number}
            found.append(place | call | {"timing_source": "recorder", "attrs_json": json.dumps(said)} | facts)
        counts = {"recorder.entries": last + 1, "recorder.open": int(rank != behind)}
        point = {"event_seq": entries + 1, "timestamp_ns": NOON + entries * MS, "source": "nccl"}
        found.append(place | point | {"metric_name": "recorder.dump", "attrs_json": json.dumps(counts)} | facts)
    return found


def test_every_rank_of_very_many_entries_is_read(memory: Store) -> None:
    put(memory, recorded(130, 800, behind=129))
    said = ask(memory)
    assert (said["cause"], ranks(said)) == ("host_hang", [129])
    assert len(said["waiting_ranks"]) == 129


def test_dumps_of_an_earlier_hang_say_nothing_of_a_later_window(memory: Store) -> None:
    put(memory, recorded(4, 20, behind=2))
    put(memory, [row | {"event_seq": row["event_seq"] + 500} for row in Training(start_ms=3_600_000).rows()])
    assert ask(memory, window="2026-11-30T13:00Z/2026-11-30T14:00Z")["verdict"] == "healthy"
    assert ranks(ask(memory, window="2026-11-30T12:00Z/2026-11-30T12:30Z")) == [2]


def test_dumps_beside_other_recordings_of_the_job_are_read(memory: Store) -> None:
    """The probe saw many more calls than the recorders hold."""
    put(memory, recorded(4, 5, behind=2))
    before = Training(steps=60, start_ms=-60 * 200).rows()
    put(memory, [row | {"event_seq": row["event_seq"] + 500, "timing_source": "host_api"} for row in before])
    assert (ranks(ask(memory)), ask(memory)["cause"]) == ([2], "host_hang")


def test_a_communicator_in_which_nothing_is_open_does_not_hang(memory: Store) -> None:
    put(memory, recorded(4, 20, behind=2))
    ended = [row | {"comm_id": "bb", "event_seq": row["event_seq"] + 100} for row in recorded(4, 19)]
    done = json.dumps({"nccl.state": "completed"})
    put(memory, [row | {"attrs_json": done} for row in ended if row["metric_name"] != "recorder.dump"])
    assert ranks(ask(memory)) == ranks(ask(memory, comm_id="aa")) == [2]
    assert ask(memory, comm_id="bb")["verdict"] != "hang"
