"""The file beside an op trace that says how the job was laid out over its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.reading import reading
from ingero_mcp.importers.text import one_line

MAX_WORLD_SIZE: Final = 1 << 20
_MAX_BYTES: Final = 1 << 16
_MAX_RUN_ID: Final = 1 << 53
_SIZES: Final = ("dp_size", "pp_size", "tp_size", "dsp_size", "vpp_size", "world_size")
_DEFAULTS: Final = {"run_id": "0", "dsp_size": "1", "vpp_size": "1"}
_EXAMPLE: Final = "trial_name: my-job, run_id: 0, dp_size: 4, pp_size: 4, tp_size: 4, world_size: 64"


@dataclass(frozen=True, slots=True)
class Layout:
    """How many ways a job was split: data (dp), pipeline (pp), tensor (tp) and sequence (dsp) parallel.

    The first four multiply to `world_size`; `vpp_size` is the number of model chunks per pipeline stage. The
    trace records one rank of each tensor-parallel group.
    """

    trial_name: str
    run_id: int
    dp_size: int
    pp_size: int
    tp_size: int
    dsp_size: int
    vpp_size: int
    world_size: int

    @property
    def cluster_id(self) -> str:
        return self.trial_name

    @property
    def job_id(self) -> str:
        return f"{self.trial_name}-run{self.run_id}"

    @property
    def replicas(self) -> int:
        """Ranks that hold the same weights and share the gradient exchange."""
        return self.dp_size * self.dsp_size

    def usual_rank(self, stage: int, dp_rank: int) -> int:
        """The recorded rank at this place when ranks are counted tensor first, then data, then pipeline."""
        return (stage * self.replicas + dp_rank) * self.tp_size


def layout_paths(trace: Path) -> tuple[Path, Path]:
    """Where the layout of a trace is looked for: meta-X.yaml (for trace-X.parquet), then trace-X.yaml."""
    return trace.with_name(f"meta-{trace.stem.removeprefix('trace-')}.yaml"), trace.with_suffix(".yaml")


def read_layout(trace: Path) -> Layout:
    """Read the layout beside `trace`; raises ImportFileError with the expected name and keys."""
    paths = layout_paths(trace)
    expected = f"a file {one_line(paths[0].name)} beside the trace, with lines such as {_EXAMPLE}"
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ImportFileError(f"{one_line(trace.name)} needs its layout: {expected}")
    with reading(path), path.open("rb") as file:
        text = file.read(_MAX_BYTES + 1)
    try:
        return _layout(_entries(text))
    except ValueError as error:
        raise ImportFileError(f"{one_line(path.name)}: {one_line(error)}; expected {expected}") from error


def _entries(text: bytes) -> dict[str, str]:
    if len(text) > _MAX_BYTES:
        raise ValueError(f"longer than {_MAX_BYTES} bytes")
    try:
        # BaseLoader makes strings of all scalars: no dates, no floats, no integers with a million digits.
        entries = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not YAML: {error}") from error
    if not isinstance(entries, dict):
        raise ValueError("not a list of 'key: value' lines")
    return {key: value for key, value in entries.items() if isinstance(key, str) and isinstance(value, str)}


def _layout(entries: Mapping[str, str]) -> Layout:
    entries = _DEFAULTS | dict(entries)
    name = entries.get("trial_name", "")
    if not name or len(name) > 128 or not name.isprintable():
        raise ValueError("trial_name must be 1 to 128 printable characters")
    sizes = {key: _integer(entries, key, 1, MAX_WORLD_SIZE) for key in _SIZES}
    layout = Layout(trial_name=name, run_id=_integer(entries, "run_id", 0, _MAX_RUN_ID), **sizes)
    product = layout.dp_size * layout.pp_size * layout.tp_size * layout.dsp_size
    if product != layout.world_size:
        raise ValueError(f"dp_size * pp_size * tp_size * dsp_size is {product}, world_size {layout.world_size}")
    return layout


def _integer(entries: Mapping[str, str], key: str, least: int, most: int) -> int:
    text = entries.get(key)
    if text is None:
        raise ValueError(f"{key} is missing")
    if not re.fullmatch(r"[0-9]{1,16}", text) or not least <= int(text) <= most:
        raise ValueError(f"{key} is {text[:40]!r}, accepted are {least} to {most}")
    return int(text)
