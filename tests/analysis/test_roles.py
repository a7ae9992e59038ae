"""Roles: named stages, else who talks to whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingero_mcp.analysis.evidence import Communicator, Evidence, Sends
from ingero_mcp.analysis.roles import find_roles
from tests.analysis.slow_job import calls, evidence, noise


def with_pipelines(pairs: list[tuple[int, int]], groups: list[tuple[int, ...]], ranks: int) -> Evidence:
    """A job whose ranks send to each other in pairs and share communicators."""
    made = evidence(calls(noise(4, ranks)))
    sender, receiver = np.array(pairs).T
    rows = made.calls.where(np.concatenate([sender, receiver]))
    peers = np.concatenate([receiver, sender])
    sends = Sends(
        replace(rows, rank=np.concatenate([sender, receiver])),
        peers,
        (np.arange(len(peers)) < len(pairs)).astype(np.int64),
    )
    comms = {str(place): Communicator(str(place), len(one), one) for place, one in enumerate(groups)}
    return replace(made, sends=sends, communicators={**made.communicators, **comms})


def test_without_anything_that_tells_them_apart_all_ranks_are_alike() -> None:
    roles = find_roles(evidence(calls(noise(4, 6))))
    assert roles.all == (0,)
    assert roles.ranks(0) == (0, 1, 2, 3, 4, 5)


def test_stages_that_events_name_are_the_roles() -> None:
    roles = find_roles(replace(evidence(calls(noise(4, 4))), stages={0: 3, 1: 3, 2: 7, 3: 7}))
    assert roles.named
    assert {role: roles.ranks(role) for role in roles.all} == {3: (0, 1), 7: (2, 3)}


def test_a_communicator_across_pipelines_joins_ranks_of_a_stage() -> None:
    # Two pipelines of three stages; the world, which holds whole pipelines, joins nobody.
    made = with_pipelines([(0, 2), (2, 4), (1, 3), (3, 5)], [(0, 1), (2, 3), (4, 5), (0, 4)], 6)
    roles = find_roles(made)
    assert not roles.named
    assert {roles.ranks(role) for role in roles.all} == {(0, 1), (2, 3), (4, 5)}
