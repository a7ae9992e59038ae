"""The tables of an agent's database, and the statements that read them.

Types are dynamic in SQLite: an INTEGER column can hold text. Every statement yields values of the declared type
or NULL, after two numbers about the row: which needed column spoils it (0: none), and how many other values
it could not keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from ingero_mcp.views import AGENT_SOURCES

_INT64: Final = (-(2**63), 2**63 - 1)
_TEXT: Final = 1 << 16
_YEAR_NS: Final = 366 * 86_400 * 10**9
_EARLIEST, _LATEST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 10**9 for year in (2020, 2200))
_LENGTH: Final = (0, 10 * _YEAR_NS)
_UINT32: Final = (0, 2**32 - 1)
_COUNT: Final = (0, 2**31 - 1)
MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Field:
    """A column: an integer from `least` to `most` (and `among` some), a finite real, or text of `most` bytes at most.

    A row without a value for a `needed` one is skipped. `absent` is SQL for its value in files without the column.
    """

    name: str
    type: Literal["integer", "real", "text"] = "integer"
    least: int = _INT64[0]
    most: int = _INT64[1]
    among: tuple[int, ...] = ()
    needed: bool = False
    absent: str = "NULL"

    def fits(self) -> str:
        """SQL: whether the value can be kept."""
        if self.type == "real":
            return f"typeof({self.name}) IN ('real', 'integer') AND abs(CAST({self.name} AS REAL)) < 1e300"
        if self.type == "text":
            # Of text, length counts characters, and only those before the first NUL.
            return f"typeof({self.name}) = 'text' AND length(CAST({self.name} AS BLOB)) <= {self.most}"
        if self.among:
            return f"typeof({self.name}) = 'integer' AND {self.name} IN {self.among}"
        if (self.least, self.most) == _INT64:
            return f"typeof({self.name}) = 'integer'"
        return f"typeof({self.name}) = 'integer' AND {self.name} BETWEEN {self.least} AND {self.most}"

    def value(self) -> str:
        """SQL: the value, or NULL where it does not fit."""
        kept = f"CAST({self.name} AS REAL)" if self.type == "real" else self.name
        return f"CASE WHEN {self.fits()} THEN {kept} END"


@dataclass(frozen=True, slots=True)
class Table:
    """A table and what is read of it; `extra` are further expressions, which need no column of their own."""

    name: str
    fields: tuple[Field, ...]
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns without which the table cannot be read."""
        return tuple(field.name for field in self.fields if field.needed and field.absent == "NULL")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values in a row, after its two numbers."""
        return (*(field.name for field in self.fields), *(name for name, _ in self.extra))

    def statement(self, columns: frozenset[str]) -> str:
        """Read all rows of a file whose table has these `columns`, in the order in which they are stored."""
        here = [field for field in self.fields if field.name in columns]
        faults = [f"WHEN {field.name} IS NULL OR NOT ({field.fits()}) THEN {self.fields.index(field) + 1}"
                  for field in here if field.needed]  # fmt: skip
        fault = f"CASE {' '.join(faults)} ELSE 0 END" if faults else "0"
        lost = [f"({field.name} IS NOT NULL AND NOT ({field.fits()}))" for field in here if not field.needed]
        values = [field.value() if field in here else field.absent for field in self.fields]
        values += [sql.format(node="node" if "node" in columns else "''") for _, sql in self.extra]
        return f"SELECT {fault}, {' + '.join(lost) or '0'}, {', '.join(values)} FROM main.{self.name} NOT INDEXED"


def _text(name: str, most: int = _TEXT, *, needed: bool = False, absent: str = "NULL") -> Field:
    return Field(name, "text", most=most, needed=needed, absent=absent)


def _time(name: str, *, needed: bool = False) -> Field:
    return Field(name, "integer", _EARLIEST, _LATEST, needed=needed)


_NODE: Final = _text("node", MAX_NAME, needed=True, absent="''")
_PID: Final = Field("pid", "integer", *_UINT32, needed=True)
_SOURCE: Final = Field("source", among=tuple(AGENT_SOURCES), needed=True)
_RANKS: Final = tuple(Field(name, "integer", *_COUNT) for name in ("rank", "local_rank", "world_size"))

# The number of an event, and its id where that is not simply node:number.
_NUMBER: Final = "CAST(substr(id, length({node}) + 2) AS INTEGER)"
_REGULAR: Final = f"(typeof(id) = 'text' AND id = {{node}} || ':' || {_NUMBER} AND {_NUMBER} BETWEEN 0 AND {2**52 - 1})"
_EXTRA: Final = (
    ("number", f"CASE WHEN typeof(id) = 'integer' THEN id WHEN {_REGULAR} THEN {_NUMBER} END"),
    (
        "odd_id",
        "CASE WHEN typeof(id) = 'integer' THEN id "
        f"WHEN {_REGULAR} AND {{node}} != '' THEN NULL ELSE substr(CAST(id AS TEXT), 1, 300) END",
    ),
)

EVENTS: Final = Table(
    "events",
    (
        _time("timestamp", needed=True),
        _PID,
        Field("tid", "integer", *_UINT32, needed=True),
        _SOURCE,
        Field("op", "integer", 0, 255, needed=True),
        Field("duration", "integer", *_LENGTH, needed=True),
        _NODE,
        *(Field(name) for name in ("gpu_id", "arg0", "arg1", "ret_code", "stack_hash", "cgroup_id")),
        *_RANKS,
        _text("comm", 64),
        _text("stack_ips", 4096),
    ),
    _EXTRA,
)
CHAINS: Final = Table(
    "causal_chains",
    (
        _text("id", 512, needed=True),
        _time("detected_at", needed=True),
        _text("severity", 64, needed=True),
        *(_text(name) for name in ("summary", "root_cause", "explanation", "recommendations", "cuda_op", "timeline")),
        Field("cuda_p99_us"),
        Field("cuda_p50_us"),
        Field("tail_ratio", "real"),
        _NODE,
    ),
)
STACKS: Final = Table("stack_traces", (Field("hash", needed=True), _text("ips"), _text("frames")))
SESSIONS: Final = Table(
    "sessions",
    (
        _time("started_at", needed=True),
        Field("stopped_at", least=0),
        *(_text(name, 4096) for name in ("gpu_model", "gpu_driver", "cpu_model", "kernel", "os_release", "cuda_ver")),
        *(_text(name, 4096) for name in ("python_ver", "ingero_ver", "pid_filter", "flags")),
        Field("cpu_cores"),
        Field("mem_total"),
        _NODE,
        *_RANKS,
    ),
)
PROCESS_NAMES: Final = Table("process_names", (_PID, _text("name", MAX_NAME, needed=True), Field("seen_at", least=0)))
SNAPSHOTS: Final = Table(
    "system_snapshots",
    (
        _time("timestamp", needed=True),
        *(Field(name, "real") for name in ("cpu_pct", "mem_pct", "load_avg")),
        Field("mem_avail"),
        Field("swap_mb"),
    ),
)
_AGGREGATE: Final = (
    _time("bucket", needed=True),
    _SOURCE,
    Field("op", "integer", 0, 255, needed=True),
    Field("pid", "integer", *_UINT32),
    Field("count", least=0, needed=True),
    *(Field(name) for name in ("stored", "sum_dur", "min_dur", "max_dur", "sum_arg0")),
)
AGGREGATES: Final = Table("event_aggregates", _AGGREGATE)
AGGREGATES_5S: Final = Table("event_aggregates_5s", _AGGREGATE)
ANNOTATIONS: Final = Table(
    "annotations",
    (
        _time("timestamp", needed=True),
        _text("labels", needed=True),
        *(Field(name) for name in ("pid", "start_time", "span_start", "span_end", "peer_uid", "peer_gid", "peer_pid")),
    ),
)
CGROUPS: Final = Table(
    "cgroup_metadata",
    (
        Field("cgroup_id", needed=True),
        *(_text(name, 4096) for name in ("container_id", "cgroup_path", "pod_name", "namespace")),
    ),
)
CGROUP_SCHEDSTAT: Final = Table(
    "cgroup_schedstat",
    (
        Field("cgroup_id", needed=True),
        *(Field(name) for name in ("p99_off_cpu", "total_off_cpu", "event_count", "window_start", "window_end")),
    ),
)
ALL: Final = (
    EVENTS, CHAINS, STACKS, SESSIONS, PROCESS_NAMES, SNAPSHOTS, AGGREGATES, AGGREGATES_5S, ANNOTATIONS, CGROUPS,
    CGROUP_SCHEDSTAT,
)  # fmt: skip
