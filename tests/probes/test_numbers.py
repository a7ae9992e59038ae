"""Numbers of a node's events are never given twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero_mcp.errors import ProbeError
from ingero_mcp.events import FIRST_SERVER_SEQ
from ingero_probes.numbers import EventNumbers


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    first = EventNumbers(tmp_path / "state" / "n.seq", "n")
    given = [first.take() for _ in range(3)]
    first.close()
    second = EventNumbers(tmp_path / "state" / "n.seq", "n")
    assert [second.take() for _ in range(3)] == [given[-1] + 1 + number for number in range(3)]
    second.close()
    assert given[0] < FIRST_SERVER_SEQ


def test_a_daemon_that_was_killed_leaves_a_hole_and_no_repetition(tmp_path: Path) -> None:
    killed = EventNumbers(tmp_path / "n.seq", "n")
    last = [killed.take() for _ in range(250_000)][-1]
    # What is on the disk when it is killed is what a copy of the file holds now.
    (tmp_path / "copy.seq").write_bytes((tmp_path / "n.seq").read_bytes())
    following = EventNumbers(tmp_path / "copy.seq", "n")
    assert following.take() > last
    killed.close()
    following.close()


def test_two_daemons_cannot_number_one_node(tmp_path: Path) -> None:
    first = EventNumbers(tmp_path / "n.seq", "n")
    with pytest.raises(ProbeError, match="give this one its own --node"):
        EventNumbers(tmp_path / "n.seq", "n")
    first.close()
