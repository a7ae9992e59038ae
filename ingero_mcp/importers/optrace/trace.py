"""Op traces: Parquet with one row per operation of a Megatron-style job, and its layout in YAML beside it.

The format is that of the traces published with the paper "Understanding Stragglers in Large Model Training
Using What-if Analysis": trace-X.parquet with the columns dp_rank, stage, rank, step, optype, start_ts and
duration (seconds), seq_id and, where they apply, mc and mb_id; meta-X.yaml with trial_name, run_id, dp_size,
pp_size, tp_size, dsp_size, vpp_size, world_size.

Each row becomes one event. What the trace does not say is not invented:

- Hosts: `node_id` is "unknown", as for any producer that does not name its host; `rank` tells ranks apart,
  and `local_rank` is empty. So that `id` stays unique beside other imports, `event_seq` begins at a number
  that is taken from the content.
- Time: the clock of a trace restarts with each step. Steps are laid end to end from `epoch_ns`, so times are
  right within a step, and the time between steps is not known.
- Sizes: `bytes` is empty.

Operations on the GPU are `kernel_gpu`. `gc` becomes `python.gc`, timed on the host.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pyarrow as pa

from ingero_mcp.errors import ConfigError, ImportFileError
from ingero_mcp.importers.imported import Import
from ingero_mcp.importers.optrace.events import event_batches
from ingero_mcp.importers.optrace.layout import read_layout
from ingero_mcp.importers.optrace.rows import arrange
from ingero_mcp.importers.optrace.table import MAX_ROWS, missing_columns, read_trace
from ingero_mcp.importers.reading import reading
from ingero_mcp.importers.text import one_line

KIND: Final = "op trace"
ACCEPTS: Final = "Parquet with one row per operation, and its layout meta-X.yaml beside trace-X.parquet"

DEFAULT_EPOCH_NS: Final = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp()) * 10**9
"""Where the first step is put: a fixed round date, so that importing twice gives the same events twice."""

_EPOCHS: Final = range(
    int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()) * 10**9,
    int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 10**9,
)
_MAGIC: Final = b"PAR1"
_MAX_FILE_BYTES: Final = 1 << 30
_SEQ_BITS: Final = MAX_ROWS.bit_length()


def mismatch(path: Path) -> str:
    """Why `path` is not an op trace, judged by its content; empty if it is one."""
    try:
        if not path.is_file():
            return "not a file"
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return "not a Parquet file"
            missing = missing_columns(pa.PythonFile(file))
    except (OSError, ValueError) as error:
        return one_line(error)
    return f"a Parquet file without the columns {', '.join(missing)}" if missing else ""


def detect(path: Path) -> bool:
    """Whether `path` holds an op trace; its layout is not looked for."""
    return not mismatch(path)


def read(path: Path, *, epoch_ns: int = DEFAULT_EPOCH_NS) -> Import:
    """Read and check a whole op trace; `epoch_ns` is where its first step begins, in Unix nanoseconds.

    Raises ImportFileError for a file that cannot be true or has no layout beside it, ConfigError for an epoch
    before 2020 or after 2199.
    """
    if epoch_ns not in _EPOCHS:
        raise ConfigError(f"epoch_ns is {epoch_ns}: accepted are Unix nanoseconds from 2020 to 2199")
    reason = mismatch(path)
    if reason:
        raise ImportFileError(f"{one_line(path.name)} is not an op trace: {reason}; expected {ACCEPTS}")
    layout = read_layout(path)
    data = _read_bytes(path)
    try:
        rows = arrange(read_trace(data, layout), layout, epoch_ns)
    except ValueError as error:
        raise ImportFileError(f"{one_line(path.name)}: {one_line(error, 400)}; nothing was stored") from error
    digest = blake2b(data + json.dumps(asdict(layout)).encode(), digest_size=16)
    return Import(
        kind=KIND,
        digest=digest.hexdigest(),
        rows=len(rows.table),
        ranks=rows.ranks,
        steps=rows.steps,
        world_size=layout.world_size,
        warnings=rows.warnings,
        batches=event_batches(rows, layout, _first_seq(digest.digest())),
    )


def _read_bytes(path: Path) -> bytes:
    with reading(path), path.open("rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise ImportFileError(f"{one_line(path.name)} is larger than {_MAX_FILE_BYTES} bytes")
    return data


def _first_seq(digest: bytes) -> int:
    # Below 2^51: where producers count, exact in a double, and unlikely to meet the range of another file.
    return int.from_bytes(digest) % (1 << (51 - _SEQ_BITS)) << _SEQ_BITS
