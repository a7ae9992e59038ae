"""A fuzzer for the guard, with an oracle: what passes is run against bait, and must neither show nor touch any of it.

`python -m tests.sqlguard.fuzz --seconds 60 --seed 1` runs it by hand. A statement is told by its seed and number, so
every finding can be had again.
"""
