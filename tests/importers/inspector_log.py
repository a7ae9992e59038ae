"""Logs as the NCCL Inspector plugin writes them, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORLD = "0x51c0ffee51c0ff"
BEGIN_US = 1_760_000_000_000_000


def header(rank: int = 0, nranks: int = 8, comm: str = WORLD, **more: Any) -> dict[str, Any]:
    return {"id": comm, "rank": rank, "n_ranks": nranks, "nnodes": 2} | more


def metadata(dump_us: int = BEGIN_US, host: str = "node-a", pid: int = 4242, version: str = "v4.0") -> dict[str, Any]:
    return {
        "inspector_output_format_version": version,
        "git_rev": "",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": dump_us,
        "hostname": host,
        "pid": pid,
    }


def coll_perf(sn: int = 0, coll: str = "AllReduce", exec_us: float = 400, **more: Any) -> dict[str, Any]:
    return {
        "coll": coll,
        "coll_sn": sn,
        "coll_msg_size_bytes": 1 << 20,
        "coll_exec_time_us": exec_us,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 2.6,
        "coll_busbw_gbs": 4.55,
    } | more


def p2p_perf(sn: int, p2p: str, peer: int, **more: Any) -> dict[str, Any]:
    return {
        "p2p": p2p,
        "p2p_sn": sn,
        "p2p_peer": peer,
        "p2p_msg_size_bytes": 1 << 20,
        "p2p_exec_time_us": 50,
        "p2p_timing_source": "kernel_gpu",
        "p2p_algobw_gbs": 20.9,
        "p2p_busbw_gbs": 20.9,
    } | more


def verbose(kernel_us: tuple[int, ...], enqueued_us: int, kind: str = "coll") -> dict[str, Any]:
    """What a verbose log says besides; the kernel started at `kernel_us` on the channels."""
    return {
        "event_trace_sn": {f"{kind}_start_sn": 1, f"{kind}_stop_sn": 2, "kernel_events": []},
        "event_trace_ts": {
            f"{kind}_start_ts": enqueued_us,
            f"{kind}_stop_ts": enqueued_us + 5,
            "kernel_events": [
                {"channel_id": n, "kernel_start_ts": start, "kernel_stop_ts": start + 400, "kernel_record_ts": start}
                for n, start in enumerate(kernel_us)
            ],
        },
    }


def collective(sn: int = 0, coll: str = "AllReduce", *, at: Any = None, by: Any = None, **perf: Any) -> dict[str, Any]:
    """A record of formats v4.0 to v4.2; `at` is its header, `by` its metadata."""
    return {"header": at or header(), "metadata": by or metadata(), "coll_perf": coll_perf(sn, coll, **perf)}


def p2p(sn: int, kind: str, peer: int, *, at: Any = None, by: Any = None, **perf: Any) -> dict[str, Any]:
    return {"header": at or header(), "metadata": by or metadata(), "p2p_perf": p2p_perf(sn, kind, peer, **perf)}


def marker(colls: int, p2ps: int = 0, *, at: Any = None, by: Any = None, **more: int) -> dict[str, Any]:
    """What begins a dump; from v4.3 on the records after it are without header and metadata."""
    stats = {
        "coll_records": colls,
        "coll_dropped_total": 0,
        "coll_dropped_since_last_dump": 0,
        "p2p_records": p2ps,
        "p2p_dropped_total": 0,
        "p2p_dropped_since_last_dump": 0,
    }
    return {"header": at or header(), "metadata": by or metadata(version="v4.4"), "dump_stats": stats | more}


def write(path: Path, *records: dict[str, Any] | str) -> Path:
    """Write records, or lines as they are, to a log; the name's folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [line if isinstance(line, str) else json.dumps(line, separators=(",", ":")) for line in records]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
