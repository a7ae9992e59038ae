"""The webhook: notices are sent in their order to one address, which may be slow or down for a while."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2

from ingero_mcp.analysis.severity import rank_of
from ingero_mcp.errors import ConfigError
from ingero_mcp.notice import Notice
from ingero_mcp.watch.payloads import FORMATS

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 256
_TIMEOUT_S: Final = 10.0
_PAUSES_S: Final = (1.0, 2.0, 5.0, 15.0, 60.0, 60.0)
_LONGEST_PAUSE_S: Final = 300.0


@dataclass(slots=True)
class Webhook:
    """Sends notices to `address` in one of the FORMATS; `least` is the severity from which on, `server` our own URL.

    What is not of interest when it opens is told when it becomes so; an end is told if its beginning was.
    """

    address: str
    format: str
    server: str
    least: str = "MEDIUM"
    token: str = ""
    pauses_s: tuple[float, ...] = _PAUSES_S
    _waiting: deque[Notice] = field(default_factory=lambda: deque(maxlen=_MOST_WAITING))
    _told: set[str] = field(default_factory=set)
    _news: anyio.Event | None = None

    def __post_init__(self) -> None:
        if not _is_address(self.address):
            raise ConfigError("--webhook-url must be an address like https://hooks.example.com/services/abc")

    def put(self, notices: Iterable[Notice]) -> None:
        """Queue what is to be told; the oldest is forgotten when too many wait."""
        for notice in notices:
            if notice.what != "closed" and rank_of(notice.severity) <= rank_of(self.least):
                self._told.add(notice.id)
            elif notice.id not in self._told:
                continue
            if notice.what == "closed":
                self._told.discard(notice.id)
            if len(self._waiting) == self._waiting.maxlen:
                _log.warning("the webhook at %s is behind: a notice was dropped", self._place)
            self._waiting.append(notice)
        if self._news is not None:
            self._news.set()

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        async with httpx2.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as client:
            while True:
                self._news = anyio.Event()
                while self._waiting:
                    try:
                        await self._deliver(client, self._waiting.popleft())
                    except Exception as error:  # whatever the other side does, the server goes on
                        _log.warning("the webhook at %s failed: %s", self._place, type(error).__name__)
                await self._news.wait()

    async def _deliver(self, client: httpx2.AsyncClient, notice: Notice) -> None:
        body = FORMATS[self.format](notice, self.server)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        why = ""
        for pause_s in (*self.pauses_s, None):
            try:
                response = await client.post(self.address, json=body, headers=headers)
            except httpx2.HTTPError as error:
                # Its text may hold the address, which is a secret where it stands for a token.
                why, wait_s = type(error).__name__, pause_s
            else:
                if response.is_success:
                    return
                why, wait_s = f"status {response.status_code}", pause_s
                if response.status_code < 500 and response.status_code not in (408, 429):
                    break
                wait_s = _asked_for(response, pause_s)
            if wait_s is None:
                break
            await anyio.sleep(wait_s)
        _log.warning("the webhook at %s did not take a notice: %s", self._place, why)

    @property
    def _place(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.hostname}"


def _is_address(text: str) -> bool:
    """Whether requests can be sent there: a scheme, a host and a port that can be."""
    try:
        parts = urlsplit(text)
        known = httpx2.URL(text)
        is_whole = bool(known.host) and (parts.port is None or parts.port > 0) and not any(map(str.isspace, text))
        return is_whole and parts.scheme in ("http", "https")
    except (ValueError, httpx2.InvalidURL):
        return False


def _asked_for(response: httpx2.Response, pause_s: float | None) -> float | None:
    """The pause that the answer asks for, if there is to be a next try."""
    asked = response.headers.get("retry-after", "")
    if pause_s is None or not (asked.isascii() and asked.isdigit()):
        return pause_s
    return min(max(pause_s, float(asked)), _LONGEST_PAUSE_S)
