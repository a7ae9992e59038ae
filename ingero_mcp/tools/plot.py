"""A plot in text: how much longer than its peers each rank worked, ranks by steps."""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np

from ingero_mcp.analysis.verdict import Diagnosis
from ingero_mcp.analysis.words import duration_text

_WIDTH: Final = 60
_MOST_RANKS: Final = 32
_SHADES: Final = " .:-=+*#%@"


def plot(diagnosis: Diagnosis) -> list[str] | None:
    """One line per rank (those with most excess, if there are many), one mark per bin of steps; None without data."""
    comparison = diagnosis.comparison
    if comparison is None or not comparison.excess_ns.size:
        return None
    excess, ranks, steps = comparison.excess_ns, comparison.matrix.ranks, comparison.matrix.steps
    bins = np.array_split(np.arange(len(steps)), min(_WIDTH, len(steps)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        most = np.array([np.nanmax(excess[some], axis=0) for some in bins])
    most = np.nan_to_num(most, nan=0.0)
    top = float(most.max(initial=0.0))
    if top <= 0:
        return None
    shown = sorted(np.argsort(-most.max(axis=0), kind="stable")[:_MOST_RANKS].tolist())
    shade = np.clip(most / top * (len(_SHADES) - 1), 0, len(_SHADES) - 1).astype(int)
    lines = [f"steps {int(steps[0])} to {int(steps[-1])}, darkest: {duration_text(top)} above peers"]
    lines += [f"rank {int(ranks[place]):>5} |{''.join(_SHADES[mark] for mark in shade[:, place])}|" for place in shown]
    return lines
