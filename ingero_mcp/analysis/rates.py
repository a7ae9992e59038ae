"""What a GPU-hour costs: a table of published prices, each with its date and source, and how a GPU is looked up in it.

Pages disagree by a factor of two to five for the same chip, so an answer is a range over the rows that fit. A GPU that
no row fits is unknown: never free.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Rate:
    """A price of one GPU for one hour in US dollars, as `source` had it at `as_of`."""

    provider: str
    gpu: str
    usd_per_gpu_hour: float
    as_of: str
    source: str
    kind: Literal["on demand", "market", "spot"] = "on demand"


_INGERO: Final = "Ingero Fleet's built-in list prices"
_MERCATUS: Final = "Mercatus price survey"

RATES: Final[tuple[Rate, ...]] = (
    Rate("ec2", "H100", 12.29, "2025-05", "AWS p5.48xlarge list price, 98.32 for 8, before the cut of June 2025"),
    Rate("ec2", "H100", 6.88, "2026", "AWS p5 list price after the cut of June 2025, as quoted by Compux"),
    Rate("gcp", "H100", 11.06, "2026-05", _INGERO),
    Rate("azure", "H100", 12.29, "2026-05", _INGERO),
    Rate("lambda", "H100", 2.49, "2026-05", _INGERO),
    Rate("coreweave", "H100", 4.25, "2026-05", _INGERO),
    Rate("coreweave", "H100", 2.23, "2026", "GridStackHub price page"),
    Rate("", "H100", 1.99, "2026-05", _MERCATUS, "market"),
    Rate("", "H100", 5.00, "2026-05", _MERCATUS, "market"),
    Rate("", "H200", 2.50, "2026-05", _MERCATUS, "market"),
    Rate("", "H200", 7.00, "2026-05", _MERCATUS, "market"),
    Rate("ec2", "A100-80", 4.10, "2026-05", _INGERO),
    Rate("gcp", "A100-80", 4.12, "2026-05", _INGERO),
    Rate("azure", "A100-80", 3.40, "2026-05", _INGERO),
    Rate("lambda", "A100-80", 1.29, "2026-05", _INGERO),
    Rate("coreweave", "A100-80", 2.39, "2026-05", _INGERO),
    Rate("", "A100-80", 0.80, "2026-05", _MERCATUS, "market"),
    Rate("", "A100-80", 3.00, "2026-05", _MERCATUS, "market"),
    Rate("ec2", "A100-40", 3.27, "2026-05", _INGERO),
    Rate("ec2", "L4", 0.85, "2026-05", _INGERO),
    Rate("gcp", "L4", 0.85, "2026-05", _INGERO),
    Rate("lambda", "GH200", 2.29, "2026-05", _INGERO),
    Rate("lambda", "L40S", 1.29, "2026-05", _INGERO),
    Rate("coreweave", "L40S", 1.50, "2026-05", _INGERO),
    Rate("", "B200", 2.25, "2026-03", "Lyceum price page", "spot"),
    Rate("", "B200", 6.00, "2026-03", "Lyceum price page", "market"),
)
"""Rows without a provider are surveys of the market; they stand for every provider that has no row of its own."""

_CHIPS: Final = re.compile(r"(?<![A-Z0-9])(GH200|GB200|B200|H200|H100|A100|L40S|L4)(?![A-Z0-9])")
_MEMORY_GIB: Final = re.compile(r"(\d+)\s*GI?B")


def chip_of(model: str) -> str:
    """The chip by which the table knows a GPU: `H100` for `NVIDIA H100 80GB HBM3` and for `h100-80gb`; "" if none."""
    name = model.upper().replace("-", " ").replace("_", " ")
    found = _CHIPS.search(name)
    if not found:
        return ""
    if found[1] != "A100":
        return found[1]
    memory = _MEMORY_GIB.search(name)
    return "A100-40" if memory and memory[1] == "40" else "A100-80"


def rates_for(model: str, provider: str) -> tuple[Rate, ...]:
    """The prices that fit: those of the provider, else those of the market, else all of that chip; empty if unknown."""
    chip = chip_of(model)
    fitting = [rate for rate in RATES if rate.gpu == chip]
    for wanted in (provider.lower(), ""):
        own = [rate for rate in fitting if rate.provider == wanted]
        if own:
            return tuple(own)
    return tuple(fitting)
