"""What the watch has done, for /metrics: a watch that cannot look must not pass for one that finds nothing."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge


@dataclass(frozen=True, slots=True)
class Meters:
    """Counters and gauges under `ingero_watch_`."""

    looks: Counter
    failures: Counter
    told: Counter
    open: Gauge
    seconds: Counter
    last: Gauge

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Meters:
        """The meters, made in `registry`."""
        name = "ingero_watch"
        return cls(
            looks=Counter(f"{name}_looks", "rounds of looks at the jobs that run", registry=registry),
            failures=Counter(
                f"{name}_failures", "jobs, or whole rounds, that could not be looked at", registry=registry
            ),
            told=Counter(f"{name}_notices", "what was told", ("what",), registry=registry),
            open=Gauge(f"{name}_open", "stalls that go on", ("severity",), registry=registry),
            seconds=Counter(f"{name}_seconds", "time spent looking", registry=registry),
            last=Gauge(
                f"{name}_last_look_timestamp_seconds", "when the last round ended, Unix time", registry=registry
            ),
        )
