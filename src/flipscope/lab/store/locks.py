"""One driver a study and folder: a lock file that the kernel releases however the driver ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flipscope.basics.errors import InputError
from flipscope.lab.study import NAME

# The kernel's lock is a process's own: forked workers do not prolong it, but it does not keep a process from itself.
_held: dict[tuple[int, Path], dict[str, Any]] = {}


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
