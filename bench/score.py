"""How good an answer about a generated case is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ingero_mcp.synth.scenario import Truth


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody says of a case: the verdict (empty for a rule that has none), ranks at fault in order, and groups
    at fault as (kind, id, ranks)."""

    verdict: str
    ranks: tuple[int, ...] = ()
    groups: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    causes: tuple[str, ...] = ()
    """The cause and its alternatives, the likeliest first."""
    lost_ns: float | None = None
    """The wall time that it cost."""
    is_bound: bool = False
    """`lost_ns` is at most so much."""
    others: tuple[Answer, ...] = ()
    """Further findings, without alternatives and costs."""

    @property
    def blamed(self) -> frozenset[int]:
        """Every rank that is named, alone or as a member of a host. A stage or a link is a place, not a blame."""
        hosts = [rank for kind, _, ranks in self.groups if kind == "host" for rank in ranks]
        return frozenset((*self.ranks, *hosts))


@dataclass(slots=True)
class Tally:
    """Counts over cases. Rates are None where nothing was asked."""

    cases: int = 0
    right: int = 0
    asked_who: int = 0
    top1: int = 0
    named_right: int = 0
    named: int = 0
    planted_found: float = 0.0
    clean: int = 0
    clean_blamed: int = 0
    undecided: int = 0
    asked_why: int = 0
    cause_top1: int = 0
    cause_top2: int = 0
    asked_unseen: int = 0
    unseen_unknown: int = 0
    wrong_seeds: list[int] = field(default_factory=list)

    def add(self, truth: Truth, answer: Answer, seed: int) -> None:
        """One more case."""
        is_right = answer.verdict in truth.accepted
        self.cases += 1
        self.right += is_right
        self.undecided += answer.verdict == "undecidable" and truth.verdict != "undecidable"
        blamed = answer.blamed
        culprits = frozenset(truth.culprits)
        self.named += len(blamed)
        self.named_right += len(blamed & culprits)
        if truth.is_clean:
            self.clean += 1
            self.clean_blamed += bool(blamed) or answer.verdict in ("straggler", "hang", "imbalance", "network")
        elif not truth.is_hidden and asks_who(truth):
            self.asked_who += 1
            self.top1 += _names_first(truth, answer)
            self.planted_found += _found(truth, answer)
            if _names_first(truth, answer) and answer.causes:
                self._add_cause(truth, answer.causes)
        if not is_right:
            self.wrong_seeds.append(seed)

    def _add_cause(self, truth: Truth, causes: tuple[str, ...]) -> None:
        """Why, of a case in which who was right. What the view cannot show has to be called unknown."""
        if truth.shows_cause:
            self.asked_why += 1
            self.cause_top1 += causes[0] == truth.cause
            self.cause_top2 += truth.cause in causes[:2]
        else:
            self.asked_unseen += 1
            self.unseen_unknown += causes[0] in ("unknown", truth.cause)

    def merge(self, other: Tally) -> None:
        """The cases of both."""
        for name in Tally.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def verdict_rate(self) -> float | None:
        """Share of cases whose verdict is right."""
        return share(self.right, self.cases)

    @property
    def top1_rate(self) -> float | None:
        """Share of the cases with somebody or some group at fault in which the first one named is it."""
        return share(self.top1, self.asked_who)

    @property
    def precision(self) -> float | None:
        """Share of the named ranks that are at fault."""
        return share(self.named_right, self.named)

    @property
    def recall(self) -> float | None:
        """Share of the ranks (or groups) at fault that are named, averaged over cases."""
        return share(self.planted_found, self.asked_who)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall."""
        precision, recall = self.precision, self.recall
        if precision is None or recall is None or not precision + recall:
            return None
        return 2 * precision * recall / (precision + recall)

    @property
    def cause_rates(self) -> tuple[float | None, float | None, float | None]:
        """Share of cases in which the cause is right, in which it is one of the first two, and in which one that the
        view cannot show is not taken for another."""
        first, two = share(self.cause_top1, self.asked_why), share(self.cause_top2, self.asked_why)
        return first, two, share(self.unseen_unknown, self.asked_unseen)

    @property
    def blame_rate(self) -> float | None:
        """Share of the clean cases in which something is said to be wrong."""
        return share(self.clean_blamed, self.clean)


def asks_who(truth: Truth) -> bool:
    """Whether there is somebody to find: ranks, or a stage or link. That all differ (a job) has no culprit."""
    return bool(truth.culprits) or (truth.group is not None and truth.group.kind != "job")


def _names_first(truth: Truth, answer: Answer) -> bool:
    if truth.culprits:
        first = answer.ranks[0] if answer.ranks else min(answer.blamed, default=None)
        return first in truth.culprits
    return _names_group(truth, answer)


def _found(truth: Truth, answer: Answer) -> float:
    if truth.culprits:
        return len(answer.blamed & set(truth.culprits)) / len(truth.culprits)
    return float(_names_group(truth, answer))


def _names_group(truth: Truth, answer: Answer) -> bool:
    """A stage by its ranks; a link by any communicator or pair of hosts that lies on it."""
    group = truth.group
    assert group is not None
    wanted = set(group.ranks)
    for kind, name, ranks in answer.groups:
        if group.kind == "stage" and kind == "stage" and (name == group.id or set(ranks) == wanted):
            return True
        if group.kind == "link" and kind in ("link", "communicator") and ranks and set(ranks) <= wanted:
            return True
    return False


def share(part: float, whole: int) -> float | None:
    """A part of a whole; None where there is none."""
    return part / whole if whole else None


def rate(value: float | None) -> str:
    """A share as text."""
    return "-" if value is None else f"{value:.3f}".rstrip("0").rstrip(".") if value not in (0, 1) else f"{value:.0f}"


def tally(scored: Iterable[tuple[Truth, Answer, int]]) -> Tally:
    """The counts of many cases."""
    total = Tally()
    for truth, answer, seed in scored:
        total.add(truth, answer, seed)
    return total
