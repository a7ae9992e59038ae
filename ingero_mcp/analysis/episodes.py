"""Episodes: what a watch remembers of findings from look to look, so that it says each once, and says when it is over.

A look sees a stretch of time that ends now and reaches back over healthy steps, so a finding of the past stays in sight
for a while. It is current only while its last bad step is recent; a look that misses it once does not end it; what ends
and comes back at once is the same episode and not a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from ingero_mcp.analysis.findings import Cause, Group, Statement, Verdict
from ingero_mcp.analysis.severity import Severity, rank_of
from ingero_mcp.analysis.words import who

LEAST_CONFIDENCE: Final = 0.3
"""What is less sure than this is not worth waking anybody for."""

SURE: Final = 0.6
"""From this confidence on one look is enough; below, two looks in a row have to say the same."""

_QUIET_NS: Final = 15_000_000_000
"""Without a bad step for so long (or for three of its periods) an episode is over."""

_PERIODS: Final = 3
_MISSED: Final = 3  # looks in a row that do not see it at all end it, too
_COMES_BACK_NS: Final = 60_000_000_000
_ALIKE: Final = 0.5  # of the ranks named by either
_MANY: Final = 3

What: TypeAlias = Literal["opened", "changed", "closed"]

_HIGH: Final = 0.2  # of the job's time
_MEDIUM: Final = 0.05


def severity_of(verdict: Verdict, share_lost: float) -> Severity:
    """How bad it is: a hang, or a fifth of the job's time, is HIGH; a twentieth MEDIUM."""
    if verdict == "hang" or share_lost >= _HIGH:
        return "HIGH"
    return "MEDIUM" if share_lost >= _MEDIUM else "LOW"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A finding as one look sees it.

    `since_ns` is its onset and `last_bad_ns` the end of the last step it affected, on the clocks of the nodes;
    `share_lost` the part of the looked-at time that it cost. `nodes` are those of the ranks at fault.
    """

    verdict: Verdict
    cause: Cause
    confidence: float
    ranks: tuple[int, ...]
    groups: tuple[Group, ...]
    nodes: tuple[str, ...]
    since_ns: int
    last_bad_ns: int
    share_lost: float
    summary: tuple[str, ...]
    statements: tuple[Statement, ...] = ()
    period_ns: int | None = None
    lateness_ns: float | None = None
    slowdown: float | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return severity_of(self.verdict, self.share_lost)

    @property
    def descriptor(self) -> str:
        """What and who, as part of an id: `straggler-5`, `network-gpu-node-1|gpu-node-2`."""
        at_fault = [str(rank) for rank in self.ranks] or [f"{group.kind}-{group.id}" for group in self.groups]
        return "-".join([self.verdict, *at_fault[:8]])


@dataclass(frozen=True, slots=True)
class Episode:
    """One incident of a job from its onset to its end; `end_ns` is None while it goes on.

    `told` is what listeners were told last, `latest` what the last look that saw it says. An episode that has been seen
    by one look that was not sure is not `open` yet.
    """

    id: str
    since_ns: int
    detected_ns: int
    latest: Sighting
    told: Sighting | None = None
    end_ns: int | None = None
    missed: int = 0
    differs: int = 0

    @property
    def is_open(self) -> bool:
        """Whether listeners were told of it, and not of its end."""
        return self.told is not None and self.end_ns is None


@dataclass(frozen=True, slots=True)
class Change:
    """What to tell listeners."""

    what: What
    episode: Episode


def advance(
    known: Sequence[Episode], seen: Iterable[Sighting], *, job: str, now_ns: int, newest_ns: int
) -> tuple[tuple[Episode, ...], tuple[Change, ...]]:
    """The episodes of a job after one more look, and what has changed.

    `now_ns` is when it is looked, `newest_ns` how far the job was seen, on the clocks of its nodes. Closed episodes are
    remembered until they can no longer come back.
    """
    current = _by_cause(one for one in seen if one.confidence >= LEAST_CONFIDENCE and _is_current(one, newest_ns))
    after: list[Episode] = []
    changes: list[Change] = []
    for episode in known:
        match = next((one for one in current if _is_same(episode, one)), None)
        if match is not None:
            current.remove(match)
            episode, what = _seen_again(episode, match, now_ns)
        else:
            episode, what = _not_seen(episode, newest_ns)
        if what is not None:
            changes.append(Change(what, episode))
        if _is_remembered(episode, newest_ns):
            after.append(episode)
    taken = {episode.id for episode in (*known, *after)}
    for one in current:
        episode = Episode(f"{job}:{one.descriptor}:{one.since_ns}", one.since_ns, now_ns, one)
        if episode.id in taken:
            continue  # it was told of already
        taken.add(episode.id)
        if one.confidence >= SURE:
            episode = replace(episode, told=one)
            changes.append(Change("opened", episode))
        after.append(episode)
    return tuple(after), tuple(changes)


def _by_cause(seen: Iterable[Sighting]) -> list[Sighting]:
    """Ranks that are late for one reason are one thing to tell: of a pause that goes around each look sees others."""
    merged: list[Sighting] = []
    for one in seen:
        place = next((place for place, other in enumerate(merged) if shares_cause(other, one)), None)
        if place is None:
            merged.append(one)
        else:
            merged[place] = _together(merged[place], one)
    return merged


def shares_cause(one: Sighting, other: Sighting) -> bool:
    """Whether both are ranks that are late for the same known reason."""
    return one.verdict == other.verdict == "straggler" and one.cause == other.cause != "unknown"


def _together(first: Sighting, other: Sighting) -> Sighting:
    """Two sightings as one, in the words of the first."""
    also = f"The same holds for {who(other.ranks)}."
    return replace(
        first,
        ranks=tuple(dict.fromkeys((*first.ranks, *other.ranks))),
        groups=tuple(dict.fromkeys((*first.groups, *other.groups))),
        nodes=tuple(dict.fromkeys((*first.nodes, *other.nodes))),
        since_ns=min(first.since_ns, other.since_ns),
        last_bad_ns=max(first.last_bad_ns, other.last_bad_ns),
        share_lost=min(first.share_lost + other.share_lost, 1.0),
        summary=first.summary if also in first.summary else (*first.summary[:-1], also, *first.summary[-1:]),
    )


def _quiet_ns(one: Sighting) -> int:
    return max(_QUIET_NS, _PERIODS * (one.period_ns or 0))


def _is_current(one: Sighting, newest_ns: int) -> bool:
    # Who hangs has no bad steps any more, and no good ones either.
    return one.verdict == "hang" or newest_ns - one.last_bad_ns <= _quiet_ns(one)


def _is_same(episode: Episode, one: Sighting) -> bool:
    """Whether a sighting is of this episode: the same kind of thing, by about the same ranks, and no new beginning."""
    before = episode.latest
    if (before.verdict == "hang") != (one.verdict == "hang") or not _same_at_fault(before, one):
        return False
    if episode.end_ns is None or one.last_bad_ns <= episode.end_ns:
        return True  # it goes on, or is an echo of what is over
    return one.since_ns - episode.end_ns <= max(_COMES_BACK_NS, _quiet_ns(one))


def _same_at_fault(before: Sighting, one: Sighting) -> bool:
    if shares_cause(before, one):
        return True
    ranks, others = set(before.ranks), set(one.ranks)
    if ranks and others:
        return len(ranks & others) >= _ALIKE * len(ranks | others)
    groups, more = ({group.id for group in sighting.groups} for sighting in (before, one))
    return before.verdict == one.verdict and groups == more


def _seen_again(episode: Episode, one: Sighting, now_ns: int) -> tuple[Episode, What | None]:
    if episode.end_ns is not None and one.last_bad_ns <= episode.end_ns:
        return episode, None
    if episode.end_ns is not None or episode.told is None:
        return replace(episode, latest=one, told=one, end_ns=None, missed=0, differs=0), "opened"
    if _says_the_same(episode.told, one):
        return replace(episode, latest=one, missed=0, differs=0), None
    if episode.differs == 0:
        return replace(episode, latest=one, missed=0, differs=1), None
    return replace(episode, latest=one, told=one, missed=0, differs=0), "changed"


def _says_the_same(told: Sighting, one: Sighting) -> bool:
    # That it became less bad is no news, nor is which of many ranks a look sees.
    same_ranks = set(told.ranks) == set(one.ranks) or (len(told.ranks) >= _MANY and len(one.ranks) >= _MANY)
    is_worse = rank_of(one.severity) < rank_of(told.severity)
    return (told.verdict, told.cause) == (one.verdict, one.cause) and same_ranks and not is_worse


def _not_seen(episode: Episode, newest_ns: int) -> tuple[Episode, What | None]:
    if episode.end_ns is not None:
        return episode, None
    episode = replace(episode, missed=episode.missed + 1, differs=0)
    last = episode.latest
    goes_on = last.verdict == "hang" or newest_ns - last.last_bad_ns <= _quiet_ns(last)
    if goes_on and episode.missed < _MISSED:
        return episode, None
    closed = replace(episode, end_ns=max(last.last_bad_ns, episode.since_ns))
    return closed, "closed" if episode.is_open else None


def _is_remembered(episode: Episode, newest_ns: int) -> bool:
    if episode.end_ns is None:
        return True
    quiet_ns = max(_COMES_BACK_NS, _quiet_ns(episode.latest))
    return episode.told is not None and newest_ns - episode.end_ns <= 2 * quiet_ns
