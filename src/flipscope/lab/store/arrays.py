"""Arrays as files named after their content: one safetensors file per outcome, written atomically."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from flipscope.basics.errors import InputError
from flipscope.lab.store.outcomes import Array

SUFFIX = ".safetensors"
PART = ".part"  # suffix of a file that is being written
YOUNG = 3600.0  # seconds during which such a file may still be in use
_BLOCK = 1 << 20


class LostArrays(InputError):
    """The file of some arrays is missing or damaged: they have to be measured again."""


class ArrayFiles:
    """The array files of one folder, named after the SHA-256 of their bytes: ab/abcdef….safetensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """The path of the file of this name."""
        return self.folder / name[:2] / (name + SUFFIX)

    def write(self, arrays: Mapping[str, Array]) -> tuple[str, int]:
        """Write the file with these arrays to disk and return its name and size.

        An existing file is written again, since it may be damaged.
        """
        content = save({name: arrays[name] for name in sorted(arrays)})
        name = hashlib.sha256(content).hexdigest()
        target = self.path(name)
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            flush_folder(self.folder)
        write_whole(target, content)
        return name, len(content)

    def read(self, name: str) -> dict[str, Array]:
        """The arrays of a file; LostArrays if it is damaged, InputError if it cannot be read."""
        path = self.path(name)
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise LostArrays(f"the array file {path} is missing") from None
        except OSError as error:  # an unreadable file is not lost, so it must not be measured again
            raise InputError(_unreadable(path, error)) from error
        if hashlib.sha256(content).hexdigest() != name:
            raise LostArrays(f"the array file {path} is damaged: its content has changed")
        try:
            return loaded(content)
        except ValueError as error:
            raise LostArrays(f"the array file {path} is damaged: {error}") from error

    def intact(self, name: str) -> bool:
        """Whether the file exists and is intact; InputError if it cannot be read."""
        found = hashlib.sha256()
        try:
            with self.path(name).open("rb") as file:
                while block := file.read(_BLOCK):
                    found.update(block)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:  # an unreadable file is not lost, so it must not be measured again
            raise InputError(_unreadable(self.path(name), error)) from error
        return found.hexdigest() == name

    def names(self) -> Iterator[str]:
        """The names of all complete files."""
        for path in self.folder.glob(f"??/*{SUFFIX}"):
            yield path.name.removesuffix(SUFFIX)

    def leftovers(self) -> Iterator[Path]:
        """Unfinished files that are too old to be still in use."""
        return old_parts(self.folder, f"??/.*{PART}")


def loaded(content: bytes) -> dict[str, Array]:
    """The arrays in the bytes of a file; ValueError if they cannot be parsed."""
    try:
        return {name: np.array(array) for name, array in load(content).items()}
    except (SafetensorError, KeyError) as error:
        raise ValueError(str(error)) from error


def _unreadable(path: Path, error: OSError) -> str:
    return f"the array file {path} cannot be read: {error.strerror}; solve this, then run the same command again"


def old_parts(folder: Path, pattern: str) -> Iterator[Path]:
    """The files of a pattern that have not been written for an hour."""
    for path in folder.glob(pattern):
        try:
            if time.time() - path.stat().st_mtime > YOUNG:
                yield path
        except FileNotFoundError:  # just finished
            continue


def write_whole(target: Path, content: bytes) -> None:
    """Write a file atomically."""
    with whole_file(target) as file:
        view = memoryview(content)
        while view:
            view = view[os.write(file.fileno(), view) :]


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """A file written under a temporary name and renamed, so that even a power cut leaves the old or the new one."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PART}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_folder(target.parent)


def flush_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
