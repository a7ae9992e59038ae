"""One generated case with what each judge says of it."""

from __future__ import annotations

from dataclasses import dataclass

from bench.score import Answer
from bench.suite import Spec
from ingero_mcp.synth.scenario import Truth


@dataclass(frozen=True, slots=True)
class Scored:
    """One case: what is planted, what each judge says, how long the product took to answer."""

    spec: Spec
    truth: Truth
    answers: dict[str, Answer]
    seconds: float
    crash: str = ""
    """The traceback, where there was no answer."""
