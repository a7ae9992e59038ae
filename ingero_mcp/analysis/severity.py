"""Severity: how bad it is, of a chain of a node and of a stall of a job alike."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Severity: TypeAlias = Literal["HIGH", "MEDIUM", "LOW"]

SEVERITIES: Final[tuple[Severity, ...]] = ("HIGH", "MEDIUM", "LOW")
"""The worst first."""


def rank_of(severity: str) -> int:
    """The place of a severity in order, the worst first; one that is not known comes last."""
    known: tuple[str, ...] = SEVERITIES
    return known.index(severity) if severity in known else len(known)
