"""Traces that are broken, cut off or attack: repaired where that is safe, else one clear line, and no events."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.kineto import columns as kineto_columns
from ingero_mcp.importers.kineto import document as kineto_document
from ingero_mcp.importers.kineto import groups as kineto_groups
from ingero_mcp.importers.kineto import source as kineto_source
from ingero_mcp.importers.kineto import survey as kineto_survey
from ingero_mcp.importers.kineto import trace as kineto
from ingero_mcp.importers.registry import open_file
from tests.importers.kineto_job import Job, document, kernel
from tests.importers.test_kineto import events_of, named, read

SMALL = json.dumps(document(kernel(1), kernel(20)), indent=1).encode()
MIB = 1 << 20


def refusal(folder: Path, content: bytes) -> str:
    """The message of the refusal, which is one printable line that names the file."""
    path = folder / "rank0.json"
    path.write_bytes(content)
    assert kineto.mismatch(path) == ""
    with pytest.raises(ImportFileError) as caught:
        open_file(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 600
    assert message.startswith("rank0.json ")
    assert message.endswith("; nothing was stored")
    return message


def around(event: bytes, *, before: int = 1, after: int = 1) -> bytes:
    """A trace with `event`, as it is, between all-reduces."""
    first = [json.dumps(kernel(10 + number)).encode() for number in range(before)]
    last = [json.dumps(kernel(5000 + number)).encode() for number in range(after)]
    top = json.dumps(document()).encode()
    return top.replace(b'"traceEvents": []', b'"traceEvents": [' + b", ".join([*first, event, *last]) + b"]")


def function(name: bytes) -> bytes:
    return b'{"ph": "X", "cat": "python_function", "name": "%s", "pid": 1, "tid": 1, "ts": 11, "dur": 1}' % name


@pytest.mark.parametrize("name", [
    rb"torch\cuda\_init.py(3): f", rb"C:\Users\n\x.py", rb"\u12", rb"a\\b\c", b"a\x01b\tc\nd", b"x\xff\xfey",
    b"\xed\xa0\x80", b"\xe2\x82", rb"\q\"quoted\" {[",
])  # fmt: skip
def test_names_that_are_not_json_are_repaired_and_counted(tmp_path: Path, name: bytes) -> None:
    content = around(function(name), before=2, after=3)
    (tmp_path / "rank0.json").write_bytes(content)
    result = open_file(tmp_path / "rank0.json")
    assert len(named(events_of(result), "ncclAllReduce")) == 5
    (warning,) = (text for text in result.warnings if "repaired" in text)
    assert warning.startswith("1 events were not valid JSON")
    place = int(warning.rpartition(" ")[2])
    assert content.index(b"python_function") < place <= content.index(b'"pid": 1')


@pytest.mark.parametrize("number", [b"inf", b"-inf", b"nan", b"-NaN", b"Infinity", b"NaN"])
def test_words_for_numbers_are_read_as_nothing(tmp_path: Path, number: bytes) -> None:
    copy = b'{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy inf nan", "pid": 0, "tid": 7, "ts": 9, "dur": 1, '
    copy += b'"args": {"bytes": 8, "memory bandwidth (GB/s)": %s}}' % number
    (tmp_path / "rank0.json").write_bytes(around(copy))
    (row,) = named(events_of(open_file(tmp_path / "rank0.json")), "gpu.memcpy")
    assert row["bytes"] == 8
    assert "Memcpy inf nan" in row["attrs_json"]


def test_a_repaired_name_is_kept_readable(tmp_path: Path) -> None:
    work = b'{"ph": "X", "cat": "kernel", "name": "a\\kernel\xff\x02\x1b[31m", "pid": 0, "tid": 7, "ts": 9, "dur": 1}'
    (tmp_path / "rank0.json").write_bytes(around(work))
    (row,) = named(events_of(open_file(tmp_path / "rank0.json")), "gpu.kernel")
    assert json.loads(row["attrs_json"])["gpu.kernel.name"] == "a\\kernel\N{REPLACEMENT CHARACTER}??[31m"


def test_many_repairs_are_one_warning(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(around(b",".join([function(rb"a\b\c"), function(b"\xff")] * 500)))
    result = open_file(tmp_path / "rank0.json")
    assert [text[:30] for text in result.warnings if "repaired" in text] == ["1000 events were not valid JSO"]


@pytest.mark.parametrize(("event", "said", "at"), [
    (function(b'say "hello"'), "Expecting ',' delimiter", b'hello"'),
    (b'{"ph": X}', "Expecting value", b"X}"),
    (b"{'ph': 'X'}", "Expecting property name", b"'ph'"),
    (b"}", "Expecting value", b"}, {"),
])  # fmt: skip
def test_what_cannot_be_repaired_is_refused_with_its_place(tmp_path: Path, event: bytes, said: str, at: bytes) -> None:
    content = around(b'"\xc3\xa9", ' + event)
    message = refusal(tmp_path, content)
    assert said in message
    assert f"is not valid JSON at byte {content.index(at)}: " in message


@pytest.mark.parametrize(("content", "said"), [
    (b'{"traceEvents": [}', "at byte 17"),
    (b'{"traceEvents": {"a": 1}}', "expected [, near '{"),
    (b'{"traceEvents": [] "x": 1}', "expected , or }"),
    (b'{"traceEvents": [], }', "expected the name of a member"),
    (b'{"traceEvents": []} {}', "at byte 20: more after the end"),
    (b'{"traceEvents": [], "traceEvents": []}', "has traceEvents twice, the second at byte 34"),
    (b'{"x": {"traceEvents": []}}', "has no list traceEvents at its top"),
])  # fmt: skip
def test_a_shape_that_is_not_that_of_a_trace_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in refusal(tmp_path, content)


def test_a_file_cut_off_anywhere_is_said_to_end_early(tmp_path: Path) -> None:
    begin = SMALL.index(b'"traceEvents"') + len(b'"traceEvents"')
    for size in [*range(begin, len(SMALL), 7), len(SMALL) - 1]:
        message = refusal(tmp_path, SMALL[:size])
        assert message == f"rank0.json ends early: its JSON is cut off after {size} bytes; nothing was stored"


def test_a_gzipped_file_cut_off_anywhere_is_said_to_be_truncated(tmp_path: Path) -> None:
    zipped = gzip.compress(SMALL)
    for size in range(len(zipped) - 40, len(zipped)):
        assert refusal(tmp_path, zipped[:size]) == (
            "rank0.json ends early: its gzip data is truncated; nothing was stored"
        )


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    zipped = bytearray(gzip.compress(SMALL))
    zipped[-6] ^= 1
    assert "CRC" in refusal(tmp_path, bytes(zipped))


def test_a_bomb_is_refused_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_source, "MAX_JSON_BYTES", 8 * MIB)
    press = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = press.compress(b'{"traceEvents": [' + b" " * (20 * MIB) + b"]}") + press.flush()
    assert len(bomb) < MIB
    assert f"holds more than {8 * MIB} bytes of JSON" in refusal(tmp_path, bomb)


def test_one_huge_entry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_document, "MAX_ENTRY", MIB)
    assert f"has an entry of more than {MIB} characters, from byte 17" in refusal(
        tmp_path, b'{"traceEvents": ["' + b"a" * (4 * MIB) + b'"]}'
    )


def test_an_event_nested_too_deep_is_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(around(b"[" * 50_000 + b"]" * 50_000))
    result = open_file(tmp_path / "rank0.json")
    assert len(named(events_of(result), "ncclAllReduce")) == 2
    assert "1 events were skipped: nested too deep" in result.warnings


def test_nesting_without_an_end_is_refused(tmp_path: Path) -> None:
    assert "ends early" in refusal(tmp_path, around(b"[" * 50_000))
    assert "nested too deep to be read, from byte" in refusal(tmp_path, around(b"[" * (4 * MIB)))


@pytest.mark.parametrize(("name", "module", "events", "said"), [
    ("MAX_ROWS", kineto_columns, [kernel(ts, name="k") for ts in range(1, 9)], "more than 3 events to import"),
    ("_MOST_SITES", kineto_columns, [kernel(ts, name=f"k{ts}") for ts in range(1, 9)], "more than 3 different names"),
    ("MOST_RECORDS", kineto_survey, [kernel(ts) for ts in range(1, 9)], "more than 3 events of collectives"),
    ("_MOST_GROUPS", kineto_groups, [kernel(ts, **{"Process Group Name": str(ts)}) for ts in range(1, 9)],
     "more than 3 process groups"),
])  # fmt: skip
def test_more_than_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: Any, events: list[object], said: str
) -> None:
    monkeypatch.setattr(module, name, 3)
    assert said in refusal(tmp_path, json.dumps(document(*events)).encode())


@pytest.mark.parametrize(("field", "value", "why"), [
    ("ts", None, "without a usable ts and dur"), ("ts", "soon", "without a usable ts and dur"),
    ("ts", 1e300, "without a usable ts and dur"), ("ts", float("nan"), "without a usable ts and dur"),
    ("ts", True, "without a usable ts and dur"), ("ts", [1], "without a usable ts and dur"),
    ("ts", 10**400, "without a usable ts and dur"), ("dur", -1, "without a usable ts and dur"),
    ("dur", "long", "without a usable ts and dur"), ("dur", float("inf"), ""),
    ("name", None, "without a name"), ("name", [5], "without a name"), ("name", "", "without a name"),
])  # fmt: skip
def test_an_event_that_cannot_be_used_is_skipped_and_counted(
    tmp_path: Path, field: str, value: object, why: str
) -> None:
    result = read(tmp_path, document(kernel(1), kernel(2) | {field: value}))
    assert len(named(events_of(result), "ncclAllReduce")) == (1 if why else 2)
    assert [text for text in result.warnings if "skipped" in text] == ([f"1 events {why} were skipped"] if why else [])


@pytest.mark.parametrize("event", [None, 5, "x", [], True])
def test_what_is_no_event_is_skipped_and_counted(tmp_path: Path, event: object) -> None:
    result = read(tmp_path, document(kernel(1), event))
    assert len(named(events_of(result), "ncclAllReduce")) == 1
    assert "1 events that are not objects were skipped" in result.warnings


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_wrong_types_anywhere_never_break_the_import(data: st.DataObject) -> None:
    trace = Job(ranks=2, steps=1, style="numbered").trace(0)
    places: list[tuple[Any, Any]] = []
    for holder in [trace, trace["distributedInfo"], *trace["traceEvents"]]:
        places += [(holder, key) for key in holder if key != "traceEvents"]
        places += [(holder["args"], key) for key in holder.get("args", {})]
    for holder, key in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=4, unique_by=str)):
        holder[key] = data.draw(json_values)
    with TemporaryDirectory() as folder:
        rows = events_of(read(Path(folder), trace))
    assert len(rows) <= 12
    assert all(isinstance(json.loads(row["attrs_json"]), dict) for row in rows)


@given(st.binary(max_size=6), st.integers(0, len(SMALL)), st.integers(0, 6))
@settings(max_examples=300, deadline=None)
def test_damage_anywhere_is_repaired_or_refused(put: bytes, place: int, gone: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.json"
        path.write_bytes(SMALL[:place] + put + SMALL[place + gone :])
        try:
            rows = events_of(kineto.read(path))
        except ImportFileError as error:
            assert str(error).isprintable()
        else:
            assert len(rows) <= 4


@given(
    st.integers(1, 40), st.integers(1, 200), st.sampled_from([b"", function(rb"a\b\c"), function(b"\xff\xe2\x82\xac")])
)
@settings(max_examples=60, deadline=None)
def test_where_portions_end_does_not_matter(portion: int, lookahead: int, event: bytes) -> None:
    content = around(event) if event else SMALL
    found: list[list[object]] = []
    for size, ahead in ((len(content), 1 << 18), (portion, lookahead)):
        events: list[object] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kineto_document, "_LOOKAHEAD", ahead)
            read_as = kineto_document.read_document(_portions(content, size), frozenset(), events.append)
        found.append([*events, read_as.events, read_as.repaired, read_as.first_repair])
    assert found[0] == found[1]


def _portions(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))
