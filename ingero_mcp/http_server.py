"""An HTTP app on its addresses: listens from construction on, answers in `serve`."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from ingero_mcp.addresses import Address, listen
from ingero_mcp.config import ServeSettings
from ingero_mcp.errors import StoreError

_GRACE_S: Final = 5


class _Uvicorn(uvicorn.Server):
    # uvicorn raises the signal again after serving, so that nothing of ours would run after it.
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Listens on `addresses` (each with the flag to name when it cannot be had). `bound` are the real ones.

    The app is given to `serve`, since it may need to know the bound addresses.
    """

    def __init__(self, settings: ServeSettings, addresses: Iterable[tuple[Address, str]]) -> None:
        self._settings = settings
        self._sockets = []
        self._server: _Uvicorn | None = None
        self.bound: list[Address] = []
        try:
            for address, flag in addresses:
                self._sockets.append(listen(address, flag))
                self.bound.append(Address(address.host, self._sockets[-1].getsockname()[1]))
        except BaseException:
            self.close()
            raise

    async def serve(self, app: ASGIApp) -> None:
        """Answer until `stop`."""
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                log_config=None,
                lifespan="on",
                timeout_graceful_shutdown=_GRACE_S,
                ssl_certfile=self._settings.tls_cert or None,
                ssl_keyfile=self._settings.tls_key or None,
                ssl_ca_certs=self._settings.client_ca or None,
                ssl_cert_reqs=ssl.CERT_REQUIRED if self._settings.client_ca else ssl.CERT_NONE,
            )
        )
        await self._server.serve(sockets=self._sockets)
        if not self._server.should_exit:
            raise StoreError("the HTTP server stopped by itself; its log says why")

    def stop(self) -> None:
        """Ask `serve` to end after the requests in flight."""
        if self._server is not None:
            self._server.should_exit = True

    def close(self) -> None:
        """Stop listening; may be called twice."""
        for listening in self._sockets:
            listening.close()
