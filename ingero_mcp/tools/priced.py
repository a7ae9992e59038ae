"""What all rows with a price have in common: their sums, and where their rates come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ingero_mcp.analysis.rates import Rate


class Priced(Protocol):
    """A row with GPU-hours (None: not known), their price, and the published rates behind it."""

    @property
    def hours(self) -> float | None: ...
    @property
    def usd(self) -> tuple[float, float] | None: ...
    @property
    def rates(self) -> tuple[Rate, ...]: ...


def totals(rows: Sequence[Priced]) -> dict[str, object]:
    """The sums over all rows, as the fields of an answer: GPU-hours, what they cost, and those without a price."""
    priced = [row.usd for row in rows if row.usd is not None]
    return {
        "gpu_hours": round(sum(row.hours or 0.0 for row in rows), 4),
        "usd_low": round(sum(low for low, _ in priced), 4) if priced else None,
        "usd_high": round(sum(high for _, high in priced), 4) if priced else None,
        "unpriced_gpu_hours": round(sum(row.hours or 0.0 for row in rows if row.usd is None), 4),
    }


def price_notes(rows: Sequence[Priced], own_rate: float | None) -> list[str]:
    """Which rates were taken, and what they are worth."""
    if own_rate is not None:
        return [f"rate: {own_rate:g} USD per GPU-hour, as given in the call"]
    notes = []
    if any(row.usd is None and row.hours is not None for row in rows):
        notes.append("where usd is NULL the rate is unknown: give gpu_model, or rate_usd_per_gpu_hour")
    used = {rate for row in rows for rate in row.rates}
    if any(rate.kind == "on demand" for rate in used):
        notes.append("list prices are an upper bound: who reserves or commits pays less (rate_usd_per_gpu_hour)")
    in_order = sorted(used, key=lambda rate: (rate.gpu, rate.provider, rate.usd_per_gpu_hour))
    notes += [
        f"rate: {rate.gpu} {rate.provider or 'market'} {rate.usd_per_gpu_hour:g} USD ({rate.kind}, "
        f"as of {rate.as_of}, {rate.source})"
        for rate in in_order
    ]
    return notes
