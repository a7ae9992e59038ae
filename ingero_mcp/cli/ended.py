"""A command that is told to end (SIGTERM) cleans up as it does on Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Within it SIGTERM raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
