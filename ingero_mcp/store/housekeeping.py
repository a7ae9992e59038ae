"""What the writer does besides committing, and how it gets the memory for it from queries."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from ingero_mcp.errors import StoreBusy
from ingero_mcp.store.engine import Engine
from ingero_mcp.store.places import Places

_log = logging.getLogger(__name__)

CLEARING_S: Final = (0.3, 5.0)
"""How long queries are given to let go of their memory, at first and, stuck or not, when that was not enough.

Nearly all stop within a fraction of a second; a join on a key that all rows share does not, and holds little.
"""

SHARE_AT_COMMIT: Final = 0.9
"""What queries may hold while a commit is made: it needs a few megabytes."""

_SHARE_AT_CHECKPOINT: Final = 0.5
# The engine says it in many words: out of memory, out of space to spill, or Python had none for the rows.
_OUT_OF_MEMORY: Final = re.compile(
    r"Out of Memory|(failed to|could not) (pin|offload|allocate)|bad.?alloc|MemoryError", re.IGNORECASE
)


def is_out_of_memory(error: Exception) -> bool:
    """Whether it failed for want of memory, which queries hold."""
    return isinstance(error, MemoryError | duckdb.OutOfMemoryException) or (
        isinstance(error, duckdb.Error) and _OUT_OF_MEMORY.search(str(error)) is not None
    )


@contextmanager
def room(engine: Engine, places: Places, most_share: float) -> Iterator[None]:
    """For the time of the block no query runs, if those that ran held more than `most_share` of the memory.

    An engine that runs out of memory in the middle of a commit or a checkpoint is unusable until it is reopened.
    """
    if places.is_busy and engine.share_held_by_queries() > most_share:
        with places.cleared(CLEARING_S[0]):
            yield
    else:
        yield


def checkpoint(engine: Engine, places: Places) -> bool:
    """Bring the log into the file; says whether it was done."""
    with room(engine, places, _SHARE_AT_CHECKPOINT):
        return in_background(engine, "CHECKPOINT")


def in_background(engine: Engine, statement: str) -> bool:
    """Run what may be refused (a reader holds an old snapshot); says whether it was done."""
    try:
        with engine.cursor() as cursor:
            cursor.execute(statement)
    except duckdb.Error as error:
        engine.report(error)
        _log.debug("%s: %s", statement.split()[0], error)
        return False
    except StoreBusy:
        return False
    return True
