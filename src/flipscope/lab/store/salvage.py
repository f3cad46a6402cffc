"""Which rows and arrays of a store are damaged, and a new database of those that are whole."""

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
from flipscope.lab.store import locks, outcomes, place, schema, tables
from flipscope.lab.store.arrays import PART, flush_folder
from flipscope.lab.store.database import Database
from flipscope.lab.study import NAME

DAMAGED = ".damaged"  # ends the name of a database that another has taken the place of
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
    """Something that is damaged or cannot be read: a row of some kind, or the arrays of a result."""

    what: str
    study: str
    key: str
    why: str


@dataclass(frozen=True)
class Verified:
    """How many rows and array files were read, and what is wrong with some.

    What cannot be read may be whole: a newer flipscope wrote it, or the disk does not give it out.
    """

    rows: int
    arrays: int
    damaged: list[Finding]
    unreadable: list[Finding]


@dataclass(frozen=True)
class Repaired:
    """How many rows were kept and how many were read but damaged; where the database of before is now."""

    kept: int
    damaged: int
    before: Path


def verify(database: Database, study: str | None = None) -> Verified:
    """Read all rows and arrays, of one study if it is named; a damaged row may be of any."""
    rows = arrays = 0
    damaged: list[Finding] = []
    unreadable: list[Finding] = []
    of_study = tables.COLUMNS["results"].index("study")  # the same in all tables
    seen: dict[str, tuple[str, str]] = {}  # what is wrong with array files that several rows share
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
    """Why this flipscope cannot make sense of a row that is as it was written; nothing if it can."""
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
    """What is wrong with an array file, and why that cannot be told; nothing if it is as it was written."""
    path = database.arrays.path(name)
    try:
        return ("" if database.arrays.intact(name) else f"{path} is {'changed' if path.exists() else 'missing'}"), ""
    except InputError as error:
        return "", str(error)


def _text(value: object) -> str:
    """Whatever is in the place of a text."""
    text = value if isinstance(value, str) else repr(value)
    return text.encode(errors="backslashreplace").decode()


# ---------------------------------------------------------------- repairing


def repair(folder: Path) -> Repaired:
    """Put a new database with all rows that are whole in the place of a damaged one, which is kept under another name.

    InputError if a study is being run there, or nothing can be read.
    """
    path = folder / schema.DATABASE
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
                    f"(with {path.name}-wal if there is one) to begin anew; the folder {schema.ARRAYS} keeps its arrays"
                )
            return Repaired(kept, damaged, _exchanged(temporary, path))
        finally:
            temporary.unlink(missing_ok=True)
            other.unlink(missing_ok=True)


def _with_new_head(path: Path, fresh: Path, target: Path) -> None:
    """A copy of a database whose first page says which tables there are as that of a fresh one does.

    All databases of this format have their tables at the same pages.
    """
    shutil.copyfile(path, target)
    with fresh.open("rb") as whole, target.open("r+b") as copy:
        head, old = whole.read(_PAGE), copy.read(100)
        copy.seek(0)
        copy.write(head[:24] + old[24:40] + head[40:])  # between is what the file counts: changes, pages, free ones


def _copied(path: Path, fresh: sqlite3.Connection) -> tuple[int, int]:
    """Copy all rows that are whole; how many there are, and how many are not."""
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
    """The rows that can be read, some more than once: around a damaged page a part after the other, from both ends."""
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
    """All keys in some thousand parts: those of runs are numbers, all others hexadecimal digits as a rule."""
    ends: list[object] = [*range(0, 1 << 16, 16), 1 << 62]
    if table != "runs":
        ends = ["", *(f"{number:03x}" for number in range(1 << 12)), "g", b""]  # SQLite has bytes after all texts
    return itertools.pairwise(ends)


def _exchanged(fresh: Path, path: Path) -> Path:
    """Give a file the name of another, which gets a new one; that name."""
    before = place.named(path, path, DAMAGED)
    for ending in ("-wal", "-journal"):
        if place.beside(path, ending).exists():  # it would be taken for that of the new file
            place.beside(path, ending).rename(place.beside(before, ending))
    place.beside(path, "-shm").unlink(missing_ok=True)
    fresh.replace(path)
    flush_folder(path.parent)
    return before
