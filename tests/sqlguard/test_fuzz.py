"""Mutated statements of the golden files, run against bait: none shows or touches any of it.

The seed and the number in a finding give the statement again: `fuzz.mutations.statement(seed, number)`.
"""

from __future__ import annotations

import secrets
from random import Random

import pytest

from tests.sqlguard import statements
from tests.sqlguard.fuzz.campaign import fuzz, within
from tests.sqlguard.fuzz.layers import ALL
from tests.sqlguard.fuzz.mutations import MUTATIONS, statement
from tests.sqlguard.fuzz.tokens import tokens

_STATEMENTS = 2_500
_NIGHTLY_S = 900


def test_nothing_that_passes_shows_or_touches_the_bait(capsys: pytest.CaptureFixture[str]) -> None:
    tally = fuzz(ALL, seed=1, numbers=range(_STATEMENTS))
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.findings == []
    assert tally.tried == _STATEMENTS
    assert tally.ran > _STATEMENTS / 20, "hardly any of them runs: the fuzzer tries nothing"


@pytest.mark.nightly
def test_nothing_shows_or_touches_the_bait_all_night() -> None:
    seed = secrets.randbelow(1 << 32)
    tally = fuzz(ALL, seed, within(_NIGHTLY_S))
    print(f"\nseed {seed}: {tally}")
    assert tally.findings == [], f"seed {seed}"


def test_a_statement_is_the_same_each_time() -> None:
    assert [statement(7, number) for number in range(50)] == [statement(7, number) for number in range(50)]
    assert len({statement(7, number) for number in range(50)}) > 40


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_every_mutation_changes_statements_and_takes_any(mutation: object) -> None:
    assert callable(mutation)
    texts = ["", " ", ";", "'", *statements.allowed()]
    assert sum(mutation(Random(number), text) != text for number, text in enumerate(texts)) > len(texts) / 4


def test_tokens_lose_nothing() -> None:
    for sql in [*statements.allowed(), *(sql for sql, _ in statements.denied())]:
        assert "".join(tokens(sql)) == sql
