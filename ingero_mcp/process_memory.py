"""How much memory this process may allocate, held by the operating system: the last line, behind the guard and DuckDB.

DuckDB's own limit does not see the values of one step (`repeat('x', 4000000000)`, 2,048 long texts at once). Past this
limit such a step fails with an error of its own query, and the process lives.
"""

from __future__ import annotations

import os
import resource
from typing import Final

from ingero_mcp.limits import MIB

BESIDES_DUCKDB_BYTES: Final = 2048 * MIB
"""What Python, gRPC and Arrow need. Measured: 200 MiB in use, of 1.4 GiB that they allocate and never touch."""

_PER_THREAD_BYTES: Final = 16 * MIB


def least_bytes(duckdb_bytes: int) -> int:
    """The lowest limit under which a server with this much memory for DuckDB can work."""
    return duckdb_bytes + BESIDES_DUCKDB_BYTES + (os.cpu_count() or 1) * _PER_THREAD_BYTES


def give_freed_memory_back() -> None:
    """Make DuckDB return address space that it no longer uses; to be called before `duckdb` is first imported.

    Else its allocator keeps, after one greedy query, all that the limit allows, and the next allocation of anybody
    else (gRPC ends the process then) fails. Measured: 2.5 GiB kept without this, 0.4 GiB with it.
    """
    os.putenv("DUCKDB_JE_MALLOC_CONF", "retain:false")


def bound(most_bytes: int) -> None:
    """Let this process allocate at most `most_bytes` from now on; a lower limit that it was given stays.

    RLIMIT_DATA counts private writable memory. RLIMIT_AS would also count what is only reserved, and a limit of the
    cgroup would end the process.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    given = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([most_bytes, *given]), hard))
