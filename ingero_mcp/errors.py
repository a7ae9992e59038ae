"""Every error this program raises on purpose, in one tree.

    IngeroError
    ├── ConfigError              a flag, file or environment variable is wrong
    ├── GuardError               SQL refused by the guard; carries every reason
    ├── StoreError               the store could not do it
    │   ├── StoreLocked          another process owns the file
    │   ├── StoreBusy            the queue is full or the store is closing: try again
    │   ├── DiskFull             the file system refused the write: try again when there is space
    │   ├── QueryError           the engine refused a query that the guard allowed
    │   └── QueryTimeout         a query ran longer than its limit and was stopped
    ├── InternalError            a fault of ours: the same request will meet it again
    ├── WireError                bytes from a peer are not what they claim to be
    ├── ImportFileError          a file cannot be imported
    ├── SchemaError              the database was written by a newer version, or is not ours
    └── ProbeError               a probe could not be attached

A message says what was wrong, what is accepted, and one corrected example. Errors are translated once, at the
edge: MCP tool error, gRPC status, HTTP body, exit code.
"""

from __future__ import annotations

from dataclasses import dataclass


class IngeroError(Exception):
    """The root; its text is written for the person or agent who has to act on it."""


class ConfigError(IngeroError):
    """A flag, a settings file or an environment variable is wrong."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why SQL was refused.

    `code` is stable and machine-readable (`table_not_allowed`), `message` says what was refused, `hint` what is
    allowed in its stead, `example` is corrected SQL where there is one, `ask` whom to ask next (a tool or a
    resource), `offset` the place in the text (characters from 0); None where it is about the text as a whole.
    """

    code: str
    message: str
    hint: str = ""
    offset: int | None = None
    example: str = ""
    ask: str = ""

    def __str__(self) -> str:
        example = f"Example: {self.example}" if self.example else ""
        return " ".join(part for part in (self.message, self.hint, example) if part)


_BEFORE = 40
_AFTER = 30


def _shown_place(sql: str, offset: int) -> list[str]:
    """The line of `sql` around `offset`, with a mark below it."""
    lines = sql[:offset].split("\n")
    column = len(lines[-1])
    begin = max(0, column - _BEFORE)
    line = sql[offset - column :].split("\n", 1)[0][begin : column + _AFTER].replace("\t", " ").rstrip("\r")
    head = f"  line {len(lines)}, column {column + 1}: "
    return [head + line, " " * (len(head) + column - begin) + "^"]


class GuardError(IngeroError):
    """SQL refused by the guard; `reasons` holds every one that was found, `sql` the text they are about."""

    def __init__(self, reasons: tuple[Reason, ...], sql: str = "") -> None:
        self.reasons = reasons
        self.sql = sql
        lines = ["SQL refused:"]
        for reason in reasons:
            lines.append(f"- [{reason.code}] {reason}")
            if sql and reason.offset is not None:
                lines += _shown_place(sql, reason.offset)
        asks = dict.fromkeys(reason.ask for reason in reasons if reason.ask)
        # One that is part of another adds nothing.
        lines += [f"next: {ask}" for ask in asks if not any(ask != other and ask in other for other in asks)]
        super().__init__("\n".join(lines))


class StoreError(IngeroError):
    """The store could not do what was asked."""


class StoreLocked(StoreError):
    """Another process owns the database file.

    `pid` is the owner's process id (0 if there are only readers), `path` the database file, `url` where the owner
    answers ("" when it does not serve), `token_file` the file with the token it wants ("" for none).
    """

    def __init__(self, path: str, pid: int, url: str = "", token_file: str = "") -> None:
        self.path = path
        self.pid = pid
        self.url = url
        self.token_file = token_file
        if pid:
            ask = f"ask it at {url}" if url else "wait for it to end"
            super().__init__(f"{path} is owned by process {pid}; {ask}, or stop it first")
        else:
            super().__init__(f"{path} is being read by another process (ingero query or ingero mcp); end it first")


class StoreBusy(StoreError):
    """The store cannot take the batch now (queue full, closing, reopening); the same batch may be sent again."""


class DiskFull(StoreBusy):
    """The file system refused the write; nothing acknowledged was lost, and the batch may be sent again."""


class QueryError(StoreError):
    """The engine refused a query that the guard had allowed: an unknown column, a wrong type, no memory."""


class QueryTimeout(StoreError):
    """A query ran longer than its limit and was stopped. `limit_s` is that limit in seconds."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        super().__init__(
            f"the query ran longer than {limit_s:g} s and was stopped; narrow it "
            "(a time filter such as timestamp_ns >= ..., fewer columns, no cross join) or raise the timeout"
        )


class InternalError(IngeroError):
    """A fault of ours; the log has the details. The same request would meet it again."""


class WireError(IngeroError):
    """Bytes from a peer cannot be read as what they claim to be; sending them again will not help."""


class ImportFileError(IngeroError):
    """A file cannot be imported; nothing of it was stored."""


class SchemaError(IngeroError):
    """A database that this version cannot use; it was left unchanged."""


class ProbeError(IngeroError):
    """A probe could not be attached; says which one and what still works."""
