"""`make bench`: every figure of one run, with its spread."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from bench import explain, greedy, guard, ingest, queries, windows
from bench.figure import Figure


def main() -> None:
    """Measure and print."""
    sections: tuple[Iterable[Figure], ...] = (
        ingest.figures(),
        queries.figures(),
        greedy.figures(),
        guard.figures(),
        windows.figures(),
        explain.figures(),
    )
    for figure in chain.from_iterable(sections):
        print(figure, flush=True)


if __name__ == "__main__":
    main()
