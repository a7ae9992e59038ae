"""A stream of UTF-8 seen through a window of text that moves forward, with the way back to byte offsets."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

LONE: Final = re.compile("[\udc80-\udcff]+")
"""Bytes that were not UTF-8: each stands in the text as one lone surrogate, so that offsets stay exact."""

_BYTES_AS: Final = "surrogateescape"


class Window:
    """`text[pos:]` is what comes next. `broken` says that something that is not UTF-8 has been seen."""

    __slots__ = ("_begin", "_chunks", "_decoder", "broken", "ended", "pos", "text")

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.text = ""
        self.pos = 0
        self.ended = False
        self.broken = False
        self._begin = 0  # the byte at which the text begins
        self._chunks = chunks
        self._decoder = codecs.getincrementaldecoder("utf-8")(_BYTES_AS)

    def fill(self, size: int) -> None:
        """Have at least `size` characters to come, or all that there are. Forgets what lies before `pos`."""
        if self.ended or len(self.text) - self.pos >= size:
            return
        self._begin = self.byte_at(self.pos)
        pieces = [self.text[self.pos :]]
        length, self.pos = len(pieces[0]), 0
        while length < size and not self.ended:
            chunk = next(self._chunks, b"")
            self.ended = not chunk
            piece = self._decoder.decode(chunk, final=self.ended)
            self.broken = self.broken or (not piece.isascii() and LONE.search(piece) is not None)
            pieces.append(piece)
            length += len(piece)
        self.text = "".join(pieces)

    def byte_at(self, index: int) -> int:
        """The offset in the stream of the character at `index`."""
        return self._begin + len(self.text[:index].encode("utf-8", _BYTES_AS))
