"""Reading SQLite files of strangers: nothing beside them is written, nothing in them is run, nothing is unbounded.

A file is opened as immutable, which leaves no -wal or -shm behind. Where a write-ahead log lies beside it, both are
copied and the copy is opened. A rollback journal is refused: playing it back can delete any file that it names.

Only statements of this package run, on tables alone: an authorizer refuses what would be read through a view or a
trigger, and any function that is not on its list.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_from_bytes

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.text import one_line

MAGIC: Final = b"SQLite format 3\0"
HEADER_BYTES: Final = 100
MAX_VALUE_BYTES: Final = 1 << 20
"""The longest value, and the longest row, that is read."""

Row = tuple[Any, ...]

_JOURNAL_MAGIC: Final = bytes.fromhex("d9d505f920a163d7")
_WAL_HEADER: Final = 32
_SPARE_BYTES: Final = 64 << 20
_LEAST_S: Final = 10.0
_BYTES_PER_S: Final = 2_000_000
_OPS_PER_LOOK: Final = 10_000
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 10,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
# Constraints of the file are code of the file: they are not looked at either.
_SETTINGS: Final = (
    "query_only = ON",
    "trusted_schema = OFF",
    "ignore_check_constraints = ON",
    "cell_size_check = ON",
    "mmap_size = 0",
    "temp_store = MEMORY",
    "cache_size = -8192",
)
_PRAGMAS: Final = frozenset({"user_version", "table_xinfo", "quick_check"})
_FUNCTIONS: Final = frozenset({"typeof", "length", "substr", "lower", "abs", "count"})


class Reader:
    """Runs fixed statements on an open file."""

    def __init__(self, connection: sqlite3.Connection, restart: Callable[[], None]) -> None:
        self._connection = connection
        self._restart = restart

    def rows(self, sql: str, at_once: int = 1000) -> Iterator[list[Row]]:
        """The rows of a statement, `at_once` at a time."""
        self._restart()
        cursor = self._connection.execute(sql)
        while rows := cursor.fetchmany(at_once):
            yield rows
            self._restart()

    def all(self, sql: str) -> list[Row]:
        """The rows of a statement that returns few."""
        return [row for rows in self.rows(sql) for row in rows]


class Snapshot:
    """A SQLite file as it was when this was made; a copy, if there is one, goes with the object.

    Raises ImportFileError if it cannot be read as it is.
    """

    def __init__(self, path: Path) -> None:
        self.name = one_line(path.name)
        with _explained(self.name):
            # The name may be a link; SQLite looks for the log beside what it points to.
            self._file = path.resolve(strict=True)
            _refuse_journal(self._file, self.name)
            self._copied = _size(_beside(self._file, "-wal")) > 0
            if self._copied:
                self._file = self._copy(self._file)
            else:
                _refuse_cut_off(self._file, self.name)
            self._stamp = _stamp(self._file)
            self._limit_s = _LEAST_S + self._file.stat().st_size / _BYTES_PER_S

    @contextmanager
    def opened(self, *, paced: bool = False) -> Iterator[Reader]:
        """Read it. The time limit is for everything, or for each portion of rows if the caller is `paced`.

        Whatever goes wrong with the file inside the block leaves it as an ImportFileError.
        """
        deadline = monotonic_s() + self._limit_s

        def passed() -> bool:
            return monotonic_s() > deadline

        def restart() -> None:
            nonlocal deadline
            if paced:
                deadline = monotonic_s() + self._limit_s
            if not self._copied and _stamp(self._file) != self._stamp:
                raise ImportFileError(f"{self.name} was changed while it was read; import it again")

        with _explained(self.name, self._limit_s, passed):
            connection = sqlite3.connect(self._uri(), uri=True, timeout=0, check_same_thread=False)
            try:
                _lock_down(connection, passed)
                yield Reader(connection, restart)
            finally:
                connection.close()

    def _uri(self) -> str:
        # A copy is ours to write to: its log is played back when it is opened.
        mode = "mode=rw" if self._copied else "mode=ro&immutable=1"
        return f"file://{quote_from_bytes(bytes(self._file))}?{mode}"

    def _copy(self, file: Path) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="ingero-import-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        log = _beside(file, "-wal")
        if _size(file) + _size(log) + _SPARE_BYTES > shutil.disk_usage(folder).free:
            raise ImportFileError(f"{self.name} has a log beside it, and {folder} has no space for a copy of both")
        before = _stamp(file), _head(log, _WAL_HEADER)
        copy = folder / "copy.db"
        shutil.copyfile(file, copy)
        shutil.copyfile(log, _beside(copy, "-wal"))
        # The log may have grown meanwhile, but what it adds to must be what was copied.
        if (_stamp(file), _head(log, _WAL_HEADER)) != before:
            raise ImportFileError(f"{self.name} is being written; import it again, or stop the agent first")
        return copy


def is_sqlite(path: Path) -> bool:
    """Whether `path` begins as a SQLite file does."""
    return path.is_file() and _head(path, len(MAGIC)) == MAGIC


def companions(path: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps beside a database."""
    return tuple(_beside(path, ending) for ending in ("-wal", "-shm", "-journal"))


@contextmanager
def _explained(name: str, limit_s: float = 0, passed: Callable[[], bool] = lambda: True) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeError, OverflowError) as error:
        if str(error) == "interrupted" and not passed():
            # Ctrl-C came while SQLite looked at the clock, and all that SQLite makes of it is this.
            raise KeyboardInterrupt from None
        raise ImportFileError(f"{name} {_explain(error, limit_s)}; nothing was stored") from error
    except OSError as error:
        raise ImportFileError(f"{name} cannot be read: {one_line(error.strerror or error)}") from error


def _explain(error: Exception, limit_s: float) -> str:
    message = one_line(error)
    if message == "interrupted":
        return f"took longer than {limit_s:.0f} s to read"
    if "too big" in message:
        return f"holds a value or a row longer than {MAX_VALUE_BYTES} bytes"
    if "not authorized" in message or "prohibited" in message:
        return f"has tables that run code ({message})"
    return f"is damaged or cut off ({message})"


def _lock_down(connection: sqlite3.Connection, passed: Callable[[], bool]) -> None:
    for category, limit in _LIMITS.items():
        connection.setlimit(category, limit)
    connection.set_progress_handler(passed, _OPS_PER_LOOK)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, through: str | None) -> int:
    allowed = through is None and (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _refuse_cut_off(file: Path, name: str) -> None:
    # SQLite reads what is missing of the last page as zeros, and misses other pages only when it needs them.
    header = _head(file, HEADER_BYTES)
    page, pages = (int.from_bytes(header[place], "big") for place in (slice(16, 18), slice(28, 32)))
    size, whole = _size(file), (1 << 16 if page == 1 else page) * pages
    # The number of pages counts only if the last program that wrote the file knew of it.
    if size < whole and header[24:28] == header[92:96]:
        raise ImportFileError(f"{name} is damaged or cut off ({size} of {whole} bytes are there); nothing was stored")


def _refuse_journal(file: Path, name: str) -> None:
    journal = _beside(file, "-journal")
    if journal.is_file() and _head(journal, len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC:
        raise ImportFileError(
            f"{name} was left in the middle of a change ({one_line(journal.name)} lies beside it); open it once with "
            "the program that wrote it"
        )


def _beside(file: Path, ending: str) -> Path:
    return file.with_name(file.name + ending)


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _head(file: Path, length: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(length)


def _stamp(file: Path) -> tuple[int, int, int]:
    facts = file.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
