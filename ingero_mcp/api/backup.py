"""`POST /api/v1/backup`: a copy of the database as a download.

The copy is made beside the database: whoever asks says nothing about where. It has no name any more when it is sent, so
that nothing is left of it whatever happens. One is made at a time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ingero_mcp.api.exchange import answered, asked_of, failure
from ingero_mcp.errors import StoreBusy
from ingero_mcp.limits import MIB
from ingero_mcp.store import Store
from ingero_mcp.store.backup import require_room
from ingero_mcp.store.new_file import explained
from ingero_mcp.turns import Cancellation

_EXAMPLE: Final = "{}"
_ENDING: Final = ".backup"


def backup_endpoint(store: Store) -> Any:
    """The endpoint: {} in, a DuckDB file out, which holds everything that was committed when it was asked for."""
    making = _Making()
    _remove_left_behind(store.path)

    async def backup(request: Request) -> Response:
        try:
            await asked_of(request, _EXAMPLE)
        except ValueError as error:
            return failure(400, "bad_request", str(error))

        async def answer() -> Response:
            with making:
                cancellation = Cancellation()
                try:
                    file = await to_thread.run_sync(_copy, store, cancellation, abandon_on_cancel=True)
                except anyio.get_cancelled_exc_class():
                    cancellation.cancel()
                    raise
                return StreamingResponse(_parts(file), headers=_headers(file), media_type="application/octet-stream")

        return await answered(request, answer)

    return backup


class _Making:
    """Held while a copy is made; StoreBusy for a second one."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        if self._held:
            raise StoreBusy("a copy is being made for somebody else; ask again when that is done")
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


def _headers(file: IO[bytes]) -> dict[str, str]:
    return {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": 'attachment; filename="backup.duckdb"',
    }


async def _parts(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while part := await to_thread.run_sync(file.read, MIB):
            yield part


def _copy(store: Store, cancellation: Cancellation) -> IO[bytes]:
    """A copy, open and without a name."""
    folder = _folder(store.path)
    try:
        with explained(Path("the copy")):
            store.back_up(folder / "copy", lambda _done, _whole: cancellation.require_wanted())
            return (folder / "copy").open("rb")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(database: Path | None) -> Path:
    if database is None:
        return Path(tempfile.mkdtemp(suffix=_ENDING))
    require_room(database, database.parent)
    with explained(Path("the copy")):
        return Path(tempfile.mkdtemp(prefix=_beginning(database), suffix=_ENDING, dir=database.parent))


def _beginning(database: Path) -> str:
    return f".{database.name[:100]}."


def _remove_left_behind(database: Path | None) -> None:
    """A server that was killed could not remove its copy; it owned the database, and this one does now."""
    if database is not None:
        for folder in database.parent.iterdir():
            if folder.name.startswith(_beginning(database)) and folder.suffix == _ENDING:
                shutil.rmtree(folder, ignore_errors=True)
