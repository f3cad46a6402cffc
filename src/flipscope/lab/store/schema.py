"""Creating and opening the database file of a results folder, with messages for all failures."""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from flipscope.basics.errors import InputError
from flipscope.lab.context import DATABASE
from flipscope.lab.store import migration, tables
from flipscope.lab.store.arrays import PART, flush_folder
from flipscope.lab.store.place import Identity, beside, identity, rescued

ARRAYS = "arrays"
PATIENCE = 30.0  # seconds to wait for another process's commit

_MAGIC = b"SQLite format 3\0"
_WAL = b"\2\2"  # bytes 18 and 19 of a file with a write-ahead log
_HEADER = 100

# Between machines without shared memory a write-ahead log loses data, so it is used on these file systems only.
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


class Damaged(InputError):
    """The database is damaged."""


class _Connection(sqlite3.Connection):
    """A connection that is registered while it is open."""

    file: Identity | None
    mode: str

    def close(self) -> None:
        _open.discard(self)
        super().close()


_open: weakref.WeakSet[_Connection] = weakref.WeakSet()


def connect(folder: Path, *, create: bool) -> tuple[sqlite3.Connection, bool]:
    """A connection to the folder's database (created if missing and `create`), and whether it is writable."""
    path = folder / DATABASE
    with said(path):
        if not path.exists():
            _make(path, create)
        if not path.is_file():
            raise InputError(f"{path} is not a file: move it away, or use another --results")
        place = path.resolve()
        modes = [connection.mode for connection in _open if connection.file == identity(place)]
        # Opening and closing a file that this process has open elsewhere would release SQLite's POSIX locks on it.
        connection = _opened(place, modes[0]) if modes else _first(path, place)
        try:
            connection.execute("SELECT id FROM machines LIMIT 1").fetchall()  # from now on the log is open too
        except BaseException:
            connection.close()
            raise
    return connection, connection.mode == "rw"


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A read-only connection to a database that may be damaged."""
    return _opened(path.resolve(), "ro")


def connect_copy(path: Path) -> sqlite3.Connection:
    """A connection to a copy that this process has just made; a damaged copy is removed."""
    connection = _opened(path, "rw")
    try:
        _check(connection, path)
    except (sqlite3.Error, InputError) as error:
        connection.close()
        path.unlink()
        raise sqlite3.DatabaseError("what is left of it is damaged") from error
    return connection


def _first(path: Path, place: Path) -> _Connection:
    """This process's first connection, after checking the file."""
    header = _checked_header(path)
    logged, local = header[18:20] == _WAL, on_local_disk(path.parent)
    writable = os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)
    if writable and local:
        # Read-only: closing a writable connection would merge the log into a damaged file.
        with closing(_opened(place, "ro")) as reader:
            _check(reader, path)
    unlogged = logged and not beside(path, "-wal").exists()
    connection = _opened(place, "rw" if writable else "ro&immutable=1" if unlogged else "ro")
    try:
        if writable:
            _choose_journal(connection, path, logged, local)
        else:
            _check(connection, path)
        _bring_up_to_date(connection, path, writable)
    except BaseException:
        connection.close()
        raise
    return connection


def _bring_up_to_date(connection: sqlite3.Connection, path: Path, writable: bool) -> None:
    ((version,),) = connection.execute("PRAGMA user_version")
    if version == tables.VERSION:
        return
    if not writable:
        raise InputError(
            f"{path} is of an older flipscope (its format is {version}, this one reads {tables.VERSION}) and cannot be "
            "written: make it writable, and it is upgraded"
        )
    migration.bring_up_to_date(connection)


def _opened(place: Path, mode: str) -> _Connection:
    """A connection without implicit transactions."""
    address = f"file:{quote(os.fsencode(place))}?mode={mode}"
    connection = sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, uri=True, factory=_Connection)
    connection.mode, connection.file = mode, identity(place)
    connection.text_factory = tables.tolerant_text
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")  # no second disk that may be full
    _open.add(connection)
    return connection


def _make(path: Path, create: bool) -> None:
    """Create an empty database under another name, then rename it, unless another process was faster."""
    for rest in _unmerged(path):
        raise InputError(f"{path} is missing but {rest.name} is there: put it back, or move {rest.name} away too")
    for copy in rescued(path):
        raise InputError(
            f"{path} is missing but {copy.name} is there, which was saved when it had gone: "
            f"rename it to {path.name} to continue with it, or move it away"
        )
    if not create:
        raise InputError(f"there are no results in {path.parent}: run a study, or name another folder with --results")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{PART}")
    try:
        with closing(make_empty(temporary)):
            pass
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


def make_empty(path: Path) -> sqlite3.Connection:
    """A connection to a new database without a row."""
    path.touch(exist_ok=False)  # with the rights that the umask leaves: SQLite gives its group none to write
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(f"PRAGMA synchronous = FULL; BEGIN; {tables.SCHEMA} COMMIT;")
    return connection


def _unmerged(path: Path) -> list[Path]:
    """The journals beside the database that are not merged into it."""
    journals = (beside(path, "-wal"), beside(path, "-journal"))
    return [journal for journal in journals if journal.exists() and journal.stat().st_size]


def _checked_header(path: Path) -> bytes:
    """The first bytes of the file; they are checked before SQLite sees them, since it would start afresh."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if len(header) < _HEADER:
        raise Damaged(_damage(path, "it is empty" if not header else "it is cut off"))
    if not header.startswith(_MAGIC):
        raise Damaged(_damage(path, "it is not an SQLite database"))
    page = int.from_bytes(header[16:18], "big")  # 1 stands for 65536
    if path.stat().st_size % (page if page > 1 else 65536) and not _unmerged(path):
        raise Damaged(_damage(path, "it is cut off"))  # SQLite would take the missing bytes for zeros
    return header


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise InputError unless the database is intact and has a format that this flipscope supports."""
    ((application,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    if application != tables.APPLICATION or version < 1:
        raise InputError(f"{path} is not a results database of flipscope: move it away, or use another --results")
    if version > tables.VERSION:
        raise InputError(
            f"{path} is of a newer flipscope (its format is {version}, this one reads {tables.VERSION}): "
            "update flipscope"
        )
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
    for table, definition in tables.DEFINITIONS.items():
        if version == tables.VERSION and not tables.as_made(definition, found.get(table)):
            raise Damaged(_damage(path, f"the table {table} is not as it was made"))
    for (finding,) in connection.execute("PRAGMA integrity_check(1)"):
        if finding != "ok":
            raise Damaged(_damage(path, " ".join(finding.split())))


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
    """Turn errors of the database or the disk into an InputError of one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        raise _of_database(path, error) from error
    except UnicodeDecodeError as error:  # in SQLite's own words, which quote the file
        raise Damaged(_damage(path, "its description of itself is no text")) from error
    except OSError as error:
        raise InputError(_disk_sentence(path.parent, error)) from error


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for an error of the Python module's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _of_database(path: Path, error: sqlite3.Error) -> InputError:
    code = _code(error)
    if code == sqlite3.SQLITE_FULL:
        return InputError(_full(path.parent))
    if "malformed database schema" in str(error) and not tables.STRICT:
        return InputError(
            f"{path} was made with SQLite 3.37 or newer, this Python has {sqlite3.sqlite_version}: update it"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Damaged(_damage(path, str(error)))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return InputError(
            f"{path} has been in use by another process for {PATIENCE:g} seconds: wait for it, then try again"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR):
        reason = _why_not_written(path.parent)  # SQLite does not tell, and reading needs some room for its log too
        if reason is not None:
            return InputError(_disk_sentence(path.parent, reason))
        advice = (
            "" if code == sqlite3.SQLITE_IOERR else "; give yourself the right to write it, or use another --results"
        )
        return InputError(f"{path} cannot be used: {error}{advice}")
    return InputError(f"{path} cannot be used: {error}")


def _why_not_written(folder: Path) -> OSError | None:
    """The error of writing a small new file, if the disk is the problem."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error if error.errno in (*_NO_ROOM, errno.EROFS, errno.EIO) else None
    return None


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def _disk_sentence(folder: Path, error: OSError) -> str:
    if error.errno in _NO_ROOM:
        return _full(folder)
    where = error.filename or folder
    return f"{where} cannot be used: {error.strerror or error}; use another --results"


def _full(folder: Path) -> str:
    return f"the disk of {folder} is full: what was stored before is safe; make room, then run the same command again"


def _damage(path: Path, what: str) -> str:
    return (
        f"{path} is damaged ({what}) and was left as it is: flipscope results --repair --results {path.parent} keeps "
        f"what can be read of it; or put a copy in its place, or move it away (with {path.name}-wal if there is one) "
        f"to start afresh; the folder {ARRAYS} keeps its arrays"
    )
