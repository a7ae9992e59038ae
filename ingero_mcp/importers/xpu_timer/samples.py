"""The lines of a scrape: Prometheus text, read with the parser of prometheus_client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from ingero_mcp.importers.text import one_line

PREFIX: Final = "XPU_TIMER_"
_EXAMPLE: Final = 'XPU_TIMER_COMMON_HANG{rank="0"} 1'
MAX_SAMPLES: Final = 100_000
"""A node of eight ranks exposes about a thousand."""

_MAX_LINE: Final = 8192  # the parser takes a time that grows with the square of a line
_MAX_NAME: Final = 128
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NS_PER_MS: Final = 1_000_000
_EARLIEST_MS, _LATEST_MS = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (2020, 2200))


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one gauge; `time_ns` is None where the line gives no time."""

    name: str
    labels: Mapping[str, str]
    value: float
    time_ns: int | None


@dataclass(frozen=True, slots=True)
class Scrape:
    """What a scrape holds.

    `others` counts samples that are not of xpu_timer, `repeated` samples whose gauge and labels had come before at
    the same time. `cut` says that the last line has no end, `lost` that it could not be read for that.
    """

    samples: tuple[Sample, ...]
    others: int
    repeated: int
    cut: bool
    lost: bool


def read_scrape(data: bytes) -> Scrape:
    """The samples in the order of the lines. Raises ValueError for text that is not a scrape."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8 text") from error
    cut, lost, others = bool(lines[-1].strip()), False, 0
    samples: list[Sample] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            sample = _sample(text)
        except ValueError as error:
            if cut and number == len(lines):
                lost = True
                break
            raise ValueError(f"line {number}: {error}") from error
        if not sample.name.startswith(PREFIX):
            others += 1
        elif len(samples) == MAX_SAMPLES:
            raise ValueError(f"holds more than {MAX_SAMPLES} samples")
        else:
            samples.append(sample)
    if not samples:
        raise ValueError(f"holds no sample of a gauge whose name begins with {PREFIX}")
    return Scrape(tuple(samples), others, _repeated(samples), cut, lost)


def is_sample(line: str) -> bool:
    """Whether a line of text is a sample."""
    try:
        _sample(line.strip())
    except ValueError:
        return False
    return True


def _sample(line: str) -> Sample:
    # Each line by itself: its number can be told, and what a TYPE line says cannot change the names of samples.
    if len(line) > _MAX_LINE:
        raise ValueError(f"longer than {_MAX_LINE} characters")
    try:
        ((name, labels, value, time_s),) = (
            (sample.name, sample.labels, float(sample.value), sample.timestamp)
            for family in text_string_to_metric_families(line)
            for sample in family.samples
        )
        time_ms = None if time_s is None else round(float(time_s) * 1000)
    except (ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"{one_line(line, 80)!r} is not a sample such as {_EXAMPLE}") from error
    if len(name) > _MAX_NAME:
        raise ValueError(f"a name of more than {_MAX_NAME} characters")
    if time_ms is not None and not _EARLIEST_MS <= time_ms < _LATEST_MS:
        raise ValueError(f"time {time_ms}, possible are Unix milliseconds from 2020 to 2199")
    strange = [label for label in labels if not _LABEL.fullmatch(label)]
    if strange:
        raise ValueError(f"{one_line(strange[0], 80)!r} is not the name of a label")
    return Sample(name, labels, value, None if time_ms is None else time_ms * _NS_PER_MS)


def _repeated(samples: list[Sample]) -> int:
    series = {(sample.name, sample.time_ns, *sorted(sample.labels.items())) for sample in samples}
    return len(samples) - len(series)
