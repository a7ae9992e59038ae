"""The process in which statements run: fenced by the kernel, and expendable.

Started by `Runner`; speaks over an inherited socket: a statement comes, what became of it goes back.
"""

from __future__ import annotations

import os
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from tests.sqlguard.fuzz.bait import VARIABLE, lay
from tests.sqlguard.fuzz.layers import Layer
from tests.sqlguard.fuzz.oracle import Examined, Fault, Kind, Oracle
from tests.sqlguard.fuzz.weaken import leave_out

_MEMORY_BYTES = 6 << 30
_FILE_BYTES = 256 << 20


def main() -> None:
    """Answer until the other side hangs up."""
    number, folder, *names = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    on = frozenset(map(Layer, names))
    leave_out(on)
    bait = lay(Path(folder), os.environ[VARIABLE])
    os.chdir(bait.folder)
    oracle = Oracle(bait, on)
    with Connection(int(number)) as parent:
        parent.send(None)
        while True:
            try:
                sql = parent.recv()
            except EOFError:
                return
            try:
                parent.send(oracle.examine(sql))
            except Exception as error:
                parent.send(Examined(True, faults=(Fault(Kind.FAULT, f"{type(error).__name__}: {error}"),)))


if __name__ == "__main__":
    main()
