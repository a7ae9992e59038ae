"""The daemon of a node: finds processes, attaches, turns records into events, sends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Event, Point, Resource, Sample
from ingero_probes import attach, confinement, discover
from ingero_probes.decode import Call, decode
from ingero_probes.exporter import Exporter
from ingero_probes.join import Job, Joiner
from ingero_probes.libraries import Coverage, Libraries
from ingero_probes.losses import Losses
from ingero_probes.numbers import EventNumbers
from ingero_probes.open_calls import OpenCalls
from ingero_probes.walltime import WallTime, monotonic_ns

_POLL_S: Final = 0.05
_SECOND_NS: Final = 1_000_000_000
_METRICS_EVERY_S: Final = 10
_LAST_SEND_S: Final = 10.0
_NO_JOB: Final = Job(None, None)
_END_OF_TIME: Final = 2**63


@dataclass(frozen=True, slots=True)
class Settings:
    """What the daemon is told: who it speaks for, where to send, which processes (none: all), where its files lie."""

    node: str
    cluster: str
    otlp_addr: str
    token: str
    state_folder: Path
    pids: Collection[int] = ()
    clock_offset_ns: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of the events."""

    events: int
    acknowledged: int
    lost: int
    unsent: int
    problem: str


class Daemon:
    """`Daemon(settings)` compiles and attaches; `run` works until told to stop; `close` sends the rest and detaches."""

    def __init__(self, settings: Settings) -> None:
        attach.require_ebpf()
        self._settings = settings
        self._numbers = EventNumbers(settings.state_folder / f"probe-{_file_name(settings.node)}.seq", settings.node)
        self._kernel = attach.Kernel(settings.pids)
        self._clock = WallTime(settings.clock_offset_ns)
        self._boot_id = discover.boot_id()
        host = int(self._boot_id.replace("-", "")[:16], 16)
        self._joiner = Joiner(discover.inspect, self._clock.unix_ns, host)
        self._libraries = Libraries(self._kernel, spare_confined=not confinement.survives(self._kernel.attach_return))
        self._exporter = Exporter(settings.otlp_addr, settings.token)
        self._resources: dict[Job, Resource] = {}
        self._processes: dict[int, discover.Process] = {}
        self._open_calls = OpenCalls()
        self._losses = Losses(self._now_ns())
        self._events = 0
        self._seconds = 0
        self._scan()

    def coverage(self) -> Coverage:
        """What is traced now."""
        return self._libraries.coverage(self._processes.values())

    def run(self, stop: threading.Event, warn: Callable[[str], None]) -> None:
        """Work until `stop` is set; `warn` is told once of each thing that goes wrong."""
        told = set(self._libraries.problems.values())
        next_second_ns = monotonic_ns()
        while not stop.wait(_POLL_S):
            self._drain()
            if monotonic_ns() < next_second_ns:
                continue
            next_second_ns = monotonic_ns() + _SECOND_NS
            self._each_second()
            problems = {*self._libraries.problems.values(), self._exporter.problem} - {""}
            for problem in sorted(problems - told):
                warn(problem)
            told |= problems

    def close(self) -> Summary:
        """Detach, send what there is, say what became of it."""
        self._drain()
        self._count_losses()
        self._kernel.close()
        for job, event in self._joiner.ready(_END_OF_TIME):
            self._send(job, event)
        unsent = self._exporter.close(_LAST_SEND_S)
        self._numbers.close()
        return Summary(self._events, self._exporter.acknowledged, self._losses.total, unsent, self._exporter.problem)

    def _drain(self) -> None:
        for raw in self._kernel.poll():
            self._joiner.join(decode(raw))
        for job, event in self._joiner.ready(monotonic_ns()):
            self._send(job, event)

    def _each_second(self) -> None:
        self._seconds += 1
        stepped_ns = self._clock.sample()
        if stepped_ns:
            self._send(_NO_JOB, Point("clock.step", self._now_ns(), {"clock.offset_ns": stepped_ns}))
        self._scan()
        self._tell_open_calls()
        self._count_losses()
        if self._seconds % _METRICS_EVERY_S == 0:
            self._send_metrics()
        self._exporter.flush()

    def _scan(self) -> None:
        found = discover.scan(self._settings.pids)
        gone = [
            pid
            for pid, process in self._processes.items()
            if pid not in found or found[pid].start_ticks != process.start_ticks
        ]
        if gone:
            # What they still did lies in the buffer.
            self._drain()
        for pid in gone:
            self._kernel.forget(pid)
            self._joiner.part(pid)
        self._processes = found
        self._libraries.cover(found.values())
        for process in found.values():
            self._joiner.meet(process)

    def _tell_open_calls(self) -> None:
        now_ns = monotonic_ns()
        in_progress = [call for raw in self._kernel.open_calls() if isinstance(call := decode(raw), Call)]
        for call in self._open_calls.due(in_progress, now_ns):
            self._send(*self._joiner.open_call(call, now_ns))

    def _count_losses(self) -> None:
        gap = self._losses.gap(self._kernel.losses(), self._exporter.lost, self._now_ns())
        if gap is not None:
            self._send(_NO_JOB, gap)

    def _send_metrics(self) -> None:
        now_ns = self._now_ns()
        totals = {"events": self._events, "lost_events": self._losses.total}
        for name, total in totals.items():
            self._send(_NO_JOB, Sample(f"ingero.probe.{name}", now_ns, total, kind="cumulative"))
        gauges = {
            "processes": len(self._processes),
            "functions": len(self._libraries.functions),
            "clock.window_ns": self._clock.last.window_ns,
        }
        for name, value in gauges.items():
            self._send(_NO_JOB, Sample(f"ingero.probe.{name}", now_ns, value))

    def _send(self, job: Job, event: Event) -> None:
        self._events += 1
        numbered = replace(event, attributes={**event.attributes, semconv.EVENT_SEQ: self._numbers.take()})
        self._exporter.add(self._resource(job), numbered)

    def _resource(self, job: Job) -> Resource:
        if job not in self._resources:
            shared: dict[str, AttributeValue] = {
                semconv.CLUSTER_ID: self._settings.cluster,
                semconv.NODE_ID: self._settings.node,
                semconv.BOOT_ID: self._boot_id,
                semconv.SERVICE_NAME: "ingero-probe",
            }
            of_job = {semconv.JOB_ID: job.job_id, semconv.WORLD_SIZE: job.world_size}
            self._resources[job] = Resource(shared | {key: value for key, value in of_job.items() if value is not None})
        return self._resources[job]

    def _now_ns(self) -> int:
        return self._clock.unix_ns(monotonic_ns())


def _file_name(node: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in node)
