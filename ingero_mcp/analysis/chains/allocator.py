"""The GPU's allocator gives memory back and asks for it again."""

from __future__ import annotations

from typing import Final

from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.chain import Line
from ingero_mcp.analysis.chains.record import Record, first_ids
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import duration_text, listed

FREES: Final = frozenset(("cudaFree", "cudaFreeAsync", "cuMemFree"))
ASKS: Final = frozenset(("cudaMalloc", "cudaMallocAsync", "cudaMallocManaged", "cuMemAlloc", "cuMemAllocManaged"))
ALLOCATIONS: Final = FREES | ASKS
_MATERIAL: Final = 0.2

ADVICE: Final = (
    "keep the allocator's cache: no torch.cuda.empty_cache() in the loop, a smaller batch, or "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)


def allocator(record: Record, trouble: Trouble) -> Cause | None:
    """The slow calls are those of the allocator; cudaFree waits until the GPU has done all it was asked for."""
    if trouble.op not in ALLOCATIONS:
        return None
    counted = [f"{count} {op}" for op, count in sorted(record.counted.items()) if op in ALLOCATIONS]
    count, longest = sum(one.count for one in trouble.slow), max(one.longest_ns for one in trouble.slow)
    ids = first_ids(event_id for one in trouble.slow for event_id in one.event_ids)
    text = f"{count} slow {trouble.op} within {duration_text(trouble.span.end_ns - trouble.span.start_ns)}, longest "
    text += f"{duration_text(longest)}; {listed(counted)} in the whole recording"
    return Cause(
        words=f"the GPU's allocator gave memory back or asked for it ({listed(counted)} in the recording)",
        strength=_MATERIAL,
        statements=(Statement(text, count, "calls", ids),),
        lines=(Line("CUDA", trouble.op, text),),
        advice=(ADVICE,),
    )
