"""Statement after statement, until there are enough of them, or one of them does what was looked for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.sqlguard.fuzz.layers import Layers
from tests.sqlguard.fuzz.mutations import statement
from tests.sqlguard.fuzz.oracle import Fault, Kind
from tests.sqlguard.fuzz.runner import Runner


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement that passed and did what it must not; `number` and the seed give it again."""

    number: int
    sql: str
    fault: Fault

    def __str__(self) -> str:
        return f"#{self.number} {self.fault.kind}: {self.fault.detail!r}\n    {self.sql!r}"


@dataclass(slots=True)
class Tally:
    """How many statements were tried, how many the guard let pass, how many of those gave an answer."""

    tried: int = 0
    passed: int = 0
    ran: int = 0
    findings: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.tried} statements tried, {self.passed} passed the guard, {self.ran} ran"
        return "\n".join([f"{counts}, {len(self.findings)} findings", *map(str, self.findings)])


def within(seconds: float) -> Iterator[int]:
    """Numbers of statements until the time is over."""
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())


def fuzz(on: Layers, seed: int, numbers: Iterable[int], until: frozenset[Kind] = frozenset()) -> Tally:
    """Try the statements of those numbers; end early at a finding of a kind in `until`."""
    tally = Tally()
    with Runner(on) as runner:
        for number in numbers:
            sql = statement(seed, number)
            examined = runner.examine(sql)
            tally.tried += 1
            tally.passed += examined.passed
            tally.ran += examined.ran
            tally.findings += [Finding(number, sql, fault) for fault in examined.faults]
            if any(fault.kind in until for fault in examined.faults):
                break
    return tally
