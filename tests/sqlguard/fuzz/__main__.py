"""Run the fuzzer by hand."""

from __future__ import annotations

import argparse
import sys

from tests.sqlguard.fuzz.campaign import fuzz, within
from tests.sqlguard.fuzz.layers import Layer, without


def main() -> int:
    """Print what was tried and found; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sqlguard.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the statements (default 0)")
    parser.add_argument(
        "--without", type=Layer, action="append", default=[], choices=list(Layer), help="a layer to leave out"
    )
    asked = parser.parse_args()
    tally = fuzz(without(*asked.without), asked.seed, within(asked.seconds))
    print(tally)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
