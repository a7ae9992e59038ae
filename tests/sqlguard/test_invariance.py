"""The verdict hangs on what a statement says: not on how it is laid out, and not on what is put around it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import GuardError
from ingero_mcp.sqlguard import check
from tests.sqlguard import statements
from tests.sqlguard.fuzz.layout import PLAIN_GAPS
from tests.sqlguard.fuzz.splicing import WRAPPINGS
from tests.sqlguard.fuzz.tokens import is_word, tokens

# The layout of these is what is wrong with them.
_LAYOUT = frozenset({"invisible_character", "syntax", "empty", "parameter"})

DENIED = [sql for sql, codes in statements.denied() if not codes & _LAYOUT]
QUERIES = [sql for sql, _ in statements.denied() if re.match(r"\(*\s*(select|from|values|table|with)\b", sql, re.I)]


def _passes(sql: str) -> bool:
    try:
        check(sql)
    except GuardError:
        return False
    return True


@st.composite
def laid_out(draw: st.DrawFn, texts: list[str]) -> str:
    """One of the statements with other gaps and other cases."""
    parts = []
    for token in tokens(draw(st.sampled_from(texts))):
        if token.isspace():
            parts.append(draw(st.sampled_from(PLAIN_GAPS)))
        elif is_word(token):
            parts.append(draw(st.sampled_from((token, token.upper(), token.lower()))))
        else:
            parts.append(token)
    return (
        draw(st.sampled_from(("", *PLAIN_GAPS))) + "".join(parts) + draw(st.sampled_from(("", ";", "\n", " ; -- end")))
    )


@settings(max_examples=150, deadline=None)
@given(laid_out(statements.allowed()))
def test_layout_does_not_make_a_question_refused(sql: str) -> None:
    check(sql)


@settings(max_examples=150, deadline=None)
@given(laid_out(DENIED))
def test_layout_does_not_make_an_attack_pass(sql: str) -> None:
    assert not _passes(sql)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_wrapping_does_not_make_an_attack_pass(wrapping: str) -> None:
    assert [sql for sql in QUERIES if _passes(wrapping.format(sql))] == []


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(QUERIES), st.lists(st.sampled_from(WRAPPINGS), min_size=2, max_size=4))
def test_wrapping_many_times_does_not_make_an_attack_pass(sql: str, wrappings: list[str]) -> None:
    for wrapping in wrappings:
        sql = wrapping.format(sql)
    assert not _passes(sql)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*"()[]{},;:'\"$-/*?.@ \n1x", "select", "from", "events", "with", "as", "in", "->"])))
def test_every_other_text_is_refused_with_reasons_and_nothing_else(words: list[str]) -> None:
    _passes(" ".join(words))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_whatever_is_judged(text: str) -> None:
    _passes(text)
