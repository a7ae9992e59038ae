"""An address that a webhook tells: keeps what it was sent, and answers as it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Told(ThreadingHTTPServer):
    """`statuses` are given out in turn, then 200 for ever; `bodies` and `headers` are those of every request."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = list(statuses)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.retry_after = ""
        self._came = threading.Condition()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/services/secret-path"

    def note(self, body: dict[str, Any], headers: dict[str, str]) -> int:
        """Keep a request; the status to answer it with."""
        with self._came:
            self.bodies.append(body)
            self.headers.append(headers)
            self._came.notify_all()
            return self.statuses.pop(0) if self.statuses else 200

    def wait_for(self, requests: int, timeout_s: float = 30) -> list[dict[str, Any]]:
        """The bodies, once so many have come."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.bodies) >= requests, timeout_s), self.bodies
            return list(self.bodies)


class _Handler(BaseHTTPRequestHandler):
    server: Told

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.note(body, dict(self.headers.items()))
        self.send_response(status)
        if status in (301, 302, 307):
            self.send_header("Location", "http://127.0.0.1:9/")
        if self.server.retry_after:
            self.send_header("Retry-After", self.server.retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def told(*statuses: int) -> Iterator[Told]:
    """Listening, until the end of the block."""
    server = Told(*statuses)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
