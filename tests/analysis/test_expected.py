"""What a step would have taken: told from what the ranks that are not at fault did in it."""

from __future__ import annotations

import numpy as np
import pytest

from ingero_mcp.analysis.expected import expected_steps

STEPS = 120
AFFECTED = np.isin(np.arange(STEPS), np.arange(5, STEPS, 15))


def job(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What seven ranks did, and how long the steps took: as long as the slowest rank, and two for the transfer."""
    random = np.random.default_rng(seed)
    common = 100 + 5 * random.normal(size=STEPS)
    others = common[:, None] + random.normal(size=(STEPS, 7))
    return others, others.max(axis=1) + 2


@pytest.mark.parametrize("seed", range(5))
def test_what_the_whole_job_did_in_a_step_is_no_loss(seed: int) -> None:
    others, usual = job(seed)
    took = usual + np.where(AFFECTED, 6.0, 0.0)
    expected = expected_steps(took, AFFECTED, others)
    assert expected is not None
    lost = (took - expected)[AFFECTED].sum()
    assert lost == pytest.approx(6.0 * AFFECTED.sum(), rel=0.05)


def test_what_the_others_do_more_because_of_it_is_lost_too() -> None:
    others, usual = job(0)
    took = usual + np.where(AFFECTED, 40.0, 0.0)
    # A wait that looks like work.
    others = others + np.where(AFFECTED, 40.0, 0.0)[:, None]
    expected = expected_steps(took, AFFECTED, others)
    assert expected is not None
    assert (took - expected)[AFFECTED].sum() == pytest.approx(40.0 * AFFECTED.sum(), rel=0.1)


def test_a_wild_step_that_is_not_affected_moves_nothing() -> None:
    others, usual = job(1)
    took = usual + np.where(AFFECTED, 6.0, 0.0)
    calm = expected_steps(took, AFFECTED, others)
    took[0] += 5_000
    wild = expected_steps(took, AFFECTED, others)
    assert calm is not None
    assert wild is not None
    assert np.allclose(calm[AFFECTED], wild[AFFECTED], atol=0.5)


def test_without_what_others_did_the_usual_step_is_expected() -> None:
    _, usual = job(2)
    expected = expected_steps(usual, AFFECTED, np.zeros((STEPS, 0)))
    assert expected is not None
    assert np.ptp(expected) == 0
    assert expected[0] == pytest.approx(np.median(usual), abs=1.5)


def test_too_few_steps_tell_nothing() -> None:
    others, usual = job(3)
    assert expected_steps(usual, np.arange(STEPS) >= 3, others) is None
