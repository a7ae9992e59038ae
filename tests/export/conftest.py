"""The story of the demo in a file that nobody has open."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ingero_mcp.store import open_store
from ingero_mcp.synth.story import Truth
from tests.watch.live import story


@pytest.fixture(scope="package")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, made once."""
    path = tmp_path_factory.mktemp("told") / "story.duckdb"
    with open_store(path) as store:
        store.append(story(Truth(steps=28)).combine_chunks().to_batches()[0]).result(timeout=30)
    return path


@pytest.fixture
def database(told: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copyfile(told, tmp_path / "story.duckdb"))
