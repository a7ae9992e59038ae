"""How good an answer about two incidents in one run is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.score import Answer, share
from ingero_mcp.synth.scenario import Fault, Truth
from ingero_mcp.synth.scenario.truth import shows_cause

_ALIKE: Final = 1.25
"""Of two incidents whose costs differ by less than this factor either may come first."""


@dataclass(slots=True)
class Doubles:
    """Counts over cases. Only incidents are asked for that the view shows and that cost something beside the other."""

    cases: int = 0
    faults: int = 0
    named: int = 0
    asked_both: int = 0
    both: int = 0
    asked_first: int = 0
    first: int = 0
    asked_why: int = 0
    why: int = 0
    ranks: int = 0
    ranks_right: int = 0

    def add(self, truth: Truth, answer: Answer) -> None:
        """One more case."""
        findings = (answer, *answer.others)
        asked = [fault for fault in truth.faults if not fault.is_hidden]
        told = [(fault, next((one for one in findings if names(one, fault)), None)) for fault in asked]
        found = [(fault, one) for fault, one in told if one is not None]
        self.cases += 1
        self.faults += len(asked)
        self.named += len(found)
        if len(asked) > 1:
            self.asked_both += 1
            self.both += len(found) == len(asked)
        costliest = [fault for fault in asked if fault.lost_ns * _ALIKE >= asked[0].lost_ns]
        self.asked_first += bool(asked)
        self.first += any(names(answer, fault) for fault in costliest)
        for fault, one in found:
            if shows_cause(truth.view, fault.cause):
                self.asked_why += 1
                self.why += one.causes[:1] == (fault.cause,)
        blamed = {rank for one in findings for rank in one.blamed}
        self.ranks += len(blamed)
        self.ranks_right += len(blamed & set(truth.culprits))

    @property
    def rates(self) -> dict[str, float | None]:
        """`named`: share of the incidents that some finding names. `both`: share of the cases in which all are, of
        those with two to find. `first`: the costlier one comes first. `cause`: share of right causes of those named.
        `precision`: share of the named ranks that are at fault."""
        return {
            "named": share(self.named, self.faults),
            "both": share(self.both, self.asked_both),
            "first": share(self.first, self.asked_first),
            "cause": share(self.why, self.asked_why),
            "precision": share(self.ranks_right, self.ranks),
        }


def names(answer: Answer, fault: Fault) -> bool:
    """Whether a finding is about this incident: its first rank is at fault, or its group lies on the link."""
    if fault.culprits:
        first = answer.ranks[0] if answer.ranks else min(answer.blamed, default=None)
        return answer.verdict == fault.verdict and first in fault.culprits
    wanted = set(fault.group.ranks) if fault.group is not None else set()
    return any(kind in ("link", "communicator") and ranks and set(ranks) <= wanted for kind, _, ranks in answer.groups)
