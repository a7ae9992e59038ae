"""`ingero stress`: send generated events over OTLP/gRPC and print what was sent."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from ingero_mcp import run_file
from ingero_mcp.clock import monotonic_s, now_ns
from ingero_mcp.errors import ConfigError
from ingero_mcp.events import Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.sender import Sender
from ingero_mcp.synth.stress import Planted, StressPlan
from ingero_mcp.tokens import read_token

_BATCH = 200
_PATIENCE_S = 5.0


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Where to send, and what."""
    parser.add_argument("--otlp", help="host:port of the receiver (default: the local server's)")
    parser.add_argument("--token-file", help="file with the token (default: the local server's)")
    parser.add_argument("--cluster", default="stress", help="cluster id (default %(default)s)")
    parser.add_argument("--node-id", default="stress-node", help="node id (default %(default)s)")
    parser.add_argument("--events", type=_count, default=1000, help="how many (default %(default)s)")
    parser.add_argument(
        "--chain-every", type=_count, default=25, help="a causal chain every N-th (default %(default)s)"
    )
    parser.add_argument("--low-every", type=_count, default=100, help="a low score every N-th (default %(default)s)")
    parser.add_argument("--rate", type=_rate, default=0, help="events per second; 0: as fast as it goes (default)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the values (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Send, then say what was sent and acknowledged."""
    address, token = _receiver(arguments)
    interval_ns = int(1e9 / arguments.rate) if arguments.rate > 0 else 1_000_000
    start_ns = now_ns() if arguments.rate > 0 else now_ns() - arguments.events * interval_ns
    plan = StressPlan(
        cluster_id=arguments.cluster,
        node_id=arguments.node_id,
        events=arguments.events,
        start_ns=start_ns,
        chain_every=arguments.chain_every,
        low_every=arguments.low_every,
        seed=arguments.seed,
        interval_ns=interval_ns,
        # Microseconds since 1970: a second run of the same node goes on above the first, and stays below 2^52.
        first_seq=start_ns // 1000,
    )
    began_s = monotonic_s()
    with Sender(address, token, patience_s=_PATIENCE_S) as sender:
        planted = _send(plan, sender, arguments.rate)
    elapsed_s = monotonic_s() - began_s
    sent = {"cluster_id": plan.cluster_id, "node_id": plan.node_id, **asdict(planted), "seconds": round(elapsed_s, 3)}
    if arguments.json:
        print(json.dumps(sent))
    else:
        print(
            f"{plan.cluster_id}/{plan.node_id}: {planted.events} events acknowledged in {elapsed_s:.2f} s, "
            f"{planted.chains} causal chains, {planted.low} low scores"
        )
    return 0


def _send(plan: StressPlan, sender: Sender, rate: float) -> Planted:
    planted = Planted()
    began_s = monotonic_s()
    size = min(_BATCH, max(1, int(rate / 10))) if rate > 0 else _BATCH
    for batch in _batches(plan.samples(), size):
        if rate > 0:
            time.sleep(max(0.0, began_s + planted.events / rate - monotonic_s()))
        sender.send("metrics", encode_samples(plan.resource(), batch))
        for sample in batch:
            planted = planted.plus(sample)
    return planted


def _batches(samples: Iterable[Sample], size: int) -> Iterator[list[Sample]]:
    iterator = iter(samples)
    while batch := list(islice(iterator, size)):
        yield batch


def _receiver(arguments: argparse.Namespace) -> tuple[str, str]:
    local = run_file.local_server()
    if not arguments.otlp and local is None:
        raise ConfigError("no local server is running; start one with ingero serve, or name one with --otlp host:4317")
    if local is not None and local.url.startswith("https://") and arguments.otlp in (None, local.otlp_addr):
        raise ConfigError("the local server wants TLS, which ingero stress does not speak yet; start one without TLS")
    address = arguments.otlp or (local.otlp_addr if local else "")
    token_file = arguments.token_file or (local.token_file if local and address == local.otlp_addr else "")
    return address, read_token(Path(token_file)) if token_file else ""


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1000000")
    return rate


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 upward")
    return int(text)
