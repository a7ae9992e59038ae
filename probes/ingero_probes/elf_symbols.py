"""Where a library's functions are: reads `.dynsym` of a 64-bit ELF file.

Read here, and not by BCC, which would also walk the debug information of a 473 MB libnccl. The file belongs to the
traced process and may be anything: what cannot be read as ELF has no symbols.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_ELF64_LITTLE_ENDIAN: Final = b"\x7fELF\x02\x01"
_DYNSYM: Final = 11
# A plain function, and one whose address the loader finds by calling it (IFUNC: not callable where the symbol says).
_FUNC: Final = 2
_NO_SECTION: Final = 0
_MAX_NAME: Final = 256


def read_functions(path: Path, names: Collection[str]) -> dict[str, int]:
    """The virtual addresses of those of `names` that the file exports as functions."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _functions(data, {name.encode() for name in names})
    except (OSError, ValueError, OverflowError, struct.error):
        # mmap says ValueError to an empty file; the last two are offsets outside of the file.
        return {}


def _functions(data: mmap.mmap, names: Collection[bytes]) -> dict[str, int]:
    if data[:6] != _ELF64_LITTLE_ENDIAN:
        return {}
    header = _HEADER.unpack_from(data)
    sections_at, section_size, section_count = header[6], header[11], header[12]
    if section_size != _SECTION.size:
        return {}
    sections = [_SECTION.unpack_from(data, sections_at + i * section_size) for i in range(section_count)]
    found: dict[str, int] = {}
    for section in sections:
        if section[1] == _DYNSYM and section[6] < len(sections):
            strings = sections[section[6]]
            found |= _named(data, (section[4], section[5]), (strings[4], strings[5]), names)
    return found


def _named(
    data: mmap.mmap, symbols: tuple[int, int], strings: tuple[int, int], names: Collection[bytes]
) -> dict[str, int]:
    found = {}
    symbols_at, size = symbols
    strings_at, strings_size = strings
    table = data[symbols_at : symbols_at + size - size % _SYMBOL.size]
    for name_at, info, _, section, address, _ in _SYMBOL.iter_unpack(table):
        if info & 0xF != _FUNC or section == _NO_SECTION or name_at >= strings_size:
            continue
        start = strings_at + name_at
        end = data.find(b"\0", start, start + _MAX_NAME)
        name = data[start:end] if end > 0 else b""
        if name in names:
            found[name.decode()] = address
    return found
