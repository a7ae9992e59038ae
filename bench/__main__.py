"""`make bench`: every figure of one run, with its spread."""

from __future__ import annotations

from bench import ingest, queries
from bench.figure import Figure


def main() -> None:
    """Measure and print."""
    figures: list[Figure] = [*ingest.figures(), *queries.figures()]
    for figure in figures:
        print(figure)


if __name__ == "__main__":
    main()
