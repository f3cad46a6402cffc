"""Detecting that an open database is no longer at its path, and rescuing its results.

SQLite silently continues to write to a file that was deleted, moved or emptied. Unless it was emptied, the open file
is intact until it is closed, so it can be copied to a safe place.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from flipscope.lab.store.arrays import PART, flush_folder

RESCUED = ".rescued"  # suffix of a rescued copy
JOURNALS = ("-wal", "-shm")  # suffixes of the files that SQLite keeps open beside the database

Identity = tuple[int, int]  # device and inode


@dataclass(frozen=True)
class Loss:
    """A description of what happened to an open database, and its new folder if that was moved."""

    what: str
    moved: Path | None


def identity(path: Path) -> Identity | None:
    """The identity of a file, or None if there is no file of this name."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def beside(path: Path, ending: str) -> Path:
    """A file that belongs to another."""
    return path.with_name(path.name + ending)


class OpenFiles:
    """The files of an open database as they were when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))  # a study may change the working folder
        self._folder = identity(self.path.parent)
        candidates = (self.path, *(beside(self.path, ending) for ending in JOURNALS))
        found = {each: identity(each) for each in candidates}
        self._files = {each: known for each, known in found.items() if known is not None}
        self._size = 0

    def loss(self) -> Loss | None:
        """What happened to the files since they were opened, or None."""
        changed = [path for path, known in self._files.items() if identity(path) != known]
        if not changed:
            return self._shrunk()
        now = _path_of_open(self._files[self.path])
        if now is not None and now != self.path and self._went_along(now.parent):
            return Loss(f"{self.path.parent} was moved to {now.parent}", now.parent)
        first = changed[0]
        if identity(first) is not None:
            return Loss(f"{first} was replaced by another file", None)
        if first == self.path and now is not None:
            return Loss(f"{first} was moved to {now}", None)
        known = Path("/proc/self/fd").is_dir()
        return Loss(f"{first} was {'deleted' if known else 'deleted or moved'}", None)

    def note_size(self) -> None:
        """Record the length of the database while no other process writes; it never shrinks by itself."""
        with suppress(OSError):  # `loss` says what is the matter
            self._size = max(self._size, self.path.stat().st_size)

    def _shrunk(self) -> Loss | None:
        size = self.path.stat().st_size
        return Loss(f"{self.path} was {'cut off' if size else 'emptied'}", None) if size < self._size else None

    def sweep(self) -> None:
        """Remove stale journals, which SQLite would attribute to the next file of this name."""
        for path, known in self._files.items():
            if path != self.path and identity(path) == known:
                path.unlink(missing_ok=True)

    def _went_along(self, folder: Path) -> bool:
        """Whether this is the original folder with all its files."""
        return identity(folder) == self._folder and all(
            identity(folder / path.name) == known for path, known in self._files.items()
        )


def _path_of_open(known: Identity) -> Path | None:
    """The current path of a file that this process has open; None if it has none or it is unknown."""
    try:
        handles = os.listdir("/proc/self/fd")
    except OSError:
        return None
    for handle in handles:
        link = Path("/proc/self/fd", handle)
        try:
            if identity(link) == known and identity(place := Path(os.readlink(link))) == known:
                return place
        except OSError:  # it was closed meanwhile
            continue
    return None


def rescue(database: sqlite3.Connection, path: Path) -> Path:
    """Copy the content of a connection to a new file beside the path or in the temporary folder; returns its path."""
    refusal: Exception | None = None
    for folder in (path.parent, Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return _copied(database, folder / path.name)
        except (OSError, sqlite3.Error) as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _copied(database: sqlite3.Connection, path: Path) -> Path:
    temporary = path.with_name(f".{path.name}.{token_hex(8)}{PART}")
    try:
        temporary.touch(exist_ok=False)  # with the rights that the umask leaves
        with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
            copy.execute("PRAGMA synchronous = FULL")
            database.backup(copy)
        return named(temporary, path, RESCUED)
    finally:
        temporary.unlink(missing_ok=True)


def named(temporary: Path, path: Path, ending: str) -> Path:
    """Rename a file to a name with this suffix that no file has yet; returns the new path."""
    for name in _names(path, ending):
        try:
            os.link(temporary, name)
        except FileExistsError:
            continue
        except OSError:  # a file system without links
            if name.exists():
                continue
            os.rename(temporary, name)
        flush_folder(path.parent)
        return name
    raise AssertionError("there is no end of names")


def _names(path: Path, ending: str) -> Iterator[Path]:
    yield beside(path, ending)
    number = 2
    while True:
        yield beside(path, f"{ending}-{number}")
        number += 1


def rescued(path: Path) -> list[Path]:
    """The rescued copies of the database of this path."""
    return sorted(path.parent.glob(f"{path.name}{RESCUED}*"))
