"""News: wakes those who wait for the next notice."""

from __future__ import annotations

import anyio


class News:
    """What will happen next, for all who wait for it."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def upcoming(self) -> anyio.Event:
        """Set when something is told next. Whoever asks for it before reading what was told misses nothing."""
        if self._event is None:
            self._event = anyio.Event()
        return self._event

    def tell(self) -> None:
        """Wake everybody; to be called in the event loop."""
        if self._event is not None:
            self._event.set()
            self._event = None
