"""Arrays in `.npz` files, whose headers are read first: a small file can unpack to more than any machine holds."""

from __future__ import annotations

import io
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from flipscope.basics.files import check_source
from flipscope.basics.limits import check_memory
from flipscope.basics.opening import too_large

_SUFFIX = ".npy"
_LONGEST_HEADER = 10_000  # bytes, as in numpy
_LARGEST_SIDE = 1 << 63
_PIECE = 1 << 14  # bytes

# What unzipping and numpy raise on damaged bytes.
DAMAGE = (
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
)


class Header(NamedTuple):
    """What an array will be, known before it is unpacked."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * max(1, self.dtype.itemsize)


class Arrays:
    """The arrays of a file, each unpacked on first use if it fits into memory and into `most` bytes."""

    def __init__(self, path: Path, file: zipfile.ZipFile, most: int | None) -> None:
        self._path, self._file, self._most = path, file, most

    @property
    def names(self) -> list[str]:
        """The names of all arrays."""
        return [name.removesuffix(_SUFFIX) for name in self._file.namelist() if name.endswith(_SUFFIX)]

    def header(self, name: str) -> Header:
        """Shape and type of an array, read without unpacking its numbers."""
        with self._file.open(self._member(name)) as member:
            version = npy.read_magic(member)
            width, read = (2, npy.read_array_header_1_0) if version == (1, 0) else (4, npy.read_array_header_2_0)
            length = member.read(width)
            if int.from_bytes(length, "little") > _LONGEST_HEADER:  # which numpy reads before it looks at the length
                raise ValueError(f"the header of {name} is too long")
            shape, _, dtype = read(io.BytesIO(length + member.read(int.from_bytes(length, "little"))))
        if not all(0 <= each < _LARGEST_SIDE for each in shape):
            raise ValueError(f"{name} has the shape {shape}")
        return Header(shape, dtype)

    def check(self, *names: str) -> None:
        """Raise InputError if these arrays together need more memory than there is, or one is cut off."""
        sizes = {name: self.header(name).size for name in names}
        if any(size > self._member(name).file_size for name, size in sizes.items()):
            raise ValueError("an array is shorter than its header says")
        size = sum(sizes.values())
        check_memory(size, f"{', '.join(names[:4])} in {self._path}", "give a file with less in it")
        if self._most is not None and size > self._most:
            raise too_large(self._path, self._most)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self.check(name)
        with self._file.open(self._member(name)) as opened:
            return np.asarray(npy.read_array(_Pieces(opened), allow_pickle=False))

    def _member(self, name: str) -> zipfile.ZipInfo:
        return self._file.getinfo(name + _SUFFIX)


class _Pieces:
    """A member of a zip file that is unpacked in small pieces.

    To read n bytes, `zipfile` unpacks n packed bytes of LZMA or bzip2 at once, which can become thousands of times n.
    """

    def __init__(self, member: IO[bytes]) -> None:
        self._member = member

    def read(self, size: int = -1, /) -> bytes:
        """The next `size` bytes; fewer at the end."""
        found = bytearray()
        while len(found) < size and (piece := self._member.read(min(size - len(found), _PIECE))):
            found += piece
        return bytes(found)


@contextmanager
def opened(path: Path, most: int | None = None) -> Iterator[Arrays]:
    """The arrays of a file; a damaged file raises one of DAMAGE."""
    check_source(path)
    with path.open("rb") as file:
        if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise TypeError(f"{path} holds one array without a name")
        with zipfile.ZipFile(file) as packed:
            yield Arrays(path, packed, most)
