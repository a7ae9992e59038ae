"""Both eras of the protocol."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["legacy", "auto"], ids=["handshake", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)
