"""The database file of a results folder: how it is made, opened, and what is said when it cannot be."""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import sys
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from flipscope.errors import InputError
from flipscope.lab.arrays import PART, flush_folder

DATABASE = "flipscope.sqlite"
ARRAYS = "arrays"
VERSION = 1
PATIENCE = 30.0  # seconds to wait for another process's commit

_APPLICATION = 0x666C6970  # "flip", in the header, where the `file` command looks
_MAGIC = b"SQLite format 3\0"
_WAL = b"\2\2"  # bytes 18 and 19 of a file with a write-ahead log
_HEADER = 100
# STRICT refuses values of a wrong type; older SQLite lacks it.
_STRICT = " STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""
_COMMON = """
    key TEXT NOT NULL PRIMARY KEY,
    study TEXT NOT NULL,
    code TEXT NOT NULL,
    trial TEXT NOT NULL,
    seconds REAL NOT NULL,
    finished TEXT NOT NULL,
    attempts INTEGER NOT NULL,"""
_TABLES = f"""
CREATE TABLE machines (id INTEGER PRIMARY KEY, document TEXT NOT NULL UNIQUE){_STRICT};
CREATE TABLE results ({_COMMON}
    outcome TEXT NOT NULL,
    arrays TEXT,
    size INTEGER NOT NULL,
    machine INTEGER NOT NULL REFERENCES machines(id)
){_STRICT};
CREATE INDEX results_by_study ON results(study, code);
CREATE INDEX results_by_arrays ON results(arrays);
CREATE TABLE failures ({_COMMON}
    traceback TEXT NOT NULL
){_STRICT};
CREATE INDEX failures_by_study ON failures(study, code);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL,
    scale TEXT NOT NULL,
    code TEXT NOT NULL,
    state TEXT NOT NULL,
    total INTEGER NOT NULL,
    done INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    started TEXT NOT NULL,
    updated TEXT NOT NULL,
    pid INTEGER NOT NULL,
    born TEXT NOT NULL,
    host TEXT NOT NULL,
    command TEXT NOT NULL,
    running TEXT NOT NULL,
    verdicts TEXT NOT NULL
){_STRICT};
CREATE INDEX runs_by_study ON runs(study);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {VERSION};
"""

# Where several machines cannot see each other's memory, a write-ahead log loses data: it is for these only.
_LOCAL = frozenset(
    [
        "apfs",
        "bcachefs",
        "btrfs",
        "erofs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "hfsplus",
        "jfs",
        "nilfs2",
        "ntfs3",
        "overlay",
        "ramfs",
        "reiserfs",
        "rootfs",
        "squashfs",
        "tmpfs",
        "vfat",
        "xfs",
        "zfs",
    ]
)


class _Connection(sqlite3.Connection):
    """A connection that is known while it is open."""

    place: Path
    mode: str

    def close(self) -> None:
        _open.discard(self)
        super().close()


_open: weakref.WeakSet[_Connection] = weakref.WeakSet()


def connect(folder: Path, *, create: bool) -> tuple[sqlite3.Connection, bool]:
    """A connection to the folder's database, made if there is none and `create`, and whether it can be written."""
    path = folder / DATABASE
    with said(path):
        if not path.exists():
            _make(path, create)
        place = path.resolve()
        modes = [connection.mode for connection in _open if connection.place == place]
        # Looking into a file that this process has open elsewhere would undo SQLite's locks on it, as POSIX has it.
        connection = _opened(place, modes[0]) if modes else _first(path, place)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.place = place
        _open.add(connection)
    return connection, connection.mode == "rw"


def _first(path: Path, place: Path) -> _Connection:
    """This process's first connection, after a look at the file."""
    header = _checked_header(path)
    logged, local = header[18:20] == _WAL, on_local_disk(path.parent)
    writable = os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)
    if writable and local:
        # Without the right to write: closing would merge the log into a damaged file.
        with closing(_opened(place, "ro")) as reader:
            _check(reader, path)
    unlogged = logged and not _beside(path, "-wal").exists()
    connection = _opened(place, "rw" if writable else "ro&immutable=1" if unlogged else "ro")
    try:
        if writable:
            _choose_journal(connection, path, logged, local)
        else:
            _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(place: Path, mode: str) -> _Connection:
    """A connection without transactions of the module's own."""
    address = f"file:{quote(str(place))}?mode={mode}"
    connection = sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, uri=True, factory=_Connection)
    connection.mode = mode
    return connection


def _make(path: Path, create: bool) -> None:
    """Make an empty database under another name, then give it this one, unless somebody else has been faster."""
    for rest in _unmerged(path):
        raise InputError(f"{path} is missing but {rest.name} is there: put it back, or move {rest.name} away too")
    if not create:
        raise InputError(f"there are no results in {path.parent}: run a study, or name another folder with --results")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PART}")
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.executescript(f"PRAGMA synchronous = FULL; BEGIN; {_TABLES} COMMIT;")
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not path.exists():
                os.rename(temporary, path)
        flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _unmerged(path: Path) -> list[Path]:
    """The journals beside the database that hold what it lacks."""
    journals = (_beside(path, "-wal"), _beside(path, "-journal"))
    return [journal for journal in journals if journal.exists() and journal.stat().st_size]


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _checked_header(path: Path) -> bytes:
    """The first bytes of the file, which SQLite is not to see if they are wrong: it would start afresh."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if len(header) < _HEADER:
        raise InputError(_damage(path, "it is empty" if not header else "it is cut off"))
    if not header.startswith(_MAGIC):
        raise InputError(_damage(path, "it is not an SQLite database"))
    page = int.from_bytes(header[16:18], "big")  # 1 stands for 65536
    if path.stat().st_size % (page if page > 1 else 65536) and not _unmerged(path):
        raise InputError(_damage(path, "it is cut off"))  # SQLite would take the missing bytes for zeros
    return header


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise InputError unless the database is whole, and a store that this flipscope understands."""
    ((application,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    if application != _APPLICATION or version < 1:
        raise InputError(f"{path} is not a results database of flipscope: move it away, or use another --results")
    if version > VERSION:
        raise InputError(
            f"{path} is of a newer flipscope (its format is {version}, this one reads {VERSION}): update flipscope"
        )
    for (finding,) in connection.execute("PRAGMA quick_check(1)"):
        if finding != "ok":
            raise InputError(_damage(path, " ".join(finding.split())))


def _choose_journal(connection: sqlite3.Connection, path: Path, logged: bool, local: bool) -> None:
    """A write-ahead log on a local disk; elsewhere a rollback journal."""
    if local:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:  # in use with the other journal, which is as safe
            if _code(error) != sqlite3.SQLITE_BUSY:
                raise
        return
    if logged:  # the folder was copied or mounted from elsewhere
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # before the first read: then no memory is shared
    _check(connection, path)
    if logged:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA locking_mode = NORMAL")
        connection.execute("SELECT count(*) FROM machines").fetchone()  # gives the lock back


def on_local_disk(folder: Path) -> bool:
    """Whether the folder is on a file system known to be of this machine alone."""
    if not sys.platform.startswith("linux"):
        return True
    try:
        mounts = Path("/proc/mounts").read_bytes()
    except OSError:
        return False
    return file_system(folder.resolve(), mounts) in _LOCAL


def file_system(path: Path, mounts: bytes) -> str:
    """The type of the file system that holds an absolute path, by the lines of /proc/mounts; "" if none does."""
    found, depth = "", -1
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        # Spaces and the like stand as \040 there.
        point = Path(os.fsdecode(fields[1].decode("unicode_escape").encode("latin-1")))
        if path.is_relative_to(point) and len(point.parts) >= depth:  # a later mount covers an earlier one
            found, depth = fields[2].decode(errors="replace"), len(point.parts)
    return found


@contextmanager
def said(path: Path) -> Iterator[None]:
    """Turn what the database or the disk complains of into one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        raise InputError(_database_sentence(path, error)) from error
    except OSError as error:
        raise InputError(_disk_sentence(path.parent, error)) from error


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for an error of the Python module's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _database_sentence(path: Path, error: sqlite3.Error) -> str:
    code = _code(error)
    if code == sqlite3.SQLITE_FULL:
        return _full(path.parent)
    if "malformed database schema" in str(error) and not _STRICT:
        return f"{path} was made with SQLite 3.37 or newer, this Python has {sqlite3.sqlite_version}: update it"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damage(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{path} has been in use by another process for {PATIENCE:g} seconds: wait for it, then try again"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"{path} cannot be used: {error}; give yourself the right to write it, or use another --results"
    return f"{path} cannot be used: {error}"


def _disk_sentence(folder: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(folder)
    where = error.filename or folder
    return f"{where} cannot be used: {error.strerror or error}; use another --results"


def _full(folder: Path) -> str:
    return f"the disk of {folder} is full: what was stored before is safe; make room, then run the same command again"


def _damage(path: Path, what: str) -> str:
    return (
        f"{path} is damaged ({what}) and was left as it is: put a copy in its place, or move it away "
        f"(with {path.name}-wal if there is one) to begin anew; the folder {ARRAYS} keeps its arrays"
    )
