"""What an export costs: five million events as a timeline, as Parquet and as CSV; time, bytes, and resident memory.

`python -m bench.export [EVENTS]`: each format in a process of its own, whose largest resident memory is the figure.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from bench import large
from bench.figure import seconds
from ingero_mcp.exported.asked import FORMATS
from ingero_mcp.store.schema import ROWS
from tests.processes import INGERO

EVENTS = 5_000_000


def main(events: int) -> None:
    """Make the database, export it in each format, print."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "large.duckdb"
        large.make(database)
        with duckdb.connect(str(database)) as connection:
            connection.execute(f"DELETE FROM {ROWS} WHERE event_seq >= {events}")
            connection.execute("CHECKPOINT")
        print(f"{events:,} events, {database.stat().st_size / 1e6:.0f} MB")
        for form in FORMATS:
            output = Path(folder) / f"out.{form}"
            spent_s, peak_mib = measured("export", "--format", form, "-o", str(output), "-d", str(database))
            size_mb = output.stat().st_size / 1e6
            print(f"{form:9} {spent_s:6.1f} s  {size_mb:7.0f} MB  {peak_mib:5.0f} MiB resident at most", flush=True)
            output.unlink()


def measured(*arguments: str) -> tuple[float, float]:
    """How long a command takes, and its largest resident memory in MiB."""
    peak_mib = 0.0

    def run() -> None:
        nonlocal peak_mib
        with subprocess.Popen([*INGERO, *arguments], stdout=subprocess.DEVNULL) as process:
            # Not the rusage of a child: that begins with what this process had when it was forked.
            while process.poll() is None:
                peak_mib = max(peak_mib, _peak_mib(process.pid))
                time.sleep(0.1)
        assert process.returncode == 0

    return seconds(run), peak_mib


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), default=0.0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS)
