"""The logs beside a log: whether there are more processes than one communicator could hold."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Final

from ingero_mcp.importers.inspector.lines import MAX_LINE, parse
from ingero_mcp.importers.inspector.record import read_context

_NAME: Final = re.compile(r".+-pid[0-9]+\.log")
_NS_PER_US: Final = 1000


def outnumber(path: Path, nranks: int, first_us: int, last_us: int) -> bool:
    """Whether more than `nranks` processes wrote logs into the folder of `path` in its time.

    `first_us` and `last_us` are when the first and the last record of `path` were written. Logs of earlier and later
    runs in the same folder do not count, and logs that are not named as Inspector names them cannot.
    """
    written = (
        sibling
        for sibling in path.parent.iterdir()
        if _NAME.fullmatch(sibling.name) and sibling.is_file() and sibling.stat().st_mtime_ns >= first_us * _NS_PER_US
    )
    candidates = list(written)
    if len(candidates) <= nranks:
        return False
    of_this_run = (sibling for sibling in candidates if _begins_before(sibling, last_us))
    return len(list(islice(of_this_run, nranks + 1))) > nranks


def _begins_before(path: Path, time_us: int) -> bool:
    try:
        with path.open("rb") as file:
            return read_context(parse(file.readline(MAX_LINE))).dump_us <= time_us
    except (OSError, ValueError):
        return False
