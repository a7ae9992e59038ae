"""A new file appears whole or not at all, and takes nothing away that it does not replace."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ingero_mcp.errors import DiskFull, StoreError
from ingero_mcp.store.new_file import new_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_raises_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "x") as new:
        new.write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_from_other_trouble(tmp_path: Path, number: int) -> None:
    with pytest.raises(DiskFull, match="x was not written: the disk is full"), new_file(tmp_path / "x"):
        raise OSError(number, "no")
    with pytest.raises(StoreError, match="was not written: ") as told, new_file(tmp_path / "x"):
        raise OSError(errno.EIO, "no")
    assert not isinstance(told.value, DiskFull)
    assert names(tmp_path) == []


def test_a_database_whose_log_could_not_be_brought_in_is_not_whole(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match="not all of it"), new_file(tmp_path / "x") as new:
        new.write_text("most of it")
        new.with_name(f"{new.name}.wal").write_text("the rest")
    assert names(tmp_path) == []


def test_a_file_that_was_made_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="made by somebody else meanwhile"), new_file(tmp_path / "x") as new:
        new.write_text("mine")
        (tmp_path / "x").write_text("theirs")
    assert (tmp_path / "x").read_text() == "theirs"


def test_where_files_cannot_have_two_names_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path, _target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with new_file(tmp_path / "x") as new:
        new.write_text("whole")
    assert (names(tmp_path), (tmp_path / "x").read_text()) == (["x"], "whole")


def test_if_it_cannot_be_put_in_place_the_old_one_keeps_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "x.wal").write_text("its log")

    def refuse(_path: Path, _target: Path) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patched, pytest.raises(StoreError), new_file(tmp_path / "x", overwrite=True) as new:
        new.write_text("new")
        patched.setattr(Path, "replace", refuse)
    assert (names(tmp_path), (tmp_path / "x.wal").read_text()) == (["x", "x.wal"], "its log")


def test_a_link_to_another_place_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "x")
    with new_file(tmp_path / "link") as new:
        new.write_text("whole")
    assert (tmp_path / "real" / "x").read_text() == "whole"
    assert names(tmp_path / "real") == ["x"]
