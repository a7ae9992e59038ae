"""How soon a watch names who is late, and what it tells about healthy jobs: generated jobs in simulated time.

    python -m bench.watch [--seeds 10000:10008] [--families F1,F2,...]

A look every 5 seconds, nodes that send once a second. "named" counts cases in which the culprit is among the ranks of a
notice; the delay is from the first bad step to that notice. Jobs whose planted incident costs nothing are left out.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.live import Live, S
from ingero_mcp.store import open_store
from ingero_mcp.synth.scenario import FAMILIES, Case, generate

_SEVERITY = 10.0
_SOON_S = 15
_AFTER_S = 90
_LONGEST_S = 600


@dataclass(frozen=True, slots=True)
class Watched:
    """What the watch told about one case: seconds from the first bad step until the culprit was named, None if not."""

    family: str
    is_clean: bool
    delay_s: float | None
    bad_before: int
    others: int
    is_over: bool


def main() -> None:
    """Measure and print one line per family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="10000:10008")
    parser.add_argument("--families", default=",".join(FAMILIES))
    given = parser.parse_args()
    first, last = map(int, given.seeds.split(":"))
    print(f"severity {_SEVERITY:g}, probe view, seeds {first} to {last - 1}")
    print("family  cases  named  within 15 s  median s  bad steps before  others told  closed")
    for family in given.families.split(","):
        cases = (generate(family, seed, _SEVERITY, "probe") for seed in range(first, last))
        found = [watched(case) for case in cases if case.truth.is_clean or not case.truth.is_hidden]
        print(_line(family, [one for one in found if one is not None]), flush=True)


def watched(case: Case) -> Watched | None:
    """Let a watch look at a case while it happens; None if nothing bad is in it though something should be."""
    truth = case.truth
    events = pa.Table.from_batches(list(case.batches()))
    bad_ns = _bad_ns(events, case)
    if not truth.is_clean and not len(bad_ns):
        return None
    with open_store(None) as store:
        live = Live(store, events)
        length_s = (int(live.arrives_ns[-1]) - live.now_ns) / S
        told = live.pass_time(min(length_s + _AFTER_S, _LONGEST_S))
    at_fault = set(truth.culprits or (truth.group.ranks if truth.group else ()))
    right = [one for one in told if at_fault & {*one.ranks, *(rank for group in one.groups for rank in group.ranks)}]
    named_ns = right[0].updated_ns if right else None
    return Watched(
        family=truth.family,
        is_clean=truth.is_clean,
        delay_s=None if named_ns is None else (named_ns - int(bad_ns[0])) / S,
        bad_before=0 if named_ns is None else int((bad_ns < named_ns).sum()),
        others=len({one.id for one in told} - {one.id for one in right}),
        is_over={one.id for one in told} == {one.id for one in told if one.what == "closed"},
    )


def _bad_ns(events: pa.Table, case: Case) -> npt.NDArray[np.int64]:
    """When the bad steps were: the last entry into a collective of each; for a hang when it began."""
    truth = case.truth
    if truth.hang_ns is not None:
        return np.array([truth.hang_ns])
    step = events["step"].to_numpy(zero_copy_only=False)
    when = events["timestamp_ns"].to_numpy()
    found = [int(when[step == number].max()) for number in truth.affected_steps if (step == number).any()]
    return np.sort(np.array(found, dtype=np.int64))


def _line(family: str, found: list[Watched]) -> str:
    clean = [one for one in found if one.is_clean]
    if clean:
        return f"{family:<6}  {len(clean):>5}  healthy: {sum(one.others for one in clean)} told"
    delays = [one.delay_s for one in found if one.delay_s is not None]
    soon = sum(delay <= _SOON_S for delay in delays)
    usual = median(delays) if delays else float("nan")
    return (
        f"{family:<6}  {len(found):>5}  {len(delays):>5}  {soon:>11}  {usual:>8.1f}"
        f"  {median([one.bad_before for one in found]) if found else 0:>16g}  {sum(one.others for one in found):>11}"
        f"  {sum(one.is_over for one in found):>6}"
    )


if __name__ == "__main__":
    main()
