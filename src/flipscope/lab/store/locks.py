"""One driver per study and folder, one trainer per model: lock files that the kernel releases when a process ends."""

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

# A kernel lock belongs to a process: forked workers do not prolong it, but it does not exclude threads of the process.
_held: dict[tuple[int, Path], dict[str, Any]] = {}
_threads: dict[tuple[int, Path], threading.Lock] = {}
_guard = threading.Lock()

WAIT_SECONDS = 0.1  # between two attempts to get a lock


@contextmanager
def driving(folder: Path, study: str) -> Iterator[None]:
    """Hold the lock to run a study in a results folder; if it is being run, InputError names the process."""
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
    """Hold the lock of this name; yields False, without the lock, if others hold it for `seconds`.

    On a file system without locks it yields True: the protected work must then tolerate being done twice. The file is
    removed afterwards, so after getting the lock it is checked that the file is still the one of this name.
    """
    path = path.parent.resolve() / path.name
    of_threads, until = _thread_lock(path), None if seconds is None else time.monotonic() + seconds
    if not of_threads.acquire(timeout=-1 if seconds is None else seconds):
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
        of_threads.release()


def _thread_lock(path: Path) -> threading.Lock:
    """The lock between the threads of this process, which the kernel does not distinguish."""
    with _guard:
        return _threads.setdefault((os.getpid(), path), threading.Lock())


def _tried(path: Path) -> int | None:
    """The locked lock file; None if another process holds it, -1 if the file system has no locks."""
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
    """The locked lock file of a study."""
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
    """Open a file without following symbolic links of the file or its folder."""
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
        owner = json.loads(text)
    except ValueError:  # the owner has not written its name yet
        return {}
    return owner if isinstance(owner, dict) else {}


def _refusal(study: str, owner: dict[str, Any]) -> str:
    by = f"process {owner['pid']} on {owner['host']} since {owner['since']}" if len(owner) == 3 else "another process"
    return f"the study {study} is being run in this folder by {by}; wait for it, or use another --results"
