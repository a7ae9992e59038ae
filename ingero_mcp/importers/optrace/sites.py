"""What an operation of an op trace is: which event it becomes, and over which communicator it runs.

All of it follows from the operation's name and from the place of its rank in the layout, so it is worked out
once per (rank, operation) and not once per row. The groups are those of Megatron-LM:

    dp         the replicas of one stage: gradients out (reduce-scatter), weights back (all-gather)
    embedding  first and last stage of one replica, which share the embedding weights
    tp         the tensor-parallel group, of which the trace records one member
    pp         the stages of one replica: activations forward, gradients backward
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

from ingero_mcp import semconv
from ingero_mcp.importers.optrace.layout import Layout

Group = Literal["dp", "embedding", "tp", "pp"]


@dataclass(frozen=True, slots=True)
class Operation:
    """How operations of one name are stored.

    `group` is None for work without a communicator. A send and the receive that belongs to it carry the same
    `match` name; `peer` is the distance, in stages, to the other end.
    """

    event: str
    has_micro_batch: bool = False
    group: Group | None = None
    match: str = ""
    peer: int = 0
    timing_source: str = semconv.KERNEL_GPU


OPERATIONS: Final[dict[str, Operation]] = {
    "forward-compute": Operation("compute", has_micro_batch=True),
    "backward-compute": Operation("compute", has_micro_batch=True),
    # Clipping first sums the gradient norm over all ranks: its duration holds the wait for the last of them.
    "optimizer-clip-main-grad": Operation("compute"),
    "optimizer": Operation("compute"),
    "gc": Operation("python.gc", timing_source=semconv.HOST_API),
    "params-all-gather": Operation("ncclAllGather", group="dp"),
    "grads-reduce-scatter": Operation("ncclReduceScatter", group="dp"),
    "separate-grads-all-reduce": Operation("ncclAllReduce", group="dp"),
    "embedding-grads-all-reduce": Operation("ncclAllReduce", group="embedding"),
    "layernorm-grads-all-reduce": Operation("ncclAllReduce", group="tp"),
    "forward-send": Operation("ncclSend", group="pp", match="forward", peer=1),
    "forward-recv": Operation("ncclRecv", group="pp", match="forward", peer=-1),
    "backward-send": Operation("ncclSend", group="pp", match="backward", peer=-1),
    "backward-recv": Operation("ncclRecv", group="pp", match="backward", peer=1),
}


@dataclass(frozen=True, slots=True)
class Site:
    """One kind of operation on one rank: everything about its rows that does not change from row to row.

    `channel` names the sequence in which its operations are counted: the communicator, for sends and receives
    with source and destination; empty without a communicator. `attrs` is a JSON object.
    """

    operation: Operation
    attrs: str
    match: str = ""
    channel: str = ""
    comm_id: str | None = None
    nranks: int | None = None


def site_at(layout: Layout, stage: int, dp_rank: int, optype: str, tp_rank: int | None) -> Site:
    """The site of `optype` at a place in the layout; `tp_rank` is None where it cannot be known.

    Raises ValueError for an operation that no rank at this place takes part in.
    """
    # The name of an operation we do not know is kept, apart from the names that mean something to us.
    operation = OPERATIONS.get(optype, Operation(f"op.{optype}"))
    attrs: dict[str, str | int] = {
        semconv.OP_TYPE: optype,
        semconv.STAGE: stage,
        semconv.DP_RANK: dp_rank,
    }
    if operation.group is None:
        return Site(operation, _json(attrs))
    if operation.group == "embedding" and stage not in (0, layout.pp_size - 1):
        raise ValueError(f"{optype} on stage {stage}: only the first and the last stage hold the embedding")
    comm_id = _comm_id(layout, operation.group, stage, dp_rank)
    own = _rank_in_group(layout, operation.group, stage, dp_rank, tp_rank)
    channel = comm_id
    if own is not None:
        attrs[semconv.NCCL_RANK] = own
    if operation.peer:
        # A pipeline with several model chunks per stage goes around: the last stage sends to the first.
        peer = (stage + operation.peer) % layout.pp_size
        attrs[semconv.NCCL_PEER_RANK] = peer
        source, destination = (stage, peer) if operation.event == "ncclSend" else (peer, stage)
        channel = f"{comm_id} {source} {destination}"
    nranks = _group_size(layout, operation.group)
    return Site(operation, _json(attrs), operation.match or optype, channel, comm_id, nranks)


def _json(attrs: dict[str, str | int]) -> str:
    return json.dumps(attrs, separators=(",", ":"))


def _comm_id(layout: Layout, group: Group, stage: int, dp_rank: int) -> str:
    # The place of a group in the layout fixes its members, recorded or not: it is hashed in their stead.
    place: dict[Group, list[int]] = {
        "dp": [stage],
        "embedding": [dp_rank],
        "tp": [stage, dp_rank],
        "pp": [dp_rank],
    }
    sizes = [layout.dp_size, layout.dsp_size, layout.pp_size, layout.tp_size]
    text = json.dumps([layout.trial_name, layout.run_id, sizes, group, place[group]])
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _group_size(layout: Layout, group: Group) -> int:
    sizes: dict[Group, int] = {
        "dp": layout.replicas,
        "embedding": min(layout.pp_size, 2),
        "tp": layout.tp_size,
        "pp": layout.pp_size,
    }
    return sizes[group]


def _rank_in_group(layout: Layout, group: Group, stage: int, dp_rank: int, tp_rank: int | None) -> int | None:
    ranks: dict[Group, int | None] = {
        # With sequence parallelism it is not in the trace how the two factors of the group are ordered.
        "dp": dp_rank if layout.dsp_size == 1 else None,
        "embedding": 0 if stage == 0 else 1,
        "tp": tp_rank,
        "pp": stage,
    }
    return ranks[group]
