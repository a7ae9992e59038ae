"""Logs that are broken, cut off or lie: what is good is kept, and what is said about the rest is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero_mcp.cli.import_file import put
from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.inspector import channels, lines, log, survey
from ingero_mcp.importers.registry import open_file
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store
from tests.importers.inspector_log import BEGIN_US, collective, header, marker, metadata, p2p, verbose, write
from tests.importers.test_inspector import LOG, events_of

GOOD = [collective(n) for n in range(3)]


def refusal(path: Path) -> str:
    """The message of the refusal, which is one printable line that names the file."""
    with pytest.raises(ImportFileError) as caught:
        log.read(path)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(path.name)
    return message


def without(record: dict[str, Any], *keys: str) -> dict[str, Any]:
    """A copy of a record without the member that the keys lead to."""
    copy: dict[str, Any] = json.loads(json.dumps(record))
    inner = copy
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    return copy


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", None),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 5000, "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "neither an operation nor statistics"),
        ('{"coll_perf":{}}', "does not say whose it is, and no dump_stats before it does"),
        ("x" * (lines.MAX_LINE * 3), f"longer than {lines.MAX_LINE} bytes"),
        (without(GOOD[0], "metadata"), "metadata is not an object"),
        (without(GOOD[0], "header", "id"), "id is not the hash of a communicator"),
        (without(GOOD[0], "header", "rank"), "rank is not a number from 0 to 7"),
        (without(GOOD[0], "metadata", "dump_timestamp_us"), "dump_timestamp_us is not a number from"),
        (without(GOOD[0], "coll_perf", "coll"), "coll is not the name of an operation"),
        (without(GOOD[0], "coll_perf", "coll_exec_time_us"), "coll_exec_time_us is not a time in microseconds"),
        (collective(-1), "coll_sn is not a number from 0"),
        (collective(exec_us=1e300), "coll_exec_time_us is not a time"),
        (collective(exec_us=float("nan")), "coll_exec_time_us is not a time"),
        (collective(coll="All\nReduce"), "coll is not the name of an operation"),
        (collective(at=header(rank=8, nranks=8)), "rank is not a number from 0 to 7"),
        (collective(at=header(nranks=2**40)), "n_ranks is not a number from 1 to 1048576"),
        (collective(at=header(rank=True)), "rank is not a number"),
        (collective(at=header(comm="0x" + "f" * 17)), "id is not the hash"),
        (collective(at=header(comm="zebra")), "id is not the hash"),
        (collective(by=metadata(dump_us=0)), "dump_timestamp_us is not"),
        (collective(by=metadata(pid=-1)), "pid is not a number"),
        (p2p(1, "Send", 8), "p2p_peer is not a number from 0 to 7"),
        ({"header": header(), "metadata": metadata(), "dump_stats": []}, "dump_stats is not an object"),
    ],
)
def test_a_bad_line_is_skipped_and_counted(tmp_path: Path, line: Any, why: str | None) -> None:
    result = log.read(write(tmp_path / LOG, GOOD[0], line, *GOOD[1:]))
    assert [event["coll_seq"] for event in events_of(result)] == [0, 1, 2]
    skipped = [warning for warning in result.warnings if "skipped" in warning]
    assert all(warning.isprintable() and len(warning) < 300 for warning in result.warnings)
    if why is None:
        assert not skipped
    else:
        assert skipped[0].startswith(f"1 lines were skipped; the first of them: {why}")


@pytest.mark.parametrize(
    "perf",
    [
        {"coll_algobw_gbs": "nan", "coll_busbw_gbs": float("inf")},
        {"coll_algobw_gbs": 10**400, "coll_busbw_gbs": None},
        {"coll_msg_size_bytes": 2**64 - 5},
        {"coll_msg_size_bytes": "many"},
        {"event_trace_ts": []},
        {"event_trace_ts": {"coll_start_ts": 2**70, "kernel_events": {}}},
        {"event_trace_ts": {"coll_start_ts": "now", "kernel_events": [7, {}, {"kernel_start_ts": -1}]}},
        {"coll_algo": 7, "coll_proto": ["LL"]},
        {"coll_algo": "\ud800\x00", "coll_timing_source": "\x1b[2J"},
    ],
)
def test_a_detail_that_cannot_be_true_does_not_spoil_the_rest(tmp_path: Path, perf: dict[str, Any]) -> None:
    result = log.read(write(tmp_path / LOG, collective(4, **perf)))
    [event] = events_of(result)
    assert (event["coll_seq"], event["duration_ns"]) == (4, 400_000)
    assert event["timestamp_ns"] == (BEGIN_US - 400) * 1000
    assert event["attrs_json"].isprintable()
    json.loads(event["attrs_json"])


def test_a_cut_last_line_is_normal(tmp_path: Path) -> None:
    """A job that was killed, or still runs, ends anywhere in a line."""
    path = write(tmp_path / LOG, *GOOD)
    whole = path.read_bytes()
    for length in range(len(whole) - 200, len(whole), 7):
        path.write_bytes(whole[:length])
        result = log.read(path)
        assert result.rows == 2 + (length == len(whole) - 1)
        assert not any("skipped" in warning for warning in result.warnings)
        assert any("cut off" in warning for warning in result.warnings) == (result.rows == 2)


def test_a_file_of_which_most_cannot_be_used_is_refused(tmp_path: Path) -> None:
    bad: list[Any] = ["{}", "{}", "nonsense", "{}"]
    assert "most lines cannot be used; the first of these: neither" in refusal(write(tmp_path / LOG, *GOOD, *bad))
    assert "holds no completed operation" in refusal(write(tmp_path / LOG, marker(0)))
    assert "holds no completed operation" in refusal(write(tmp_path / LOG))


def test_what_is_not_a_log_is_not_taken_for_one(tmp_path: Path) -> None:
    for content in (b"", b"\xff\xfe\x00", b"{}\n", b'{"header": 1}\n', b"[" * 10**6, json.dumps(GOOD).encode()):
        path = tmp_path / "x"
        path.write_bytes(content)
        assert log.mismatch(path) == "no records of Inspector"
    assert log.mismatch(tmp_path) == "not a file"
    assert log.mismatch(tmp_path / "none") == "not a file"
    assert log.mismatch(write(tmp_path / LOG, "cut at the beg", *GOOD)) == ""


def test_names_decide_nothing(tmp_path: Path) -> None:
    assert open_file(write(tmp_path / "trace-1.parquet", *GOOD)).kind == log.KIND


@pytest.mark.parametrize(
    ("where", "name", "records", "said"),
    [
        (survey, "MAX_ROWS", GOOD, "holds more than 2 operations"),
        (channels, "_MAX_CHANNELS", [collective(at=header(comm=f"0x{n}")) for n in range(3)], "holds more than 2 comm"),
        (log, "MAX_BYTES", GOOD, "is larger than 2 bytes"),
    ],
)
def test_what_a_file_makes_us_hold_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, records: list[Any], said: str
) -> None:
    monkeypatch.setattr(where, name, 2)
    assert said in refusal(write(tmp_path / LOG, *records))


def test_a_log_that_is_rewritten_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / LOG, *GOOD)
    result = log.read(path)
    write(path, GOOD[0])
    with pytest.raises(ImportFileError, match="was changed while it was read; import it again"):
        list(result.batches)


def test_a_log_that_grows_while_it_is_read_is_read_to_where_it_ended(tmp_path: Path) -> None:
    path = write(tmp_path / LOG, *GOOD)
    result = log.read(path)
    write(path, *GOOD, collective(99))
    assert [event["coll_seq"] for event in events_of(result)] == [0, 1, 2]


def test_the_same_log_twice_adds_nothing_and_a_grown_one_only_what_is_new(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / LOG, *GOOD)
    assert [put(open_file(path), store) for _ in range(2)] == [3, 0]
    path.write_text(path.read_text() + json.dumps(collective(3)) + '\n{"header')
    assert put(open_file(path), store) == 1
    assert put(open_file(path.rename(tmp_path / "other.name")), store) == 0
    rows = store.query(check("SELECT count(*), count(DISTINCT id), max(coll_seq) FROM events"), limit=10).rows
    assert rows == [(4, 4, 3)]


def test_collectives_of_all_processes_of_a_folder_meet_in_the_store(store: Store, tmp_path: Path) -> None:
    for rank in range(4):
        late_us = 3000 if rank == 2 else 0
        write(
            tmp_path / "job" / f"node-{rank // 2}-pid{rank}.log",
            *(
                collective(n, at=header(rank, 4), by=metadata(BEGIN_US + n * 10_000, f"node-{rank // 2}", rank),
                           **verbose((BEGIN_US + n * 10_000 - 5000 + late_us,), BEGIN_US))
                for n in range(5)
            ),
        )  # fmt: skip
        put(open_file(tmp_path / "job" / f"node-{rank // 2}-pid{rank}.log"), store)
    found = store.query(
        check(
            "SELECT comm_id, coll_seq, count(DISTINCT rank), arg_max(rank, timestamp_ns), "
            "arg_max(node_id, timestamp_ns) FROM events WHERE job_id = 'inspector:job' GROUP BY 1, 2 ORDER BY 2"
        ),
        limit=100,
    ).rows
    assert found == [("0051c0ffee51c0ff", n, 4, 2, "node-1") for n in range(5)]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_bytes_are_damaged_nothing_but_a_refusal_comes_of_it(tmp_path: Path, data: st.DataObject) -> None:
    path = write(tmp_path / LOG, marker(1), {"coll_perf": GOOD[0]["coll_perf"]}, *GOOD, p2p(1, "Send", 1))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    try:
        events = events_of(log.read(path))
    except ImportFileError as error:
        assert str(error).isprintable()
    else:
        assert len({event["event_seq"] for event in events}) == len(events)
