"""Exported functions are found in ELF files, and nothing else makes the reader fail."""

from __future__ import annotations

import _ctypes
import ctypes
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero_probes.elf_symbols import read_functions
from ingero_probes.functions import SYMBOLS

LIBRARY = Path(_ctypes.__file__)


def test_an_exported_function_is_where_the_loader_puts_it() -> None:
    found = read_functions(LIBRARY, ["PyInit__ctypes", "no_such_function"])
    assert found.keys() == {"PyInit__ctypes"}
    loaded = ctypes.cast(ctypes.CDLL(str(LIBRARY)).PyInit__ctypes, ctypes.c_void_p).value
    base = min(
        int(line.split("-")[0], 16) for line in Path("/proc/self/maps").read_text().splitlines() if str(LIBRARY) in line
    )
    assert loaded == base + found["PyInit__ctypes"]


def test_imported_functions_and_plain_files_have_none() -> None:
    assert read_functions(LIBRARY, ["malloc", "PyErr_NoMemory"]) == {}
    assert read_functions(Path(__file__), SYMBOLS) == {}
    assert read_functions(Path("/no/such/file"), SYMBOLS) == {}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elf") / "broken"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_broken_file_is_only_a_file_without_symbols(scratch: Path, data: st.DataObject) -> None:
    content = bytearray(LIBRARY.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        # In the header, or in the section table at the end.
        place = data.draw(st.integers(6, 63) | st.integers(-2500, -1))
        content[place] = data.draw(st.integers(0, 255))
    scratch.write_bytes(content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))])
    assert read_functions(scratch, ["PyInit__ctypes"]).keys() <= {"PyInit__ctypes"}
