"""Who a process is in its job."""

from __future__ import annotations

from ingero_probes.ranks import Communicator, Place, fold, hash_of_unique_id


def comm(rank: int | None, nranks: int | None, number: int = 1) -> Communicator:
    return Communicator(number, rank, nranks, "init", 0)


def test_the_fold_is_the_one_of_ingero_agents() -> None:
    # One step by hand: splitmix64's finalizer over the seed itself.
    state = 0x9E3779B97F4A7C15
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % 2**64
    assert fold([0]) == state ^ (state >> 31)
    # The first output of the splitmix64 generator seeded with 0, as published with it.
    assert fold([0]) == 0xE220A8397B1DCDAF
    assert hash_of_unique_id(bytes(128)) == fold([0] * 16)
    assert hash_of_unique_id(bytes(127) + b"\x01") == fold([0] * 15 + [1 << 56])


def test_the_communicator_of_the_whole_job_says_the_rank() -> None:
    place = Place({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "run-1"})
    assert (place.rank, place.rank_source, place.local_rank, place.world_size) == (3, "environ", 1, 8)
    place.learn(comm(1, 2))
    assert (place.rank, place.rank_source) == (3, "environ")
    place.learn(comm(5, 8))
    assert (place.rank, place.rank_source, place.job_id) == (5, "nccl", "run-1")


def test_without_a_launcher_the_largest_communicator_has_to_do() -> None:
    place = Place({})
    assert (place.rank, place.rank_source, place.world_size, place.job_id) == (None, None, None, None)
    place.learn(comm(0, 2, 0xAB))
    place.learn(comm(None, None))
    assert (place.rank, place.rank_source, place.world_size) == (0, "largest_communicator", 2)
    place.learn(comm(3, 4, 0xCD))
    assert (place.rank, place.job_id) == (3, "comm-00000000000000cd")


def test_what_launchers_leave_open_is_not_believed() -> None:
    place = Place({"RANK": "-1", "WORLD_SIZE": "many", "TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "77"})
    assert (place.rank, place.world_size, place.job_id) == (None, None, "77")
    assert Place({"TORCHELASTIC_RUN_ID": "none"}).job_id is None
