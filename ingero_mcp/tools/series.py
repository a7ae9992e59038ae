"""Series: what a node has several of in one metric, and which of them can be compared with each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ingero_mcp import semconv

_GPUS: Final = ("UUID", "gpu", "gpu.index")
# Devices are compared by their names: one interface of a node carries other traffic than the next.
_DEVICES: Final = ("device", "system.device", "network.interface.name", "hw.id")
_KINDS: Final = (
    semconv.OP_TYPE,
    "operation",
    "percentile",
    semconv.NCCL_OP_TYPE,
    "ingero.memcpy.direction",
    "direction",
    "network.io.direction",
    "disk.io.direction",
    "state",
    "system.memory.state",
    "system.cpu.state",
    "cpu.mode",
)
_MODELS: Final = (semconv.GPU_MODEL, "modelName")
_ATTRIBUTES: Final = (semconv.WORKLOAD_TYPE, semconv.STAGE, *_MODELS, *_GPUS, *_DEVICES, *_KINDS)
RANK: Final = "CASE WHEN source = 'health' THEN NULL ELSE rank END"
"""The rank of a sample, as SQL. The health of a node is not that of the rank which its agent was given."""

_NVIDIA: Final = re.compile(r"nvidia\d+")


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a node: `kind` is what its peers have in common with it, `name` says which it is."""

    kind: str
    name: str


def series_of(rank: int | None, gpu_uuid: str | None, said: Mapping[str, str]) -> Series:
    """The series of samples with this rank, GPU and attributes."""
    device = _first(said, _DEVICES)
    is_gpu = _NVIDIA.fullmatch(device) is not None
    gpu = gpu_uuid or _first(said, _GPUS) or (device if is_gpu else "")
    kinds = [f"{key}={said[key]}" for key in _KINDS if said.get(key)]
    kinds += [f"device={device}"] if device and not is_gpu else []
    which = [f"rank {rank}"] if rank is not None else []
    which += [f"GPU {gpu}"] if gpu else []
    return Series(" ".join(kinds), ", ".join([*which, *kinds]))


def attributes(*, with_cgroup: bool) -> tuple[str, ...]:
    """The attributes of samples that tell series and cohorts apart."""
    return (*_ATTRIBUTES, semconv.CGROUP_PATH_HASH) if with_cgroup else _ATTRIBUTES


def told(keys: Sequence[str]) -> str:
    """What a sample says for each of these attributes, as SQL: a list."""
    paths = ", ".join(f"""'$."{key}"'""" for key in keys)
    return f"json_extract_string(attrs_json, [{paths}])"


def gpu_model(said: Mapping[str, str]) -> str:
    """The model of the GPU that a sample is of, where it says it."""
    return _first(said, _MODELS)


def _first(said: Mapping[str, str], keys: Sequence[str]) -> str:
    return next((said[key] for key in keys if said.get(key)), "")
