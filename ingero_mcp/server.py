"""`ingero serve`, assembled: store, OTLP receivers, MCP and HTTP, and the order in which they start and stop."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from prometheus_client import CollectorRegistry

from ingero_mcp import mcp_server, run_file
from ingero_mcp.addresses import Address
from ingero_mcp.api.threshold import threshold_route
from ingero_mcp.clock_keeper import keep_clocks
from ingero_mcp.config import ServeSettings
from ingero_mcp.exposure import Exposure, exposure
from ingero_mcp.http_app import Parts, http_app
from ingero_mcp.http_server import HttpServer
from ingero_mcp.limits import MIB
from ingero_mcp.receiver.ingest import Counters, Ingest
from ingero_mcp.receiver.otlp_grpc import GrpcReceiver, GrpcSettings
from ingero_mcp.receiver.otlp_http import otlp_http_app
from ingero_mcp.run_file import RunningServer
from ingero_mcp.score_recall import recall_scores
from ingero_mcp.store import open_store
from ingero_mcp.thresholds import Thresholds
from ingero_mcp.tokens import Tokens, read_token
from ingero_mcp.turns import Turns
from ingero_mcp.watch.loop import Watch
from ingero_mcp.watch.meters import Meters
from ingero_mcp.watch.webhook import Webhook

_log = logging.getLogger(__name__)
_GRACE_S: Final = 5.0
_TOKEN_NAME: Final = "default"


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
        who = exposure(settings)
        webhook = _webhook(settings)
        body_bytes = settings.max_message_mib * MIB
        limits = settings.limits()
        with ExitStack() as opened:
            # The database comes last: a port in use must not leave a new file behind.
            self._http = HttpServer(settings, who.http)
            opened.callback(self._http.close)
            self._otlp_http = HttpServer(settings, [(who.otlp_http, "--otlp-http-addr")] if who.otlp_http else [])
            opened.callback(self._otlp_http.close)
            self._receiver = GrpcReceiver(GrpcSettings(str(who.otlp), body_bytes, who.tls)) if who.otlp else None
            opened.callback(self._stop_grpc)
            self._store = opened.enter_context(open_store(_database(settings), limits=limits))
            self._opened = opened.pop_all()
        tokens = Tokens({_TOKEN_NAME: who.token} if who.token else {})
        registry = CollectorRegistry()
        thresholds = Thresholds(settings.threshold_rule(), settings.push_interval_s)
        registry.register(thresholds)
        recall_scores(self._store, thresholds, settings.push_interval_s)
        self._ingest = Ingest(self._store, Counters.register(registry), thresholds)
        turns = Turns(limits.concurrent_queries)
        mcp = mcp_server.build(self._store, tool_names=settings.tool_names, turns=turns)
        self._tokens = tokens
        hosts = _hosts(settings, self._http.bound)
        self._watch = Watch(settings.watch_every_s, Meters.register(registry), webhook)
        parts = Parts(self._store, mcp, turns, registry, tokens, hosts, self._watch, thresholds)
        self._app = http_app(parts)
        # Agents know one address of their fleet server: the one that they push to.
        asked = [threshold_route(thresholds)]
        self._otlp_app = otlp_http_app(self._ingest, tokens, body_bytes, _otlp_hosts(self._otlp_http.bound), asked)
        self.started = Started(self._describe(settings, who), who.notes)
        if webhook is not None:
            webhook.server = self.started.server.url

    async def serve(self, until: Callable[[], Awaitable[object]]) -> None:
        """Answer until `until()` returns; then stop receiving, commit what was accepted, stop answering."""
        try:
            self._store.announce(self.started.server.url, self.started.server.token_file)
            if self._public and (asked := run_file.publish(self.started.server)) != self.started.server:
                _log.warning("local commands go on asking the server of process %d at %s", asked.pid, asked.url)
            if self._receiver is not None:
                self._receiver.start(self._ingest, self._tokens)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._http.serve, self._app)
                if self._otlp_http.bound:
                    tasks.start_soon(self._otlp_http.serve, self._otlp_app)
                tasks.start_soon(self._keep, keeping := anyio.CancelScope())
                await until()
                keeping.cancel()
                await to_thread.run_sync(self._stop_receiving)
                self._otlp_http.stop()
                self._http.stop()
        except BaseExceptionGroup as group:
            # One thing went wrong; who called wants to see that, not the tasks it passed through.
            raise _first(group) from None
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._close)

    async def _keep(self, scope: anyio.CancelScope) -> None:
        """What a live server does by itself: it reads clocks off collectives, and watches jobs."""
        with scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keep_clocks, self._store)
                tasks.start_soon(self._watch.run, self._store)

    def _stop_grpc(self) -> None:
        if self._receiver is not None:
            self._receiver.stop(_GRACE_S)

    def _stop_receiving(self) -> None:
        self._stop_grpc()
        self._store.stop_writing()

    def _close(self) -> None:
        self._stop_receiving()
        self._opened.close()
        if self._public:
            run_file.withdraw(self.started.server)

    def _describe(self, settings: ServeSettings, who: Exposure) -> RunningServer:
        scheme = "https" if who.tls else "http"
        token_file = settings.auth_token_file
        return RunningServer(
            pid=os.getpid(),
            url=f"{scheme}://{self._http.bound[0].reachable}",
            otlp_addr=str(Address(who.otlp.host, self._receiver.port).reachable) if who.otlp and self._receiver else "",
            otlp_http_url=f"{scheme}://{self._otlp_http.bound[0].reachable}" if self._otlp_http.bound else "",
            token_file=str(Path(token_file).expanduser().resolve()) if token_file else "",
            db_path=str(self._store.path),
        )


def _webhook(settings: ServeSettings) -> Webhook | None:
    """Whom to tell of stalls, if anybody. ConfigError for an address that is none."""
    if not settings.webhook_url:
        return None
    token = read_token(Path(settings.webhook_token_file)) if settings.webhook_token_file else ""
    return Webhook(settings.webhook_url, settings.webhook_format, "", settings.webhook_severity, token)


def _database(settings: ServeSettings) -> Path:
    """The database file; the folder of the default one is made."""
    path = Path(settings.db_path).expanduser()
    if settings.db_path == ServeSettings().db_path:
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _hosts(settings: ServeSettings, bound: list[Address]) -> list[str]:
    """Host headers to answer: what we listen on, the names of loopback, and what the operator allows."""
    extra = [host.strip() for host in settings.allowed_hosts.split(",") if host.strip()]
    return [*(str(address) for address in bound), "127.0.0.1:*", "localhost:*", "[::1]:*", *extra]


def _otlp_hosts(bound: list[Address]) -> list[str] | None:
    """On loopback only its own names; where other hosts may send, they may know this one by any name."""
    if not all(address.is_loopback for address in bound):
        return None
    return [*(str(address) for address in bound), "127.0.0.1:*", "localhost:*", "[::1]:*"]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
