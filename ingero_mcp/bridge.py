"""MCP on stdin and stdout, answered by a running server: for clients that can only start a command.

Imports neither the MCP SDK nor DuckDB, so it starts at once, and needs no access to the database file. Every message
travels as it is; only the HTTP headers are made here (Streamable HTTP, both eras of the protocol).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, Any, Final
from urllib.parse import urlsplit

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import ConfigError

_LAST_WORDS_S: Final = 1.5
_ANSWER_S: Final = 600.0
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
# Which parameter names the thing asked for; the 2026-07-28 era wants it as a header.
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_SESSION_GONE: Final = 404
_SERVER_ERROR: Final = -32000
_LONGEST_REASON: Final = 65_536
_LONGEST_MESSAGE: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class _Refused:
    """The HTTP status of a message that the server did not take, and its words for why."""

    status: int
    reason: str

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else str(self.status)


@dataclass(slots=True)
class Bridge:
    """Carries messages between a client on `output` and the server at `url` (its root, e.g. http://host:8080)."""

    url: str
    token: str
    output: IO[bytes]
    tool_names: str = "auto"
    _session: str = ""
    _opening: list[dict[str, Any]] = field(default_factory=list)
    _writing: threading.Lock = field(default_factory=threading.Lock)
    _in_flight: dict[str, socket.socket] = field(default_factory=dict)

    def run(self, lines: Iterable[bytes]) -> None:
        """Until the lines end. Requests are answered as they finish, like those of any MCP server."""
        threads: list[threading.Thread] = []
        for line in lines:
            message = _parse(line)
            if message is None:
                self._write({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not a JSON object"}})
            elif "method" in message and "id" in message and message["method"] != "initialize":
                threads = [thread for thread in threads if thread.is_alive()]
                threads.append(threading.Thread(target=self._answer, args=(message,), daemon=True))
                threads[-1].start()
            elif not self._abandon(message):
                self._answer(message)
        # Who closes the input may still read: what is nearly done is finished, what is not is dropped.
        give_up_s = monotonic_s() + _LAST_WORDS_S
        for thread in threads:
            thread.join(max(0.0, give_up_s - monotonic_s()))

    def _answer(self, message: dict[str, Any]) -> None:
        """Send one message; whatever goes wrong is the answer to it."""
        if message.get("method") in ("initialize", "notifications/initialized"):
            self._opening = [*(self._opening if message["method"] != "initialize" else []), message]
        try:
            refused = self._exchange(message, self._write)
            if refused and refused.status == _SESSION_GONE and self._session and message.get("method") != "initialize":
                # The server was restarted: greet it again, as the client did, and repeat the message.
                for greeting in self._opening:
                    self._exchange(greeting, lambda _: None)
                refused = self._exchange(message, self._write)
            if refused:
                self._fail(message, f"the server at {self.url} answered {refused} {_remedy(refused.status)}".strip())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._fail(message, f"the server at {self.url} cannot be reached: {error}")

    def _exchange(self, message: dict[str, Any], deliver: Callable[[object], None]) -> _Refused | None:
        """POST the message and hand on what comes back; what the server would not take is returned."""
        connection = connect(self.url)
        key = json.dumps(message.get("id"))
        try:
            connection.request("POST", "/mcp", json.dumps(message).encode(), self._headers(message))
            if "id" in message and connection.sock is not None:
                # Kept here, since http.client forgets the socket once a response says that it will be closed.
                self._in_flight[key] = connection.sock
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                # Its body may be a JSON-RPC error, but not one with this message's id.
                return _Refused(response.status, _reason(response.read(_LONGEST_REASON)))
            if message.get("method") == "initialize":
                self._session = response.headers.get("mcp-session-id", "")
            is_answered = "id" not in message or "method" not in message
            for answer in _messages(response):
                is_answered = is_answered or (isinstance(answer, dict) and answer.get("id") == message["id"])
                deliver(answer)
            # A redirect, a page, a stream that broke off: whoever asked must not wait for ever.
            return None if is_answered else _Refused(response.status, "nothing that answers this request")
        finally:
            self._in_flight.pop(key, None)
            connection.close()

    def _abandon(self, message: dict[str, Any]) -> bool:
        """In the 2026-07-28 era a request is cancelled by closing its connection; says whether that was done."""
        if self._session or message.get("method") != "notifications/cancelled":
            return False
        in_flight = self._in_flight.get(json.dumps(message.get("params", {}).get("requestId")))
        if in_flight is not None:
            with contextlib.suppress(OSError):  # it may have ended just now
                in_flight.shutdown(socket.SHUT_RDWR)
        return True

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.tool_names != "auto":
            headers["ingero-tool-names"] = self.tool_names
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self._session and message.get("method") != "initialize":
            headers["mcp-session-id"] = self._session
        parameters = message.get("params")
        parameters = parameters if isinstance(parameters, dict) else {}
        version = (parameters.get("_meta") or {}).get(_VERSION)
        if isinstance(version, str) and isinstance(message.get("method"), str):
            headers["mcp-protocol-version"] = version
            headers["mcp-method"] = message["method"]
            name = parameters.get(_NAMED_BY.get(message["method"], ""))
            if isinstance(name, str):
                headers["mcp-name"] = _header_value(name)
        return headers

    def _fail(self, message: dict[str, Any], text: str) -> None:
        if "id" in message and "method" in message:
            self._write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": _SERVER_ERROR, "message": text}})

    def _write(self, message: object) -> None:
        with self._writing:
            self.output.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            self.output.flush()


def connect(url: str) -> http.client.HTTPConnection:
    """An unopened connection to the server at `url`; ConfigError if that is not http:// or https://."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=_ANSWER_S, context=ssl.create_default_context()
        )
    if parts.scheme == "http" and parts.hostname:
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_ANSWER_S)
    raise ConfigError(f"{url!r} is not the address of a server; write for example http://127.0.0.1:8080")


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _messages(response: http.client.HTTPResponse) -> Iterable[object]:
    """The JSON-RPC messages of a response: one JSON document, or the data of a stream of events."""
    kind = response.headers.get_content_type()
    if kind == "application/json":
        body = response.read(_LONGEST_MESSAGE + 1)  # empty for what needs no answer
        if len(body) > _LONGEST_MESSAGE:
            raise ValueError(f"its answer is longer than {_LONGEST_MESSAGE} bytes")
        message = json.loads(body) if body else None
        if isinstance(message, dict) and "jsonrpc" in message:
            yield message
    elif kind == "text/event-stream":
        data: list[bytes] = []
        while line := response.readline(_LONGEST_MESSAGE + 1):
            if len(line) > _LONGEST_MESSAGE:
                raise ValueError(f"a line of its answer is longer than {_LONGEST_MESSAGE} bytes")
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif not line.strip() and data:
                text = b"\n".join(data)
                data = []
                if text:
                    yield json.loads(text)


def _reason(body: bytes) -> str:
    """What an error body says, whichever of the usual forms it has."""
    try:
        content = json.loads(body)
    except ValueError:
        return ""
    error = content.get("error") if isinstance(content, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return text if isinstance(text, str) else ""


def _header_value(text: str) -> str:
    """Text as a header value: as it is where it survives, else in the protocol's base64 form."""
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _remedy(status: int) -> str:
    if status == http.client.UNAUTHORIZED:
        return "(the token is missing or wrong: --token-file FILE)"
    if status == http.client.MISDIRECTED_REQUEST:
        return "(it does not answer under this name: start it with --allowed-hosts NAME:PORT)"
    return ""
