"""Reading only regular files, and writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flipscope.basics.errors import InputError


def check_source(source: Path) -> None:
    """Raise InputError if the path is not a regular file: opening a pipe would wait for its writer, perhaps forever.

    A missing file passes: opening it gives the better message.
    """
    try:
        mode = os.stat(source).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(f"{source} is not a file but {kind}: give the name of a file.")


def check_target(target: Path, what: str) -> None:
    """Raise InputError if no file can be written there; a device or a pipe is not replaced."""
    reason = None
    try:
        mode = os.stat(target).st_mode
        if stat.S_ISDIR(mode):
            reason = "it is a folder; name a file in it"
        elif not stat.S_ISREG(mode):
            reason = "it is not a file; name another"
    except (FileNotFoundError, NotADirectoryError):
        if not target.parent.is_dir():
            reason = "the folder does not exist"
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise InputError(f"the {what} cannot be written to {target}: {reason}.")


@contextmanager
def replacing(target: Path, what: str) -> Iterator[Path]:
    """A temporary file beside the target, which takes its place at the end; nothing changes where anything fails."""
    check_target(target, what)
    try:
        temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}{target.suffix}")
        temporary.touch(exist_ok=False)  # with the rights that the umask leaves, unlike those of the module tempfile
        try:
            yield temporary
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"the {what} cannot be written to {target}: {error.strerror or error}.") from None


def write_bytes(target: Path, content: bytes, what: str) -> Path:
    """Write a file whole or not at all; returns its path."""
    with replacing(target, what) as temporary:
        temporary.write_bytes(content)
    return target
