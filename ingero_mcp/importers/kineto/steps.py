"""Steps of the training loop, and which of them a row belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.importers.kineto.columns import NONE, Columns, Detail, Int64s, Row, Site
from ingero_mcp.importers.kineto.survey import Mark

_HOST: Final = Site(semconv.STEP_SPAN, "host", semconv.HOST_API)
_MOST_STREAMS: Final = 256
_GPU: Final = Site(semconv.STEP_SPAN, "host", semconv.KERNEL_GPU, on_gpu=True)


def add_steps(columns: Columns, marks: list[Mark]) -> int:
    """Add a row for each step, as the host saw it, else the GPU; returns how many steps there are."""
    on_host = [mark for mark in marks if mark.thread is not None]
    site = columns.site_number(_HOST if on_host else _GPU)
    shown = on_host or list(_whole(marks))
    for mark in shown:
        columns.add(Row(site, mark.start_ns, mark.duration_ns, thread=mark.thread, detail=Detail(step=mark.number)))
    return len({mark.number for mark in marks})


def steps_of(columns: Columns, marks: list[Mark]) -> Int64s:
    """The step of each row, by the time at which it starts; `NONE` between steps.

    Work on the GPU lags behind the host: its rows are judged by the steps that the trace has for their stream, else by
    those of the GPU as a whole, and only without any by those of the host.
    """
    start_ns, stream = columns.numbers("start_ns"), columns.numbers("stream")
    on_gpu = np.array([site.on_gpu for site in columns.sites], dtype=np.bool_)[columns.numbers("site")]
    host = [mark for mark in marks if mark.thread is not None]
    gpu = [mark for mark in marks if mark.thread is None]
    steps = _looked_up(start_ns, host)
    if gpu:
        steps = np.where(on_gpu, _looked_up(start_ns, list(_whole(gpu))), steps)
        for one, seen in _by_stream(gpu).items():
            here = on_gpu & (stream == one)
            steps[here] = _looked_up(start_ns[here], seen)
    return steps


def _by_stream(marks: list[Mark]) -> dict[int, list[Mark]]:
    streams: defaultdict[int, list[Mark]] = defaultdict(list)
    for mark in marks:
        if mark.stream is not None:
            streams[mark.stream].append(mark)
    return streams if len(streams) <= _MOST_STREAMS else {}


def _whole(marks: Iterable[Mark]) -> Iterator[Mark]:
    """Each step over all streams."""
    whole: dict[int, tuple[int, int]] = {}
    for mark in marks:
        begin, end = mark.start_ns, mark.start_ns + mark.duration_ns
        known = whole.get(mark.number, (begin, end))
        whole[mark.number] = min(begin, known[0]), max(end, known[1])
    return (Mark(number, begin, end - begin) for number, (begin, end) in whole.items())


def _looked_up(start_ns: Int64s, marks: list[Mark]) -> Int64s:
    if not marks:
        return np.full(len(start_ns), NONE, dtype=np.int64)
    marks = sorted(marks, key=lambda mark: mark.start_ns)
    begin, length, number = (
        np.array([getattr(mark, name) for mark in marks], dtype=np.int64)
        for name in ("start_ns", "duration_ns", "number")
    )
    found = np.searchsorted(begin, start_ns, side="right") - 1
    inside = (found >= 0) & (start_ns < (begin + length)[found])
    return np.where(inside, number[found], NONE)
