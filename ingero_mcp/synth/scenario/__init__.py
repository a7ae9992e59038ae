"""Seeded scenarios: a simulated training job, one planted incident, and the truth about it.

    from ingero_mcp.synth.scenario import generate

    case = generate("F1", seed=7, severity=5.0, view="probe")
    case.truth            # verdict, culprits, affected steps, spread, ...
    case.batches()        # Arrow batches for Store.append
    case.events()         # the same as (Resource, Span | Sample | Point), for otlp.encode

Families are F1 to F18 (`FAMILIES`), two that no rule was tuned on (`UNSEEN`), two incidents in one run (`DOUBLES`) and
what cannot be told (`UNTOLD`); severities are multiples of the job's own spread. The views of the same arguments show
the same run: `probe` (host side: calls that enqueue, synchronize calls, own work between collectives), `kernel`
(collectives timed on the GPU, nothing of the host), `optrace` (compute, collectives, sends and receives timed on the
GPU, without hosts). Seeds 0 to 999 are for tuning, those from 10,000 on for judging.
"""

from ingero_mcp.synth.scenario.case import Case
from ingero_mcp.synth.scenario.families import DOUBLES, EVERY, FAMILIES, UNSEEN, UNTOLD
from ingero_mcp.synth.scenario.generate import generate
from ingero_mcp.synth.scenario.truth import VIEWS, Fault, Group, Truth, View

__all__ = [
    "DOUBLES",
    "EVERY",
    "FAMILIES",
    "UNSEEN",
    "UNTOLD",
    "VIEWS",
    "Case",
    "Fault",
    "Group",
    "Truth",
    "View",
    "generate",
]
