"""One driver per study and folder, one trainer per model: lock files the kernel releases however a process ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.lab.study import NAME

# The kernel's lock is a process's own: forked workers do not prolong it, but it does not keep a process from itself.
_held: dict[tuple[int, Path], dict[str, Any]] = {}
_threads: dict[tuple[int, Path], threading.Lock] = {}
_guard = threading.Lock()

WAIT_SECONDS = 0.1  # between two looks at a lock that another has


@contextmanager
def driving(folder: Path, study: str) -> Iterator[None]:
    """Hold the right to run a study in a results folder; InputError, saying by whom, if it is being run."""
    if NAME.fullmatch(study) is None:
        raise InputError(f"{study!r} is not the name of a study")
    path = folder.resolve() / "locks" / f"{study}.lock"
    mine = (os.getpid(), path)
    if mine in _held:
        raise InputError(_refusal(study, _held[mine]))
    owner = {"pid": os.getpid(), "host": platform.node(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    handle = _opened(path, study)
    try:
        _held[mine] = owner
        with suppress(OSError):  # of a full disk: the lock holds without a name
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(owner).encode(), 0)
        yield
    finally:
        del _held[mine]
        os.close(handle)  # and with it the lock


@contextmanager
def alone(path: Path, seconds: float | None = None) -> Iterator[bool]:
    """Hold the lock of this name, for which others wait; False, without it, if others have it for `seconds`.

    True without a lock where the file system has none: then what is done must bear being done twice. The file is
    removed afterwards, so whoever gets the lock makes sure that it is still the one of this name.
    """
    path = path.parent.resolve() / path.name
    own, until = _thread_lock(path), None if seconds is None else time.monotonic() + seconds
    if not own.acquire(timeout=-1 if seconds is None else seconds):
        yield False
        return
    try:
        while (handle := _tried(path)) is None:
            if until is not None and time.monotonic() >= until:
                yield False
                return
            time.sleep(WAIT_SECONDS)
        try:
            yield True
        finally:
            with suppress(OSError):
                path.unlink()
            if handle >= 0:
                os.close(handle)
    finally:
        own.release()


def _thread_lock(path: Path) -> threading.Lock:
    """The lock between the threads of this process, which the kernel's does not tell apart."""
    with _guard:
        return _threads.setdefault((os.getpid(), path), threading.Lock())


def _tried(path: Path) -> int | None:
    """The lock file, locked; None if another has it, -1 where there are no locks."""
    try:
        handle = _opened_here(path)
    except OSError as error:
        raise InputError(f"the folder {path.parent} cannot be written: {error.strerror}") from error
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino == os.stat(path).st_ino:
            return handle
    except FileNotFoundError:  # its owner has just removed it
        pass
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            os.close(handle)
            return -1
    os.close(handle)
    return None


def _opened(path: Path, study: str) -> int:
    """The lock file, locked."""
    try:
        path.parent.mkdir(exist_ok=True)
        handle = _opened_here(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; use another --results") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        raise InputError(f"{path} is no file of its own: remove it, or use another --results")
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        text = os.pread(handle, 1000, 0)
        os.close(handle)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise InputError(_refusal(study, _owner(text))) from error
        said = f"{path} cannot be locked: {error.strerror}; use --results with a folder on another file system"
        raise InputError(said) from error
    return handle


def _opened_here(path: Path) -> int:
    """A file where it seems to be: what is written to a link, of the file or its folder, would be lost elsewhere."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "it is a symbolic link"
        raise
    finally:
        os.close(folder)


def _owner(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:  # it has only just begun
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(study: str, owner: dict[str, Any]) -> str:
    by = f"process {owner['pid']} on {owner['host']} since {owner['since']}" if len(owner) == 3 else "another process"
    return f"the study {study} is being run in this folder by {by}; wait for it, or use another --results"
