"""Scrapes of DLRover's xpu_timer: what its daemon answers on /metrics, saved to a file.

Each sample of a gauge XPU_TIMER_... becomes one event: XPU_TIMER_COMMON_HANG (1: the rank hangs) is
`xpu_timer.hang`, XPU_TIMER_MM_KERNEL_AVG_LATENCY is `xpu_timer.mm_kernel_avg_latency`, and so on; latencies are in
microseconds. What the daemon says about itself (exposer_...) is left out.

- Names: `rank`, `local_rank`, `pod_name` (the node) and `job_name` have columns, other labels stay attributes.
  The number of ranks on a node is not the size of the job, so `world_size` is empty.
- Time: a scrape has none. Lines that end with a timestamp use it; the others get the time at which the file was last
  written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.reading import reading
from ingero_mcp.importers.text import one_line
from ingero_mcp.importers.xpu_timer.events import RANK, WORLD_SIZE, event_batches, whole_number
from ingero_mcp.importers.xpu_timer.samples import MAX_SAMPLES, PREFIX, Scrape, is_sample, read_scrape

KIND: Final = "xpu_timer scrape"
ACCEPTS: Final = "Prometheus text of xpu_timer"

MAX_BYTES: Final = 8 << 20

_SEQ_BITS: Final = MAX_SAMPLES.bit_length()
_OURS: Final = re.compile(rb"^(?:# TYPE )?" + PREFIX.encode() + rb"[A-Z]", re.MULTILINE)
_DESCRIPTION: Final = re.compile(r"# (?:HELP|TYPE) \w")
_EARLIEST_NS, _LATEST_NS = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 10**9 for year in (2020, 2200))
_NO_TIME_NS: Final = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp()) * 10**9


def mismatch(path: Path) -> str:
    """Why `path` is not a scrape of xpu_timer, judged by its content; empty if it is one, sound or not."""
    try:
        if not path.is_file():
            return "not a file"
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except OSError as error:
        return one_line(error)
    if not _OURS.search(data):
        return f"no {PREFIX} lines"
    first = data.lstrip()[:4096].split(b"\n")[0].decode(errors="replace")
    return "" if _DESCRIPTION.match(first) or is_sample(first) else "its first line is not Prometheus text"


def read(path: Path, names: Names | None = None) -> Import:
    """Read and check a whole scrape; `names` are for what its labels do not say.

    Raises ImportFileError for a file that is too large or is not Prometheus text throughout.
    """
    data, written_ns = _read_bytes(path)
    try:
        scrape = read_scrape(data)
    except ValueError as error:
        raise ImportFileError(f"{one_line(path.name)}: {one_line(error, 400)}; nothing was stored") from error
    digest = blake2b(data, digest_size=16)
    time_ns = written_ns if _EARLIEST_NS <= written_ns < _LATEST_NS else _NO_TIME_NS
    sizes = {whole_number(sample.labels, WORLD_SIZE) for sample in scrape.samples} - {None}
    return Import(
        kind=KIND,
        digest=digest.hexdigest(),
        rows=len(scrape.samples),
        ranks=len({whole_number(sample.labels, RANK) for sample in scrape.samples} - {None}),
        steps=0,
        world_size=sizes.pop() if len(sizes) == 1 else None,
        warnings=tuple(_warnings(scrape, time_ns)),
        batches=event_batches(scrape.samples, names or Names(), time_ns, _first_seq(digest.digest())),
    )


def _read_bytes(path: Path) -> tuple[bytes, int]:
    """The content, and when it was last written in Unix nanoseconds."""
    with reading(path), path.open("rb") as file:
        data, written_ns = file.read(MAX_BYTES + 1), os.fstat(file.fileno()).st_mtime_ns
    if len(data) > MAX_BYTES:
        raise ImportFileError(f"{one_line(path.name)} is larger than {MAX_BYTES} bytes, too large for a scrape")
    return data, written_ns


def _warnings(scrape: Scrape, time_ns: int) -> Iterator[str]:
    timeless = sum(sample.time_ns is None for sample in scrape.samples)
    if timeless:
        when = datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
        whose = "a fixed date, as that of the file cannot be" if time_ns == _NO_TIME_NS else "when the file was written"
        yield f"{timeless} samples do not say their time; they are put at {when} UTC, {whose}"
    if scrape.others:
        yield f"{scrape.others} samples of other metrics than {PREFIX}... were left out"
    if scrape.repeated:
        yield (
            f"{scrape.repeated} samples repeat one with the same labels: save each scrape to its own file, or their "
            "times cannot be told apart"
        )
    if scrape.lost:
        yield "the last line is cut off and was left out"
    elif scrape.cut:
        yield "the last line has no end: its value may be cut off"


def _first_seq(digest: bytes) -> int:
    # Below 2^51: where producers count, exact in a double, and unlikely to meet the range of another file.
    return int.from_bytes(digest) % (1 << (51 - _SEQ_BITS)) << _SEQ_BITS
