"""The SQLite file of a results folder: opened or created, changed in whole transactions, its rows checked when read.

SQLite's journal and locks make transactions safe against a death at any moment, also on a network file system (a
write-ahead log would not be), and refuse to write to a file that was deleted, moved or replaced. Checksums of rows find
what SQLite does not: bytes that changed on the disk.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from flipscope.basics.errors import InputError, RunError, printable
from flipscope.lab.context import DATABASE

Row = dict[str, Any]
T = TypeVar("T")

PATIENCE = 30.0  # seconds to wait for another process
SILENT = 2.0  # seconds of that before it is said
PAGE = 4096  # bytes
OLDEST_SQLITE = (3, 34, 0)
_MOVED = 1032  # SQLite's code for a file that was deleted, moved or replaced while it was open
_BLOCK = 1000  # rows in memory at a time
_SCHEMA = Path(__file__).with_name("schema.sql")

_log = logging.getLogger("flipscope")


class Damaged(InputError):
    """A results folder's file is damaged beyond single rows."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path} is damaged ({why}) and was left as it is: flipscope results --repair --results {path.parent} "
            "copies what can be read; or put a copy in its place, or move it away to start afresh"
        )
        self.why = why


# ---------------------------------------------------------------- the schema


@functools.cache
def _empty() -> sqlite3.Connection:
    """A database in memory without a row."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise InputError(f"results need SQLite {needed} or newer, this Python has {sqlite3.sqlite_version}: update it")
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.executescript(_SCHEMA.read_text("utf-8"))
    return connection


def _definitions(connection: sqlite3.Connection) -> set[tuple[Any, ...]]:
    """Everything that a file defines: tables, and triggers, views and indices, of which ours has none."""
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


@functools.cache
def columns(table: str) -> tuple[str, ...]:
    """The names of a table's columns, without its checksum."""
    return tuple(row[1] for row in _empty().execute(f"PRAGMA table_info({table})") if row[1] != "checksum")


TABLES = ("results", "variants", "failures", "looks", "runs", "models")  # those whose rows have checksums


def key_of(table: str) -> str:
    """The column by which the rows of a table are ordered and told apart."""
    return "checksum" if table == "variants" else columns(table)[0]


def checksum(values: Iterable[object]) -> str:
    """The checksum of a row; values may have any type, since damage can change types too."""
    text = ascii(tuple(values))  # exact for texts, integers and floats, and the same on every machine
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def intact(table: str, row: Row) -> bool:
    """Whether a row is as it was written."""
    return bool(checksum(row[name] for name in columns(table)) == row["checksum"])


def digest_of(content: bytes) -> str:
    """The name of a content."""
    return hashlib.sha256(content).hexdigest()


# ---------------------------------------------------------------- opening a file


def make_empty(path: Path) -> sqlite3.Connection:
    """A connection to a new file without a row."""
    path.touch(exist_ok=False)  # with the rights that the umask leaves: SQLite gives its group none to write
    connection = sqlite3.connect(address(path, "rw"), isolation_level=None, uri=True)
    _empty()  # checks the version of SQLite
    connection.executescript(f"PRAGMA page_size = {PAGE}; BEGIN; {_SCHEMA.read_text('utf-8')} COMMIT;")
    return connection


def address(path: Path, mode: str) -> str:
    """The file as SQLite's URI."""
    return f"file:{quote(os.fsencode(path.resolve()))}?mode={mode}"


def opened(path: Path, mode: str) -> sqlite3.Connection:
    """A connection to an existing file, which may be damaged."""
    connection = sqlite3.connect(address(path, mode), timeout=SILENT, isolation_level=None, uri=True)
    # Texts that are not valid Unicode must not abort the reading of a table: their checksum reports the damage.
    connection.text_factory = functools.partial(str, encoding="utf-8", errors="surrogateescape")
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise InputError unless a file is one of ours, of this format, and defines what ours do and nothing else."""
    version, ours = _number(connection, "user_version"), _number(_empty(), "user_version")
    if _number(connection, "application_id") != _number(_empty(), "application_id"):
        raise InputError(f"{path} is not a results database of flipscope: move it away, or use another --results")
    if version != ours:
        age, advice = ("a newer", "update flipscope") if version > ours else ("an older", "make it anew")
        raise InputError(f"{path} is of {age} flipscope (its format is {version}, this one reads {ours}): {advice}")
    if _definitions(connection) != _definitions(_empty()):
        raise Damaged(path, "its tables are not those that flipscope makes")


def check_pages(connection: sqlite3.Connection, path: Path) -> None:
    """Raise Damaged unless SQLite finds every page in order."""
    for (finding,) in connection.execute("PRAGMA main.integrity_check(1)"):
        if finding != "ok":
            raise Damaged(path, " ".join(str(finding).split()))


def _create(path: Path) -> None:
    """Create an empty file under another name and link it, unless another process was faster."""
    journal = _journal(path)
    if journal.exists() and journal.stat().st_size:  # SQLite would apply it to the new file
        raise InputError(f"{path} is missing but {journal.name} is there: put it back, or move {journal.name} away too")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        make_empty(temporary).close()
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not path.exists():
                os.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _journal(path: Path) -> Path:
    """The file in which SQLite keeps what a transaction has changed, until it is committed."""
    return path.with_name(path.name + "-journal")


class Database:
    """The file of a results folder, for one thread; a context manager.

    A folder that is not writable can be read. Every disk error becomes an InputError of one sentence, and stored
    results stay. Damaged rows are treated as missing, with a warning.
    """

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = True) -> None:
        self.folder = Path(folder)
        self.path = self.folder / DATABASE
        self._reported: set[tuple[str, Any]] = set()  # damaged rows that were warned of
        self._checked = False  # whether the pages were, which is done before the first change
        with explained(self.path):
            if not self.path.exists():
                if not create:
                    raise InputError(
                        f"there are no results in {self.folder}: run a study, or name another folder with --results"
                    )
                _create(self.path)
            if not self.path.is_file():
                raise InputError(f"{self.path} is not a file: move it away, or use another --results")
            size, unfinished = self.path.stat().st_size, _journal(self.path).exists()
            if not size or (size % PAGE and not unfinished):  # SQLite would start afresh, or read zeros
                raise Damaged(self.path, "it is cut off" if size else "it is empty")
            self.writable = os.access(self.folder, os.W_OK) and os.access(self.path, os.W_OK)
            self._connection = opened(self.path, "rw" if self.writable else "ro")
            try:
                self._patiently(lambda: check_schema(self._connection, self.path))
                self._execute("PRAGMA synchronous = EXTRA")  # a commit is on the disk, even after a power cut
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; everything committed is already safe."""
        self._connection.close()

    # ---------------------------------------------------------------- reading

    def check(self) -> None:
        """Raise Damaged unless SQLite finds the whole file in order, which takes as long as reading it."""
        with explained(self.path):
            self._patiently(lambda: check_pages(self._connection, self.path))

    def read(self, question: str, *values: object) -> list[Row]:
        """The rows that answer a question."""
        with explained(self.path):
            cursor = self._execute(question, *values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def rows_with_state(self, table: str) -> Iterator[tuple[Row, bool]]:
        """All rows of a table in the order of their keys, each with whether it is intact.

        They are read in blocks, so that a slow reader does not hold up writers.
        """
        key = key_of(table)
        condition, last = "TRUE", list[object]()
        while rows := self.read(f"SELECT * FROM {table} WHERE {condition} ORDER BY {key} LIMIT {_BLOCK}", *last):
            for row in rows:
                yield row, intact(table, row)
            condition, last = f"{key} > ?", [rows[-1][key]]
            if isinstance(last[0], str):  # as bytes: a damaged key may not be valid Unicode
                condition, last = f"{key} > CAST(? AS TEXT)", [last[0].encode(errors="surrogateescape")]

    def rows(self, table: str, study: str | None = None) -> Iterator[Row]:
        """All intact rows of a table, or of one study; damaged rows are left out with a warning.

        All rows are read in any case, since the study's name in a damaged row may be wrong.
        """
        damaged = set()
        for row, whole in self.rows_with_state(table):
            if not whole:
                damaged.add((table, row[key_of(table)]))
            elif study is None or row["study"] == study:
                yield row
        self._warn(damaged)

    def rows_of(self, table: str, keys: Iterable[str]) -> Iterator[tuple[Row, bool]]:
        """The rows with these keys, in the order of the keys, each with whether it is intact."""
        left = iter(keys)
        while block := list(itertools.islice(left, _BLOCK)):
            question = f"SELECT * FROM {table} WHERE key IN (SELECT value FROM json_each(?))"
            rows = {row["key"]: row for row in self.read(question, json.dumps(block))}
            yield from ((rows[key], intact(table, rows[key])) for key in dict.fromkeys(block) if key in rows)

    def content(self, digest: str | None) -> bytes | None:
        """A content by its digest; None if it is missing or damaged."""
        for row in self.read("SELECT content FROM contents WHERE digest = ?", digest):
            if isinstance(row["content"], bytes) and digest_of(row["content"]) == digest:
                return row["content"]
        return None

    def document(self, digest: str | None) -> str | None:
        """A content that is a text."""
        content = self.content(digest)
        return None if content is None else content.decode(errors="replace")

    def _warn(self, damaged: set[tuple[str, Any]]) -> None:
        """Warn about rows that are left out, once per row."""
        new = sorted(map(_named, damaged - self._reported))
        self._reported |= damaged
        if new:
            more = f" and {len(new) - 3} more" if len(new) > 3 else ""
            _log.warning(
                "%s of %s %s damaged and left out (%s%s): flipscope results --verify tells more",
                f"{len(new)} rows" if len(new) > 1 else "a row",
                printable(str(self.path)),
                "are" if len(new) > 1 else "is",
                printable(", ".join(new[:3])),
                more,
            )

    # ---------------------------------------------------------------- writing

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes other writers from its start: all of its changes are made, or none."""
        if not self.writable:
            raise InputError(f"{self.folder} cannot be written: use another --results")
        with explained(self.path):
            try:
                self._execute("BEGIN IMMEDIATE")  # inside the try: an interrupt may come right after it
                if not self._checked:
                    check_pages(self._connection, self.path)
                    self._checked = True
                yield self._connection
                self._execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def attached(self, path: Path) -> Iterator[None]:
        """Within this context, another file of the same tables can be read under the name "pack"."""
        with explained(self.path):
            self._execute("ATTACH ? AS pack", address(path, "ro&immutable=1"))
        try:
            yield
        finally:
            self._execute("DETACH pack")

    def insert(self, table: str, row: Row) -> None:
        """Store a row with its checksum in place of one with the same key, within `writing`."""
        insert_row(self._connection, table, row)

    def insert_content(self, content: bytes) -> str:
        """Store a content, within `writing`; returns its digest."""
        return insert_content(self._connection, content)

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._patiently(lambda: self._connection.execute(statement, values))

    def _patiently(self, call: Callable[[], T]) -> T:
        """The result of a call, repeated while another process has the file; after a moment, that is said."""
        until = time.monotonic() + PATIENCE
        for attempt in itertools.count():
            try:
                return call()
            except sqlite3.OperationalError as error:
                if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > until:
                    raise
            if not attempt:
                _log.warning("waiting for another process that uses %s", printable(str(self.path)))
        raise AssertionError("there is no end of attempts")


def insert_row(connection: sqlite3.Connection, table: str, row: Row) -> None:
    """Store a row with its checksum in place of one with the same key."""
    names = columns(table)
    values = [row[name] for name in names]
    marks = ", ".join("?" * (len(values) + 1))
    statement = f"INSERT OR REPLACE INTO {table} ({', '.join(names)}, checksum) VALUES ({marks})"
    connection.execute(statement, (*values, checksum(values)))


def insert_content(connection: sqlite3.Connection, content: bytes) -> str:
    """Store a content, also in place of a damaged one, and return its digest."""
    digest = digest_of(content)
    connection.execute("INSERT OR REPLACE INTO contents VALUES (?, ?)", (digest, content))
    return digest


def _named(row: tuple[str, Any]) -> str:
    """A row as text, even if its key is damaged."""
    table, key = row
    text = key if isinstance(key, str) else repr(key)
    return f"{table} {text[:10]}".encode(errors="backslashreplace").decode()


# ---------------------------------------------------------------- errors in a sentence


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the database or the disk into an InputError of one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explained(path, error) from error
    except UnicodeDecodeError as error:  # in SQLite's own words, which quote the file
        raise Damaged(path, "its description of itself is no text") from error
    except OSError as error:
        where = error.filename or path.parent
        raise InputError(f"{where} cannot be used: {error.strerror or error}; use another --results") from error


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for an error of the Python module's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _explained(path: Path, error: sqlite3.Error) -> InputError:
    code, said = _code(error), printable(" ".join(str(error).split()))
    if lost := _lost(path, error):
        again = "put it back, or run the same command again to start afresh"
        return RunError(f"{path} was {lost} while this process used it: {again}")
    if code == sqlite3.SQLITE_FULL:
        return InputError(
            f"the disk of {path.parent} is full: what was stored before is safe; make room, then run the same command "
            "again"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "no such table" in str(error):
        return Damaged(path, said)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return InputError(
            f"{path} has been in use by another process for {PATIENCE:g} seconds: wait for it, then try again"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return InputError(
            f"{path} cannot be used: {said}; give yourself the right to write it, or use another --results"
        )
    return InputError(f"{path} cannot be used: {said}")


def _lost(path: Path, error: sqlite3.Error) -> str:
    """What happened to a file that was open; "" if it is still there."""
    if not path.exists():
        return "deleted or moved"
    if not path.stat().st_size:
        return "emptied"
    return "replaced by another file" if getattr(error, "sqlite_errorcode", 0) == _MOVED else ""
