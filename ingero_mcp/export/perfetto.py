"""A timeline that ui.perfetto.dev and chrome://tracing open: events become Chrome's trace JSON, one line for each.

Spans are complete events (ph X) that nest within their track, samples counters (C), points and causal chains instants
(i), waits in collectives flows (s, f), losses of the probe spans on a track of their own. Times are microseconds with
three decimals, so nanoseconds, since `base_time_ns`, which stands in otherData: doubles keep them for 50 days.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.cells import MAX_EXACT, structured
from ingero_mcp.export.arrows import Arrow, Arrows, Entry, is_collective
from ingero_mcp.export.attributes import Attributes, attributes_of, encode
from ingero_mcp.export.happenings import Clocks, Happening, Item, Marker, Reading
from ingero_mcp.export.tracks import CHAINS, GAPS, GPU, THREAD, Place, Track, Tracks, place_of
from ingero_mcp.views.kinds import CHAIN, STACK
from ingero_mcp.windows import iso

COLOURS: Final = {"CRITICAL": "terrible", "HIGH": "bad", "MEDIUM": "yellow", "LOW": "good"}
"""How severe a chain is, in the names that Chrome has for colours."""

_MARK_COLOUR: Final = "grey"
# Shown elsewhere: chains as markers, also those that were not sent as events; stacks are no happenings.
_NOT_DRAWN: Final = frozenset({CHAIN.metric_name, STACK.metric_name})
_ARGUMENTS: Final = tuple(
    (name, Happening._fields.index(name))
    for name in (
        "job_id", "step", "bytes", "comm_id", "coll_seq", "nranks", "cpu_ns", "blocked_ns", "runq_ns", "sync_ns",
        "gpu_uuid", "pid", "tid", "timing_source", "status", "causal_chain_id", "stack_id",
    )
)  # fmt: skip
_quoted = lru_cache(maxsize=8_192)(encode)


def trace(items: Iterable[Item], places: list[Place], clocks: Clocks, about: Mapping[str, object]) -> Iterator[str]:
    """The text of the trace, piece by piece. `items` come in the order of `at_ns`; one that does not is drawn on a lane
    of its own, so that times never go back on a track. `about` is added to otherData."""
    remaining = iter(items)
    first = next(remaining, None)
    base_ns = 0 if first is None else first.at_ns
    drawing = _Drawing(base_ns, places, clocks)
    yield '{"traceEvents":[\n'
    separator = ""
    for line in drawing.lines(remaining if first is None else chain([first], remaining)):
        yield f"{separator}{line}"
        separator = ",\n"
    # After the events: a viewer may stop at the first key that it does not know.
    other = {"base_time_ns": str(base_ns), "base_time": iso(base_ns), **about}
    yield f'\n],"otherData":{encode(structured(other))}}}\n'


def microseconds(ns: int) -> str:
    """Nanoseconds as a JSON number of microseconds: exact, since there are always three decimals."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"


class _Drawing:
    """Makes the lines of one trace."""

    def __init__(self, base_ns: int, places: list[Place], clocks: Clocks) -> None:
        self._base_ns = base_ns
        self._tracks = Tracks(places)
        self._arrows = Arrows(clocks)
        self._last_arrow = 0
        self._latest_ns = base_ns

    def lines(self, items: Iterable[Item]) -> Iterator[str]:
        """The trace events, names before what they name."""
        for item in items:
            self._latest_ns = max(self._latest_ns, item.at_ns)
            if isinstance(item, Happening):
                drawn = self._happening(item)
            elif isinstance(item, Marker):
                drawn = self._marker(item)
            else:
                drawn = self._reading(item)
            for line in drawn:
                yield from self._names()
                yield line

    def _names(self) -> Iterator[str]:
        for named in self._tracks.to_name():
            kind, tid = ("process", "") if named.tid is None else ("thread", f',"tid":{named.tid}')
            where = f'"ph":"M","ts":0.000,"pid":{named.pid}{tid}'
            yield f'{{"name":"{kind}_name",{where},"args":{{"name":{encode(named.name)}}}}}'
            yield f'{{"name":"{kind}_sort_index",{where},"args":{{"sort_index":{named.sort_index}}}}}'

    def _happening(self, item: Happening) -> Iterator[str]:
        name = item.metric_name or "event"
        if name in _NOT_DRAWN:
            return
        attributes = attributes_of(item.attrs_json)
        place = place_of(item.cluster_id, item.node_id, item.job_id, item.rank)
        if name == semconv.PROBE_GAP:
            yield self._gap(item, attributes, place)
            return
        value = item.value_double if item.value_int is None else item.value_int
        is_span = item.duration_ns is not None and item.duration_ns >= 0
        if value is not None and not is_span and math.isfinite(value):
            yield self._counter(item, attributes, place, value)
            return
        track = self._track(item, attributes, place)
        arguments = _arguments(item, attributes)
        if item.duration_ns is None or not is_span:
            tid = self._tracks.tid(track, item.at_ns, item.at_ns)
            yield f'{self._head(name, item, track.pid, tid, "i")},"s":"t","args":{arguments}}}'
            return
        end_ns = item.at_ns + item.duration_ns
        tid = self._tracks.tid(track, item.at_ns, end_ns)
        head = self._head(name, item, track.pid, tid, "X")
        yield f'{head},"dur":{microseconds(item.duration_ns)},"args":{arguments}}}'
        if item.at_ns == self._latest_ns and is_collective(item):
            for arrow in self._arrows.enter(Entry(item, track, tid, end_ns), attributes.is_attached):
                yield from self._arrow(arrow)

    def _head(self, name: str, item: Happening, pid: int, tid: int, phase: str) -> str:
        ts = microseconds(item.at_ns - self._base_ns)
        category = _quoted(item.source or "otlp")
        return f'{{"name":{_quoted(name)},"cat":{category},"ph":"{phase}","ts":{ts},"pid":{pid},"tid":{tid}'

    def _track(self, item: Happening, attributes: Attributes, place: Place) -> Track:
        if item.timing_source == semconv.KERNEL_GPU:
            stream = "" if attributes.stream is None else f" stream {attributes.stream}"
            gpu = "" if item.gpu_uuid is None else f" {item.gpu_uuid}"
            return self._tracks.track(place, GPU, (item.gpu_uuid, attributes.stream), f"GPU{gpu}{stream}", item.at_ns)
        thread = item.pid if item.tid is None else item.tid
        name = f"{item.process or 'thread'} {thread}" if thread is not None else item.process or "events"
        return self._tracks.track(place, THREAD, thread, name, item.at_ns)

    def _counter(self, item: Happening, attributes: Attributes, place: Place, value: float) -> str:
        series = (item.metric_name or "value", item.gpu_uuid or "", attributes.labels)
        return self._values(" ".join(filter(None, series)), item.at_ns, place, {"value": _as_double(value)})

    def _values(self, name: str, at_ns: int, place: Place, values: Mapping[str, object]) -> str:
        ts = microseconds(at_ns - self._base_ns)
        pid = self._tracks.pid(place)
        return f'{{"name":{_quoted(name)},"ph":"C","ts":{ts},"pid":{pid},"args":{encode(values)}}}'

    def _gap(self, item: Happening, attributes: Attributes, place: Place) -> str:
        """From when to when events were lost; the point itself says when that was noticed."""
        ahead_ns = item.timestamp_ns - item.at_ns
        end_ns = item.at_ns if attributes.gap_end_ns is None else attributes.gap_end_ns - ahead_ns
        begin_ns = item.at_ns if attributes.gap_start_ns is None else attributes.gap_start_ns - ahead_ns
        begin_ns = max(begin_ns, self._base_ns)
        end_ns = max(begin_ns, end_ns)
        track = self._tracks.track(place, GAPS, None, GAPS, item.at_ns)
        tid = self._tracks.tid(track, begin_ns, end_ns)
        lost = "" if attributes.lost_events is None else f": {attributes.lost_events}"
        times = f'"ts":{microseconds(begin_ns - self._base_ns)},"dur":{microseconds(end_ns - begin_ns)}'
        return (
            f'{{"name":{encode(f"lost events{lost}")},"cat":"gap","ph":"X",{times},"pid":{track.pid},"tid":{tid},'
            f'"cname":"{_MARK_COLOUR}","args":{_arguments(item, attributes)}}}'
        )

    def _marker(self, item: Marker) -> Iterator[str]:
        place = place_of(item.cluster_id, item.node_id, item.job_id, item.rank)
        track = self._tracks.track(place, CHAINS, None, CHAINS, item.at_ns)
        tid = self._tracks.tid(track, item.at_ns, item.at_ns)
        severity = (item.severity or "").upper()
        colour = f',"cname":"{COLOURS[severity]}"' if severity in COLOURS else ""
        name = ": ".join(filter(None, (item.severity, item.summary))) or "causal chain"
        facts = {"severity": item.severity, **item.facts}
        arguments = {key: _exact(value) for key, value in facts.items() if value is not None}
        yield (
            f'{{"name":{encode(name)},"cat":"causal_chain","ph":"i","ts":{microseconds(item.at_ns - self._base_ns)},'
            f'"pid":{track.pid},"tid":{tid},"s":"t"{colour},"args":{encode(arguments)}}}'
        )

    def _reading(self, item: Reading) -> Iterator[str]:
        values = {key: value for key, value in item.values.items() if value is not None and math.isfinite(value)}
        if values:
            yield self._values(item.name, item.at_ns, place_of(item.cluster_id, item.node_id, None, item.rank), values)

    def _arrow(self, arrow: Arrow) -> Iterator[str]:
        """Both ends at the moment when the last rank came: a viewer takes them in the order of time."""
        self._last_arrow += 1
        shared = f'"name":"waited for","cat":"collective","id":{self._last_arrow}'
        ts = microseconds(arrow.at_ns - self._base_ns)
        yield f'{{{shared},"ph":"s","ts":{ts},"pid":{arrow.from_pid},"tid":{arrow.from_tid}}}'
        yield f'{{{shared},"ph":"f","bp":"e","ts":{ts},"pid":{arrow.to_pid},"tid":{arrow.to_tid}}}'


def _arguments(item: Happening, attributes: Attributes) -> str:
    known: dict[str, object] = {}
    if item.event_seq is not None:
        known["id"] = f"{item.node_id}:{item.event_seq}"
    for name, place in _ARGUMENTS:
        value = item[place]
        if value is not None:
            known[name] = _exact(value)
    value = item.value_double if item.value_int is None else item.value_int
    if value is not None:
        known["value"] = _exact(value)
    if item.duration_ns is not None and item.duration_ns < 0:
        known["duration_ns"] = _exact(item.duration_ns)
    text = encode(known)
    if not attributes.text:
        return text
    return f'{text[:-1]}{"," if known else ""}"attributes":{attributes.text}}}'


def _as_double(value: float) -> float:
    return value if abs(value) <= MAX_EXACT else float(value)


def _exact(value: object) -> object:
    """The value as JSON data; an integer that a double does not keep as text."""
    if type(value) is int:
        return value if -MAX_EXACT <= value <= MAX_EXACT else str(value)
    return value if type(value) is str else structured(value)
