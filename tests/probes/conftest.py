"""The kernel tests need root, BCC, headers and tracefs: elsewhere they skip, or fail if they must run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingero_mcp.errors import ProbeError
from ingero_probes.attach import require_ebpf
from tests.standin.build import Standin, build, why_not


def _why_no_ebpf() -> str | None:
    try:
        require_ebpf()
    except ProbeError as error:
        return str(error)
    return why_not()


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    """The stand-in libraries, as files of this session's own: nobody else's probes are on them."""
    reason = _why_no_ebpf()
    if reason is not None and os.environ.get("INGERO_REQUIRE_EBPF") == "1":
        pytest.fail(f"INGERO_REQUIRE_EBPF=1, but {reason}; scripts/ebpf-setup.sh installs what is needed")
    if reason is not None:
        pytest.skip(reason)
    folder: Path = tmp_path_factory.mktemp("standin")
    return build(folder)
