"""Scrapes that are broken, cut off or attack: one clear line, and no events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.registry import sort_out
from ingero_mcp.importers.xpu_timer import samples, scrape
from tests.importers.test_xpu_timer import events_of, job, write

HANG = 'XPU_TIMER_COMMON_HANG{rank="0"} 1'


def refusal(path: Path) -> str:
    """The message of the refusal, which is one printable line that names the file."""
    with pytest.raises(ImportFileError) as caught:
        scrape.read(path)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(path.name)
    assert len(message) < 600
    return message


@pytest.mark.parametrize(
    "line",
    [
        "XPU_TIMER_COMMON_HANG",
        "XPU_TIMER_COMMON_HANG one",
        'XPU_TIMER_COMMON_HANG{rank="0"}',
        'XPU_TIMER_COMMON_HANG{rank="0" 1',
        "XPU_TIMER_COMMON_HANG{rank=0} 1",
        'XPU_TIMER_COMMON_HANG{rank="0",rank="1"} 1',
        "XPU_TIMER_COMMON_HANG 1 yesterday",
        "XPU_TIMER_COMMON_HANG 1 NaN",
        "XPU_TIMER_COMMON_HANG " + "9" * 400,
        "XPU_TIMER_COMMON_HANG 1 " + "9" * 400,
        "<html>",
        "\x1b[2J",
        "{}",
    ],
)
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str) -> None:
    message = refusal(write(tmp_path / "a", f"{HANG}\n{line}\n{HANG}\n"))
    assert message.startswith("a: line 2: ")
    assert 'is not a sample such as XPU_TIMER_COMMON_HANG{rank="0"} 1' in message
    assert message.endswith("nothing was stored")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("XPU_TIMER_A" + " " * 9000 + "1", "longer than 8192 characters"),
        ("X" * 200 + " 1", "a name of more than 128 characters"),
        ("XPU_TIMER_A 1 12", "time 12, possible are Unix milliseconds from 2020 to 2199"),
        ('{"XPU_TIMER_A","otlp.metric.kind"="x"} 1', "'otlp.metric.kind' is not the name of a label"),
    ],
)
def test_a_sample_that_cannot_be_true_is_named(tmp_path: Path, line: str, said: str) -> None:
    assert f"a: line 2: {said}" in refusal(write(tmp_path / "a", f"{HANG}\n{line}  \n"))


def test_a_line_that_takes_long_to_take_apart_is_short(tmp_path: Path) -> None:
    """The parser's time grows with the square of a line: of the longest ones a few must not be noticed."""
    nasty = [
        "XPU_TIMER_A{a=" + '"' + '\\"' * 4000 + '"} 1',
        "XPU_TIMER_A{" + 'b="",' * 1600 + "} 1",
        "# " + "\\" * 8000,
    ]
    with pytest.raises(ImportFileError):
        scrape.read(write(tmp_path / "a", "\n".join([*nasty * 20, HANG])))


def test_what_a_file_makes_us_hold_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a", f"{HANG}\n{HANG}\n{HANG}\n")
    monkeypatch.setattr(samples, "MAX_SAMPLES", 2)
    assert "holds more than 2 samples" in refusal(path)
    monkeypatch.setattr(scrape, "MAX_BYTES", 50)
    assert "is larger than 50 bytes" in refusal(path)


def test_text_must_be_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(HANG.encode() + b"\n\xff\xfe\n")
    assert "is not UTF-8 text" in refusal(tmp_path / "a")


def test_a_file_without_samples_of_xpu_timer_is_refused(tmp_path: Path) -> None:
    assert "holds no sample of a gauge" in refusal(write(tmp_path / "a", "# TYPE XPU_TIMER_COMMON_HANG gauge\nup 1\n"))


@pytest.mark.parametrize("length", range(1, 60, 4))
def test_a_last_line_without_an_end_is_doubted(tmp_path: Path, length: int) -> None:
    last = 'XPU_TIMER_MM_KERNEL_AVG_LATENCY{rank="1"} 19063'
    result = scrape.read(write(tmp_path / "a", f"{HANG}\n{last[:length]}"))
    assert result.rows == len(events_of(result))
    told = " ".join(result.warnings)
    assert ("the last line has no end: its value may be cut off" in told) == (result.rows == 2)
    assert ("the last line is cut off and was left out" in told) == (result.rows == 1)
    assert result.rows == 1 + (length > len(last) - 5)


def test_several_scrapes_in_one_file_are_told_from_one(tmp_path: Path) -> None:
    text = job(frozenset()) + job(frozenset({1}))
    result = scrape.read(write(tmp_path / "a", text))
    assert any(warning.startswith("16 samples repeat one with the same labels") for warning in result.warnings)
    timed = "XPU_TIMER_COMMON_HANG 1 1760000000000\nXPU_TIMER_COMMON_HANG 1 1760000001000\n"
    assert scrape.read(write(tmp_path / "a", timed)).warnings == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no XPU_TIMER_ lines"),
        (b"up 1\n", "no XPU_TIMER_ lines"),
        (b"see XPU_TIMER_COMMON_HANG\n", "no XPU_TIMER_ lines"),
        (b"# xpu_timer, a guide\n\nXPU_TIMER_COMMON_HANG tells\n", "its first line is not Prometheus text"),
        (b"\x00\x01\nXPU_TIMER_A 1\n", "its first line is not Prometheus text"),
        (b'{"a": 1}\nXPU_TIMER_A 1\n', "its first line is not Prometheus text"),
        (b"\n\nXPU_TIMER_A 1\n", ""),
        (b"# HELP exposer_x y\nexposer_x 1\nXPU_TIMER_A 1\n", ""),
    ],
)
def test_content_decides_what_is_a_scrape(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "a").write_bytes(content)
    assert scrape.mismatch(tmp_path / "a") == why


def test_in_a_folder_scrapes_are_found_whatever_their_names(tmp_path: Path) -> None:
    write(tmp_path / "README.md", "# XPU_TIMER\n\nXPU_TIMER_COMMON_HANG is the flag.\n")
    found = write(tmp_path / "metrics_0.log.old", job(frozenset()))
    assert sort_out(tmp_path).files == (found,)
    assert scrape.mismatch(tmp_path) == "not a file"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_damaged_nothing_but_a_refusal_comes_of_it(tmp_path: Path, data: st.DataObject) -> None:
    content: list[Any] = list(job(frozenset({1}), ranks=2).encode())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
            st.sampled_from(b'{}",=\\ \n#\x00\xff_.9N') | st.integers(0, 255)
        )
    (tmp_path / "a").write_bytes(bytes(content))
    try:
        events_of(scrape.read(tmp_path / "a"))
    except ImportFileError as error:
        assert str(error).isprintable()
