"""Causes: why a rank is late. A table of rules, each with what speaks for it and against it, to be argued about.

A rule adds up points: for each sign its strength (0 to 1) times the points in the table. What is not recorded adds
nothing. The points are log-odds, roughly: 3 is "twenty times as likely", chosen by hand from what the signs mean and
checked on generated cases (docs/accuracy.md). `unknown` has a score of its own, which a cause has to exceed. The
probability of a cause is its share of the exponentials; the margin to the runner-up is what makes it sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import Final

from ingero_mcp.analysis.findings import Cause, Statement
from ingero_mcp.analysis.gap import Gap
from ingero_mcp.analysis.signs import SIGNS, Sign

UNKNOWN_SCORE: Final = 1.5
"""What no cause can do without: one weak sign is no explanation."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`signature` is what it looks like, `points` how signs count, `why` its sentence, `do` what to do next."""

    cause: Cause
    signature: str
    points: Mapping[str, float]
    why: str
    do: str


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "data_loader",
        "the main thread is blocked before the first launch while others read the data; every n-th batch",
        {"blocked": 2, "its host reads": 2.5, "every n steps": 0.5, "it writes": -4, "compilers start": -3,
         "stopped": -4, "steady": -0.5, "rank 0": -0.3, "collector": -3},
        "it waits for data that is not there yet",
        "look at the workers of its data loader and the disk they read from",
    ),
    Rule(
        "checkpoint_io",
        "the rank itself writes, every K-th step; often rank 0",
        {"it writes": 4, "blocked": 1, "every n steps": 0.5, "rank 0": 0.8, "its host reads": -1, "steady": -1},
        "it writes a checkpoint",
        "write checkpoints asynchronously, or to faster storage",
    ),
    Rule(
        "allocator_retry",
        "bursts of cudaFree and cudaMalloc: near the memory limit the cache is given back and asked for again",
        {"allocator": 5, "growing": 0.4},
        "its allocator gives cached GPU memory back and asks for it again",
        "free memory on that GPU with a smaller batch or expandable segments (PYTORCH_CUDA_ALLOC_CONF)",
    ),
    Rule(
        "gc_pause",
        "the thread is on a CPU and launches nothing; ranks in turn, or every n-th step",
        {"on CPU": 2.2, "collector": 4, "ranks in turn": 1, "every n steps": 0.7, "growing": 0.4, "allocator": -4,
         "compilers start": -2, "whole host": -1.5, "from the first step": -0.3, "the GPU itself": -3},
        "Python collects garbage",
        "call gc.freeze() after warm-up, and collect at steps of your choice on all ranks together",
    ),
    Rule(
        "cpu_contention",
        "the thread could run and has no CPU, by varying amounts, in most steps: others take it",
        {"waiting for a CPU": 3, "CPU taken": 1, "steady": 1.2, "every n seconds": -1.5, "programs start": -1},
        "other processes take its CPU",
        "give the ranks their own cores (cpusets, affinity), or move the other work elsewhere",
    ),
    Rule(
        "host_jitter",
        "now and then all ranks of one host at once, regular in wall time and not in steps: a timer on that host",
        {"waiting for a CPU": 2, "CPU taken": 0.5, "whole host": 0.5, "every n seconds": 0.9, "programs start": 2.5,
         "every n steps": 0.2, "steady": -2},
        "something runs on its host by the clock",
        "compare the times with cron, systemd timers and monitoring agents on that host",
    ),
    Rule(
        "compile_warmup",
        "compilers are started, for some steps in a row and then never again: a new shape, or the start",
        {"compilers start": 4, "once": 1.3, "blocked": 0.5, "steady": 0.2, "every n steps": -2, "its host reads": -1},
        "it compiles",
        "warm up with the shapes that occur, or share the compile cache between ranks",
    ),
    Rule(
        "pcie_numa",
        "one host is slower by a constant from the first step on, in launches and copies",
        {"on CPU": 1.5, "whole host": 1, "from the first step": 0.8, "steady": 0.4, "collector": -3, "allocator": -3,
         "the GPU itself": -3},
        "its host launches and copies more slowly than others",
        "compare PCIe width, NUMA placement and BIOS settings with a healthy host",
    ),
    Rule(
        "gpu_throttle",
        "the GPU's own computing is longer by one factor, in all steps; clocks are down",
        {"GPU throttled": 5, "the GPU itself": 2.5, "steady": 0.7, "on CPU": -2, "blocked": -2,
         "waiting for a CPU": -2},
        "its GPU computes more slowly than the others",
        "look at its clocks, temperature, power limit and throttle reasons",
    ),
    Rule(
        "host_hang",
        "the process does not run at all though nobody takes its CPU: stopped by a signal, a debugger, a freezer",
        {"stopped": 5},
        "its process was stopped",
        "look for who sends SIGSTOP: a debugger, a batch system that suspends, a cgroup freezer",
    ),
)  # fmt: skip
"""What can make a rank late, and how it shows."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A cause with its probability; `statements` are the signs that speak for it, the strongest first."""

    cause: Cause
    probability: float
    statements: tuple[Statement, ...] = ()
    why: str = ""
    do: str = ""


def explain(gap: Gap) -> tuple[Explained, ...]:
    """The causes in order of their probability, with `unknown` among them."""
    signs = {name: read(gap) for name, read in SIGNS.items()}
    scores = {rule.cause: _score(rule, signs) for rule in RULES} | {"unknown": UNKNOWN_SCORE}
    most = max(scores.values())
    weights = {cause: exp(score - most) for cause, score in scores.items()}
    whole = sum(weights.values())
    found = [Explained("unknown", weights["unknown"] / whole)]
    found += [
        Explained(rule.cause, weights[rule.cause] / whole, _statements(rule, signs), rule.why, rule.do)
        for rule in RULES
    ]
    return tuple(sorted(found, key=lambda one: -one.probability))


def _score(rule: Rule, signs: Mapping[str, Sign | None]) -> float:
    return sum(points * sign.strength for name, points in rule.points.items() if (sign := signs[name]) is not None)


def _statements(rule: Rule, signs: Mapping[str, Sign | None]) -> tuple[Statement, ...]:
    """The sentences of the signs that count for the rule."""
    counted = [
        (points * sign.strength, sign.statement)
        for name, points in rule.points.items()
        if points > 0 and (sign := signs[name]) is not None and sign.statement is not None
    ]
    return tuple(statement for count, statement in sorted(counted, key=lambda one: -one[0]) if count > 0.3)
