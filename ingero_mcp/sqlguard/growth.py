"""How large one value, one list of columns or one plan can become: bounds that the engine does not keep.

A memory limit does not see a text that is doubled thirty times inside one expression, and a time limit is not
looked at while a query is planned. Both are bounded here, from the tree alone, by counting copies. The counts are
made to tell the absurd from the ordinary; they are no estimates of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ingero_mcp.errors import Reason
from ingero_mcp.sqlguard import allowed, reasons, sizes
from ingero_mcp.sqlguard.engine import Tree, place_of
from ingero_mcp.sqlguard.sizes import NOTHING, NUMBER, Value
from ingero_mcp.views import relations

_MAX_LAMBDAS = 4  # one in another; each level is worked out up to four times
_EXPONENTIAL = Value(float("inf"), float("inf"))


@dataclass(frozen=True, slots=True)
class _Relation:
    """What a query hands to the one around it; `columns` holds those whose names are known."""

    columns: dict[str, Value]
    width: float
    references: float
    largest: Value


_STORED = Value(stored=True)
_BASE = {
    name: _Relation(dict.fromkeys(columns, _STORED), len(columns), 1, _STORED) for name, columns in relations().items()
}


@dataclass(slots=True)
class _Totals:
    largest: float = 0
    nodes: float = 0
    columns: float = 0
    references: float = 0
    strained: dict[str, int | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Scope:
    """The names that an expression can see: columns of FROM, aliases of the same select list, the query around."""

    totals: _Totals
    outer: _Scope | None = None
    sources: list[_Relation] = field(default_factory=list)
    names: dict[str, Value] = field(default_factory=dict)
    ctes: dict[str, _Relation] = field(default_factory=dict)
    references: float = 0
    lambdas: int = 0
    times: float = 1

    def inner(self) -> _Scope:
        return _Scope(self.totals, self, lambdas=self.lambdas, times=self.times)

    def lookup(self, parts: Iterable[str]) -> Value:
        found = [value for part in parts if (value := self._known(allowed.folded(part)))]
        return sizes.largest(found or self.unnamed())

    def _known(self, name: str) -> Value | None:
        found = [source.columns[name] for source in self.sources if name in source.columns]
        found += [self.names[name]] if name in self.names else []
        if found:
            return sizes.largest(found)
        return self.outer._known(name) if self.outer else None

    def unnamed(self) -> list[Value]:
        # A renamed or generated column is as large as the largest that it could be.
        return [source.largest for source in self.sources] + (self.outer.unnamed() if self.outer else [Value()])

    def relation(self, name: str) -> _Relation:
        if name in self.ctes:
            return self.ctes[name]
        return self.outer.relation(name) if self.outer else _BASE.get(name, _Relation({}, 1, 1, Value()))

    @property
    def width(self) -> float:
        return sum(source.width for source in self.sources)


def check_growth(tree: Tree) -> list[Reason]:
    """Reasons to refuse a statement whose values, columns or plan could become very large."""
    totals = _Totals()
    totals.references = _query(tree["statements"][0]["node"], _Scope(totals)).references
    limits = (
        (totals.largest, allowed.MAX_VALUE, "copies of a column in one value"),
        (totals.nodes, allowed.MAX_EXPANDED, "parts in its expressions once aliases are put in place"),
        (totals.columns, allowed.MAX_COLUMNS, "columns once its stars are expanded"),
        (totals.references, allowed.MAX_REFERENCES, "tables to read once its WITH clauses are expanded"),
    )
    hint = (
        "Use each column and each WITH clause once where possible, unnest lists in place of nested lambdas, and name "
        "columns in place of *."
    )
    found = [
        Reason("grows_too_large", f"The statement could have more than {most} {what}.", hint)
        for amount, most, what in limits
        if amount > most
    ]
    return found + [reasons.strained(name, place) for name, place in sorted(totals.strained.items())]


def _query(node: Tree, outer: _Scope) -> _Relation:
    scope = outer.inner()
    for entry in node.get("cte_map", {}).get("map", []):
        relation = _query(entry["value"]["query_node"], scope)
        scope.ctes[allowed.folded(entry["key"])] = _renamed(relation, entry["value"].get("aliases"))
    if node["type"] == "SELECT_NODE":
        result = _select(node, scope)
    else:
        parts = [node[side] for side in ("left", "right") if side in node] + node.get("children", [])
        result = _combined([_query(part, scope) for part in parts])
    for modifier in node.get("modifiers", []):
        _spend([_value(part, scope) for part in _inside(modifier)], scope)
    return replace(result, references=result.references + scope.references)


def _renamed(relation: _Relation, names: list[str] | None) -> _Relation:
    return replace(relation, columns={}) if names else relation


def _combined(relations_: list[_Relation]) -> _Relation:
    return _Relation(
        {},
        max(relation.width for relation in relations_),
        sum(relation.references for relation in relations_),
        sizes.largest(relation.largest for relation in relations_),
    )


def _select(node: Tree, scope: _Scope) -> _Relation:
    references = _from(node.get("from_table", {}), scope)
    columns: dict[str, Value] = {}
    values = []
    for item in node["select_list"]:
        value = _value(item, scope)
        _spend([value], scope)
        values.append(value)
        if item["class"] == "STAR":
            columns |= {name: column for source in scope.sources for name, column in source.columns.items()}
        name = item.get("alias") or item.get("column_names", [""])[-1]
        # An alias stands for its whole expression inside the same query, and for a finished value outside of it.
        scope.names[allowed.folded(name)] = value
        columns[allowed.folded(name)] = replace(value, nodes=1, columns=1)
    rest = [node.get(part) for part in ("where_clause", "group_expressions", "having", "qualify")]
    _spend([_value(part, scope) for part in _inside(rest)], scope)
    width = sum(value.columns for value in values)
    scope.totals.columns = max(scope.totals.columns, width)
    return _Relation(columns, width, references, replace(sizes.largest(values), nodes=1, columns=1))


def _spend(values: Iterable[Value], scope: _Scope) -> None:
    scope.totals.nodes += sum(value.nodes * value.columns for value in values)


def _from(table: Tree, scope: _Scope) -> float:
    """Add what `table` offers to the scope; the number of tables that it reads."""
    kind = table.get("type")
    if kind == "JOIN":
        references = _from(table["left"], scope) + _from(table["right"], scope)
        _spend([_value(part, scope) for part in _inside(table.get("condition"))], scope)
        return references
    if kind == "PIVOT":
        return _pivot(table, scope)
    relation = _source(table, scope)
    scope.sources.append(_renamed(relation, table.get("column_name_alias")))
    return relation.references


def _source(table: Tree, scope: _Scope) -> _Relation:
    match table.get("type"):
        case "BASE_TABLE":
            return scope.relation(allowed.folded(table["table_name"]))
        case "SUBQUERY":
            return _query(table["subquery"]["node"], scope)
        case "TABLE_FUNCTION":
            arguments = [_value(part, scope) for part in _inside(table["function"].get("arguments"))]
            value = sizes.element(arguments) if table["function"]["function_name"] == "unnest" else NUMBER
            if table["function"]["function_name"].startswith("json"):
                value = sizes.largest(arguments)
            return _Relation({}, 8, 0, replace(value, nodes=1))
        case "EXPRESSION_LIST":
            values = [_value(part, scope) for part in _inside(table["values"])]
            _spend(values, scope)
            return _Relation({}, len(table["values"][0]), 0, replace(sizes.largest(values), nodes=1))
    return _Relation({}, 0, 0, NOTHING)


def _pivot(table: Tree, scope: _Scope) -> float:
    inner = scope.inner()
    references = _from(table["source"], inner)
    values = [_value(part, inner) for part in _inside([table.get("aggregates"), table["pivots"]])]
    _spend(values, inner)
    listed = math.prod(max(1, len(pivot.get("entries", ()))) for pivot in table["pivots"])
    width = inner.width + listed * max(1, len(table.get("aggregates", ())))
    largest = sizes.largest([*values, *(source.largest for source in inner.sources)])
    scope.totals.columns = max(scope.totals.columns, width)
    scope.references += inner.references
    scope.sources.append(_Relation({}, width, references, replace(largest, nodes=1, columns=1)))
    return references


def _inside(part: Any) -> Iterator[Tree]:
    """The nearest expressions in `part`, itself included."""
    if isinstance(part, list):
        for item in part:
            yield from _inside(item)
    elif isinstance(part, dict) and "class" in part:
        yield part
    elif isinstance(part, dict):
        yield from _inside(list(part.values()))


def _value(node: Tree, scope: _Scope) -> Value:
    value = _worked_out(node, scope)
    # What a lambda makes is made for each element, even if little of it is left in the end.
    times = scope.times if node["class"] != "COLUMN_REF" else 1
    scope.totals.largest = max(scope.totals.largest, value.size * times)
    return value


def _worked_out(node: Tree, scope: _Scope) -> Value:
    kind = node["class"]
    if kind == "CONSTANT":
        characters = len(node["literal"].get("text", ""))
        size = characters / sizes.PIECE
        return Value(size, size, literal=characters, stored=characters <= sizes.PIECE)
    if kind == "TYPE":
        return NOTHING
    if kind == "COLUMN_REF":
        return scope.lookup(node["column_names"])
    if kind == "POSITIONAL_REFERENCE":
        return sizes.largest([*scope.unnamed(), *scope.names.values()])
    if kind == "STAR":
        return _star(node, scope)
    if kind == "SUBQUERY":
        return _subquery(node, scope)
    if kind in ("FUNCTION", "WINDOW"):
        return _function(node, scope)
    parts = [_value(part, scope) for part in _inside(list(node.values()))]
    return _costed(_syntax(node, parts), parts)


def _syntax(node: Tree, parts: list[Value]) -> Value:
    match node["class"], node["type"]:
        case (("COMPARISON" | "CONJUNCTION" | "BETWEEN"), _):
            return NUMBER
        case "OPERATOR", ("ARRAY_EXTRACT" | "STRUCT_EXTRACT"):
            return sizes.element(parts)
        case "OPERATOR", "ARRAY_CONSTRUCTOR":
            return sizes.packed(parts)
        case "OPERATOR", ("OPERATOR_COALESCE" | "OPERATOR_NULLIF" | "OPERATOR_TRY" | "ARRAY_SLICE"):
            return sizes.largest(parts)
        case "OPERATOR", name if name != "OPERATOR_UNPACK":
            return NUMBER
        case (("CASE" | "CAST" | "COLLATE"), _):
            return sizes.largest(parts)
    return sizes.joined(parts)


def _costed(value: Value, parts: list[Value]) -> Value:
    nodes = 1 + sum(part.nodes for part in parts)
    return replace(value, nodes=nodes, columns=max((part.columns for part in parts), default=1), literal=None)


def _star(node: Tree, scope: _Scope) -> Value:
    parts = [_value(part, scope) for part in _inside(list(node.values()))]
    widest = sizes.largest([*parts, *scope.unnamed()])
    return replace(widest, nodes=1 + sum(part.nodes for part in parts), columns=max(1, scope.width))


def _subquery(node: Tree, scope: _Scope) -> Value:
    relation = _query(node["subquery"]["node"], scope)
    scope.references += relation.references
    parts = [_value(part, scope) for part in _inside(node.get("child"))]
    return _costed(relation.largest, parts)


def _function(node: Tree, scope: _Scope) -> Value:
    name = allowed.folded(node["function_name"])
    arguments = [argument["expression"] for argument in node.get("arguments", [])]
    beside = [value for key, value in node.items() if key != "arguments"]
    spent = [_value(part, scope) for part in _inside(beside)]
    if name in allowed.LAMBDA_FUNCTIONS and len(arguments) > 1 and arguments[1]["class"] == "LAMBDA":
        first = _value(arguments[0], scope)
        rest = [_value(argument, scope) for argument in arguments[2:]]
        return _costed(_with_lambda(name, [first, *rest], arguments[1], scope), [first, *rest, *spent])
    values = [_value(argument, scope) for argument in arguments]
    if _is_strained(name, values):
        scope.totals.strained.setdefault(name, place_of(node))
    return _costed(sizes.RULES.get(name, sizes.joined)(values), values + spent)


def _is_strained(name: str, values: list[Value]) -> bool:
    if name in allowed.SMALL_PATTERNS:
        return sizes.largest(values[1:2]).size > allowed.MAX_PATTERN
    return name in allowed.STORED_ARGUMENTS and not sizes.largest(values).stored


def _with_lambda(name: str, values: list[Value], function: Tree, scope: _Scope) -> Value:
    if scope.lambdas >= _MAX_LAMBDAS:
        return _EXPONENTIAL
    items = values[0]
    nothing = _body(function, scope, [NOTHING, NOTHING], items.count)
    if name.endswith("filter"):
        return items
    # The elements together are no larger than the list, so what the lambda makes of them is counted for as many
    # of the largest size as the list can hold, and what it adds of its own for each element.
    whole = items.size / items.element if items.element else items.count
    if name.endswith("reduce"):
        if _body(function, scope, [Value(), NOTHING], 1).size > nothing.size + 1.01:
            return _EXPONENTIAL  # it holds what came before more than once
        each = _body(function, scope, [NOTHING, replace(items, size=items.element)], 1)
        size = sizes.joined(values).size + items.count * nothing.size + whole * each.size
        return Value(size, size)
    body = _body(function, scope, [replace(items, size=items.element), NUMBER], 1)
    return Value(items.count * nothing.size + whole * max(0, body.size - nothing.size), body.size, items.count)


def _body(function: Tree, scope: _Scope, values: list[Value], times: float) -> Value:
    inner = scope.inner()
    inner.lambdas += 1
    inner.times *= max(1, times)
    names = [allowed.folded(part["column_names"][-1]) for part in _lambda_names(function["lhs"])]
    inner.names |= dict(zip(names, [*values, *[NUMBER] * len(names)], strict=False))
    value = _value(function["expr"], inner)
    scope.references += inner.references
    _spend([value], scope)
    return value


def _lambda_names(lhs: Tree) -> Iterator[Tree]:
    if lhs["class"] == "COLUMN_REF":
        yield lhs
    else:
        yield from (part for part in _inside(lhs.get("arguments")) if part["class"] == "COLUMN_REF")
