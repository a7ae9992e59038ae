"""What a node knew besides its events: rows of one `metric_name`, and the view that shows them.

A kind is kept in the columns of events: `metric_name` names it, its own facts are attributes under its prefix.
Importers write them to the store's context; causal chains, stacks and annotations also arrive as OTLP log records, with
the same names and attributes, and lie in `events`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ingero_mcp.cells import structured
from ingero_mcp.events import STORED
from ingero_mcp.views.view import PRIVATE, View, attribute


@dataclass(frozen=True, slots=True)
class Shown:
    """A column of a kind's view: an expression over the columns of events, or by default the fact of that name."""

    name: str
    doc: str
    type: Literal["VARCHAR", "BIGINT", "DOUBLE"] = "VARCHAR"
    sql: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """What rows of one `metric_name` record, and the view that shows them.

    `on_the_wire` kinds may also be among the events. Rows that agree in the columns of `one_per` are shown as one. Of
    rows that this server wrote and that say when they were `updated` (a fact), the latest of each `causal_chain_id` and
    start is shown: a record that is written anew, not changed.
    """

    metric_name: str
    prefix: str
    view: str
    doc: str
    shown: tuple[Shown, ...]
    on_the_wire: bool = False
    one_per: tuple[str, ...] = ()
    updated: str = ""

    def key(self, fact: str) -> str:
        """The attribute that holds a fact: `ingero.chain.severity`."""
        return f"{self.prefix}{fact}"

    def attributes(self, facts: Mapping[str, Any]) -> str:
        """The facts as attributes, in strict JSON; what is None or empty text is left out."""
        known = {
            self.key(name): structured(value) for name, value in facts.items() if value is not None and value != ""
        }
        return json.dumps(known, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _column(kind: Kind, shown: Shown) -> str:
    fact = attribute(kind.key(shown.name))
    value = shown.sql or (fact if shown.type == "VARCHAR" else f"TRY_CAST({fact} AS {shown.type})")
    if kind.updated == shown.name:
        # Whoever sends events may call them what he likes: only what is not among the events was written here.
        value = f"CASE WHEN is_context THEN {value} END"
    if kind.one_per and shown.name not in kind.one_per:
        value = f"min({value})"
    return f"{value} AS {shown.name}"


def view_of(kind: Kind) -> View:
    """The view that shows the rows of a kind."""
    # The filter comes before any JSON is parsed: among the events few rows are of a kind. What two files hold (a
    # database, and one that was merged from it) is shown once; the number of a row says nothing about it.
    of_kind = f"WHERE metric_name = '{kind.metric_name}'"
    stored = ", ".join(column.name for column in STORED if column.name != "event_seq")
    rows = f"SELECT DISTINCT {stored}, true AS is_context FROM {PRIVATE}.context {of_kind}"
    if kind.on_the_wire:
        rows = f"SELECT {stored}, false AS is_context FROM main.events {of_kind} UNION ALL {rows}"
    sql = f"SELECT {', '.join(_column(kind, shown) for shown in kind.shown)} FROM ({rows})"
    if kind.one_per:
        sql += f" GROUP BY {', '.join(kind.one_per)}"
    if kind.updated:
        latest = f"PARTITION BY cluster_id, causal_chain_id, timestamp_ns ORDER BY {kind.updated} DESC"
        sql += f" QUALIFY {kind.updated} IS NULL OR row_number() OVER ({latest}) = 1"
    return View(kind.view, kind.doc, tuple((shown.name, shown.doc) for shown in kind.shown), sql)
