"""What may be read of a file that somebody else has made: regular files inside their folder, and only so much of them.

A reader asks for bytes here and never opens a file itself: so a pipe does not keep it waiting for ever, a link does not
lead out of the folder that the user has named, and a small file does not become a large one in memory.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from flipscope.basics.errors import InputError
from flipscope.basics.files import check_source
from flipscope.basics.limits import said_bytes

MOST = 1 << 29  # bytes of a file in memory: twice those of SVHN's training images, the largest published file
MOST_TEXT = 1 << 27  # bytes of a text, whose lines and words take many times as much; Quora's questions take half
_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20  # bytes skipped at a time


def check_inside(file: Path, folder: Path) -> Path:
    """The file, unless it is a symbolic link that leads out of the folder in which it was found."""
    try:
        inside = file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a link to itself
        inside = False
    if not inside:
        raise InputError(f"{file} is a symbolic link that leads out of {folder}: put a copy of the file there")
    return file


class Limited:
    """The bytes of a file in their order, those that gzip has packed unpacked, up to a limit."""

    def __init__(self, file: BinaryIO, path: Path, most: int) -> None:
        self._file, self._path, self._most, self._left = file, path, most, most

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer at the end of the file."""
        if size > self._left:
            raise too_large(self._path, self._most)
        try:
            found = self._file.read(size)
        except PermissionError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror}") from None
        except (OSError, EOFError, zlib.error):
            raise damaged(self._path) from None
        self._left -= len(found)
        return found

    def skip(self, size: int) -> None:
        """Leave out the next `size` bytes, or those up to the end."""
        while size > 0 and (found := len(self.read(min(size, _PIECE)))):
            size -= found

    def rest(self) -> bytes:
        """All bytes that are left."""
        found = self.read(self._left)
        if self._left == 0 and self._file.read(1):
            raise too_large(self._path, self._most)
        return found


@contextmanager
def opened(path: Path, most: int = MOST) -> Iterator[Limited]:
    """The bytes of a regular file, unpacked where gzip has packed it, whatever its name."""
    check_source(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if not packed:
            yield Limited(file, path, most)
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield Limited(unpacked, path, most)  # type: ignore[arg-type]


def content(path: Path, most: int = MOST) -> bytes:
    """All bytes of a regular file, as they are."""
    check_source(path)
    try:
        with path.open("rb") as file:
            return Limited(file, path, most).rest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def text_lines(path: Path) -> list[str]:
    """The lines of a text in UTF-8, without the mark that some editors put at its beginning.

    A line ends with a line feed, or with a carriage return and a line feed. `str.splitlines` would also end one at form
    feeds and at the line separators of Unicode, which occur inside sentences.
    """
    try:
        text = content(path, MOST_TEXT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: byte {error.start:,} cannot be decoded") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def damaged(path: Path) -> InputError:
    """The error for a file that ends too early or contradicts itself."""
    return InputError(f"{path} is damaged or cut off: copy or download it again")


def too_large(path: Path, most: int) -> InputError:
    """The error for a file of which more than `most` bytes would be in memory."""
    return InputError(
        f"{path} would become larger than {said_bytes(most)} in memory: it is damaged, or not what it is called"
    )
