"""How large a function's value can be, given its arguments: one rule for each way in which functions grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ingero_mcp.sqlguard import allowed

PIECE = 64
"""Characters of a literal that count as one column-sized piece."""
_COLLECTED = 100  # what an aggregate is taken to collect: large enough that it must not be multiplied again
_SPLIT = 16  # every piece of a split text costs 16 bytes of its own, however short it is
_ESCAPED = 2  # hex doubles a text; so does JSON inside JSON, each time


@dataclass(frozen=True, slots=True)
class Value:
    """Bounds of one value, in pieces of the size of a column's value.

    `count` and `element` are the number and the size of its elements, for lists. `nodes` is the size of the
    expression after aliases are put in place, `columns` the number of columns that it stands for. `literal`
    is the number of characters of a literal. `stored` says that it is a column as it is stored, or a short literal.
    """

    size: float = 1
    element: float = 1
    count: float = 1
    nodes: float = 1
    columns: float = 1
    literal: int | None = None
    stored: bool = False


NOTHING = Value(size=0, element=0, stored=True)
NUMBER = Value(size=0.6, element=0.6)
Arguments = list[Value]
Rule = Callable[[Arguments], Value]


def largest(values: Iterable[Value]) -> Value:
    """The value that bounds each of `values`."""
    each = list(values) or [NOTHING]
    return Value(
        max(value.size for value in each),
        max(value.element for value in each),
        max(value.count for value in each),
        max(value.nodes for value in each),
        max(value.columns for value in each),
        stored=all(value.stored for value in each),
    )


def number(arguments: Arguments) -> Value:
    """A number, a time or a truth value, whatever it was made of."""
    return NUMBER


def joined(arguments: Arguments) -> Value:
    """Text put together from all arguments; also the rule for a function that has none of its own."""
    size = sum(value.size for value in arguments)
    return Value(size, size, sum(value.count for value in arguments) or 1)


def separated(by: int) -> Rule:
    """Elements put together with a separator between each two, which is the argument at the place `by`."""

    def rule(arguments: Arguments) -> Value:
        between = largest(arguments[by : by + 1])
        count = sum(value.count for value in arguments)
        size = sum(value.size for value in arguments) + count * between.size
        return Value(size, size)

    return rule


def packed(arguments: Arguments) -> Value:
    """A list, struct or map of the arguments."""
    size = sum(value.size for value in arguments) + len(arguments) / PIECE
    element = max((value.size for value in arguments), default=0)
    return Value(size, element, max([len(arguments), *(value.count for value in arguments)]))


def merged(arguments: Arguments) -> Value:
    """A list made of the elements of all arguments, or of some of them."""
    element = max((value.element for value in arguments), default=0)
    return Value(joined(arguments).size, element, sum(value.count for value in arguments))


def collected(arguments: Arguments) -> Value:
    """A list or a text that an aggregate makes of many rows; the memory limit does bound that."""
    value = joined(arguments)
    return Value(max(_COLLECTED, value.size), value.size, max(_COLLECTED, value.count))


def split(arguments: Arguments) -> Value:
    """A text cut into pieces."""
    size = largest(arguments).size
    return Value(_SPLIT * size, size, _SPLIT * max(1, size))


def element(arguments: Arguments) -> Value:
    """One element of a list, struct or map."""
    value = arguments[0] if arguments else NOTHING
    return Value(value.element, value.element, value.count)


def flattened(arguments: Arguments) -> Value:
    """A list of the elements of a list of lists."""
    value = largest(arguments)
    return Value(value.size, value.element, max(value.count, value.size))


def escaped(arguments: Arguments) -> Value:
    """Text that holds the argument with each character written as several."""
    return joined([joined(arguments)] * _ESCAPED)


def replaced(arguments: Arguments) -> Value:
    """Text in which each match of the second argument becomes the third: at worst, each character of it."""
    if len(arguments) < 3:
        return joined(arguments)
    text, old, new = arguments[:3]
    characters = new.literal if new.literal is not None else PIECE * max(1, new.size)
    size = text.size * max(1, characters / max(1, old.literal or 1))
    return Value(size, size)


def matched(arguments: Arguments) -> Value:
    """As `replaced`, for a pattern: it may match one character, or none, however long it is."""
    return replaced([*arguments[:1], NOTHING, *arguments[2:]])


def selected(arguments: Arguments) -> Value:
    """The elements of the first list at the places that the second one lists, again and again if it says so."""
    value, places = largest(arguments[:1]), largest(arguments[1:])
    return Value(value.element * places.count, value.element, places.count)


def picked(usual: int) -> Rule:
    """One of the arguments, or a list of them where a count stands behind the `usual` number of arguments."""
    return lambda arguments: collected(arguments) if len(arguments) > usual else largest(arguments)


_ALL = 1_000
_BY_RULE: tuple[tuple[Rule, str], ...] = (
    (number, " ".join(allowed.MATHS | allowed.TIME | allowed.OPERATORS - {"||", "->", "->>"})),
    (number, "count count_star sum avg length len strlen array_length cardinality strpos instr position ascii"),
    (number, "starts_with ends_with contains prefix suffix regexp_matches regexp_full_match levenshtein"),
    (number, "list_contains list_has array_has array_contains list_has_any list_has_all list_position list_count"),
    (number, "list_sum list_avg list_unique json_array_length json_valid json_exists"),
    (joined, "strftime"),
    (picked(_ALL), "greatest least coalesce ifnull nullif if first last any_value arbitrary median mode"),
    (picked(_ALL), "quantile_disc lag lead first_value last_value nth_value"),
    (picked(1), "min max"),
    (picked(2), "arg_max arg_min argmax argmin max_by min_by arg_max_null arg_min_null"),
    (collected, "list array_agg string_agg group_concat listagg histogram histogram_exact list_histogram"),
    (collected, "json_group_array json_group_object"),
    (split, "split str_split string_split string_to_array regexp_extract_all json_keys"),
    (split, "string_split_regex str_split_regex regexp_split_to_array"),
    (packed, "list_value list_pack array_value struct_pack row struct_insert struct_update map"),
    (merged, "list_concat list_cat array_cat array_concat list_append array_append list_prepend list_sort"),
    (merged, "array_sort list_reverse_sort array_reverse_sort list_distinct array_distinct list_slice array_slice"),
    (merged, "list_reverse array_reverse list_zip array_zip list_where list_intersect"),
    (merged, "map_keys map_values map_entries map_from_entries"),
    (element, "unnest list_extract array_extract list_element element_at struct_extract struct_extract_at"),
    (element, "map_extract map_extract_value list_first list_last list_min list_max list_any_value list_mode"),
    (flattened, "flatten"),
    (escaped, "hex to_hex base64 to_base64 to_json json_quote json_object json_array row_to_json array_to_json"),
    (escaped, "regexp_escape"),
    (separated(0), "concat_ws"),
    (separated(1), " ".join(["array_to_string", *allowed.NAMED_AGGREGATE])),
    (replaced, "replace"),
    (matched, "regexp_replace"),
    (selected, "list_select array_select"),
)
RULES: dict[str, Rule] = {name: rule for rule, names in _BY_RULE for name in names.split()}
"""By name of function; whatever is not here is taken to join its arguments."""
