"""Imbalance: no single rank is at fault, but the work is not shared out evenly, between stages or between sequences."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from ingero_mcp.analysis.comparison import Comparison, noise
from ingero_mcp.analysis.evidence import Matrix
from ingero_mcp.analysis.findings import Affected, Finding, Group, Statement
from ingero_mcp.analysis.robust import spread
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.words import duration_text, ranks_text, who
from ingero_mcp.analysis.work import COMPUTING

STAGE_RATIO: Final = 1.1
"""A stage that works so many times as long as the typical stage is too long, if that is beyond the job's own spread."""

VARIES: Final = 0.07
"""A rank's work varies by so much of itself from step to step, if sequences are uneven."""

_TIMED: Final = 1.15  # the ratio that is believed where work was not recorded: some idle time looks like it
_LONE: Final = 1.2  # and with one other stage, which does not tell how unlike each other stages are for that reason
_MUCH: Final = 1.5  # and where somebody is late, who leaves other stages idle
_BEYOND: Final = 3.0  # spreads of the ranks of a stage, by which stages may differ by chance
_ALIKE: Final = 0.25  # how much more often the same ranks of two stages are long together than one long, one short
_APART: Final = 2.0  # times the most by which the other stages differ


def stage_imbalance(comparison: Comparison, healthy: Matrix, roles: Roles, *, is_sure: bool) -> Finding | None:
    """A stage that works longer than the others, after single ranks at fault were left out.

    It takes more if the measure is not sure: a rank that is late leaves other stages idle, which may look like work.
    """
    if not healthy.is_gpu_work:
        return None
    typical = {role: _typical(healthy, roles.ranks(role)) for role in roles.all}
    known = {role: value for role, value in typical.items() if np.isfinite(value)}
    if len(known) < 2:
        return None
    worst = max(known, key=lambda role: known[role])
    others = sorted(value for role, value in known.items() if role != worst)
    usual = others[(len(others) - 1) // 2]
    if usual <= 0 or known[worst] < _least_ratio(healthy, roles, others, is_sure=is_sure) * usual:
        return None
    ratio = known[worst] / usual
    ranks = roles.ranks(worst)
    name = str(worst) if roles.named else f"of ranks {ranks_text(ranks)}"
    steps = len(comparison.matrix.steps)
    excess = known[worst] - float(np.mean(list(known.values())))
    others_text = ", ".join(
        f"{role if roles.named else ranks_text(roles.ranks(role))}: {duration_text(value)}"
        for role, value in sorted(known.items())
    )
    alone = len(ranks) == 1
    return Finding(
        "undecidable" if alone else "imbalance",
        "stage_imbalance",
        0.4 if alone else min(0.95, 0.6 + (ratio - STAGE_RATIO)),
        (
            Statement(f"stage {name} works {ratio:.2f} times as long as the typical other stage", ratio, "ratio"),
            Statement(f"typical work in a step by stage: {others_text}", known[worst] / 1e6, "ms"),
        ),
        groups=(Group("stage", name, ranks),),
        alternatives=(("unknown", 0.4 if alone else 0.1),),
        affected=Affected(tuple(comparison.matrix.steps.tolist()), steps),
        enable=("the other ranks of that stage: one alone cannot be told from its stage",) if alone else (),
        waiting_ranks=tuple(rank for role in known if role != worst for rank in roles.ranks(role)),
        baseline_step_ns=max(comparison.step_ns - excess, 0.0),
        slowdown=comparison.step_ns / max(comparison.step_ns - excess, 1.0),
        lost_ns=excess * steps,
        summary=(
            f"Stage {name} has too much work: {ratio:.2f} times that of the typical stage, in every step.",
            f"Only {who(ranks)} of it was recorded: whether the stage or that rank is slow cannot be told."
            if alone
            else f"Its ranks ({ranks_text(ranks)}) are alike, so none of them is to blame; the other stages wait.",
            "Record the other ranks of the stage." if alone else "Move layers from it to the other stages.",
        ),
    )


def _least_ratio(healthy: Matrix, roles: Roles, others: list[float], *, is_sure: bool) -> float:
    """From which ratio on a stage is too long: material, and beyond what stages and ranks of a stage differ by."""
    if not is_sure:
        return _MUCH
    apart = (others[-1] - others[0]) / others[(len(others) - 1) // 2]
    guessed = _TIMED if len(others) > 1 else _LONE
    material = STAGE_RATIO if healthy.measures == COMPUTING else guessed
    return max(material, 1 + min(_APART * apart, _MUCH - 1), 1 + _BEYOND * _between(healthy, roles))


def _between(matrix: Matrix, roles: Roles) -> float:
    """How much the ranks of a stage differ for good, as a share of their work."""
    apart = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for role in roles.all:
            usual = np.nanmedian(matrix.values[:, np.isin(matrix.ranks, roles.ranks(role))], axis=0)
            usual = usual[np.isfinite(usual)]
            if len(usual) > 1 and np.median(usual) > 0:
                apart.append(usual / np.median(usual) - 1)
    return spread(np.concatenate(apart)) if apart else 0.0


def _typical(matrix: Matrix, ranks: tuple[int, ...]) -> float:
    chosen = matrix.values[:, np.isin(matrix.ranks, ranks)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(np.nanmedian(chosen)) if chosen.size else float("nan")


def sequence_imbalance(comparison: Comparison, healthy: Matrix, roles: Roles) -> Finding | None:
    """In every step some rank has more work than the others, and it is another one each time."""
    measured = [one for role in roles.all if (one := _unevenness(comparison, healthy, roles.ranks(role))) is not None]
    if not measured or any(one.is_persistent for one in measured):
        return None
    if float(np.median([one.variation for one in measured])) < VARIES or not _travels(healthy, roles):
        return None
    worst = max(measured, key=lambda one: one.ratio)
    return _uneven(comparison, worst)


def _travels(matrix: Matrix, roles: Roles) -> bool:
    """Whether what is long in one stage is long in the next, as a batch is; what scatters by itself is not.

    True where there is nothing to tell it by: a single stage, or stages with unlike numbers of ranks.
    """
    parts = [matrix.values[:, np.isin(matrix.ranks, roles.ranks(role))] for role in roles.all]
    parts = [part for part in parts if part.shape[1] == parts[0].shape[1] > 1]
    if len(parts) < 2:
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        uneven = [part - np.nanmedian(part, axis=1, keepdims=True) for part in parts]
        uneven = [np.sign(part - np.nanmedian(part, axis=0)) for part in uneven]
    alike = [np.nanmean(one * other) for one, other in pairwise(uneven)]
    return float(np.median(alike)) > _ALIKE


@dataclass(frozen=True, slots=True)
class _Unevenness:
    """How unevenly the ranks of a role work: `ratio` is busiest over median rank in the median step, `variation` the
    spread of a rank's work over its work, `top_share` in what share of steps the most frequent rank is the busiest."""

    ranks: tuple[int, ...]
    ratio: float
    variation: float
    top_share: float
    is_persistent: bool
    excess_ns: float


def _unevenness(comparison: Comparison, healthy: Matrix, ranks: tuple[int, ...]) -> _Unevenness | None:
    values = healthy.values[:, np.isin(healthy.ranks, ranks)]
    values = values[np.isfinite(values).all(axis=1)]
    if values.shape[1] < 2 or len(values) < 8:
        return None
    middle = np.median(values, axis=1)
    # What is not the whole work of a rank (how late it came) is compared as a part of the step.
    whole = middle if healthy.is_gpu_work else np.full(len(middle), comparison.step_ns)
    busiest = values.max(axis=1)
    top = np.bincount(values.argmax(axis=1), minlength=values.shape[1])
    share, chance = float(top.max() / len(values)), 1 / values.shape[1]
    # How often one of equal ranks may be the busiest by chance: its share and four standard deviations.
    often = max(0.2, chance + 4 * float(np.sqrt(chance * (1 - chance) / len(values))))
    return _Unevenness(
        ranks=ranks,
        ratio=1 + float(np.median((busiest - middle) / np.maximum(whole, 1.0))),
        variation=noise(values) / max(float(np.median(whole)), 1.0),
        top_share=share,
        is_persistent=share > often,
        excess_ns=float(np.mean(busiest - values.mean(axis=1))),
    )


def _uneven(comparison: Comparison, worst: _Unevenness) -> Finding:
    steps = len(comparison.matrix.steps)
    without_ns = max(comparison.step_ns - worst.excess_ns, comparison.step_ns * 0.05)
    return Finding(
        "imbalance",
        "sequence_imbalance",
        min(0.9, 0.5 + worst.variation * 2),
        (
            Statement(
                f"in a typical step the busiest of {len(worst.ranks)} ranks works {worst.ratio:.2f} times as long as "
                f"the median; a rank's work varies by {worst.variation:.0%} from step to step",
                worst.ratio,
                "ratio",
            ),
            Statement(
                f"it is another rank each time: the most frequent one in {worst.top_share:.0%} of the steps",
                worst.top_share,
                "share of steps",
            ),
        ),
        groups=(Group("job", "all", tuple(comparison.matrix.ranks.tolist())),),
        alternatives=(("host_jitter", 0.2), ("unknown", 0.1)),
        affected=Affected(tuple(comparison.matrix.steps.tolist()), steps),
        baseline_step_ns=without_ns,
        slowdown=comparison.step_ns / without_ns,
        lost_ns=worst.excess_ns * steps,
        summary=(
            f"Work is uneven: in a typical step the busiest rank has {worst.ratio:.2f} times the work of the median.",
            "The busiest rank changes from step to step, so no rank is to blame; all wait for the longest batch.",
            "Balance the batches by length (or the experts by load).",
        ),
    )
