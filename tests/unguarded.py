"""`ingero` with the guard taken out: what a statement does that got past it."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ingero_mcp.cli import serve
from ingero_mcp.cli.main import main
from ingero_mcp.config import ServeSettings

_serve = serve._serve


@dataclass(frozen=True)
class Unchecked:
    """Takes the place of a checked query."""

    text: str

    @property
    def sql(self) -> str:
        """What runs: the text as it came."""
        return self.text


async def _serve_unguarded(settings: ServeSettings, as_json: bool) -> None:
    # As late as this, because the server must be the first to import DuckDB.
    from ingero_mcp.api import query
    from ingero_mcp.store import reader

    query.check = reader.check = Unchecked  # type: ignore[assignment]
    await _serve(settings, as_json)


if __name__ == "__main__":
    serve._serve = _serve_unguarded
    sys.exit(main())
