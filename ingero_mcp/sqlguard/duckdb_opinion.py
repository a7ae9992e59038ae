"""The second opinion: DuckDB's own tree, the one the engine would run, holds only what is listed.

It sees through everything that makes the two parsers differ, because it is the engine's parser; what it costs is
that each kind of node and each field has to be listed by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ingero_mcp.errors import Reason
from ingero_mcp.sqlguard import allowed, reasons
from ingero_mcp.sqlguard.engine import Tree, place_of
from ingero_mcp.sqlguard.series import check_series
from ingero_mcp.sqlguard.syntax import syntax_error

_MAX_GROUPING_SETS = 128
_NAME_FIELDS = ("catalog_name", "catalog", "schema_name", "schema", "table_name", "function_name", "type_name")


@dataclass(slots=True)
class _Walk:
    rendered: bool
    reasons: list[Reason] = field(default_factory=list)
    relations: list[Tree] = field(default_factory=list)
    nodes: int = 0
    joins: int = 0
    deepest: int = 0


@dataclass(frozen=True, slots=True)
class _Site:
    """A node with what its checks need to know of its surroundings."""

    kind: str
    node: Tree
    ctes: frozenset[str]
    rendered: bool

    @property
    def offset(self) -> int | None:
        return None if self.rendered else place_of(self.node)

    @property
    def path(self) -> tuple[str, ...]:
        """The name with all that stands before it."""
        # The tree holds it twice, in single fields and as a path; should they ever differ, the longer one refuses.
        path = tuple(self.node.get("qualified_name", {}).get("path", ()))
        fields = tuple(value for name in _NAME_FIELDS if (value := self.node.get(name)))
        return path if path == fields or not fields else (*path, *fields)

    @property
    def names_cte(self) -> bool:
        return len(self.path) == 1 and allowed.folded(self.path[0]) in self.ctes


class Opinion(NamedTuple):
    """Every reason to refuse a text, and the nodes of its tree that stand for public relations."""

    reasons: list[Reason]
    relations: list[Tree]


def check_with_duckdb(tree: Tree, sql: str = "", *, rendered: bool) -> Opinion:
    """What DuckDB's tree says of `sql`, the text it was parsed from.

    `rendered` says that it is our own text, in which relations stand as main.<name>.
    """
    if tree.get("error"):
        return Opinion([_unreadable(tree, "" if rendered else sql)], [])
    if len(tree["statements"]) != 1:
        return Opinion([reasons.not_one(len(tree["statements"]))], [])
    walk = _Walk(rendered)
    _visit(tree["statements"][0], "subquery", frozenset(), 0, walk)
    return Opinion(reasons.unique([*walk.reasons, *_check_size(walk)]), walk.relations)


def _unreadable(tree: Tree, sql: str) -> Reason:
    message = str(tree.get("error_message", "it cannot be read")).rstrip(".")
    if tree.get("error_type") == "not implemented":
        return reasons.not_a_select()
    if message.startswith("Max expression depth"):
        return reasons.too_deep()
    return syntax_error(message, sql, int(tree["position"]) if sql and "position" in tree else None)


def _check_size(walk: _Walk) -> Iterator[Reason]:
    sizes = (
        ("too_large", "nodes", walk.nodes, allowed.MAX_NODES, "Ask several smaller questions."),
        ("too_deep", "levels", walk.deepest, allowed.MAX_DEPTH, "Name the inner parts in a WITH clause."),
        ("too_many_joins", "joins", walk.joins, allowed.MAX_JOINS, "Aggregate first, then join the results."),
    )
    for code, what, size, most, hint in sizes:
        if size > most:
            yield Reason(code, f"The statement has more than {most} {what}.", hint)


def _visit(value: Any, holder: str, ctes: frozenset[str], depth: int, walk: _Walk) -> None:
    """Check `value`, which stands in the field `holder`, and everything below it."""
    if isinstance(value, list):
        for item in value:
            _visit(item, holder, ctes, depth, walk)
    elif isinstance(value, dict) and walk.nodes <= allowed.MAX_NODES and depth <= allowed.MAX_DEPTH:
        _visit_node(value, holder, ctes, depth, walk)


def _visit_node(node: Tree, holder: str, ctes: frozenset[str], depth: int, walk: _Walk) -> None:
    kind, fields = _kind(node, holder)
    site = _Site(kind, node, ctes, walk.rendered)
    if fields is None:
        walk.reasons.append(reasons.unlisted_node(kind, site.offset))
        return
    if isinstance(node.get("type"), str):
        walk.nodes += 1
        depth += 1
        walk.deepest = max(walk.deepest, depth)
        walk.joins += kind == "JOIN"
    if kind == "TABLE_FUNCTION" and "query_location" in node:
        node["function"].setdefault("query_location", node["query_location"])  # DuckDB keeps the place out here only
    for check in _CHECKS.get(kind, ()):
        walk.reasons.extend(check(site))
    if kind == "BASE_TABLE" and not site.names_cte:
        walk.relations.append(node)
    if "cte_map" in node:
        ctes = _visit_ctes(node["cte_map"], ctes, depth, walk)
    for name, child in node.items():
        if name not in fields:
            walk.reasons.append(reasons.unlisted_field(name, site.offset))
        elif name != "cte_map":
            _visit(child, name, ctes, depth, walk)


def _kind(node: Tree, holder: str) -> tuple[str, frozenset[str] | None]:
    if "class" in node:
        kind = node["class"]
        listed = allowed.EXPRESSIONS.get(kind)
        if holder == "function":
            # What stands in FROM is a table function, whatever else its name may mean.
            kind, listed = f"FROM {kind}", listed if kind == "FUNCTION" else None
    elif isinstance(node.get("type"), str):
        kind = node["type"]
        listed = allowed.NODES.get(kind)
    else:
        return holder, allowed.CONTAINERS.get(holder)
    return kind, None if listed is None else listed | allowed.EVERYWHERE


def _visit_ctes(cte_map: Tree, ctes: frozenset[str], depth: int, walk: _Walk) -> frozenset[str]:
    # A definition sees the ones before it and not itself: `WITH secrets AS (SELECT * FROM secrets)` reads the
    # real table, which is why a name joins the scope only after its definition was walked.
    entries = cte_map.get("map", [])
    if cte_map.keys() - {"map"} or any(entry.keys() != {"key", "value"} for entry in entries):
        walk.reasons.append(reasons.unlisted_node("cte_map"))
    for entry in entries:
        name = allowed.folded(entry["key"])
        if name == allowed.NEVER_SHADOWED:
            walk.reasons.append(reasons.shadowed(entry["key"]))
        _visit(entry["value"], "value", ctes, depth, walk)
        ctes |= {name}
    return ctes


def _check_table(site: _Site) -> Iterator[Reason]:
    *before, name = site.path
    is_relation = allowed.folded(name) in allowed.RELATIONS
    if site.names_cte or (is_relation and before == (["main"] if site.rendered else [])):
        return
    yield reasons.qualified_table(".".join(site.path), site.offset) if before else reasons.table(name, site.offset)


def _check_table_function(site: _Site) -> Iterator[Reason]:
    name = site.path[-1]
    if len(site.path) != 1:
        yield reasons.qualified_function(".".join(site.path), site.offset)
    elif allowed.folded(name) not in allowed.TABLE_FUNCTIONS:
        yield reasons.table_function(name, site.offset)
    elif allowed.folded(name) in ("range", "generate_series"):
        yield from check_series(site.node, site.offset)


def _check_function(site: _Site) -> Iterator[Reason]:
    name = site.path[-1]
    if len(site.path) != 1:
        yield reasons.qualified_function(".".join(site.path), site.offset)
    elif allowed.folded(name) not in allowed.SCALAR_FUNCTIONS:
        yield reasons.function(name, site.offset)
    elif allowed.folded(name) in allowed.NAMED_AGGREGATE:
        yield from _check_named_aggregate(site)


def _text(node: Tree) -> str:
    return str(node.get("literal", {}).get("text", ""))


def _check_named_aggregate(site: _Site) -> Iterator[Reason]:
    arguments = site.node.get("arguments", [])
    if len(arguments) < 2 or allowed.folded(_text(arguments[1]["expression"])) not in allowed.AGGREGATES:
        message = f"{site.path[-1]} needs the name of an allowed aggregate, written as text."
        hint = f"Aggregates: {', '.join(sorted(allowed.AGGREGATES))}."
        yield Reason("function_not_allowed", message, hint, site.offset, "list_aggregate(list(rank), 'max')")


def _check_column(site: _Site) -> Iterator[Reason]:
    name = site.node["column_names"][0]
    if allowed.folded(name) in allowed.SESSION_NAMES:
        yield reasons.session_value(name, site.offset)


def _check_type(site: _Site) -> Iterator[Reason]:
    name = ".".join(site.path)
    if allowed.folded(name) not in allowed.TYPES:
        yield reasons.unknown_type(name, site.offset)


def _check_collation(site: _Site) -> Iterator[Reason]:
    name = site.node["collation"]
    if not set(allowed.folded(name).split(".")) <= allowed.COLLATIONS:
        hint = f"Allowed: {', '.join(sorted(allowed.COLLATIONS))}."
        example = "node_id COLLATE NOCASE"
        yield Reason("collation_not_allowed", f"Collation {name} is not allowed.", hint, site.offset, example)


def _check_operator(site: _Site) -> Iterator[Reason]:
    if site.node["type"] not in allowed.OPERATOR_TYPES:
        yield reasons.construct(f"Operator {site.node['type']}", offset=site.offset)
    elif site.node["type"] == "STRUCT_EXTRACT" and "'" in _text(site.node["children"][1]):
        # DuckDB 2.0.1 renders such a name with its quote doubled, which is another name.
        yield reasons.construct("A quote in a field name", "Write s['it''s'] in place of s.\"it's\".", site.offset)


def _check_join(site: _Site) -> Iterator[Reason]:
    if site.node.get("ref_type") not in allowed.JOIN_KINDS:
        hint = "Use JOIN, LEFT JOIN, ASOF JOIN, SEMI JOIN, ANTI JOIN, POSITIONAL JOIN or CROSS JOIN."
        yield reasons.construct(f"{site.node['ref_type']} JOIN", hint, site.offset)


def _check_grouping(site: _Site) -> Iterator[Reason]:
    if len(site.node.get("group_sets", ())) > _MAX_GROUPING_SETS:
        message = f"There are more than {_MAX_GROUPING_SETS} grouping sets."
        yield Reason("too_large", message, "CUBE over n columns makes 2^n sets; list those of interest.")


_CHECKS: dict[str, tuple[Callable[[_Site], Iterator[Reason]], ...]] = {
    "BASE_TABLE": (_check_table,),
    "FROM FUNCTION": (_check_table_function,),
    "FUNCTION": (_check_function,),
    "WINDOW": (_check_function,),
    "COLUMN_REF": (_check_column,),
    "TYPE": (_check_type,),
    "COLLATE": (_check_collation,),
    "OPERATOR": (_check_operator,),
    "JOIN": (_check_join,),
    "SELECT_NODE": (_check_grouping,),
}
