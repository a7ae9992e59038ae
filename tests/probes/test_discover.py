"""Processes are found by what they map, whatever the files are called there."""

from __future__ import annotations

import os
from pathlib import Path

from ingero_probes.discover import boot_id, inspect, scan, start_ticks

MAPS = """\
5600-5700 r-xp 00000000 fe:00 11 /usr/bin/python3.11
7f00-7f10 r--p 00000000 fe:00 42 /opt/my env/libnccl.so.2
7f10-7f20 r-xp 00001000 fe:00 42 /opt/my env/libnccl.so.2
7f20-7f30 r-xp 00001000 fe:00 43 /opt/libcudart.so.12 (deleted)
7f30-7f40 r-xp 00000000 fe:00 44 /opt/libncclient.txt
7f40-7f50 rw-p 00000000 00:00 0 [heap]
"""


def fake(proc: Path, pid: int, maps: str = MAPS, ticks: int = 500, environ: bytes = b"", seccomp: int = 0) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "maps").write_text(maps)
    (folder / "stat").write_text(f"{pid} (py) (x) S " + " ".join(["0"] * 18) + f" {ticks} 0 0\n")
    (folder / "environ").write_bytes(environ)
    (folder / "status").write_text(f"Name:\tpy\nSeccomp:\t{seccomp}\n")
    (folder / "exe").symlink_to("/usr/bin/python3.11")


def test_libraries_are_known_by_device_and_inode_and_opened_through_the_process(tmp_path: Path) -> None:
    fake(tmp_path, 100)
    found = inspect(100, tmp_path)
    assert found is not None
    assert (found.pid, found.start_ticks, found.name, found.confined) == (100, 500, "python3.11", False)
    assert [library.identity for library in found.libraries] == [("fe:00", 42), ("fe:00", 43)]
    assert [library.opened_by for library in found.libraries] == [
        tmp_path / "100" / "root" / "opt/my env/libnccl.so.2",
        tmp_path / "100" / "map_files" / "7f20-7f30",
    ]


def test_only_the_launchers_variables_leave_an_environment(tmp_path: Path) -> None:
    fake(tmp_path, 100, environ=b"RANK=5\0AWS_SECRET_ACCESS_KEY=hush\0WORLD_SIZE=8\0\xff=\xfe\0", seccomp=2)
    found = inspect(100, tmp_path)
    assert found is not None
    assert found.launch == {"RANK": "5", "WORLD_SIZE": "8"} and found.confined


def test_a_scan_finds_those_that_map_something_of_interest(tmp_path: Path) -> None:
    fake(tmp_path, 100)
    fake(tmp_path, 101, maps="5600-5700 r-xp 00000000 fe:00 11 /usr/bin/bash\n")
    fake(tmp_path, 102)
    (tmp_path / "103").mkdir()
    (tmp_path / "sys").mkdir()
    assert set(scan(proc=tmp_path)) == {100, 102}
    assert set(scan([102, 999], proc=tmp_path)) == {102}


def test_this_host_can_be_read() -> None:
    assert inspect(os.getpid()) is None or "libcudart" in Path("/proc/self/maps").read_text()
    assert start_ticks(os.getpid()) is not None and start_ticks(2**30) is None
    assert len(boot_id()) == 36
