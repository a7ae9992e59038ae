"""Epochs as SQL sees them: kept while events are written, the same after reopening."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import StoreBusy
from ingero_mcp.store import Store, open_store
from ingero_mcp.store import writer as writing
from ingero_mcp.store.epochs import Epochs
from tests.views.rows import COMM, S, ask, call, put

EPOCHS = "SELECT rank, epoch, min(coll_seq), max(coll_seq), count(*) FROM collective_calls GROUP BY ALL ORDER BY ALL"


@pytest.fixture
def memory() -> Iterator[Store]:
    with open_store(None) as store:
        yield store


def run(rank: int, start_ns: int, first: int, last: int, **columns: Any) -> list[dict[str, Any]]:
    return [call(rank, seq, start_ns + (seq - first) * S // 100, **columns) for seq in range(first, last + 1)]


def test_a_restart_begins_an_epoch_on_each_rank_at_its_own_time(memory: Store) -> None:
    put(memory, *run(0, 0, 0, 99), *run(1, 0, 0, 99))
    put(memory, *run(0, 60 * S, 0, 20))
    put(memory, *run(1, 63 * S, 0, 20))
    expected = [(0, 0, 0, 99, 100), (0, 1, 0, 20, 21), (1, 0, 0, 99, 100), (1, 1, 0, 20, 21)]
    assert ask(memory, EPOCHS) == expected


def test_counts_are_told_apart(memory: Store) -> None:
    put(memory, *run(0, 0, 50, 99), *run(0, 60 * S, 0, 9, comm_id="00000000000000aa"))
    put(memory, *run(0, 60 * S, 0, 9, job_id=None), *run(0, 61 * S, 0, 9, cluster_id="d"))
    put(memory, *run(0, 61 * S, 0, 9, timing_source="kernel_gpu"), *run(2, 61 * S, 0, 9))
    assert {epoch for _, epoch, *_ in ask(memory, EPOCHS)} == {0}


def test_what_does_not_count_collectives_of_a_rank_begins_nothing(memory: Store) -> None:
    put(memory, *run(0, 0, 50, 99))
    put(memory, *run(0, 60 * S, 0, 9, metric_name="ncclSend"), *run(0, 60 * S, 0, 9, source="probe"))
    put(memory, *run(0, 60 * S, 0, 9, metric_name="nccl.collective.duration"))
    for column in ("comm_id", "coll_seq", "timestamp_ns"):
        put(memory, *({**event, column: None} for event in run(0, 60 * S, 0, 9)))
    # Whose call it is does not say a word: two processes may count side by side.
    put(memory, *({**event, "rank": None} for event in [*run(0, 60 * S, 0, 9), *run(0, 90 * S, 0, 9)]))
    assert ask(memory, "SELECT DISTINCT epoch FROM collective_calls") == [(0,)]


def test_a_count_from_an_arbitrary_moment_is_known_as_such(memory: Store) -> None:
    put(memory, *run(0, 0, 0, 9, attrs={"ingero.seq_origin": "init"}), *run(1, 0, 0, 9))
    put(memory, *run(2, 0, 0, 9, attrs={"ingero.seq_origin": "attach"}))
    put(memory, *run(0, 60 * S, 0, 9, attrs={"ingero.seq_origin": "attach"}))
    with memory._engine.cursor() as cursor:
        attached = cursor.execute(
            "SELECT DISTINCT rank, epoch FROM ingero_private.calls WHERE attached ORDER BY ALL"
        ).fetchall()
    assert attached == [(0, 1), (2, 0)]


def test_epochs_go_on_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    parts = [
        run(0, 0, 0, 99),
        run(0, S, 100, 120),
        run(0, 60 * S, 0, 30),
        [call(0, 33, 61 * S), call(0, 32, 61 * S + 1)],
        run(0, 120 * S, 5, 9),
        run(0, 120 * S, 5, 9),
        run(0, 121 * S, 0, 2, comm_id="00000000000000aa"),
    ]
    for part in parts:
        with open_store(path) as store:
            put(store, *part)
    with open_store(path, read_only=True) as store:
        assert ask(store, f"{EPOCHS[: EPOCHS.index('GROUP')]} WHERE comm_id = '{COMM}' GROUP BY ALL ORDER BY ALL") == [
            (0, 0, 0, 120, 121),
            (0, 1, 0, 33, 33),
            (0, 2, 5, 9, 10),
        ]


def test_what_was_not_committed_is_not_remembered(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(memory, *run(0, 0, 0, 99))
    insert = writing.insert

    def refuse(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table, next_seq: int) -> int:
        raise ValueError("no")

    monkeypatch.setattr(writing, "_RETRY_S", 0.0)
    monkeypatch.setattr(writing, "insert", refuse)
    with pytest.raises(StoreBusy):
        put(memory, *run(0, 60 * S, 0, 99))
    monkeypatch.setattr(writing, "insert", insert)
    put(memory, *run(0, 1 * S, 100, 199))
    assert ask(memory, EPOCHS) == [(0, 0, 0, 199, 200)]
    put(memory, *run(0, 60 * S, 0, 99))
    assert ask(memory, EPOCHS) == [(0, 0, 0, 199, 200), (0, 1, 0, 99, 100)]


def test_counts_that_memory_does_not_hold_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "Epochs", lambda: Epochs(10))
    with open_store(None) as store:
        for epoch in range(3):
            for comm in range(30):
                put(store, *run(0, epoch * 3600 * S + comm * S, 0, 9, comm_id=f"{comm:016x}"))
        found = ask(store, "SELECT comm_id, count(DISTINCT epoch), max(epoch) FROM collective_calls GROUP BY ALL")
    assert {(epochs, newest) for _, epochs, newest in found} == {(3, 2)}
    assert len(found) == 30


# Within ten seconds: in memory, what comes after a longer pause is a stretch of its own, and a thread that is late just
# then is told from a restart a call later or earlier.
CALLS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 99), st.integers(0, 40)), max_size=60)


@settings(max_examples=25, deadline=None)
@given(CALLS, st.integers(1, 30))
def test_in_memory_or_read_again_makes_no_difference(calls: list[tuple[int, int, int]], size: int) -> None:
    once = {(at, rank): seq for rank, at, seq in calls}  # a rank does one thing at a time
    events = [call(rank, seq, at * S // 10) for (at, rank), seq in sorted(once.items())]
    found = []
    for forget in (False, True):
        with open_store(None) as store:
            for at in range(0, len(events), size):
                put(store, *events[at : at + size])
                if forget:
                    assert store._writer is not None
                    store._writer._epochs.forget()
            found.append(ask(store, "SELECT rank, enter_ns, coll_seq, epoch FROM collective_calls ORDER BY ALL"))
    assert found[0] == found[1]


def test_counts_are_told_apart_however_many_names_there_are(memory: Store) -> None:
    names = [f"{number:016x}" for number in range(3000)]
    for start_ns in (0, 60 * S):
        put(
            memory,
            *(
                call(number, 5, start_ns + number, comm_id=name, cluster_id=name, job_id=name, timing_source=name)
                for number, name in enumerate(names)
            ),
        )
    assert ask(memory, "SELECT epoch, count(DISTINCT comm_id) FROM collective_calls GROUP BY ALL ORDER BY 1") == [
        (0, 3000),
        (1, 3000),
    ]
