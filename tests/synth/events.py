"""What the tests of generated cases share: their events as rows, and as arrays of steps by ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ingero_mcp.synth.scenario import Case


def rows(case: Case) -> list[dict[str, Any]]:
    """The events of a case as dictionaries."""
    return [row for batch in case.batches() for row in batch.to_pylist()]


def columns(case: Case, *names: str) -> dict[str, Any]:
    """Columns of the events of the job that the truth is about; nulls are -1."""
    table = pa.Table.from_batches(list(case.batches()))
    job = case.recordings[0].sender.layout.job_id
    chosen = np.array(table.column("job_id").to_pylist()) == job
    found = {}
    for name in names:
        column = table.column(name)
        if pa.types.is_integer(column.type):
            column = column.fill_null(-1)
        found[name] = column.to_numpy()[chosen]
    return found
