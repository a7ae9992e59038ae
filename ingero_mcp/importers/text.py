"""Text that comes from files, made fit for a message."""

from __future__ import annotations


def one_line(text: object, limit: int = 200) -> str:
    """`text` as one printable line of at most `limit` characters: a file must not forge our output."""
    words = " ".join(str(text).split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in words)
    return printable if len(printable) <= limit else printable[: limit - 3] + "..."
