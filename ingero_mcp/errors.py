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

    `code` is stable and machine-readable (`table_not_allowed`), `message` says what was refused,
    `hint` what is allowed in its stead, `offset` is the place in the text (characters from 0), if known.
    """

    code: str
    message: str
    hint: str = ""
    offset: int | None = None

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class GuardError(IngeroError):
    """SQL refused by the guard; `reasons` holds every one that was found."""

    def __init__(self, reasons: tuple[Reason, ...]) -> None:
        self.reasons = reasons
        lines = [f"- [{reason.code}] {reason}" for reason in reasons]
        super().__init__("SQL refused:\n" + "\n".join(lines))


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
