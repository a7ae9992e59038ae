"""Which files were touched, from the kernel: a file that was read without a trace in the answer was read."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_ACCESS, _MODIFY, _OPEN = 0x1, 0x2, 0x20
_MOVED, _CREATE, _DELETE = 0xC0, 0x100, 0x200
CHANGED = _MODIFY | _MOVED | _CREATE | _DELETE
TOUCHED = CHANGED | _ACCESS | _OPEN
_EVENT = struct.Struct("iIII")
_WORDS = {_ACCESS: "read", _MODIFY: "changed", _OPEN: "opened", 0x40: "moved", 0x80: "moved"} | {
    _CREATE: "created",
    _DELETE: "deleted",
}


class Watch:
    """Watches folders (inotify); `touched` says what happened in them since it was last asked."""

    def __init__(self, folders: dict[Path, int]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._names = {}
        for folder, mask in folders.items():
            number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), mask)
            if number < 0:
                raise OSError(ctypes.get_errno(), str(folder))
            self._names[number] = folder.name

    def touched(self) -> list[str]:
        """`changed out/x.csv`, without repetitions."""
        found: dict[str, None] = {}
        while data := self._read():
            place = 0
            while place < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, place)
                place += _EVENT.size
                name = os.fsdecode(data[place : place + length].rstrip(b"\0"))
                place += length
                words = [word for bit, word in _WORDS.items() if mask & bit] or ["lost events in"]
                found[f"{words[0]} {self._names.get(number, '')}/{name}"] = None
        return list(found)

    def close(self) -> None:
        os.close(self._fd)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, 65536)
        except BlockingIOError:
            return b""
