"""Finding damaged rows and contents of a results folder, and copying the intact ones to a new file."""

from __future__ import annotations

import itertools
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.lab.context import DATABASE
from flipscope.lab.store import locks, outcomes
from flipscope.lab.store.database import (
    TABLES,
    Database,
    Row,
    columns,
    digest_of,
    explained,
    insert_row,
    intact,
    key_of,
    make_empty,
    opened,
)
from flipscope.lab.study import NAME

DAMAGED = ".damaged"  # suffix of a file that was replaced by a repaired one
_DOCUMENTS = {"trial", "outcome", "running", "verdicts", "judgement", "limits", "drawn"}  # columns with JSON in them
_REFERENCES = ("arrays", "machine", "trials")  # columns with the digest of a content


@dataclass(frozen=True)
class Finding:
    """A row, or a content that it refers to, that is damaged or cannot be read."""

    what: str
    study: str
    key: str
    why: str


@dataclass(frozen=True)
class Verified:
    """The numbers of rows and contents read, and the problems found.

    An unreadable row is whole: a newer flipscope wrote it.
    """

    rows: int
    contents: int
    damaged: list[Finding]
    unreadable: list[Finding]


@dataclass(frozen=True)
class Repaired:
    """The numbers of kept and damaged rows, and the path of the old file."""

    kept: int
    damaged: int
    before: Path


def verify(database: Database, study: str | None = None) -> Verified:
    """Read all rows with what they refer to, or those of one study; damaged rows are always included."""
    rows = 0
    damaged: list[Finding] = []
    unreadable: list[Finding] = []
    contents: dict[str, bool] = {}  # whether each is whole
    for table in TABLES:
        for row, whole in database.rows_with_state(table):
            place = (table.removesuffix("s"), _text(row.get("study", "")), _text(row[key_of(table)]))
            if not whole:
                damaged.append(Finding(*place, "its checksum does not fit"))
            elif study in (None, row.get("study")):
                rows += 1
                if why := _unknown(row):
                    unreadable.append(Finding(*place, why))
                for name in _REFERENCES:
                    if (digest := row.get(name)) is not None:
                        if digest not in contents:
                            contents[digest] = database.content(digest) is not None
                        if not contents[digest]:
                            damaged.append(Finding(f"{name} of a {place[0]}", *place[1:], "changed or missing"))
    return Verified(rows, len(contents), damaged, unreadable)


def _unknown(row: Row) -> str:
    """Why this flipscope cannot interpret an intact row; "" if it can."""
    try:
        for name in _DOCUMENTS & row.keys():
            outcomes.decode(row[name])
    except ValueError as error:  # of JSON, or an InputError
        return str(error)
    return ""


def _text(value: object) -> str:
    """A value as text, even if it is damaged."""
    text = value if isinstance(value, str) else repr(value)
    return text.encode(errors="backslashreplace").decode()


def repair(folder: Path) -> Repaired:
    """Replace a damaged file by a new one with all intact rows; the old one stays under another name.

    InputError if a study is being run there, or nothing can be read.
    """
    path = folder / DATABASE
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with explained(path), ExitStack() as held:
        if not path.exists():
            raise InputError(f"there is no {path} to repair: name another folder with --results")
        for lock in sorted((folder / "locks").glob("*.lock")):
            if NAME.fullmatch(lock.stem):
                held.enter_context(locks.driving(folder, lock.stem))
        try:
            with closing(make_empty(temporary)) as copy:
                kept, damaged = _copied(path, copy)
            if not kept:
                raise InputError(
                    f"nothing can be read of {path}: put a copy in its place, or move it away to start afresh"
                )
            return Repaired(kept, damaged, _exchanged(temporary, path))
        finally:
            temporary.unlink(missing_ok=True)


def _copied(path: Path, copy: sqlite3.Connection) -> tuple[int, int]:
    """Copy all intact rows and contents; returns the numbers of intact and of damaged rows."""
    damaged = set()
    copy.execute("BEGIN")
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(opened(path, "rw")) as reader:
        reader.execute("PRAGMA writable_schema = ON")  # SQLite then reads a file that is cut off as far as it goes
        for table in TABLES:
            for values in _readable(reader, table, key_of(table), (*columns(table), "checksum")):
                row = dict(zip((*columns(table), "checksum"), values, strict=True))
                if intact(table, row):
                    with suppress(sqlite3.IntegrityError):  # of a table's limits
                        insert_row(copy, table, row)
                else:
                    damaged.add((table, row[key_of(table)]))
        for digest, content in _readable(reader, "contents", "digest", ("digest", "content")):
            if isinstance(content, bytes) and digest_of(content) == digest:
                copy.execute("INSERT OR REPLACE INTO contents VALUES (?, ?)", (digest, content))
    copy.execute("COMMIT")
    counts = [copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES]
    return sum(counts), len(damaged)


def _readable(reader: sqlite3.Connection, table: str, key: str, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """The rows of a table that can be read, which are looked for in many short ranges of keys around damaged pages."""
    ends: list[object] = [*range(0, 1 << 12, 16), 1 << 62]
    if table != "runs":  # whose keys are numbers; all others are hexadecimal digits
        ends = ["", *(f"{number:03x}" for number in range(1 << 12)), b""]  # SQLite has bytes after all texts
    for low, high in itertools.pairwise(ends):
        with suppress(sqlite3.Error, UnicodeDecodeError):  # the second where SQLite's complaint quotes the file
            yield from reader.execute(
                f"SELECT {', '.join(names)} FROM {table} WHERE {key} >= ? AND {key} < ?", (low, high)
            )


def _exchanged(fresh: Path, path: Path) -> Path:
    """Rename a file to the name of another, which is renamed first; returns the other's new path."""
    before, number = path.with_name(path.name + DAMAGED), 2
    while before.exists():
        before, number = path.with_name(f"{path.name}{DAMAGED}-{number}"), number + 1
    path.rename(before)
    journal = path.with_name(path.name + "-journal")
    if journal.exists():  # it would be applied to the new file
        journal.rename(before.with_name(before.name + "-journal"))
    fresh.rename(path)
    return before
