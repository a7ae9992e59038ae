"""`ingero serve`, assembled: store, OTLP receiver, MCP and HTTP, and the order in which they start and stop."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import uvicorn
from anyio import to_thread
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from ingero_mcp import mcp_server, run_file
from ingero_mcp.addresses import Address, listen, parse_address
from ingero_mcp.config import ServeSettings
from ingero_mcp.errors import ConfigError
from ingero_mcp.http_app import http_app
from ingero_mcp.limits import MIB
from ingero_mcp.receiver.ingest import Counters, Ingest
from ingero_mcp.receiver.otlp_grpc import GrpcReceiver, GrpcSettings
from ingero_mcp.receiver.tokens import Tokens, read_token
from ingero_mcp.run_file import RunningServer
from ingero_mcp.store import Store, open_store

_GRACE_S: Final = 5.0
_TOKEN_NAME: Final = "default"


class _Uvicorn(uvicorn.Server):
    # uvicorn raises the signal again after serving, so that nothing of ours would run after it.
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True)
class Started:
    """A server that answers: where, and what its operator should know."""

    server: RunningServer
    notes: tuple[str, ...]


class Server:
    """One server: listens from construction on, answers in `serve`, which closes everything at its end.

    Nothing is open, and nothing was changed, when the constructor raises. A server that is not `public` is not
    found by other commands of this user.
    """

    def __init__(self, settings: ServeSettings, *, public: bool = True) -> None:
        self._public = public
        tls = _tls_files(settings)
        token = _token(settings)
        addresses = _addresses(settings)
        notes = _exposure(settings, [*addresses, parse_address(settings.otlp_addr, "--otlp-addr")], bool(token))
        path = Path(settings.db_path).expanduser()
        if path == Path(ServeSettings().db_path).expanduser():
            path.parent.mkdir(parents=True, exist_ok=True)
        tokens = Tokens({_TOKEN_NAME: token} if token else {})
        registry = CollectorRegistry()
        self._sockets: list[socket.socket] = []
        self._store = open_store(path, limits=settings.limits())
        try:
            mcp = mcp_server.build(self._store, tool_names=settings.tool_names)
            _listen_all(addresses, self._sockets)
            app = http_app(self._store, mcp, tokens, registry, _hosts(settings, self._sockets))
            self._http = _Uvicorn(_uvicorn_config(settings, app))
            ingest = Ingest(self._store, Counters.register(registry))
            pem = _pem(settings) if tls else None
            self._receiver = GrpcReceiver(
                ingest, tokens, GrpcSettings(settings.otlp_addr, settings.max_message_mib * MIB, pem)
            )
        except BaseException:
            self._close_sockets()
            self._store.close()
            raise
        self.started = Started(self._describe(settings, addresses[0], secure=tls), notes)

    async def serve(self, until: Callable[[], Awaitable[object]]) -> None:
        """Answer until `until()` returns; then stop receiving, commit what was accepted, stop answering."""
        self._store.announce(self.started.server.url, self.started.server.token_file)
        if self._public:
            run_file.publish(self.started.server)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._answer, tasks.cancel_scope)
                await until()
                await to_thread.run_sync(self._stop_receiving)
                self._http.should_exit = True
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._close)

    @property
    def store(self) -> Store:
        """The open store, for what runs inside the same process."""
        return self._store

    async def _answer(self, server: anyio.CancelScope) -> None:
        await self._http.serve(sockets=self._sockets)
        server.cancel()

    def _stop_receiving(self) -> None:
        self._receiver.stop(_GRACE_S)
        self._store.stop_writing()

    def _close(self) -> None:
        self._stop_receiving()
        self._store.close()
        if self._public:
            run_file.withdraw(self.started.server)
        self._close_sockets()

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()

    def _describe(self, settings: ServeSettings, http: Address, secure: bool) -> RunningServer:
        port = self._sockets[0].getsockname()[1]
        otlp = parse_address(settings.otlp_addr, "--otlp-addr")
        return RunningServer(
            pid=os.getpid(),
            url=f"{'https' if secure else 'http'}://{Address(http.host, port)}",
            otlp_addr=str(Address(otlp.host, self._receiver.port)),
            token_file=str(Path(settings.auth_token_file).resolve()) if settings.auth_token_file else "",
            db_path=str(self._store.path),
        )


def _addresses(settings: ServeSettings) -> list[Address]:
    named = (
        (settings.http_addr, "--http-addr"),
        (settings.mcp_addr, "--mcp-addr"),
        (settings.health_addr, "--health-addr"),
    )
    return [parse_address(text, flag) for text, flag in named if text]


def _listen_all(addresses: list[Address], sockets: list[socket.socket]) -> None:
    for address, flag in zip(addresses, ("--http-addr", "--mcp-addr", "--health-addr"), strict=False):
        sockets.append(listen(address, flag))


def _uvicorn_config(settings: ServeSettings, app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        lifespan="on",
        timeout_graceful_shutdown=int(_GRACE_S),
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
        ssl_ca_certs=settings.client_ca or None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.client_ca else ssl.CERT_NONE,
    )


def _exposure(settings: ServeSettings, addresses: list[Address], has_token: bool) -> tuple[str, ...]:
    """What the operator should know about who can connect; ConfigError for what he did not ask for in so many words."""
    exposed = [str(address) for address in addresses if not address.is_loopback]
    notes: list[str] = []
    if exposed and not has_token and not settings.insecure_no_auth:
        raise ConfigError(
            f"{exposed[0]} can be reached from other hosts: give --auth-token-file FILE, or accept everybody with "
            "--insecure-no-auth"
        )
    if exposed and not settings.tls_cert and not settings.insecure_no_tls:
        raise ConfigError(
            f"{exposed[0]} can be reached from other hosts: give --tls-cert and --tls-key, or send everything, the "
            "token too, in the clear with --insecure-no-tls"
        )
    if not has_token:
        notes.append(f"no token: everybody who can connect to {addresses[0]} can send and ask")
    if exposed and not settings.tls_cert:
        notes.append("no TLS: telemetry and tokens travel in the clear")
    return tuple(notes)


def _token(settings: ServeSettings) -> str:
    if settings.auth_token and settings.auth_token_file:
        raise ConfigError("give --auth-token-file or --auth-token, not both")
    if not settings.auth_token_file:
        return settings.auth_token
    return read_token(Path(settings.auth_token_file))


def _tls_files(settings: ServeSettings) -> bool:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ConfigError("--tls-cert and --tls-key belong together; give both")
    if settings.client_ca and not settings.tls_cert:
        raise ConfigError("--client-ca needs --tls-cert and --tls-key")
    return bool(settings.tls_cert)


def _pem(settings: ServeSettings) -> tuple[bytes, bytes, bytes | None]:
    def read(path: str) -> bytes:
        try:
            return Path(path).expanduser().read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error

    client_ca = read(settings.client_ca) if settings.client_ca else None
    return read(settings.tls_key), read(settings.tls_cert), client_ca


def _hosts(settings: ServeSettings, sockets: list[socket.socket]) -> list[str]:
    """Host headers to answer: what we listen on, the names of loopback, and what the operator allows."""
    own = [str(Address(listening.getsockname()[0], listening.getsockname()[1])) for listening in sockets]
    extra = [host.strip() for host in settings.allowed_hosts.split(",") if host.strip()]
    return [*own, "127.0.0.1:*", "localhost:*", "[::1]:*", *extra]
