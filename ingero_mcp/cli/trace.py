"""`ingero trace`: trace the NCCL and CUDA calls of this host's processes, and send them to a server."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingero_mcp import run_file
from ingero_mcp.config import home
from ingero_mcp.errors import ConfigError
from ingero_mcp.tokens import read_token
from ingero_probes.attach import require_ebpf
from ingero_probes.daemon import Daemon, Settings, Summary
from ingero_probes.libraries import Coverage

NOT_TRACED = (
    "kernel launches and CUDA graphs, calls into the driver API, NCCL or CUDA linked statically into a program, "
    "and what the GPU itself does"
)
"""What the probes do not see, whatever they are attached to."""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """For whom to speak, whom to trace, where to send."""
    parser.add_argument("--node", default=platform.node(), help="node id (default: the host's name, %(default)s)")
    parser.add_argument("--cluster", default="unknown", help="cluster id (default %(default)s)")
    parser.add_argument("--pid", type=_pids, default=(), help="trace only these processes, comma separated")
    parser.add_argument("--duration", type=float, help="stop after so many seconds (default: when told to)")
    parser.add_argument("--otlp", help="host:port of the receiver (default: the local server's)")
    parser.add_argument("--token-file", help="file with the token (default: the local server's)")
    parser.add_argument("--json", action="store_true", help="print the start-up line and the summary as JSON")
    # For tests: two daemons on one host stand for two hosts whose clocks differ.
    parser.add_argument("--test-clock-offset-ms", type=float, default=0, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Trace until the time is up, or SIGTERM or SIGINT."""
    require_ebpf()
    with _receiver(arguments) as (address, token):
        return _trace(arguments, address, token)


def _trace(arguments: argparse.Namespace, address: str, token: str) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    for pid in arguments.pid:
        if not Path(f"/proc/{pid}").exists():
            raise ConfigError(f"there is no process {pid}; --pid takes process ids, as in --pid 4100,4101")
    daemon = Daemon(
        Settings(
            node=arguments.node,
            cluster=arguments.cluster,
            otlp_addr=address,
            token=token,
            state_folder=home(),
            pids=arguments.pid,
            clock_offset_ns=int(arguments.test_clock_offset_ms * 1e6),
        )
    )
    _announce(daemon.coverage(), address, arguments)
    if arguments.duration is not None:
        timer = threading.Timer(arguments.duration, stop.set)
        timer.daemon = True
        timer.start()
    try:
        daemon.run(stop, _warn)
    finally:
        summary = daemon.close()
    _tell(summary, arguments.json)
    return 0 if summary.unsent == 0 else 1


@contextmanager
def _receiver(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Address and token of who takes the events: the one named, the local server, or one started for this trace."""
    local = run_file.local_server()
    if not arguments.otlp and local is None:
        with _server_for_now() as address:
            yield address, ""
        return
    address = arguments.otlp or (local.otlp_addr if local else "")
    token_file = arguments.token_file or (local.token_file if local and address == local.otlp_addr else "")
    yield address, read_token(Path(token_file)) if token_file else ""


@contextmanager
def _server_for_now() -> Iterator[str]:
    """A server of our own, for as long as the trace lasts; its database stays."""
    command = [sys.executable, "-m", "ingero_mcp.cli.main", "serve", "--json"]
    # In a session of its own: Ctrl-C is for the trace, which ends the server when everything is sent.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as server:
        try:
            line = server.stdout.readline() if server.stdout else ""
            if not line:
                raise ConfigError(
                    "no local server is running, and none could be started; name one with --otlp host:4317"
                )
            started = json.loads(line)
            _warn(f"started a server for the time of this trace; its events stay in {started['db_path']}")
            yield str(started["otlp_addr"])
        finally:
            server.terminate()


def _announce(coverage: Coverage, address: str, arguments: argparse.Namespace) -> None:
    for problem in coverage.problems:
        _warn(problem)
    if arguments.json:
        started = dataclasses.asdict(coverage) | {"node": arguments.node, "otlp_addr": address}
        print(json.dumps(started | {"not_traced": NOT_TRACED}), flush=True)
        return
    if coverage.processes:
        names = ", ".join(sorted({Path(path).name for path in coverage.libraries}))
        what = f"{len(coverage.functions)} functions of {names} in {len(coverage.processes)} processes"
    else:
        what = "whoever comes (no process maps NCCL or the CUDA runtime yet)"
    missing = f"; these libraries lack {', '.join(coverage.not_found)}" if coverage.not_found else ""
    print(
        f"ingero traces {what}, as node {arguments.node}, and sends to {address}. Not traced: {NOT_TRACED}{missing}",
        flush=True,
    )


def _tell(summary: Summary, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(summary)), flush=True)
        return
    print(f"{summary.events} events, {summary.acknowledged} acknowledged, {summary.lost} lost", flush=True)
    if summary.unsent:
        print(f"ingero: {summary.unsent} events were not taken by the server: {summary.problem}", file=sys.stderr)


def _warn(problem: str) -> None:
    print(f"ingero: {problem}", file=sys.stderr, flush=True)


def _pids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))
