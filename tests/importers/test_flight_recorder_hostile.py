"""Pickles and JSON that are broken, lie or attack: one clear line, no events, and nothing is run."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import tracemalloc
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.flight_recorder import document, plain
from ingero_mcp.importers.flight_recorder import dump as dump_module
from ingero_mcp.importers.flight_recorder import unpickle as unpickle_module
from ingero_mcp.importers.flight_recorder.document import load
from ingero_mcp.importers.flight_recorder.recorder import mismatch
from ingero_mcp.importers.flight_recorder.unpickle import unpickle
from ingero_mcp.importers.registry import open_file
from tests.importers.flight_recorder_job import Job, dump, entry, write_json, write_pickle

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False)
    | st.text()
    | st.text(alphabet="\\\n'\"\u20ac\U0001f600a"),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner, max_size=300),
    max_leaves=40,
)


@given(value=PLAIN, protocol=st.integers(0, 5))
def test_plain_data_is_read_as_the_library_reads_it(value: Any, protocol: int) -> None:
    assert unpickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_long_lists_and_shared_values_are_read_too(protocol: int) -> None:
    shared = ["x" * 300, {"a": 1.5}]
    value = {
        "shared": [shared] * 5,
        "long": list(range(70_000)),
        "text": "y" * 70_000,
        "dict": {str(n): n for n in range(3000)},
    }
    assert unpickle(pickle.dumps(value, protocol)) == value


def test_bytes_are_read_and_numbers_as_keys_become_text() -> None:
    assert unpickle(pickle.dumps({0: b"a", -7: b"b" * 300}, 4)) == {"0": b"a", "-7": b"b" * 300}


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.command = f"touch {mark}"

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_in_a_pickle_is_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "mark"
    path = write_pickle(tmp_path / "job" / "_dump_1", dump(entry(), more=Evil(mark)), protocol)
    with pytest.raises(ImportFileError, match=r"a pickle that does more than hold data \(instruction 0x.. at byte"):
        open_file(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "value",
    [set(), frozenset("a"), bytearray(b"a"), 1j, OrderedDict(), range(3), dump, Job(), Path("x"), Ellipsis, {(): 1}],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_nothing_but_plain_data_can_be_built(value: Any, protocol: int) -> None:
    with pytest.raises(ValueError, match=r"more than hold data|keys are neither"):
        unpickle(pickle.dumps([value], protocol))


HOSTILE = {
    "global": b"cos\nsystem\n(S'true'\ntR.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "instance": b"(S'true'\nios\nsystem\n.",
    "object": b"(cos\nsystem\nS'true'\no.",
    "new object": b"\x80\x02cos\nsystem\n)\x81.",
    "build": b"}}b.",
    "persistent id": b"Pname\n.",
    "binary persistent id": b"NQ.",
    "extension": b"\x80\x02\x82\x01.",
    "extension of 4 bytes": b"\x80\x02\x84\x01\x00\x00\x00.",
    "next buffer": b"\x80\x05\x97.",
    "duplicate": b"]2.",
    "set": b"\x80\x04\x8f.",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_instructions_that_plain_data_does_not_need_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="more than hold data"):
        unpickle(data)


BROKEN = {
    "nothing": b"",
    "no end": b"\x80\x02}",
    "end without a value": b".",
    "two values": b"NN.",
    "open mark": b"N(.",
    "items without a mark": b"]e.",
    "odd items": b"}(Nu.",
    "append to nothing": b"Na.",
    "append to text": b"\x8c\x01aNa.",
    "items into a list": b"](NNu.",
    "unknown memo": b"h\x05.",
    "memo of nothing": b"q\x00.",
    "number that is none": b"Ix\n.",
    "endless number": b"I" + b"9" * 10_000 + b"\n.",
    "endless long": b"L" + b"9" * 10_000 + b"L\n.",
    "long of 255 bytes": b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".",
    "float of much text": b"F" + b"1" * 1000 + b"\n.",
    "text longer than the file": b"X\xff\xff\xff\x7fabc.",
    "text of 2^63": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f.",
    "line without an end": b"Vabc.",
    "tuple of too few": b"N\x86.",
    "protocol 9": b"\x80\x09N.",
    "something after the end": b"N.N.",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_said_to_be(data: bytes) -> None:
    with pytest.raises(ValueError):
        unpickle(data)


@pytest.mark.parametrize("data", [b"\x80\x02\x8b" + struct.pack("<i", 1 << 30), b"\x80\x02\x8b\xff\xff\xff\xff."])
def test_giant_numbers_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="more than hold data"):
        unpickle(data)


def test_a_memo_with_a_large_number_takes_no_memory() -> None:
    data = b"\x80\x02]r\xff\xff\xff\x7f0."[:-2] + b"."
    tracemalloc.start()
    try:
        assert unpickle(data) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_container_in_itself_is_refused() -> None:
    inside: list[Any] = []
    inside.append(inside)
    loop: dict[str, Any] = {}
    loop["a"] = {"b": [loop]}
    for value in (inside, loop, [1, inside]):
        with pytest.raises(ValueError, match="nested more than 24 deep"):
            unpickle(pickle.dumps(value))


@pytest.mark.parametrize("kind", [b"](e", b")\x85"])
def test_deep_nesting_is_refused(kind: bytes) -> None:
    deep = {
        b"](e": b"]" + b"]" * 100_000 + b"a" * 100_000 + b".",
        b")\x85": b"\x80\x02)" + b"\x85" * 100_000 + b".",
    }[kind]
    with pytest.raises(ValueError, match="nested more than 24 deep"):
        unpickle(deep)
    as_key = b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns."
    with pytest.raises(ValueError, match="keys are neither"):
        unpickle(as_key)


def laughs(levels: int, width: int) -> Any:
    """Lists of one list, which unfold to width ** levels values."""
    value: list[Any] = ["lol"] * width
    for _ in range(levels):
        value = [value] * width
    return value


def test_lists_of_one_list_may_not_unfold_without_measure() -> None:
    data = pickle.dumps(laughs(15, 10))
    assert len(data) < 1000
    with pytest.raises(ValueError, match="unfolds to more than"):
        unpickle(data)


def test_depth_counts_along_every_way_to_a_shared_list() -> None:
    shared: list[Any] = []
    for _ in range(15):
        shared = [shared]
    deep: list[Any] = [shared]
    for _ in range(15):
        deep = [deep]
    with pytest.raises(ValueError, match="nested more than 24 deep"):
        unpickle(pickle.dumps([shared, deep]))


def test_long_text_in_many_places_weighs_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_WEIGHT", 10_000)
    with pytest.raises(ValueError, match="unfolds to more than 10000"):
        unpickle(pickle.dumps(["x" * 16_000] * 20))


def test_too_many_instructions_or_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickle_module, "MAX_MADE", 100)
    with pytest.raises(ValueError, match="a pickle of more than 100 values"):
        unpickle(b"\x80\x04" + b"]" * 200)
    with pytest.raises(ValueError, match="a pickle of more than 100 values"):
        unpickle(b"\x80\x04N" + b"\x94" * 200)
    monkeypatch.setattr(unpickle_module, "MAX_INSTRUCTIONS", 50)
    with pytest.raises(ValueError, match="a pickle of more than 50 instructions"):
        unpickle(b"\x80\x02" + b"N" * 60 + b".")


@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\x80\x04}(" + tail))
def test_any_bytes_end_in_a_value_or_an_error(data: bytes) -> None:
    with suppress(ValueError):
        unpickle(data)


@settings(deadline=None, max_examples=100)
@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.booleans(), as_json=st.booleans())
def test_a_dump_with_a_wrong_byte_is_read_or_refused(at: int, byte: int, cut: bool, as_json: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job" / "_dump_1"
        value = Job(steps=2).dumps()[1]
        write_pickle(path, value)
        if as_json:
            write_json(path, {"1": value})
        data = bytearray(path.read_bytes())
        at %= len(data)
        data[at] = byte
        path.write_bytes(data[:at] if cut else data)
        try:
            read = open_file(path)
        except ImportFileError as error:
            assert str(error).isprintable()
            assert len(str(error)) < 2500
        else:
            assert sum(batch.num_rows for batch in read.batches) == read.rows
            assert sum(batch.num_rows for batch in read.context) == sum(read.context_rows.values())
            assert all(warning.isprintable() for warning in read.warnings)


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
)


@settings(deadline=None, max_examples=200)
@given(
    facts=st.dictionaries(st.sampled_from(sorted([*entry(), "frames", "seq_id", "duration_ms"])), VALUES, max_size=6),
    config=VALUES
    | st.dictionaries(
        st.text(max_size=3), VALUES | st.dictionaries(st.sampled_from(["name", "desc", "ranks"]), VALUES), max_size=3
    ),
    status=VALUES | st.dictionaries(st.sampled_from(["0", "1", "x"]), VALUES, max_size=3),
    version=VALUES,
)
def test_values_of_the_wrong_kind_do_no_harm(facts: Any, config: Any, status: Any, version: Any) -> None:
    with TemporaryDirectory() as folder:
        value = dump(entry(), entry(**facts), pg_config=config, pg_status=status, version=version)
        read = open_file(write_json(Path(folder) / "dump_1.json", {"1": value}))
        assert sum(batch.num_rows for batch in read.batches) == read.rows


def test_many_entries_that_are_one_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = entry()
    monkeypatch.setattr(dump_module, "MAX_ROWS", 64)
    with pytest.raises(ImportFileError, match="holds 100 entries of 1 groups; at most 64 are read"):
        open_file(write_pickle(tmp_path / "job" / "_dump_1", dump(*[one] * 100)))


def test_many_entries_in_many_dumps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero_mcp.importers.flight_recorder.recorder.MAX_ROWS", 9)
    with pytest.raises(ImportFileError, match="holds 10 entries; at most 9 are read"):
        open_file(write_json(tmp_path / "all.json", {rank: dump(*[entry()] * 5) for rank in "01"}))


def test_groups_of_absurd_size_are_refused(tmp_path: Path) -> None:
    long = str(list(range(100_000)))
    config = {str(name): {"name": str(name), "ranks": long} for name in range(20)}
    with pytest.raises(ImportFileError, match="lists more than 4194304 members of groups"):
        open_file(write_pickle(tmp_path / "job" / "_dump_1", dump(entry(), pg_config=config)))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pickle(tmp_path / "job" / "_dump_1", dump(entry()))
    monkeypatch.setattr("ingero_mcp.importers.flight_recorder.recorder.MAX_BYTES", 100)
    with pytest.raises(ImportFileError, match="larger than 100 bytes"):
        open_file(path)


def test_json_of_too_many_values_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_MADE", 100)
    with pytest.raises(ValueError, match="JSON of too many values"):
        load(b'{"pg_config": [' + b",".join([b"{}"] * 200) + b"]}")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"pg_config": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "no JSON"),
        (b'{"pg_config": ' + b"[" * 50 + b"]" * 50 + b"}", "nested more than 24 deep"),
        (b'{"pg_config": ' + b"9" * 10_000 + b"}", "no JSON"),
        (b'{"pg_config": {}', "no JSON"),
        (b'{"pg_config": "\xff"}', "no JSON"),
        (b'{"profiling_name": 5}', "holds no dump"),
        (b'["pg_config"]', "holds no dump"),
    ],
)
def test_json_that_is_none_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load(data)


def test_a_core_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    core = tmp_path / "core"
    with core.open("wb") as file:
        file.write(b"\x7fELF pg_config")
        file.truncate(1 << 40)
    assert mismatch(core) == "neither a pickle nor JSON"
    assert mismatch(tmp_path) == "not a file"
    assert mismatch(tmp_path / "none") == "not a file"


def test_a_cut_off_dump_is_told_from_its_end(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "job" / "_dump_1", dump(entry()))
    assert mismatch(path) == ""
    path.write_bytes(path.read_bytes()[:-1])
    assert mismatch(path) == "cut off: the end is missing"
    with pytest.raises(ImportFileError, match="Flight Recorder dump: cut off"):
        open_file(path)


def test_messages_show_no_control_characters(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "job" / "a\x1b[J\nb", dump(entry()))
    with pytest.raises(ImportFileError) as caught:
        open_file(path)
    assert str(caught.value).isprintable()


def test_reading_needs_no_deep_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(laughs(12, 3))
    limit = sys.getrecursionlimit()
    depth = len(list(_frames()))
    sys.setrecursionlimit(depth + 100)
    try:
        assert unpickle(data)
    finally:
        sys.setrecursionlimit(limit)


def _frames() -> Any:
    frame = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]
