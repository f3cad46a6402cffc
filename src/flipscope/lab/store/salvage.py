"""Finding damaged rows and arrays of a store, and making a new database from the intact ones."""

from __future__ import annotations

import itertools
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.lab.context import DATABASE
from flipscope.lab.store import locks, outcomes, place, schema, tables
from flipscope.lab.store.arrays import PART, flush_folder
from flipscope.lab.store.database import Database
from flipscope.lab.study import NAME

DAMAGED = ".damaged"  # suffix of a database that was replaced by a repaired one
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)  # the second where SQLite's complaint quotes the file
_PAGE = 4096
_DOCUMENTS = {"document", "trial", "outcome", "running", "verdicts", "judgement"}  # columns with JSON in them
_KINDS = {
    "results": "result",
    "failures": "failure",
    "runs": "run",
    "looks": "look",
    "machines": "machine",
    "plans": "plan",
    "variants": "variant",
}
_SHARED = ("machines", "plans")  # which belong to no study


@dataclass(frozen=True)
class Finding:
    """A row or array file that is damaged or cannot be read."""

    what: str
    study: str
    key: str
    why: str


@dataclass(frozen=True)
class Verified:
    """The numbers of rows and array files read, and the problems found.

    An unreadable one may be intact: a newer flipscope wrote it, or the disk cannot be read.
    """

    rows: int
    arrays: int
    damaged: list[Finding]
    unreadable: list[Finding]


@dataclass(frozen=True)
class Repaired:
    """The numbers of kept and damaged rows, and the path of the old database."""

    kept: int
    damaged: int
    before: Path


def verify(database: Database, study: str | None = None) -> Verified:
    """Read all rows and arrays, or those of one study; damaged rows are always included."""
    rows = arrays = 0
    damaged: list[Finding] = []
    unreadable: list[Finding] = []
    of_study = tables.COLUMNS["results"].index("study")  # the same in all tables
    seen: dict[str, tuple[str, str]] = {}  # problems of array files that several rows share
    for table, kind in _KINDS.items():
        for row, whole in database.checked(table):
            if not whole:
                of = "" if table in _SHARED else _text(row[of_study])
                damaged.append(Finding(kind, of, _text(row[0]), "its checksum does not fit"))
            elif study is None or table in _SHARED or row[of_study] == study:
                rows += 1
                if why := _unknown(table, row):
                    unreadable.append(Finding(kind, "" if table in _SHARED else row[of_study], str(row[0]), why))
                name = _array_file(table, row)
                if name is not None:
                    arrays += name not in seen
                    wrong, closed = seen.setdefault(name, _trouble(database, name))
                    if wrong:
                        damaged.append(Finding("arrays", row[of_study], row[0], wrong))
                    if closed:
                        unreadable.append(Finding("arrays", row[of_study], row[0], closed))
    return Verified(rows, arrays, damaged, unreadable)


def _unknown(table: str, row: Sequence[Any]) -> str:
    """Why this flipscope cannot interpret an intact row; "" if it can."""
    try:
        for name, value in zip(tables.COLUMNS[table], row, strict=True):
            if name in _DOCUMENTS:
                outcomes.decode(value)
    except ValueError as error:  # of JSON, or an InputError
        return str(error)
    return ""


def _array_file(table: str, row: Sequence[Any]) -> str | None:
    """The name of the file with a row's arrays, if it has any."""
    name: str | None = row[tables.COLUMNS[table].index("arrays")] if "arrays" in tables.COLUMNS[table] else None
    return name


def _trouble(database: Database, name: str) -> tuple[str, str]:
    """The damage of an array file, and why it cannot be read; both empty if it is intact."""
    path = database.arrays.path(name)
    try:
        return ("" if database.arrays.intact(name) else f"{path} is {'changed' if path.exists() else 'missing'}"), ""
    except InputError as error:
        return "", str(error)


def _text(value: object) -> str:
    """A value as text, even if it is damaged."""
    text = value if isinstance(value, str) else repr(value)
    return text.encode(errors="backslashreplace").decode()


# ---------------------------------------------------------------- repairing


def repair(folder: Path) -> Repaired:
    """Replace a damaged database by a new one with all intact rows; the old one is kept under another name.

    InputError if a study is being run there, or nothing can be read.
    """
    path = folder / DATABASE
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PART}")
    with schema.said(path), ExitStack() as held:
        if not path.exists():
            raise InputError(f"there is no {path} to repair: name another folder with --results")
        for lock in sorted((folder / "locks").glob("*.lock")):
            if NAME.fullmatch(lock.stem):
                held.enter_context(locks.driving(folder, lock.stem))
        other = place.beside(temporary, PART)
        try:
            with closing(schema.make_empty(temporary)) as fresh:
                _with_new_head(path, temporary, other)
                kept, damaged = _copied(path, fresh)
                if not kept:
                    kept, damaged = _copied(other, fresh)
            if not kept:
                raise InputError(
                    f"nothing can be read of {path}: put a copy in its place, or move it away "
                    f"(with {path.name}-wal if there is one) to start afresh; {schema.ARRAYS} keeps its arrays"
                )
            return Repaired(kept, damaged, _exchanged(temporary, path))
        finally:
            temporary.unlink(missing_ok=True)
            other.unlink(missing_ok=True)


def _with_new_head(path: Path, fresh: Path, target: Path) -> None:
    """Copy a database, with the table definitions in its first page replaced by those of a fresh one.

    All databases of this format have their tables at the same pages.
    """
    shutil.copyfile(path, target)
    with fresh.open("rb") as whole, target.open("r+b") as copy:
        head, old = whole.read(_PAGE), copy.read(100)
        copy.seek(0)
        copy.write(head[:24] + old[24:40] + head[40:])  # between is what the file counts: changes, pages, free ones


def _copied(path: Path, fresh: sqlite3.Connection) -> tuple[int, int]:
    """Copy all intact rows; returns the numbers of intact and damaged rows."""
    damaged = set()
    fresh.execute("BEGIN")
    with suppress(*_UNREADABLE), closing(schema.connect_to_read(path)) as reader:
        for table in tables.COLUMNS:
            for row in _readable(reader, table):
                if tables.intact(table, row):
                    fresh.execute(tables.inserted(table), row)
                else:
                    damaged.add((table, row[0]))
    fresh.execute("COMMIT")
    counts = [fresh.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables.COLUMNS]
    return sum(counts), len(damaged)


def _readable(reader: sqlite3.Connection, table: str) -> Iterator[Sequence[Any]]:
    """The readable rows, some more than once: around a damaged page, read in parts from both ends."""
    question, key = tables.selected(table), tables.COLUMNS[table][0]
    try:
        yield from reader.execute(question)
        return
    except _UNREADABLE:
        pass
    for low, high in _parts(table):
        for order in ("ASC", "DESC"):
            with suppress(*_UNREADABLE):
                yield from reader.execute(
                    f"{question} WHERE {key} >= ? AND {key} < ? ORDER BY {key} {order}", (low, high)
                )


def _parts(table: str) -> Iterator[tuple[object, object]]:
    """A partition of all keys into some thousand ranges: runs have numbers, all others hexadecimal keys."""
    ends: list[object] = [*range(0, 1 << 16, 16), 1 << 62]
    if table != "runs":
        ends = ["", *(f"{number:03x}" for number in range(1 << 12)), "g", b""]  # SQLite has bytes after all texts
    return itertools.pairwise(ends)


def _exchanged(fresh: Path, path: Path) -> Path:
    """Rename a file to the name of another, which is renamed first; returns the other's new path."""
    before = place.named(path, path, DAMAGED)
    for ending in ("-wal", "-journal"):
        if place.beside(path, ending).exists():  # it would be taken for that of the new file
            place.beside(path, ending).rename(place.beside(before, ending))
    place.beside(path, "-shm").unlink(missing_ok=True)
    fresh.replace(path)
    flush_folder(path.parent)
    return before
